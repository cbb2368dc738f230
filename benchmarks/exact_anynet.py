"""Exact inversion of networks other than ReLU chains: batches right in every cell, proven rows, wrong proofs, seconds.

    python benchmarks/exact_anynet.py --output anynet.jsonl
    python benchmarks/exact_anynet.py --part activations layer-norm --n 5
    python benchmarks/exact_anynet.py --table anynet.jsonl

Parts: activations, batch-norm (batch statistics are known to the server; untrained and after one epoch of Adam),
layer-norm, shallow (one hidden layer), tables (German, Bank, Diabetes-130 with 20 classes), relu (a plain ReLU chain,
for comparison with `exact.py`), trained (after one epoch of Adam), attention (pytorch-tabular's FT-Transformer),
attention-trained (the same after one epoch), embedded (a user's own module with embeddings, and GANDALF), unknown
(BatchNorm on numbers whose statistics the server does not know: digits are those of normalized numbers), buffers
(BatchNorm whose statistics are read off the float32 running buffers that a client sends back), fedavg (weight updates
of local SGD at rate 0.01, smooth activations, by `exact_fedavg`), fedavg-noise (the same and ReLU behind Gaussian noise
in the scale of a gradient). Labels are unknown, one thread, float32 gradients. Client i has seed --seed + i, and with
it rows and a network of its own. Every finished batch is one line of --output; a rerun skips those. A batch is whole
when every cell of every row is right (numbers within TabLeak's tolerance). Seconds on a shared machine vary: the rate
of its matrix products is measured after every batch.
"""

import argparse
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from certificate_batches import NumbersNormalized, Observed, judge, normalized_numbers
from exact import TWENTY_DIAGNOSES, row_facts, setting
from exact_table import Row, mean, read_lines
from torch import nn
from torch.nn.functional import cross_entropy

from lightleak.attacks import ATTACKS
from lightleak.core.ground_truth import GroundTruth
from lightleak.core.observations import ClientUpdate
from lightleak.core.seeds import derive_seed, generator
from lightleak.data.layout import EncodedLayout
from lightleak.defenses.horizontal.noise import GaussianNoise
from lightleak.experiments.environment import project_state
from lightleak.integrations.running_statistics import batch_statistics
from lightleak.metrics.certificate import certificate_facts, certified_accuracy
from lightleak.metrics.inversion.attack_accuracy import wilson_interval
from lightleak.metrics.score import score
from lightleak.protocols import fedavg
from lightleak.protocols.client_training import LocalTraining
from lightleak.protocols.fedsgd import client_update
from lightleak.targets.own import hand_over
from lightleak.targets.spec import NetworkSpec, build_network

SEED = 41_000
"""Of the first client. SiLU at 64 rows and one hidden layer were corrected on some of these; unseen: from 51,000."""

TRAINING_BATCH, LEARNING_RATE = 256, 1e-3
"""Of the networks of `trained`: Adam over all training rows."""

LOCAL_RATE = 0.01
"""Of local SGD."""


def silu(width: int, n_classes: int) -> nn.Module:
    """A user's own module: the registry has no SiLU."""
    layers = nn.Linear(width, 100), nn.SiLU(), nn.Linear(100, 100), nn.SiLU(), nn.Linear(100, n_classes)
    return nn.Sequential(*layers)


class Embeddings(nn.Module):
    """A user's own module: an `nn.Embedding` per column of the width pytorch-tabular gives it, 128-64-32 with ReLU."""

    def __init__(self, layout: EncodedLayout, n_classes: int) -> None:
        super().__init__()
        self.layout, self.numbers = layout, [block.start for block in layout.numerical]
        widths = [min(50, (block.width + 2) // 2) for block in layout.categorical]
        tables = (nn.Embedding(block.width, width) for block, width in zip(layout.categorical, widths, strict=True))
        self.tables, into = nn.ModuleList(tables), len(self.numbers) + sum(widths)
        layers = nn.Linear(into, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU()
        self.rest = nn.Sequential(*layers, nn.Linear(32, n_classes))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Logits of encoded rows."""
        blocks = self.layout.categorical
        cells = [table(x[:, block.slice].argmax(-1)) for table, block in zip(self.tables, blocks, strict=True)]
        logits: torch.Tensor = self.rest(torch.cat([x[:, self.numbers], *cells], 1))
        return logits


@dataclass(frozen=True, eq=False)
class Case:
    """What is attacked.

    Attributes:
        part: of the benchmark.
        network: name in the registry, ``silu`` or ``embeddings``.
        rows: of the batch.
        options: of the network.
        dataset: of the registry, or `TWENTY_DIAGNOSES`.
        epochs: that the network was trained.
        whole: share of batches that is to be whole in cells.
        seconds: mean CPU seconds that a batch may take; 0: no goal.
        unknown: the server does not know the statistics of BatchNorm.
        buffers: the server reads the statistics of BatchNorm off the buffers that the client sends.
        local: epochs, and batches of each, of local SGD; None: one gradient.
        noise: deviation of the noise on a weight update.
    """

    part: str
    network: str
    rows: int
    options: Mapping[str, Any] = field(default_factory=dict)
    dataset: str = "adult"
    epochs: int = 0
    whole: float = 0.0
    seconds: float = 0.0
    unknown: bool = False
    buffers: bool = False
    local: tuple[int, int] | None = None
    noise: float = 0.0

    @property
    def title(self) -> str:
        """In words."""
        options = ", ".join(f"{name} {value}" for name, value in self.options.items())
        trained = f", trained {self.epochs} epochs" if self.epochs else ""
        unknown = ", statistics unknown" if self.unknown else ""
        unknown += ", statistics from buffers" if self.buffers else ""
        local = "" if self.local is None else ", FedAvg {} x {}".format(*self.local)
        local += f", noise {self.noise:g}" if self.noise else ""
        return f"{self.dataset}: {self.network} ({options}){trained}{unknown}{local}, {self.rows} rows"


SMOOTH = ("gelu", "tanh", "leaky_relu", "elu")
SMALL = {"hidden": [32, 32], "activation": "gelu", "norm": "layer"}
"""The small preset of scaleoutsystems/tabular-GIA (arXiv 2606.00986)."""
FT = {"input_embed_dim": 64, "num_attn_blocks": 2, "attn_dropout": 0.0, "add_norm_dropout": 0.0, "ff_dropout": 0.0}
"""pytorch-tabular's FT-Transformer of two blocks. With its dropout, whose masks the server lacks, it is refused."""
GELU, ONE = {"activation": "gelu"}, {"hidden": [100]}


def _mlp(part: str, rows: int, whole: float = 0.0, seconds: float = 0.0, **options: Any) -> Case:
    return Case(part, "mlp", rows, options, whole=whole, seconds=seconds)


CASES: tuple[Case, ...] = (
    *(_mlp("activations", rows, w, s, activation=a) for rows, w, s in ((32, 1, 3), (64, 0.95, 10)) for a in SMOOTH),
    *(Case("activations", "silu", rows, whole=w, seconds=s) for rows, w, s in ((32, 1, 3), (64, 0.95, 10))),
    *(
        Case("batch-norm", name, 64, options, epochs=epochs, whole=0.95, seconds=8)
        for epochs in (0, 1)
        for name, options in (("resnet", {}), ("resnet_preact", {}), ("mlp", {"norm": "batch"}))
    ),
    Case("layer-norm", "resnet_preact", 64, {"norm": "layer"}, whole=0.9, seconds=15),
    Case("layer-norm", "mlp", 24, SMALL, whole=0.9),
    _mlp("shallow", 32, 0.9, **GELU, **ONE),
    _mlp("shallow", 8, 1.0, **ONE),
    _mlp("shallow", 16, 0.8, **ONE),
    *(
        Case("tables", name, 16, options, table, whole=0.9)
        for table in ("german", "bank")
        for name, options in (
            *(("mlp", {"activation": activation}) for activation in SMOOTH),
            ("silu", {}),
            ("resnet_preact", {"norm": "layer"}),
            ("resnet", {}),
            ("resnet_preact", {}),
            ("mlp", {"norm": "batch"}),
            ("gandalf", {}),
        )
    ),
    Case("tables", "mlp", 16, GELU, TWENTY_DIAGNOSES, whole=0.75),
    *(_mlp("relu", rows) for rows in (32, 64)),
    Case("trained", "mlp", 32, GELU, epochs=1),
    Case("trained", "resnet_preact", 32, {"norm": "layer"}, epochs=1),
    Case("embedded", "embeddings", 48, whole=0.9),
    Case("embedded", "embeddings", 32, epochs=1, whole=0.5),
    *(
        Case("attention", "ft_transformer", rows, FT, whole=w, seconds=s)
        for rows, w, s in ((8, 0.9, 30), (16, 0.8, 0), (32, 0, 0))
    ),
    Case("attention-trained", "ft_transformer", 8, FT, epochs=1),
    *(Case("embedded", "gandalf", rows, whole=w, seconds=s) for rows, w, s in ((32, 0.95, 8), (64, 0.6, 0))),
    *(
        Case("unknown", name, rows, dataset=table, unknown=True)
        for table in ("adult", "german", "bank")
        for name in ("normalized", "category_embedding", "gandalf")
        for rows in (8, 32)
    ),
    *(
        Case("buffers", name, rows, options, epochs=epochs, buffers=True)
        for name, options in (("mlp", {"norm": "batch"}), ("resnet_preact", {}))
        for epochs in (0, 1)
        for rows in (8, 32)
    ),
    *(
        Case("fedavg", "mlp", rows, {"activation": activation}, local=local)
        for activation in ("gelu", "tanh")
        for rows in (8, 32)
        for local in ((1, 1), (1, 2), (5, 2))
    ),
    *(
        Case("fedavg-noise", "mlp", 32, {"activation": activation}, dataset, local=(5, 2), noise=noise)
        for activation, dataset in (("relu", "adult"), ("relu", "bank"), ("gelu", "adult"))
        for noise in (1e-3, 1e-4)
    ),
)  # fmt: skip
PARTS = tuple(dict.fromkeys(case.part for case in CASES))


def observe(case: Case, seed: int) -> tuple[ClientUpdate, GroundTruth]:
    """One update, and the truth behind it."""
    experiment, people = setting(case.dataset, (100, 100))
    n_classes, layout = experiment.spec.n_classes, people.encoder.layout
    network_seed = derive_seed(seed, "network")
    own: dict[str, Callable[[], nn.Module]] = {
        "silu": lambda: silu(layout.width, n_classes),
        "embeddings": lambda: Embeddings(layout, n_classes),
        "normalized": lambda: NumbersNormalized(people.encoder, [layout.width, 100, 100, n_classes], nn.ReLU),
    }
    if case.network in own:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(network_seed)
            network = own[case.network]()
        _train(network, people.inputs, people.labels, case.epochs, seed)
        spec = NetworkSpec(hand_over(network), n_classes, layout, {})
    else:
        spec = NetworkSpec(case.network, n_classes, layout, dict(case.options))
        network = build_network(spec, network_seed)
        _train(network, people.inputs, people.labels, case.epochs, seed)
    rows = people.draw(seed, case.rows, 0, 0)
    x, y = people.inputs[rows], people.labels[rows]
    if case.local is not None:
        training = LocalTraining(case.local[0], -(-case.rows // case.local[1]), LOCAL_RATE)
        sent = {"share_labels": "none", "marginals": people.marginals, "seed": derive_seed(seed, "order")}
        sent["defense"] = GaussianNoise(case.noise) if case.noise else None
        update, _ = fedavg.client_update(network, spec, people.encoder, x, y, training, **sent)
        return update, GroundTruth(x, y)
    statistics = not case.unknown and any(isinstance(layer, nn.BatchNorm1d) for layer in network.modules())
    update, _ = client_update(
        network,
        spec,
        people.encoder,
        x,
        y,
        share_labels=False,
        marginals=people.marginals,
        share_statistics=statistics,
    )
    if case.buffers:
        before = {name: value.clone() for name, value in network.named_buffers()}
        with torch.no_grad():
            network.train()(x)
        update = replace(update, batch_statistics=batch_statistics(network, before, dict(network.named_buffers())))
    return update, GroundTruth(x, y)


def _train(network: nn.Module, inputs: torch.Tensor, labels: torch.Tensor, epochs: int, seed: int) -> None:
    optimizer = torch.optim.Adam(network.parameters(), LEARNING_RATE)
    for epoch in range(epochs):
        for rows in torch.randperm(len(inputs), generator=generator(seed, "order", epoch)).split(TRAINING_BATCH):
            optimizer.zero_grad()
            cross_entropy(network(inputs[rows]), labels[rows]).backward()
            optimizer.step()


def measure(case: Case, seed: int) -> Row:
    """Attack one batch; every number about it."""
    update, truth = observe(case, seed)
    attack = ATTACKS.get("exact")(batch_statistics=bool(update.batch_statistics))
    if case.local is not None:
        attack = ATTACKS.get("exact_fedavg")()
    wall, cpu = time.perf_counter(), time.process_time()
    found = attack.run(update, seed)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    encoder = setting(case.dataset, (100, 100))[0].encoder
    facts = {**certificate_facts(found.certificate), **certified_accuracy(found, truth, encoder)}
    if case.unknown:
        seen = normalized_numbers(Observed(update, truth, encoder), found)
        judged = judge(found, truth, encoder, normalized=seen)
        facts |= {"certified_digits_share": judged.digits / len(found.rows), "certified_digits_wrong": judged.wrong}
    return {
        "case": case.title,
        "seed": seed,
        "seconds": wall,
        "cpu_seconds": cpu,
        "cell_accuracy": score(found, truth, encoder)["cell_accuracy"],
        **row_facts(found, truth, encoder),
        **facts,
        "product_rate": product_rate(),
        "made": {"project": project_state(), "torch": torch.__version__, "threads": torch.get_num_threads()},
    }


def product_rate(size: int = 256, seconds: float = 0.05) -> float:
    """Floating-point operations per CPU second of float32 matrix products, as the machine is at this moment."""
    one = torch.randn(size, size)
    began, products = time.process_time(), 0
    while time.process_time() - began < seconds:
        one @ one
        products += 1
    return 2.0 * size**3 * products / (time.process_time() - began)


HEAD = ("network", "n", "whole in cells [95%]", "labels too", "cells %", "certified: cells %, digits %")
HEAD += ("wrong: cells, digits, of rows", "CPU s mean / max (GFLOP/s)", "goal")


def table_line(case: Case, rows: Sequence[Row]) -> list[str]:
    """All batches of one case."""
    n, whole, both = len(rows), sum(r["cells_right"] for r in rows), sum(r["all_right"] for r in rows)
    low, high = wilson_interval(torch.tensor(whole), torch.tensor(n))
    cpu = [r["cpu_seconds"] for r in rows]
    certified = ", ".join(
        f"{100 * mean(r[name] for r in rows):.1f}" for name in ("certified_share", "certified_digits_share")
    )
    claims = (sum(r[f"certified_{name}"] or 0 for r in rows) for name in ("wrong", "digits_wrong", "rows"))
    goals = [(f"whole {100 * case.whole:g}%", whole >= case.whole * n - 1e-9)] if case.whole else []
    goals += [(f"{case.seconds:g} s", mean(cpu) <= case.seconds)] if case.seconds else []
    return [
        case.title,
        str(n),
        f"{whole}/{n} [{100 * low:.0f}, {100 * high:.0f}]",
        f"{both}/{n}",
        f"{100 * mean(r['cell_accuracy'] for r in rows):.2f}",
        certified,
        "{}, {} of {}".format(*claims),
        f"{mean(cpu):.2f} / {max(cpu):.2f} ({mean(r['product_rate'] for r in rows) / 1e9:.0f})",
        "; ".join(f"{name}: {'yes' if met else 'NO'}" for name, met in goals) or "-",
    ]


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure what was asked for and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--n", type=int, default=20, help="batches of every case")
    parser.add_argument("--seed", type=int, default=SEED, help="of the first client")
    parser.add_argument("--output", type=Path, help="lines of JSON; what it holds is not measured again")
    parser.add_argument("--table", type=Path, help="print the table of such a file, measure nothing")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    done = read_lines(options.table or options.output)
    print("| " + " | ".join(HEAD) + " |\n|" + " --- |" * len(HEAD))
    for case in CASES:
        wanted = case.part in options.part and options.table is None
        held = {row["seed"] for row in done if row["case"] == case.title}
        for seed in range(options.seed, options.seed + options.n) if wanted else ():
            if seed not in held:
                done.append(measure(case, seed))
                if options.output is not None:
                    with options.output.open("a") as file:
                        file.write(json.dumps(done[-1]) + "\n")
        if rows := [row for row in done if row["case"] == case.title]:
            print("| " + " | ".join(table_line(case, rows)) + " |", flush=True)


if __name__ == "__main__":
    main()
