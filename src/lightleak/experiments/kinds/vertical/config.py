"""One audit of vertical federated learning as typed data (``kind: vertical``)."""

from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from lightleak.core.bounds import Section, bounded, one_of
from lightleak.core.errors import UsageError
from lightleak.core.parties import ADVERSARIES, Adversary
from lightleak.data.property import Property
from lightleak.experiments.config import TableSource
from lightleak.experiments.settings import RunConfig
from lightleak.targets.optimizers import OptimizerConfig

OWN_COLUMNS = "aia_raw_adjusted"
"""The null that every audit runs: the share estimated from the adversary's own columns, with nothing exchanged."""

Misalignment = Literal["none", "adversary", "rows"]


@dataclass(frozen=True)
class VerticalDataConfig(TableSource):
    """Which table (see `TableSource`), and how its cells become numbers.

    Attributes:
        encoding: ``onehot`` (0/1 and standardized numbers, as in ProVFL's Adult), any other encoding of
            `lightleak.data.encoder.TableEncoder`, or ``bits`` for tables of 0 and 1 alone, kept as bytes.
        test_fraction: share of all rows held out to measure the task's quality.
        split_seed: rows are split by the root seed, so that every seed has another split; a number fixes one split for
            all seeds, as ProVFL's code does.
        fraction: draw rows such that this share of them has the property; needs ``rows``.
        rows: how many rows are drawn then.
    """

    encoding: Literal["standardized", "onehot", "minmax", "quantile", "bits"] = "onehot"
    test_fraction: float = bounded(0.2, gt=0, lt=1)
    fraction: float | None = bounded(None, gt=0, lt=1)
    rows: int | None = bounded(None, ge=2)

    def check(self) -> None:
        """Check as `TableSource` does, and that ``fraction`` and ``rows`` come together."""
        super().check()
        if (self.fraction is None) != (self.rows is None):
            raise UsageError(f"data.fraction and data.rows belong together, got {self.fraction} and {self.rows}")


@dataclass(frozen=True)
class PartiesConfig(Section, section="parties"):
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

    number: int = bounded(2, ge=2)
    victim_share: float | None = bounded(None, gt=0, lt=1)
    columns: tuple[tuple[str, ...], ...] | None = None
    adversary: int | None = None
    order: Literal["schema", "published_features", "published"] = "schema"

    def check(self) -> None:
        """Refuse settings that exclude each other."""
        if self.columns is not None and (self.victim_share is not None or self.order != "schema"):
            raise UsageError("parties.columns excludes parties.victim_share and parties.order")
        if self.adversary is not None and self.columns is None:
            raise UsageError("parties.adversary needs parties.columns; without them the adversary is the last party")


@dataclass(frozen=True)
class SplitTargetConfig(Section, section="target"):
    """The split network.

    Attributes:
        bottom_hidden: widths of the hidden layers of each party's bottom network.
        output_width: width of the output that each party sends.
        top_hidden: widths of the hidden layers of the top network.
    """

    bottom_hidden: tuple[int, ...] = bounded((32,), ge=1)
    output_width: int = bounded(16, ge=1)
    top_hidden: tuple[int, ...] = bounded((16,), ge=1)


@dataclass(frozen=True)
class SplitTrainingConfig(Section, section="training"):
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

    epochs: int = bounded(20, ge=1)
    batch_size: int = bounded(64, ge=1)
    optimizer: OptimizerConfig = field(default_factory=lambda: OptimizerConfig("sgd", 0.01, weight_decay=3e-5))
    decay: float = bounded(0.97, gt=0, le=1)
    decay_top: bool = False
    shuffle: bool = False
    trainer: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class AuxiliaryConfig(Section, section="auxiliary"):
    """The rows whose property the adversary knows.

    Attributes:
        size: rows, half of them with the property (ProVFL: 4,000). Rows are repeated where too few have it.
        misaligned: ``none``: rows of the training set. ``adversary``: its own columns of rows that the others do not
            hold, put in the place of training rows before the training. ``rows``: the same with whole rows, as ProVFL's
            code does.
        mislabeled: share of these rows whose property the adversary has wrong.
    """

    size: int = bounded(4000, ge=2)
    misaligned: Misalignment = "none"
    mislabeled: float = bounded(0.0, ge=0, lt=1)

    def check(self) -> None:
        """Require an even size."""
        if self.size % 2:
            raise UsageError(f"auxiliary.size must be even, half with and half without the property, got {self.size}")


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
        defenses: names, or entries ``{name: withdraw, options: {ratio: 0.5}}`` in a list or by label; ``none`` trains
            without one. ``{label: {defense: withdraw, ratio: 0.5}}`` is the same.
        attack_epochs: epochs whose intermediate results are attacked; negative ones count from the end (ProVFL: the
            penultimate).
        seeds: root seeds; every one is another split, another training and other auxiliary rows. ``seeds: 5`` is short
            for five seeds, from ``seed`` (or 0) on, and ``seed: 3`` alone for ``seeds: [3]``.
        kind: what is audited.
        title: heading of the report.
        keep_captures: keep what the adversary saw, for ``lightleak attack``.
        redact: keep no captures, which hold who has the property, and leave shares out of the report; results.json
            keeps them.
    """

    lists_seeds: ClassVar[bool] = True
    named: ClassVar[tuple[str, ...]] = ("attacks", "defenses")

    data: VerticalDataConfig
    properties: tuple[str, ...] = bounded(distinct=True, some=True)
    parties: PartiesConfig = field(default_factory=PartiesConfig)
    target: SplitTargetConfig = field(default_factory=SplitTargetConfig)
    training: SplitTrainingConfig = field(default_factory=SplitTrainingConfig)
    auxiliary: AuxiliaryConfig = field(default_factory=AuxiliaryConfig)
    adversaries: tuple[str, ...] = one_of(("C1", "C2"), ADVERSARIES, distinct=True, some=True)
    attacks: dict[str, dict[str, Any]] = bounded(
        some=True,
        default_factory=lambda: {"provfl_b": {}, "provfl_b_discriminant": {}, "provfl_m": {}, "aia_adjusted": {}},
    )
    defenses: dict[str, dict[str, Any]] = bounded(default_factory=lambda: {"none": {}}, some=True)
    attack_epochs: tuple[int, ...] = bounded((-2,), distinct=True, some=True)
    seeds: tuple[int, ...] = bounded((0,), distinct=True, some=True)
    kind: Literal["vertical"] = "vertical"
    title: str = "Property leakage between parties"
    keep_captures: bool = True

    def check(self) -> None:
        """Check names and epochs, and add the attack that reads own columns alone."""
        named = self.attacks.get(OWN_COLUMNS, {}).get("attack", OWN_COLUMNS)
        if named != OWN_COLUMNS:
            raise UsageError(f"attacks.{OWN_COLUMNS} must be the attack of that name, got {named!r}")
        object.__setattr__(self, "attacks", {OWN_COLUMNS: {}, **self.attacks})
        for text in self.properties:
            Property.parse(text)
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
