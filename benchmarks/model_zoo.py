"""What a gradient of networks that people train on tables leaks: each model unmodified, exact inversion, a row a batch.

    python benchmarks/model_zoo.py --output zoo.jsonl
    python benchmarks/model_zoo.py --models tabm deeptab_mlp --n 10
    python benchmarks/model_zoo.py --table zoo.jsonl

Models whose library is not installed are refused with its name. Each has its library's defaults, dropout included;
initial weights; German Credit (or --dataset); labels are unknown. The server knows the batch statistics of BatchNorm
where there is any. Batch i has seed --seed + i, and with it rows and weights of its own. Every finished batch is one
line of --output; a rerun skips those. A refusal is one line as well.
"""

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from exact import setting
from exact_table import Row, mean, read_lines
from torch import Tensor, nn

from lightleak.attacks import ATTACKS
from lightleak.core.errors import LightLeakError
from lightleak.core.ground_truth import GroundTruth
from lightleak.core.seeds import derive_seed
from lightleak.data.encoder import TableEncoder
from lightleak.data.input_form import InputForm, InputPart
from lightleak.experiments.environment import project_state
from lightleak.metrics.certificate import wrong_certificates
from lightleak.metrics.inversion.attack_accuracy import wilson_interval
from lightleak.metrics.score import score
from lightleak.protocols.fedsgd import client_update
from lightleak.targets.client_form import ClientForm
from lightleak.targets.own import hand_over
from lightleak.targets.own_check import ROWS
from lightleak.targets.spec import NetworkSpec, build_network

SEED = 61_000
REGISTERED = (
    "mlp",
    "resnet",
    "resnet_preact",
    "gandalf",
    "category_embedding",
    "ft_transformer",
    "autoint",
    "danet",
    "tabnet",
    "realmlp_like",
    "deeptab_mlp",
    "tabm",
    "frame_mlp",
    "frame_resnet",
    "frame_ft_transformer",
)
"""Targets of `lightleak list targets`, with their default options."""

Make = Callable[[TableEncoder], nn.Module]


def mlp_dropout(encoder: TableEncoder) -> nn.Module:
    """A user's own MLP with stock dropout."""
    layers = nn.Linear(encoder.width, 128), nn.ReLU(), nn.Dropout(0.1), nn.Linear(128, 64), nn.ReLU(), nn.Dropout(0.1)
    return nn.Sequential(*layers, nn.Linear(64, 2))


class Embedded(nn.Module):
    """A user's own MLP: an embedding per category, BatchNorm on numbers, dropout in the hidden layers."""

    def __init__(self, n_numbers: int, categories: list[int]) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(width, min(50, (width + 1) // 2)) for width in categories)
        self.norm = nn.BatchNorm1d(n_numbers)
        into = n_numbers + sum(table.embedding_dim for table in self.tables)
        hidden = nn.Linear(into, 128), nn.ReLU(), nn.Dropout(0.1), nn.Linear(128, 64), nn.ReLU(), nn.Dropout(0.1)
        self.rest = nn.Sequential(*hidden, nn.Linear(64, 2))

    def forward(self, numbers: Tensor, codes: Tensor) -> Tensor:
        """Logits."""
        cells = [table(codes[:, i]) for i, table in enumerate(self.tables)]
        logits: Tensor = self.rest(torch.cat([self.norm(numbers), *cells], 1))
        return logits


class Attention(nn.Module):
    """A user's own transformer over columns with a class token and stock layers."""

    def __init__(self, n_numbers: int, categories: list[int], d: int = 64) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(width, d) for width in categories)
        self.weight, self.bias = nn.Parameter(torch.randn(n_numbers, d)), nn.Parameter(torch.zeros(n_numbers, d))
        self.token = nn.Parameter(torch.randn(1, 1, d))
        layer = nn.TransformerEncoderLayer(d, 4, 2 * d, batch_first=True, norm_first=True, activation="gelu")
        self.mix, self.head = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.Linear(d, 2)

    def forward(self, numbers: Tensor, codes: Tensor) -> Tensor:
        """Logits."""
        cells = [table(codes[:, i]) for i, table in enumerate(self.tables)]
        tokens = torch.cat([torch.stack(cells, 1), numbers.unsqueeze(-1) * self.weight + self.bias], 1)
        logits: Tensor = self.head(self.mix(torch.cat([self.token.expand(len(tokens), -1, -1), tokens], 1))[:, 0])
        return logits


def of_codes(module: nn.Module, encoder: TableEncoder) -> nn.Module:
    """A network of numbers and integer codes as `LeakageCallback` and `audit_model` see it: of encoded rows."""
    layout = encoder.layout
    parts = (
        InputPart(("numbers",), layout.numerical, (False,) * len(layout.numerical)),
        InputPart(("codes",), layout.categorical, (True,) * len(layout.categorical), is_integer=True),
    )
    rows = torch.zeros(ROWS, layout.width)
    rows[:, [block.start for block in layout.categorical]] = 1
    return ClientForm(module, InputForm(parts), (rows - encoder.shift.float()) / encoder.scale.float())


def own(kind: Callable[..., nn.Module]) -> Make:
    """A module of this file that takes numbers and codes."""
    return lambda encoder: of_codes(
        kind(len(encoder.schema.numerical), [column.width for column in encoder.schema.categorical]), encoder
    )


MODELS: dict[str, Make | dict[str, Any]] = {
    **{name: {} for name in REGISTERED},
    "own MLP, dropout": mlp_dropout,
    "own embeddings, BatchNorm, dropout": own(Embedded),
    "own transformer": own(Attention),
    "realmlp_like, no dropout": {"dropout": 0.0},
}
"""How each is made: options of the registry's network of that name, up to a comma, or a function of the encoder."""


def measure(name: str, rows: int, seed: int, dataset: str) -> Row:
    """Attack one batch; every number about it."""
    experiment, people = setting(dataset, (100, 100))
    encoder, line = people.encoder, {"model": name, "rows": rows, "seed": seed, "dataset": dataset, "refused": None}
    make = MODELS[name]
    try:
        if isinstance(make, dict):
            spec = NetworkSpec(name.split(",")[0], experiment.spec.n_classes, encoder.layout, make)
            network = build_network(spec, derive_seed(seed, "network"))
        else:
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(derive_seed(seed, "network"))
                network = make(encoder)
            spec = NetworkSpec(hand_over(network), experiment.spec.n_classes, encoder.layout)
    except LightLeakError as error:
        return {**line, "refused": str(error)}
    statistics = any(isinstance(layer, nn.BatchNorm1d) for layer in network.modules())
    drawn = people.draw(seed, rows, 0, 0)
    x, y = people.inputs[drawn], people.labels[drawn]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive_seed(seed, "dropout"))
        update, _ = client_update(
            network,
            spec,
            encoder,
            x,
            y,
            share_labels=False,
            share_statistics=statistics,
            marginals=people.marginals,
        )
    attack, truth = ATTACKS.get("exact")(batch_statistics=statistics), GroundTruth(x, y)
    try:
        attack.check(update)
    except LightLeakError as error:
        return {**line, "statistics": statistics, "refused": str(error)}
    cpu = time.process_time()
    found = attack.run(update, seed)
    cpu = time.process_time() - cpu
    certificate = found.certificate
    assert certificate is not None
    facts = score(found, truth, encoder)
    return {
        **line,
        "statistics": statistics,
        "proven": certificate.certified,
        "digits": certificate.certified_digits,
        "wrong": wrong_certificates(found, truth, encoder)[0],
        "labels_proven": certificate.labels_proven,
        "cells": facts["cell_accuracy"],
        "exact_rows": facts["exact_match_rate"],
        "residual": certificate.residual,
        "expected": certificate.feasibility.reason,
        "seconds": cpu,
        **project_state(),
    }


def print_zoo(lines: list[Row]) -> None:
    """A row for every model and batch size: shares with Wilson's 95% interval, which takes rows as independent."""
    print("| model | rows | proven rows | cells | n | wrong | CPU s | limit |\n|" + 8 * " --- |")
    for name, rows in dict.fromkeys((line["model"], line["rows"]) for line in lines):
        of_case = [line for line in lines if (line["model"], line["rows"]) == (name, rows)]
        served = [line for line in of_case if line["refused"] is None]
        if not served:
            print(f"| {name} | {rows} | - | - | {len(of_case)} | - | - | {of_case[0]['refused']} |")
            continue
        proven, total = sum(line["proven"] for line in served), rows * len(served)
        low, high = (float(end) for end in wilson_interval(torch.tensor(proven), torch.tensor(total)))
        wrong, seconds = sum(line["wrong"] for line in served), mean([line["seconds"] for line in served])
        share = f"{100 * proven / total:.0f}% ({100 * low:.0f} to {100 * high:.0f})"
        cells = 100 * mean([line["cells"] for line in served])
        known = ", ".join(
            words
            for words, is_so in (
                ("batch statistics known", served[0]["statistics"]),
                ("labels not proven", not served[0]["labels_proven"]),
            )
            if is_so
        )
        print(f"| {name} | {rows} | {share} | {cells:.0f}% | {len(served)} | {wrong} | {seconds:.1f} | {known} |")


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--rows", nargs="+", type=int, default=[8, 32])
    parser.add_argument("--n", type=int, default=5, help="batches of each")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--dataset", default="german")
    parser.add_argument("--output", type=Path, default=Path("zoo.jsonl"))
    parser.add_argument("--table", type=Path, help="print the table of a finished file")
    options = parser.parse_args()
    if options.table is not None:
        print_zoo(read_lines(options.table))
        return
    torch.set_num_threads(1)
    keys = ("model", "rows", "seed", "dataset")
    done = {
        tuple(line[key] for key in keys) for line in (read_lines(options.output) if options.output.exists() else [])
    }
    with options.output.open("a") as file:
        for i in range(options.n):
            for rows in options.rows:
                for name in options.models:
                    if (name, rows, options.seed + i, options.dataset) not in done:
                        line = measure(name, rows, options.seed + i, options.dataset)
                        file.write(json.dumps(line) + "\n")
                        file.flush()


if __name__ == "__main__":
    main()
