"""One audit of vertical federated learning as typed data (``kind: vertical``)."""

from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from lightleak.core.errors import UsageError
from lightleak.core.intermediate_results import ADVERSARIES, Adversary
from lightleak.data.property import Property
from lightleak.experiments.config import TableSource
from lightleak.experiments.redaction import Redact
from lightleak.experiments.settings import (
    EngineName,
    RunConfig,
    at_least,
    write_out_names,
    write_out_numbers,
    write_out_seeds,
)
from lightleak.targets.optimizers import OptimizerConfig

OWN_COLUMNS = "aia_raw_adjusted"
"""The null that every audit runs: the share told from the adversary's own columns, nothing exchanged."""

Misalignment = Literal["none", "adversary", "rows"]


@dataclass(frozen=True)
class VerticalDataConfig(TableSource):
    """Which table (see `TableSource`), and how its cells become numbers.

    Attributes:
        encoding: ``onehot`` (0/1 and standardised numbers, as in ProVFL's Adult), any other encoding of
            `lightleak.data.encoder.TableEncoder`, or ``bits`` for tables of 0 and 1 alone, kept as bytes.
        test_fraction: share of all rows held out to measure the task's quality.
        split_seed: rows are split by the root seed, so that every seed has another split; a number fixes one split for
            all seeds, as ProVFL's code does.
        fraction: draw rows such that this share of them has the property; needs ``rows``.
        rows: how many rows are drawn then.
    """

    encoding: Literal["standardized", "onehot", "minmax", "quantile", "bits"] = "onehot"
    test_fraction: float = 0.2
    split_seed: int | None = None
    fraction: float | None = None
    rows: int | None = None

    def __post_init__(self) -> None:
        """Raise `UsageError` for a value out of range."""
        super().__post_init__()
        if not 0 < self.test_fraction < 1:
            raise UsageError(f"data.test_fraction must be above 0 and below 1, got {self.test_fraction}")
        if (self.fraction is None) != (self.rows is None):
            raise UsageError(f"data.fraction and data.rows belong together, got {self.fraction} and {self.rows}")
        if self.fraction is not None and not 0 < self.fraction < 1:
            raise UsageError(f"data.fraction must be above 0 and below 1, got {self.fraction}")


@dataclass(frozen=True)
class PartiesConfig:
    """Who holds which columns; a feature is never torn apart, unless as published.

    Attributes:
        number: parties that hold features; the victim is the first and the adversary the last.
        victim_share: the victim's share of the encoded columns; the others divide the rest evenly. Default: even.
        columns: the columns of each party; the party with the property is then the victim.
        adversary: index of the adversary where ``columns`` are given; default: the last party that is not the victim.
        order: in which features are dealt out after the property's own, which comes first. ``schema``: the table's.
            ``published_features``: that of ProVFL's code, cut where it cuts, as closely as whole features allow.
            ``published``: its encoded columns, where it alone moves the property's own column to the front and leaves
            the others of that feature where they are, often with the adversary.
    """

    number: int = 2
    victim_share: float | None = None
    columns: tuple[tuple[str, ...], ...] | None = None
    adversary: int | None = None
    order: Literal["schema", "published_features", "published"] = "schema"

    def __post_init__(self) -> None:
        """Raise `UsageError` for a value out of range."""
        at_least("parties.number", self.number, 2)
        if self.victim_share is not None and not 0 < self.victim_share < 1:
            raise UsageError(f"parties.victim_share must be above 0 and below 1, got {self.victim_share}")
        if self.columns is not None and (self.victim_share is not None or self.order != "schema"):
            raise UsageError("parties.columns excludes parties.victim_share and parties.order")
        if self.adversary is not None and self.columns is None:
            raise UsageError("parties.adversary needs parties.columns; without them the adversary is the last party")


@dataclass(frozen=True)
class SplitTargetConfig:
    """The split network.

    Attributes:
        bottom_hidden: widths of the hidden layers of each party's bottom network.
        output_width: width of the output that each party sends.
        top_hidden: widths of the hidden layers of the top network.
    """

    bottom_hidden: tuple[int, ...] = (32,)
    output_width: int = 16
    top_hidden: tuple[int, ...] = (16,)

    def __post_init__(self) -> None:
        """Raise `UsageError` for a value out of range."""
        at_least("target.output_width", self.output_width, 1)
        for width in (*self.bottom_hidden, *self.top_hidden):
            at_least("target widths", width, 1)


@dataclass(frozen=True)
class SplitTrainingConfig:
    """How the parties train; the defaults are ProVFL's for Adult.

    Attributes:
        epochs: passes over the training rows.
        batch_size: rows per step.
        optimizer: every party's optimiser.
        decay: factor on the bottom networks' learning rate after every epoch.
        decay_top: decay the top network's as well.
        shuffle: a new order of rows in every epoch.
        trainer: further arguments of ``lightning.Trainer``.
    """

    epochs: int = 20
    batch_size: int = 64
    optimizer: OptimizerConfig = field(default_factory=lambda: OptimizerConfig("sgd", 0.01, weight_decay=3e-5))
    decay: float = 0.97
    decay_top: bool = False
    shuffle: bool = False
    trainer: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Raise `UsageError` for a value out of range."""
        at_least("training.epochs", self.epochs, 1)
        at_least("training.batch_size", self.batch_size, 1)
        if not 0 < self.decay <= 1:
            raise UsageError(f"training.decay must be above 0 and at most 1, got {self.decay}")


@dataclass(frozen=True)
class AuxiliaryConfig:
    """The rows whose property the adversary knows.

    Attributes:
        size: rows, half of them with the property (ProVFL: 4,000). Rows are repeated where too few have it.
        misaligned: ``none``: rows of the training set. ``adversary``: its own columns of rows that the others do not
            hold, put in the place of training rows before the training. ``rows``: the same with whole rows, as ProVFL's
            code does.
        mislabeled: share of these rows whose property the adversary has wrong.
    """

    size: int = 4000
    misaligned: Misalignment = "none"
    mislabeled: float = 0.0

    def __post_init__(self) -> None:
        """Raise `UsageError` for a value out of range."""
        at_least("auxiliary.size", self.size, 2)
        if self.size % 2:
            raise UsageError(f"auxiliary.size must be even, half with and half without the property, got {self.size}")
        if not 0 <= self.mislabeled < 1:
            raise UsageError(f"auxiliary.mislabeled must be at least 0 and below 1, got {self.mislabeled}")


@dataclass(frozen=True)
class VerticalConfig(RunConfig):
    """A whole audit of one vertical federated training.

    Attributes:
        data: the table.
        properties: what the adversary wants to know the share of, each as ``column=value``.
        parties: who holds what.
        target: the split network.
        training: how it is trained.
        auxiliary: what the adversary knows beforehand.
        adversaries: ``C1`` (active party) and ``C2`` (passive party).
        attacks: attacks and the settings to change. A name that is no attack's needs the setting ``attack``:
            ``{"trees of depth 3": {"attack": "provfl_b", ...}}``. `OWN_COLUMNS` is added where it is not named: what
            an attack learns from the exchange is its paired difference to it.
        defenses: likewise; ``none`` trains without one.
        attack_epochs: epochs whose intermediate results are attacked; negative ones count from the end (ProVFL: the
            penultimate).
        seeds: root seeds; every one is another split, another training and other auxiliary rows. ``seed: 3`` is short
            for ``seeds: [3]``.
        kind: what is audited.
        title: heading of the report.
        device: auto, cpu, cuda or cuda:N.
        workers: trainings at once on a CPU; 0 takes one per core.
        engine: where they run: ``local`` in processes of this machine, ``ray`` on a Ray cluster.
        ray_address: of the cluster; left out, ``RAY_ADDRESS``, or Ray is started on this machine.
        gpus_per_pack: GPUs that Ray reserves for each of them; below 1, several share one.
        keep_captures: keep what the adversary saw, for ``lightleak attack``.
        redact: keep no captures, which hold who has the property, and leave shares out of the report; results.json
            keeps them.
    """

    free: ClassVar[tuple[str, ...]] = ("data.options", "training.trainer", "attacks", "defenses")
    named: ClassVar[tuple[str, ...]] = ("attacks", "defenses")

    data: VerticalDataConfig
    properties: tuple[str, ...]
    parties: PartiesConfig = field(default_factory=PartiesConfig)
    target: SplitTargetConfig = field(default_factory=SplitTargetConfig)
    training: SplitTrainingConfig = field(default_factory=SplitTrainingConfig)
    auxiliary: AuxiliaryConfig = field(default_factory=AuxiliaryConfig)
    adversaries: tuple[str, ...] = ("C1", "C2")
    attacks: dict[str, dict[str, Any]] = field(
        default_factory=lambda: {"provfl_b": {}, "provfl_b_discriminant": {}, "provfl_m": {}, "aia_adjusted": {}}
    )
    defenses: dict[str, dict[str, Any]] = field(default_factory=lambda: {"none": {}})
    attack_epochs: tuple[int, ...] = (-2,)
    seeds: tuple[int, ...] = (0,)
    kind: Literal["vertical"] = "vertical"
    title: str = "Property leakage between parties"
    device: str = "auto"
    workers: int = 0
    engine: EngineName = "local"
    ray_address: str | None = None
    gpus_per_pack: float = 1.0
    keep_captures: bool = True
    redact: Redact = False

    def __post_init__(self) -> None:
        """Raise `UsageError` for a value out of range."""
        at_least("workers", self.workers, 0)
        for name in ("properties", "adversaries", "attacks", "defenses", "attack_epochs", "seeds"):
            chosen = tuple(getattr(self, name))
            if not chosen:
                raise UsageError(f"{name} must name at least one, got none")
            if len(set(chosen)) < len(chosen):
                raise UsageError(f"{name} must be distinct, got {', '.join(map(str, chosen))}")
        named = self.attacks.get(OWN_COLUMNS, {}).get("attack", OWN_COLUMNS)
        if named != OWN_COLUMNS:
            raise UsageError(f"attacks.{OWN_COLUMNS} must be the attack of that name, got {named!r}")
        object.__setattr__(self, "attacks", {OWN_COLUMNS: {}, **self.attacks})
        for text in self.properties:
            Property.parse(text)
        if unknown := sorted(set(self.adversaries) - set(ADVERSARIES)):
            raise UsageError(f"adversaries must be among {', '.join(ADVERSARIES)}, got {', '.join(unknown)}")
        for epoch in self.attack_epochs:
            if not -self.training.epochs <= epoch < self.training.epochs:
                raise UsageError(f"attack_epochs must lie within the {self.training.epochs} epochs, got {epoch}")

    @property
    def epochs_attacked(self) -> tuple[int, ...]:
        """Attacked epochs counted from 0, ascending."""
        return tuple(sorted({epoch % self.training.epochs for epoch in self.attack_epochs}))

    @property
    def chosen_adversaries(self) -> tuple[Adversary, ...]:
        """The adversaries, C1 first."""
        return tuple(adversary for adversary in ADVERSARIES if adversary in self.adversaries)

    @classmethod
    def write_out(cls, tree: dict[str, Any]) -> None:
        """See `RunConfig.write_out`."""
        super().write_out(tree)
        write_out_seeds(tree)
        write_out_numbers(tree, "attack_epochs")
        for name in ("properties", "adversaries"):
            write_out_names(tree, name)
