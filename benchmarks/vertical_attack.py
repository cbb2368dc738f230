"""Speed and error of distribution comparison (ProVFL-B) on four kinds of intermediate results, one row per estimator.

    python benchmarks/vertical_attack.py --repeat 3

The setting is the paper's: 35,484 records of width 16, 2,000 auxiliary rows with and 2,000 without the property,
R = 200, Q = 100, M = 2,000. The results are made: sizes of a common factor, which the property moves
in every kind, so that the truth is known exactly. ``--capture FILE`` reads real ones instead: a dictionary of
``results`` (kind to ``[n, width]``) and ``has_property`` ``[n]``, saved with ``torch.save``.
"""

import argparse
import time
from pathlib import Path

import numpy as np
import torch

from lightleak.attacks.property_inference.attack import PROPERTY_ATTACKS
from lightleak.core.intermediate_results import AuxiliaryData, IntermediateResults, VerticalFacts
from lightleak.core.parties import KINDS
from lightleak.core.seeds import generator

RECORDS, WIDTH, AUXILIARY, FRACTION = 35_484, 16, 2000, 0.66
SHIFTS = {"AO": 0.15, "AG": 0.3, "VO": 0.6, "VG": 0.3}
ROWS = {
    "published: sorted, XGBoost": ("provfl_b", {"features": "sorted", "estimator": "xgboost_published", "held_out": 0}),
    "quantiles, XGBoost": ("provfl_b", {"held_out": 0}),
    "quantiles, XGBoost, with interval": ("provfl_b", {}),
    "the same, weighted": ("provfl_b", {"ensemble": "weighted"}),
    "quantiles, decision tree": ("provfl_b", {"estimator": "decision_tree", "held_out": 0}),
    "quantiles, linear": ("provfl_b", {"estimator": "linear", "held_out": 0}),
    "quantiles, SVR": ("provfl_b", {"estimator": "svr", "held_out": 0}),
    "mixture, mean": ("provfl_b_mixture", {"ensemble": "mean"}),
    "mixture, weighted": ("provfl_b_mixture", {}),
    "discriminant, mixture, weighted": ("provfl_b_discriminant", {}),
}


def made(seed: int) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    """Results by kind, and which records have the property."""
    draw = generator(seed, "vertical benchmark")
    has = torch.rand(RECORDS, generator=draw) < FRACTION
    common = torch.randn(RECORDS, 1, generator=draw)
    results = {}
    for kind in KINDS:
        size = 0.8 * common + 0.6 * torch.randn(RECORDS, 1, generator=draw) + SHIFTS[kind] * has[:, None]
        results[kind] = size.exp() * torch.randn(RECORDS, WIDTH, generator=draw)
    return results, has


def observation(results: dict[str, torch.Tensor], has: torch.Tensor, seed: int) -> IntermediateResults:
    """What the active party sees, with auxiliary rows drawn at random."""
    order = torch.randperm(len(has), generator=generator(seed, "auxiliary rows"))
    known = torch.cat([order[has[order]][:AUXILIARY], order[~has[order]][:AUXILIARY]])
    auxiliary = AuxiliaryData("property=yes", known, has[known], ("adversary",))
    facts = VerticalFacts(2, 0, 1, ("adversary",), ("property",), epoch=18, batch_size=64, n_classes=2)
    return IntermediateResults("C1", torch.arange(len(has)), results, auxiliary, facts)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--capture", type=Path, nargs="*", default=[])
    parser.add_argument("--only", nargs="*", default=list(ROWS), choices=list(ROWS), metavar="ROW")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    seen = []
    for seed in range(args.repeat):
        for path in args.capture or [None]:
            state = None if path is None else torch.load(path, weights_only=True)
            results, has = made(seed) if state is None else (state["results"], state["has_property"])
            seen.append((observation(results, has, seed), float(has.float().mean())))
    PROPERTY_ATTACKS.get("provfl_b")(samples=5, queries=2).run(seen[0][0])
    print(f"{len(seen)} observations of {len(seen[0][0].ids)} records, {args.threads} threads")
    print(f"{'':36} {'wall s':>8} {'CPU s':>8} {'error':>8} {'width':>8} {'covered':>8}")
    for name in args.only:
        attack, options = ROWS[name]
        rows = []
        for seed, (one, fraction) in enumerate(seen):
            wall, cpu = time.perf_counter(), time.process_time()
            found = PROPERTY_ATTACKS.get(attack)(**options).run(one, seed=seed)
            spent = time.perf_counter() - wall, time.process_time() - cpu
            rows.append(
                (*spent, abs(found.fraction - fraction), found.high - found.low, found.low <= fraction <= found.high)
            )
        wall, cpu = np.median([row[:2] for row in rows], axis=0)
        error, width, covered = np.mean([row[2:] for row in rows], axis=0)
        print(f"{name:36} {wall:8.3f} {cpu:8.3f} {error:8.4f} {width:8.3f} {covered:8.2f}")


if __name__ == "__main__":
    main()
