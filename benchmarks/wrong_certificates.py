"""Hunt for wrong certificates: random batches, small budgets, every certified cell held against the truth.

    python benchmarks/wrong_certificates.py --count 2000 --workers 2 --output wrong.jsonl
    python benchmarks/wrong_certificates.py --table wrong.jsonl
    python benchmarks/wrong_certificates.py --replay 17
    python benchmarks/wrong_certificates.py --attack exact --others --count 500 --output others.jsonl

Batch i follows from the seed i alone, see `certificate_batches`. Every finished batch is one line of --output; a rerun
skips those. Rates are of certified rows and of batches with any; the bound is the upper 95% end of Clopper and Pearson
(one-sided), which takes rows as independent: those of a batch are not, so the bound over batches stands beside it.
A row is wrong where a certified cell is, its label, or how often the batch holds it; numbers may be off by 0.01 of the
column's deviation. Rows are inexact where certified whole numbers are not equal to the last digit.
The exit status is 1 where a certificate is wrong or an attack failed.
"""

import argparse
import json
import multiprocessing
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from certificate_batches import OPTIONS, Observed, Scenario, digits_of, judge, normalized_numbers, observe, scenario
from scipy.stats import beta

from lightleak.attacks import ATTACKS
from lightleak.core.errors import LightLeakError
from lightleak.core.reconstruction import Reconstruction

Line = dict[str, Any]
KINDS = ("attack", "table", "twist", "network", "model")
HEAD = (
    "batches",
    "rows",
    "certified",
    "digits",
    "wrong rows",
    "bound",
    "wrong cells",
    "bound",
    "wrong batches",
    "bound",
)
HEAD += ("inexact rows",)
SHOWN = 10


def upper_bound(events: int, trials: int) -> float:
    """Upper end of the one-sided 95% interval of a share (Clopper and Pearson 1934); NaN where nothing was tried.

    >>> round(upper_bound(0, 100), 6) == round(1 - 0.05 ** (1 / 100), 6)
    True
    """
    if trials == 0:
        return float("nan")
    return 1.0 if events == trials else float(beta.ppf(0.95, events + 1, trials - events))


def attacked(case: Scenario) -> tuple[Observed, Reconstruction]:
    """The batch of a scenario, and what its attack says of it."""
    batch = observe(case)
    return batch, ATTACKS.get(case.attack)(**case.options).run(batch.update, case.seed)


def measure(case: Scenario) -> Line:
    """One batch, attacked and judged."""
    torch.set_num_threads(1)
    began = time.process_time()
    line: Line = {"scenario": case.facts, "refused": None, "failed": None}
    try:
        batch, found = attacked(case)
        is_normalized = found.certificate is not None and found.certificate.assumed_statistics
        numbers = normalized_numbers(batch, found, case.clients) if is_normalized else None
        line |= asdict(judge(found, batch.truth, batch.encoder, normalized=numbers))
    except LightLeakError as error:
        line["refused"] = str(error)
    except Exception:
        line["failed"] = traceback.format_exc().splitlines()[-3:]
    return line | {"cpu_seconds": time.process_time() - began}


def counted(lines: Iterable[Line]) -> list[str]:
    """Cells of a table's row."""
    judged = [line for line in lines if "wrong" in line]
    certified, wrong, cells, cells_wrong = (
        sum(line[name] for line in judged) for name in ("rows", "wrong", "cells", "cells_wrong")
    )
    some, bad = (sum(line[name] > 0 for line in judged) for name in ("rows", "wrong"))

    def bound(events: int, trials: int) -> str:
        return "-" if trials == 0 else f"{events / trials:.3%} (< {upper_bound(events, trials):.3%})"

    return [
        str(len(judged)),
        str(sum(line["scenario"]["rows"] for line in judged)),
        str(certified),
        str(sum(line["digits"] for line in judged)),
        str(wrong),
        bound(wrong, certified),
        str(cells_wrong),
        bound(cells_wrong, cells),
        str(bad),
        bound(bad, some),
        str(sum(line["inexact"] for line in judged)),
    ]


def print_table(lines: Sequence[Line]) -> None:
    """Counts per kind of batch and in all, what was refused or failed, and the worst seeds."""
    print("| kind | " + " | ".join(HEAD) + " |")
    print("| --- " * (1 + len(HEAD)) + "|")
    for kind in KINDS:
        for value in dict.fromkeys(sorted(line["scenario"].get(kind, "chain") for line in lines)):
            of_kind = [line for line in lines if line["scenario"].get(kind, "chain") == value]
            print(f"| {value} | " + " | ".join(counted(of_kind)) + " |")
    print("| all | " + " | ".join(counted(lines)) + " |")
    seconds = [line["cpu_seconds"] for line in lines]
    print(f"\nCPU seconds: {sum(seconds):.0f} in all, {max(seconds, default=0):.1f} at most for one batch")
    for line in lines:
        for what in ("refused", "failed"):
            if line[what]:
                print(f"{what}: seed {line['scenario']['seed']} ({line['scenario']['attack']}): {line[what]}")
    wrong = sorted((line for line in lines if line.get("wrong")), key=lambda line: -line["wrong"])
    for line in wrong[:SHOWN]:
        case = line["scenario"]
        told = ", ".join(str(case.get(kind, "chain")) for kind in KINDS)
        told += f", {case['rows']} rows: {line['wrong']} of {line['rows']} wrong, off by up to {line['worst']:.2g}"
        print(f"seed {case['seed']} ({told})")
    if wrong:
        print(f"replay: python benchmarks/wrong_certificates.py --replay {wrong[0]['scenario']['seed']}")


def replay(case: Scenario) -> Line:
    """Attack one batch again and print every certified row beside the nearest true one."""
    line, (batch, found) = measure(case), attacked(case)
    print(json.dumps(line, indent=1))
    certificate = found.certificate
    assert certificate is not None
    print(
        f"residual {certificate.residual:.3g}, expected {certificate.feasibility.expected}, scale {certificate.scale}"
    )
    encoder, label = batch.encoder, batch.encoder.schema.label
    codes, numbers = encoder.project(batch.truth.inputs, clamp=False)
    guess_codes, guess = encoder.project(encoder.encode(found.rows))
    told = digits_of(certificate, 1).flatten() if len(certificate.status) else []
    for i, status in enumerate(certificate.status):
        if status != "certified":
            continue
        away = (codes != guess_codes[i]).sum(1) + (batch.truth.labels != found.labels[i]).int()
        error = (numbers - guess[i]).abs() / encoder.deviation
        at = int((10 * away + (error.amax(1).clamp(max=9) if error.shape[1] else 0)).argmin())
        off = f"numbers off by {error[at].max():.2g}" if error.shape[1] else "no numbers"
        print(
            f"row {i} x {certificate.multiplicity[i]}, {label.categories[int(found.labels[i])]}, "
            f"digits {bool(told[i])}: nearest true row {at} differs in {int(away[at])} categories or label, {off}"
        )
    return line


def hunt(cases: Sequence[Scenario], workers: int, keep: Callable[[Line], None]) -> None:
    """Measure batches and hand every line on as it comes."""
    if workers == 1:
        for case in cases:
            keep(measure(case))
        return
    with multiprocessing.get_context("spawn").Pool(workers) as pool:
        for line in pool.imap_unordered(measure, cases):
            keep(line)


def main(arguments: Sequence[str] | None = None) -> int:
    """Hunt and print; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--first", type=int, default=0, help="seed of the first batch")
    parser.add_argument("--count", type=int, default=2000, help="batches")
    parser.add_argument("--attack", choices=list(OPTIONS), help="in place of the one that a seed draws")
    parser.add_argument("--attention", action="store_true", help="an FT-Transformer, with --attack exact")
    parser.add_argument("--others", action="store_true", help="networks other than ReLU chains (smooth with --inexact)")
    parser.add_argument("--dropout", action="store_true", help="clients who drop units, with --attack exact")
    parser.add_argument(
        "--inexact",
        action="store_true",
        help="noise, short types or pruning, with --attack exact_joint, exact_pruned or exact_fedavg",
    )
    parser.add_argument("--ntk", action="store_true", help="layers with scaled weights, with --attack exact")
    parser.add_argument("--normalized", action="store_true", help="BatchNorm on numbers, unknown, with --attack exact")
    parser.add_argument("--clipped", action="store_true", help="gradients of nearly their size, with --attack exact")
    parser.add_argument("--sure", action="store_true", help="networks sure of wrong labels that may ignore columns")
    parser.add_argument("--workers", type=int, default=1, help="processes")
    parser.add_argument("--output", type=Path, help="lines of JSON; what it holds is not measured again")
    parser.add_argument("--table", type=Path, help="print the table of such a file, measure nothing")
    parser.add_argument("--replay", type=int, help="attack the batch of one seed again and print its certified rows")
    options = parser.parse_args(arguments)
    kinds = (options.attack, options.others, options.dropout, options.attention, options.inexact)
    kinds = *kinds, options.ntk, options.normalized, options.clipped, options.sure
    if options.replay is not None:
        line = replay(scenario(options.replay, *kinds))
        return int(bool(line["failed"] or line.get("wrong")))
    file = options.table or options.output
    lines = [json.loads(one) for one in file.read_text().splitlines()] if file and file.is_file() else []
    if options.table is None:
        done = {line["scenario"]["seed"] for line in lines}
        seeds = [seed for seed in range(options.first, options.first + options.count) if seed not in done]
        cases = [scenario(seed, *kinds) for seed in seeds]

        def keep(line: Line) -> None:
            lines.append(line)
            if options.output is not None:
                with options.output.open("a") as output:
                    output.write(json.dumps(line) + "\n")

        hunt(cases, options.workers, keep)
    print_table(lines)
    return int(any(line["failed"] or line.get("wrong") for line in lines))


if __name__ == "__main__":
    sys.exit(main())
