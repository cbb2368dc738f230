"""Random batches on which certificates could be wrong, and their judge; `wrong_certificates.py` beside it hunts.

A batch follows from one seed: the table, what is odd about its rows, the network, the protocol and the attack.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from lightleak.core.certificate import NUMBERS_WITHIN, Certificate
from lightleak.core.ground_truth import GroundTruth
from lightleak.core.matching import match_rows
from lightleak.core.observations import ClientUpdate
from lightleak.core.reconstruction import Reconstruction
from lightleak.core.seeds import derive_seed, generator, numpy_generator
from lightleak.data.encoder import TableEncoder
from lightleak.data.marginals import Marginals
from lightleak.data.schema import Column, ColumnKind, TableSchema
from lightleak.defenses.horizontal.rounding import Transport
from lightleak.defenses.horizontal.sparsification import GradientCompression, RandomPruning
from lightleak.metrics.cells import Cells, checked_pair
from lightleak.protocols import fedavg, fedsgd
from lightleak.protocols.aggregate import aggregate_updates
from lightleak.protocols.client_training import LocalTraining
from lightleak.targets.own import hand_over
from lightleak.targets.realmlp import ScaledLinear
from lightleak.targets.spec import NetworkSpec, build_network

Draw = np.random.Generator
POPULATION, KNOWN = 400, 300
"""Rows of a made table; clients draw from the first `KNOWN`, the server's marginals are those of the others."""

EXACT = {"patience": 2, "chains": 64, "most_chains": 256, "sweeps": 10}
TRANSPORTS = ("float16", "bfloat16", "int8")
INEXACT = ("even noise", "even noise", "uneven noise", *TRANSPORTS)
"""What a client may do to its gradient: noise of one deviation on all elements, or relative to each; a shorter type."""
AT_RANDOM = "left out at random"
PRUNED = ("smallest left out", "cut off", AT_RANDOM)
"""What a client may leave out of its gradient; where it cuts off large elements, small ones are missing too."""
DEFENDED = (*INEXACT, "pruned", "shortened")
"""What a client may do to a weight update, which may be shortened by a factor as well."""
JOINT = {
    "noised_restarts": 2,
    "noised_steps": 200,
    "steps": 500,
    "sweeps": 4,
    "rounds": 2,
    "round_steps": 200,
    "reopenings": 1,
}
PRUNED_JOINT = {
    "restarts": 3,
    "steps": 400,
    "sweeps": 1,
    "rounds": 1,
    "round_steps": 200,
}
FEDAVG = {"half_sums": 20_000, "pairs": 2_000_000, "hits": 20_000, "restarts": 1, "steps": 150}
TABLEAK = {"restarts": 1, "steps": 30}
OPTIONS: Mapping[str, Mapping[str, Any]] = {
    "exact": EXACT,
    "exact_joint": JOINT,
    "exact_pruned": PRUNED_JOINT,
    "audit_max": {"exact": EXACT, "exact_joint": JOINT, "tableak": TABLEAK},
    "exact_fedavg": FEDAVG,
}
"""Small budgets: a certificate must be right however little was searched."""
ATTACKED = {"exact": 0.5, "exact_joint": 0.09, "audit_max": 0.06, "exact_fedavg": 0.35}
ONE_STEP_RATES = (1e-6, 1e-5, 1e-4, 1e-3, 0.01, 0.1, 1.0)
TABLES = {"continuous": 0.35, "whole": 0.2, "categories": 0.15, "mixed": 0.3}
TWISTS = {"plain": 0.4, "copies": 0.2, "near copies": 0.3, "one class": 0.1}
NETWORKS = {"narrow": 0.4, "wide": 0.3, "dead units": 0.15, "trained": 0.15}
MODELS: Mapping[str, Mapping[str, Any]] = {
    **{name: {"activation": name} for name in ("gelu", "tanh", "elu", "leaky_relu", "sigmoid")},
    "gelu, layer norm": {"activation": "gelu", "norm": "layer"},
    "relu, layer norm": {"norm": "layer"},
    "one hidden layer": {"activation": "gelu"},
    "relu, batch norm": {"norm": "batch"},
    "gelu, batch norm": {"activation": "gelu", "norm": "batch"},
    "resnet": {},
    "resnet_preact": {},
}
"""Networks other than ReLU chains: options of an MLP, or of the network of that name in the registry."""
DROPPING: Mapping[str, Mapping[str, Any]] = {
    f"{name}, dropout {rate}": {"activation": name, "dropout": rate} for name in ("relu", "gelu") for rate in (0.1, 0.5)
}
"""Networks whose clients drop units: options of an MLP."""
ATTENTION = "ft_transformer"
"""pytorch-tabular's, of one block."""
SCALED: Mapping[str, type[nn.Module]] = {"ntk, selu": nn.SELU, "ntk, mish": nn.Mish, "ntk, relu": nn.ReLU}
"""A user's own modules as `FrontScaled` builds them, and their activations."""
UNKNOWN: Mapping[str, type[nn.Module]] = {"numbers normalized, relu": nn.ReLU, "numbers normalized, gelu": nn.GELU}
"""A user's own modules as `NumbersNormalized` builds them, whose statistics the server does not know."""
EPS = 1e-5
"""BatchNorm's, which is added to the variance."""
SMOOTH = ("gelu", "tanh", "elu", "sigmoid")
"""Of `MODELS`, those that `exact_joint` serves."""
NORMALIZED = ("relu, batch norm", "gelu, batch norm", "resnet", "resnet_preact")
"""Those with BatchNorm, whose batch statistics the server knows."""


@dataclass(frozen=True)
class Scenario:
    """What is attacked.

    Attributes:
        seed: everything else follows from it.
        attack: name in the registry.
        table: sort of columns.
        twist: what is odd about the rows.
        network: sort of network.
        rows: of the batch, all clients together.
        hidden: widths of the hidden layers.
        n_classes: of the label.
        encoding: of the table.
        marginals: the server knows them.
        clients: whose updates are averaged.
        budget: `small`, or `default` for the attack's own.
        scaled: what a client multiplied its gradient by.
        local: epochs, batches, learning rate and momentum of FedAvg.
        model: of `MODELS` or `DROPPING`, or `chain`: ReLU.
        error: of `INEXACT`, of `PRUNED` for `exact_pruned`, of `DEFENDED` for weight updates; none: rounding alone.
    """

    seed: int
    attack: str
    table: str
    twist: str
    network: str
    rows: int
    hidden: tuple[int, ...]
    n_classes: int
    encoding: str
    marginals: bool
    clients: int
    budget: str
    scaled: float
    local: tuple[int, int, float, float]
    model: str = "chain"
    error: str = "none"

    @property
    def options(self) -> Mapping[str, Any]:
        """Of the attack."""
        known: dict[str, Any] = {"batch_statistics": True} if self.model in NORMALIZED else {}
        known |= {"left_out": "any"} if self.error == AT_RANDOM else {}
        return known if self.budget == "default" else {**OPTIONS[self.attack], **known}

    @property
    def facts(self) -> dict[str, Any]:
        """JSON-ready form."""
        return asdict(self)


@dataclass(frozen=True, eq=False)
class Observed:
    """An update and the truth behind it."""

    update: ClientUpdate
    truth: GroundTruth
    encoder: TableEncoder


@dataclass(frozen=True)
class Judged:
    """What a certificate claims of a batch and how much of it is wrong.

    Attributes:
        rows: certified.
        digits: certified rows whose numbers are certified, too.
        wrong: certified rows that the batch does not hold as often as they are claimed, or holds more often.
        cells: certified cells, labels among them.
        cells_wrong: of these, those that differ from the row that theirs is paired with.
        inexact: certified rows whose certified whole numbers are not all equal to those of the paired row.
        worst: greatest error of a certified number in the column's deviations.
    """

    rows: int
    digits: int
    wrong: int
    cells: int
    cells_wrong: int
    inexact: int
    worst: float


def scenario(
    seed: int,
    attack: str | None = None,
    others: bool = False,
    dropout: bool = False,
    attention: bool = False,
    inexact: bool = False,
    ntk: bool = False,
    normalized: bool = False,
    clipped: bool = False,
    sure: bool = False,
) -> Scenario:
    """The scenario of a seed.

    Args:
        seed: see `Scenario`.
        attack: in place of the one that the seed draws.
        others: with a network of `MODELS`; of `SMOOTH` where `inexact`, or a weight update, half of which are one step
        dropout: with a network of `DROPPING`.
        attention: with the network `ATTENTION`.
        inexact: with an error of `INEXACT`, `PRUNED` or `DEFENDED`.
        ntk: with a network of `SCALED`.
        normalized: with a network of `UNKNOWN`.
        clipped: gradients multiplied by something between 0.9 and 1, most often by nearly 1.
        sure: with a network that is sure of labels, mostly of wrong ones, and may ignore columns (`made_sure`).
    """
    rng = numpy_generator(seed, "scenario")
    drawn = _one(rng, ATTACKED)
    attack = attack or drawn
    table, twist, network = _one(rng, TABLES), _one(rng, TWISTS), _one(rng, NETWORKS)
    low, high = (32, 81) if network == "wide" else (10, 31)
    hidden = tuple(int(w) for w in rng.integers(low, high, 3 if rng.random() < 0.3 else 2))
    if attack in ("exact_joint", "audit_max") and seed % 4 == 0:
        hidden = hidden[:1]
    if seed % 8 == 5:
        network = "all active"
    network, table = ("sure", "categories") if sure else (network, table)
    most = {"exact": min(hidden), "exact_fedavg": 20}.get(attack, min(12, min(hidden)))
    model = "chain"
    if others or dropout or ntk or normalized:
        own = UNKNOWN if normalized else SCALED if ntk else DROPPING if dropout else MODELS
        models = SMOOTH if inexact or attack == "exact_fedavg" else list(own)
        model = str(numpy_generator(seed, "model").choice(models))
        hidden = hidden[:1] if model == "one hidden layer" else hidden
    if attention:  # few of its layers have biases, by which units could be switched off or on
        model, most, network = ATTENTION, 8, network if network == "trained" else "narrow"
    errors = {"exact_fedavg": DEFENDED, "exact_pruned": PRUNED}.get(attack, INEXACT)
    clients = 2 if rng.random() < 0.08 else 1
    rows = clients * int(rng.integers(1, max(2, most // clients) + 1))
    if model in NORMALIZED:  # statistics of one batch of at least two rows
        clients, rows = 1, max(2, rows)
    rows = max(2 * clients, rows) if model in UNKNOWN else rows
    below = float(numpy_generator(seed, "clipped").uniform(-7, -1))
    return Scenario(
        seed=seed,
        attack=attack,
        table=table,
        twist=twist,
        network=network,
        rows=rows,
        hidden=hidden,
        n_classes=3 if rng.random() < 0.25 else 2,
        encoding=str(rng.choice(["standardized", "standardized", "onehot", "minmax"])),
        marginals=bool(rng.random() < 0.7),
        clients=clients,
        budget="default" if rng.random() < 0.1 and attack in ("exact", "exact_fedavg") else "small",
        scaled=1 - 10**below if clipped else float(rng.uniform(0.1, 0.9)) if rng.random() < 0.1 else 1.0,
        local=(
            (1, 1, float(numpy_generator(seed, "rate").choice(ONE_STEP_RATES)), 0.0)
            if others and seed % 2
            else (
                int(rng.integers(1, 6)),
                int(rng.integers(1, 5)),
                float(rng.choice([0.003, 0.01, 0.05])),
                0.5 if rng.random() < 0.1 else 0.0,
            )
        ),
        model=model,
        error=str(numpy_generator(seed, "error").choice(errors)) if inexact else "none",
    )


def observe(case: Scenario) -> Observed:
    """The update of a scenario, and its truth."""
    rng = numpy_generator(case.seed, "rows")
    frame, schema = made_table(rng, case.table, case.n_classes)
    encoder = TableEncoder(schema, case.encoding).fit(frame[:KNOWN])  # type: ignore[arg-type]
    batch = twisted(frame.iloc[rng.permutation(KNOWN)[: case.rows]], schema, case.twist, rng)
    inputs, labels = encoder.encode(batch), encoder.encode_labels(batch)
    marginals = Marginals.of(schema, frame[KNOWN:]) if case.marginals else None
    spec = _spec(case, schema, encoder)
    network = build_network(spec, derive_seed(case.seed, "network"))
    if case.network == "trained":
        _train(network, encoder.encode(frame[:KNOWN]), encoder.encode_labels(frame[:KNOWN]), case.seed)
    inner = _hidden_layers(network)
    if case.network == "dead units":
        _kill(inner, rng)
    if case.network == "all active":
        _wake(inner)
    if case.network == "sure":
        batch = made_sure(network, batch, encoder, numpy_generator(case.seed, "sure"))
        inputs, labels = encoder.encode(batch), encoder.encode_labels(batch)
    sent = []
    for client, rows in enumerate(torch.arange(case.rows).chunk(case.clients)):
        x, y = inputs[rows], labels[rows]
        if case.attack == "exact_fedavg":
            epochs, batches, rate, momentum = case.local
            momentum = momentum if case.error == "none" else 0.0  # else two scales are unknown
            training = LocalTraining(epochs, -(-len(rows) // batches), rate, momentum)
            seed = derive_seed(case.seed, "order", client)
            update, _ = fedavg.client_update(
                network, spec, encoder, x, y, training, share_labels="none", marginals=marginals, seed=seed
            )
            if case.error != "none":
                update = replace(update, update=_sent(update.update, case), state="noised")
        else:
            known = case.model in NORMALIZED
            update, _ = fedsgd.client_update(
                network, spec, encoder, x, y, share_labels=False, share_statistics=known, marginals=marginals
            )
            update = replace(update, update={name: case.scaled * g for name, g in update.update.items()})
            update = replace(update, update=_inexact(update.update, case))
        sent.append(update)
    update = sent[0] if case.clients == 1 else aggregate_updates(sent)
    return Observed(update, GroundTruth(inputs, labels), encoder)


def made_sure(network: nn.Module, batch: pd.DataFrame, encoder: TableEncoder, rng: Draw) -> pd.DataFrame:
    """Make a network sure of labels and blind to some columns; the batch, with rows that differ in two of them alone.

    Three rows of most batches have the categories (a, u), (a, v) and (b, u), whose sum is that of (a, u) twice and
    (b, v).
    """
    layers = [layer for layer in network.modules() if isinstance(layer, nn.Linear)]
    columns, blocks = encoder.schema.categorical, encoder.layout.categorical
    blinded = [k for k in range(len(columns)) if k < 2 or rng.random() < 0.2]
    with torch.no_grad():
        layers[-1].weight.mul_(10 ** rng.uniform(0.5, 3.5))
        layers[-1].bias.zero_()
        for k in blinded:
            layers[0].weight[:, blocks[k].slice] *= float(rng.choice([0.0, 0.02, 0.1]))
        if rng.random() < 0.2:
            _wake(layers[:-1])
    if len(blinded) >= 2 and len(batch) >= 3 and rng.random() < 0.8:
        at = rng.permutation(len(batch))[:3]
        rows = batch.copy()
        rows.iloc[at] = rows.iloc[at[:1]].to_numpy()
        for k, others in zip(blinded, rng.permutation([[0, 0, 1], [0, 1, 0]]), strict=False):
            rows.loc[at, columns[k].name] = np.take(columns[k].categories, others)
        batch = rows
    with torch.no_grad():
        said = network(encoder.encode(batch)).argmax(1).numpy()
    other = (said + rng.integers(1, encoder.schema.n_classes, len(batch))) % encoder.schema.n_classes
    labels = np.where(rng.random(len(batch)) < rng.choice([0.0, 0.3]), said, other)
    return batch.assign(label=np.take(encoder.schema.label.categories, labels))


def _sent(delta: Mapping[str, Tensor], case: Scenario) -> Mapping[str, Tensor]:
    """What is sent of a weight update; half of those not only shortened are shortened as well."""
    rng = numpy_generator(case.seed, "shortened")
    if case.error == "shortened" or rng.random() < 0.5:
        factor = rng.uniform(0.02, 1.0)
        delta = {name: factor * change for name, change in delta.items()}
    if case.error == "pruned":
        return GradientCompression(float(rng.uniform(0.3, 0.99))).apply(delta, torch.Generator())
    return delta if case.error == "shortened" else _inexact(delta, case, smaller=1e-3)


def _inexact(gradient: Mapping[str, Tensor], case: Scenario, smaller: float = 1.0) -> Mapping[str, Tensor]:
    """What is sent of a gradient; ``smaller`` multiplies the noise."""
    if case.error in TRANSPORTS:
        return Transport(case.error).apply(gradient, torch.Generator())
    if case.error == "none":
        return gradient
    rng, draws = numpy_generator(case.seed, "noise"), generator(case.seed, "noise")
    if case.error in PRUNED:
        return _pruned(gradient, case.error, rng, draws)
    size = smaller * 10 ** rng.uniform(-3.5, -0.5)
    typical = torch.cat([g.flatten() for g in gradient.values()]).square().mean().sqrt()
    return {
        name: g + size * torch.randn(g.shape, generator=draws) * (typical if case.error == "even noise" else g.abs())
        for name, g in gradient.items()
    }


def _pruned(gradient: Mapping[str, Tensor], how: str, rng: Draw, draws: torch.Generator) -> Mapping[str, Tensor]:
    """What is sent of a gradient of which some elements are left out, or cut off at a largest size."""
    if how == "smallest left out":
        return GradientCompression(float(rng.uniform(0.3, 0.99))).apply(gradient, draws)
    if how == AT_RANDOM:
        return RandomPruning(float(rng.uniform(0.02, 0.5))).apply(gradient, draws)
    sizes = torch.cat([g.abs().flatten() for g in gradient.values()])
    low, high = (float(sizes.quantile(float(rng.uniform(*between)))) for between in ((0.0, 0.3), (0.8, 1.0)))
    return {name: g.masked_fill(g.abs() < low, 0.0).clamp(-high, high) for name, g in gradient.items()}


class FrontScaled(nn.Module):
    """A trained scale in front of layers in NTK parametrization, as RealMLP has them."""

    def __init__(self, widths: Sequence[int], activation: type[nn.Module]) -> None:
        super().__init__()
        self.scale, self.layers = nn.Parameter(0.5 + torch.rand(widths[0])), nn.Sequential()
        for into, out in pairwise(widths):
            self.layers.extend([ScaledLinear(into, out), activation()])
        self.layers.pop(-1)

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        logits: Tensor = self.layers(self.scale * x)
        return logits


class NumbersNormalized(nn.Module):
    """BatchNorm on the table's numbers, then a perceptron."""

    def __init__(self, encoder: TableEncoder, widths: Sequence[int], activation: type[nn.Module]) -> None:
        super().__init__()
        self.numbers = encoder.numerical_positions
        self.others = [i for i in range(encoder.width) if i not in self.numbers]
        self.norm, self.layers = nn.BatchNorm1d(len(self.numbers)), nn.Sequential()
        for into, out in pairwise(widths):
            self.layers.extend([nn.Linear(into, out), activation()])
        self.layers.pop(-1)

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        logits: Tensor = self.layers(torch.cat([self.norm(x[:, self.numbers]), x[:, self.others]], 1))
        return logits


def normalized_numbers(batch: Observed, found: Reconstruction, clients: int = 1) -> tuple[Tensor, Tensor]:
    """True and reconstructed numbers ``[n, m]``, normalized over every client's rows, in the columns' deviations."""
    encoder, at = batch.encoder, batch.encoder.numerical_positions
    parts = [batch.truth.inputs[:, at].double()[rows] for rows in torch.arange(len(batch.truth.inputs)).chunk(clients)]
    true = torch.cat([(x - x.mean(0)) / (x.var(0, unbiased=False) + EPS).sqrt() for x in parts])
    assert found.certificate is not None
    mean, deviation = torch.tensor(list(found.certificate.assumed_statistics.values()), dtype=torch.float64).T
    guess = (found.encoded[:, at].double() * encoder.scale[at] + encoder.shift[at] - mean) / deviation
    return true * encoder.deviation, guess * encoder.deviation


def _spec(case: Scenario, schema: TableSchema, encoder: TableEncoder) -> NetworkSpec:
    if case.model in UNKNOWN and not encoder.numerical_positions:
        return NetworkSpec("mlp", schema.n_classes, encoder.layout, {"hidden": list(case.hidden)})
    if case.model in {**SCALED, **UNKNOWN}:
        widths = [encoder.width, *case.hidden, schema.n_classes]
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(derive_seed(case.seed, "network"))
            if case.model in SCALED:
                module: nn.Module = FrontScaled(widths, SCALED[case.model])
            else:
                module = NumbersNormalized(encoder, widths, UNKNOWN[case.model])
        return NetworkSpec(hand_over(module), schema.n_classes, encoder.layout)
    if case.model == "resnet_preact":
        return NetworkSpec(case.model, schema.n_classes, encoder.layout, {"width": case.hidden[0]})
    if case.model == ATTENTION:
        sizes = {"input_embed_dim": 2 * case.hidden[0], "num_heads": 2, "num_attn_blocks": 1}
        without = {"batch_norm_continuous_input": False, "attn_dropout": 0, "add_norm_dropout": 0, "ff_dropout": 0}
        return NetworkSpec(case.model, schema.n_classes, encoder.layout, {**sizes, **without})
    name = "resnet" if case.model == "resnet" else "mlp"
    options = {"hidden": list(case.hidden), **{**MODELS, **DROPPING}.get(case.model, {})}
    return NetworkSpec(name, schema.n_classes, encoder.layout, options)


def made_table(rng: Draw, sort: str, n_classes: int) -> tuple[pd.DataFrame, TableSchema]:
    """A table of a sort, its label last."""
    n_continuous, n_whole, n_categorical = {
        "continuous": (rng.integers(1, 21), 0, rng.integers(0, 4)),
        "whole": (0, rng.integers(1, 7), rng.integers(0, 5)),
        "categories": (0, 0, rng.integers(1, 11)),
        "mixed": (rng.integers(1, 7), rng.integers(0, 5), rng.integers(1, 6)),
    }[sort]
    columns, values = [], {}
    mixed = np.eye(n_continuous) + rng.uniform(0, 1.5) * rng.normal(size=(n_continuous,) * 2) / 4
    numbers = rng.normal(size=(POPULATION, n_continuous)) @ mixed
    for i in range(n_categorical):
        width = int(rng.choice([2, 2, 3, 4, 7, 12, 30]))
        columns.append(Column.categorical(f"c{i}", [f"v{j}" for j in range(width)]))
        values[f"c{i}"] = rng.choice(width, POPULATION, p=rng.dirichlet(np.full(width, 1.5)))
    for i in range(n_continuous):
        columns.append(Column.continuous(f"x{i}"))
        values[f"x{i}"] = _shaped(numbers[:, i], rng)
    for i in range(n_whole):
        columns.append(Column.integer(f"n{i}"))
        most = int(rng.choice([1, 4, 20, 100, 5_000, 5_000_000]))
        drawn = rng.random(POPULATION) ** rng.choice([1, 1, 4])
        values[f"n{i}"] = np.where(rng.random(POPULATION) < rng.choice([0, 0, 0.8]), 0, (drawn * most).round())
    if n_categorical and n_whole and rng.random() < 0.3:  # a column that follows from another
        values["n0"] = rng.integers(0, 50, 30)[values["c0"]]
    score = sum(rng.normal() * (v - np.mean(v)) / (np.std(v) + 1e-9) for v in values.values())
    score = score + rng.normal(size=POPULATION)
    label = np.searchsorted(np.quantile(score, np.arange(1, n_classes) / n_classes), score)
    order = rng.permutation(len(columns))
    frame = {
        c.name: values[c.name].astype(int) if c.kind is ColumnKind.INTEGER
        else values[c.name] if c.is_numerical
        else np.take(c.categories, values[c.name])
        for c in (columns[i] for i in order)
    }  # fmt: skip
    target = Column.categorical("label", [f"class {c}" for c in range(n_classes)])
    frame["label"] = np.take(target.categories, label)
    return pd.DataFrame(frame), TableSchema(tuple(columns[i] for i in order), target)


def twisted(rows: pd.DataFrame, schema: TableSchema, twist: str, rng: Draw) -> pd.DataFrame:
    """The rows of a batch with copies, copies that differ in one cell, or labels of one class."""
    rows = rows.reset_index(drop=True)
    if twist == "one class":
        return rows.assign(label=rows["label"].iloc[0])
    if twist == "plain" or len(rows) < 2:
        return rows
    kept = int(rng.integers(1, len(rows)))
    source = rng.integers(0, kept, len(rows)) if rng.random() < 0.7 else np.arange(len(rows)) % kept
    source[:kept] = np.arange(kept)
    copied = rows.iloc[source].reset_index(drop=True)
    if rng.random() < 0.4:
        copied["label"] = rows["label"]
    if twist == "near copies":
        for i in range(kept, len(rows)):
            copied = _changed(copied, i, schema, rng)
    return copied.iloc[rng.permutation(len(rows))].reset_index(drop=True)


def judge(
    found: Reconstruction,
    truth: GroundTruth,
    encoder: TableEncoder,
    within: float = NUMBERS_WITHIN,
    normalized: tuple[Tensor, Tensor] | None = None,
) -> Judged:
    """Compare every certified cell with the truth, certified rows paired with true ones one by one.

    Args:
        found: with a certificate.
        truth: of the batch.
        encoder: of both.
        within: deviations that a certified number may be off.
        normalized: true and reconstructed numbers where the certificate is of `normalized_numbers`.
    """
    certificate = found.certificate
    if certificate is None or not certificate.certified:
        return Judged(0, 0, 0, 0, 0, 0, 0.0)
    at = [i for i, status in enumerate(certificate.status) if status == "certified"]
    true, guess = checked_pair(encoder, encoder.project(truth.inputs, clamp=False), found.rows)
    if normalized is not None:
        true, guess = Cells(true.codes, normalized[0]), Cells(guess.codes, normalized[1])
    claimed = digits_of(certificate, len(encoder.schema.numerical))[at]
    error = (guess.numbers[at].unsqueeze(1) - true.numbers).abs() / encoder.deviation
    right = error <= within
    labels = (found.labels[at].unsqueeze(1) == truth.labels).unsqueeze(-1) | (not certificate.labels_proven)
    cells = torch.cat([guess.codes[at].unsqueeze(1) == true.codes, right | ~claimed.unsqueeze(1), labels], -1)
    pair = match_rows(cells.sum(-1) + (cells.shape[-1] + 1) * len(at) * cells.all(-1).double())
    paired = torch.arange(len(at)), pair
    n_claimed = torch.tensor([certificate.multiplicity[i] for i in at])
    equal = (true.codes[pair, None] == true.codes).all(-1) & (true.numbers[pair, None] == true.numbers).all(-1)
    within_reach = cells[..., :-1].all(-1).sum(1)
    miscounted = ((n_claimed < equal.sum(1)) & claimed.all(-1)) | (n_claimed > within_reach)
    errors = error[paired][claimed]
    kinds = [column.kind is ColumnKind.INTEGER for column in encoder.schema.numerical]
    uneven = (guess.numbers[at].round() != true.numbers[pair].round()) & claimed & torch.tensor(kinds, dtype=torch.bool)
    uneven &= normalized is None
    return Judged(
        rows=len(at),
        digits=int(claimed.all(-1).sum()),
        wrong=int((~cells[paired].all(-1) | miscounted).sum()),
        cells=int(claimed.sum()) + len(at) * (certificate.labels_proven + true.codes.shape[1]),
        cells_wrong=int((~cells[paired]).sum()),
        inexact=int(uneven.any(-1).sum()),
        worst=float(errors.max()) if len(errors) else 0.0,
    )


def digits_of(certificate: Certificate, n_numbers: int) -> Tensor:
    """Which numbers are certified, bool ``[rows, numbers]``."""
    status = torch.tensor([status == "certified" for status in certificate.status])
    told = status & torch.tensor(certificate.normalized_proven or certificate.digits, dtype=torch.bool)
    return told.unsqueeze(-1).expand(len(status), n_numbers)


def _one(rng: Draw, shares: Mapping[str, float]) -> str:
    return str(rng.choice(list(shares), p=list(shares.values())))


def _shaped(numbers: np.ndarray, rng: Draw) -> np.ndarray:
    """Normal, skewed, or rounded numbers, some columns mostly at their bound or constant."""
    shape = rng.choice(["normal", "normal", "normal", "lognormal", "rounded", "bound", "constant"])
    if shape == "lognormal":
        return np.exp(numbers)
    if shape == "rounded":
        return numbers.round(1)
    if shape == "bound":
        return np.where(rng.random(len(numbers)) < 0.8, 0.0, np.abs(numbers))
    return np.full(len(numbers), 2.5) if shape == "constant" and rng.random() < 0.3 else numbers


def _changed(rows: pd.DataFrame, row: int, schema: TableSchema, rng: Draw) -> pd.DataFrame:
    """One cell of a row is another: a category, or a number moved by a little or a lot, at times out of bounds."""
    column = schema.columns[rng.integers(len(schema.columns))]
    values = rows[column.name].to_numpy(copy=True)
    if not column.is_numerical:
        values[row] = rng.choice(column.categories)
    else:
        step = 10 ** rng.uniform(-3, 0) * (values.std() or 1.0)
        step = max(1, round(step)) if column.kind is ColumnKind.INTEGER else step
        values[row] = values[row] + (step if values[row] + step <= values.max() else -step)
        values[row] = np.clip(values[row], values.min(), values.max())
    return rows.assign(**{column.name: values})


def _train(network: nn.Module, inputs: Tensor, labels: Tensor, seed: int) -> None:
    optimizer = torch.optim.SGD(network.parameters(), 0.1)
    for rows in torch.randperm(len(inputs), generator=generator(seed, "training")).repeat(4).split(32):
        optimizer.zero_grad()
        cross_entropy(network(inputs[rows]), labels[rows]).backward()
        optimizer.step()


def _hidden_layers(network: nn.Module) -> list[nn.Linear | ScaledLinear]:
    """Linear layers but for the last, in their order."""
    return [layer for layer in network.modules() if isinstance(layer, nn.Linear | ScaledLinear)][:-1]


@torch.no_grad()
def _kill(layers: Sequence[nn.Linear | ScaledLinear], rng: Draw) -> None:
    """Units of the first or the first two of these layers that no row makes active."""
    share = rng.uniform(0.1, 0.6)
    for linear in layers[: int(rng.integers(1, 3))]:
        linear.bias[torch.as_tensor(rng.random(len(linear.bias)) < share)] = -100.0


@torch.no_grad()
def _wake(layers: Sequence[nn.Linear | ScaledLinear]) -> None:
    """Units of these layers that every row makes active: rows share all masks."""
    for linear in layers:
        linear.bias += 4.0
