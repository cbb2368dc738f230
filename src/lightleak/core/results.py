"""Rows of ``results.json``: one dataclass for each kind of run, one reader, one writer, one published schema.

A row is what one attack (or one training, or one trial) gave. An experiment makes a row of its kind and writes
``row.to_dict()``; whoever reads a folder gets the same class back from `read_results`:

>>> row = UpdateRow(attack="tableak", dataset="adult", batch_size=32, metrics={"cell_accuracy": 0.8, "rmse": None})
>>> row.to_dict()
{'kind': 'updates', 'attack': 'tableak', 'dataset': 'adult', 'batch_size': 32, 'cell_accuracy': 0.8, 'rmse': None}
>>> read_row(row.to_dict(), "row 0").number("cell_accuracy")
0.8

A kind adds a field by declaring it in its class, with its meaning in the docstring: reader, writer and schema follow. A
score, which may be summarized over rows, is an entry of ``METRICS`` instead: part of ``metrics`` in the dataclass, a
key like the others in the JSON. A new kind is a subclass of `Row` with a ``KIND``; nothing has to be registered.
Keys that no class declares are kept in ``extra`` and written back, so that a newer version's file survives.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar

from lightleak.core.certificate import Outcome, RowStatus
from lightleak.core.errors import UsageError
from lightleak.core.former_names import REGISTERED
from lightleak.core.parties import KINDS
from lightleak.core.records import json_field, quoted, read_float, read_record, to_json, write_record
from lightleak.core.threat_model import Threat

if TYPE_CHECKING:
    import pandas as pd

FILE_NAME = "results.json"
SCHEMA_VERSION = 1

NONE = "none"
"""Name of the defense of a run without one, and of the attack of a row that is about a training."""

ALL = "all"
"""Class of a row that is about all classes of a released model together."""

Share = tuple[float | None, float | None]
SHARE: Share = (0.0, 1.0)
POSITIVE: Share = (0.0, None)
ANY: Share = (None, None)


@dataclass(frozen=True, kw_only=True)
class Row:
    """What every row says, whatever its kind; None where the run does not say.

    Attributes:
        attack: name of the attack.
        unit: name of the work that gave the row, unique in the run.
        dataset: name of the table.
        target: name of the network.
        protocol: ``fedsgd``, ``fedavg`` or ``vertical``.
        seed: of the training, or root seed of the run.
        defense: name of the defense; ``none`` without one.
        defense_strength: the number that varies the defense.
        epoch: of the training in which the observation was made; under FedAvg the round.
        seconds: wall time of the attack.
        cpu_seconds: its processor time.
        peak_memory: most bytes that the attacking process held during the attack.
        threat_model: what the attacker was assumed to know and do, in one or two sentences.
        threat: the same as data.
        options: settings of the attack.
        warnings: what the attack warned of.
        run: name of the run folder; not in the file.
        metrics: finite scores by name; while a row is being written, None for a score that is undefined here.
        extra: keys of the file that the class does not declare.
    """

    KIND: ClassVar[str] = ""
    ALIASES: ClassVar[tuple[str, ...]] = ()
    """Names of the kind in files of earlier versions."""
    METRICS: ClassVar[Mapping[str, Share]] = {}
    """Least and greatest value of each score."""
    EARLIER: ClassVar[Mapping[str, str]] = {}
    """Names of scores in files of earlier versions."""
    ON_TEST_ROWS: ClassVar[tuple[str, ...]] = ()
    """Scores of the target on its test rows: they must not choose settings."""

    attack: str
    unit: str | None = None
    dataset: str | None = None
    target: str | None = None
    protocol: str | None = None
    seed: int | str | None = None
    defense: str | None = None
    defense_strength: float | None = None
    epoch: int | None = None
    seconds: float | None = None
    cpu_seconds: float | None = None
    peak_memory: int | None = None
    threat_model: str | None = None
    threat: Threat | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    run: str = json_field(written=False, default="")
    metrics: Mapping[str, float | None] = json_field(written=False, default_factory=dict)
    extra: Mapping[str, Any] = json_field(written=False, default_factory=dict)

    def number(self, name: str) -> float | None:
        """A score or another number of the row by its name; None where it is unknown."""
        found = self.metrics.get(name)
        return getattr(self, name, None) if found is None else found

    @cached_property
    def settings(self) -> dict[str, str]:
        """Settings of the attack as text, those of a part under ``part.name``."""
        return flat(self.options)

    @property
    def is_undefended(self) -> bool:
        """Whether no defense was applied."""
        return self.defense in (None, NONE)

    def to_dict(self) -> dict[str, Any]:
        """The row as ``results.json`` holds it: JSON-ready, with scores among the other keys."""
        return {"kind": self.KIND} | write_record(self) | to_json(self.metrics) | to_json(self.extra)

    @classmethod
    def read(cls, raw: Mapping[str, Any], where: str, run: str = "") -> "Row":
        """Read a row of this kind; see `read_row`."""
        if raw.get("attack") in REGISTERED:
            raw = {**raw, "attack": REGISTERED[raw["attack"]]}
        metrics = {}
        for name, (low, high) in cls.METRICS.items():
            value = raw.get(name, raw.get(cls.EARLIER.get(name, name)))
            if (number := read_float(value, low, high, f"{where}, key {name!r}")) is not None:
                metrics[name] = number
        row = read_record(cls, raw, where, run=run, metrics=metrics, extra={})
        written = row.to_dict()
        return replace(row, extra={key: value for key, value in raw.items() if key not in written})


R = TypeVar("R", bound=Row)


@dataclass(frozen=True)
class Expectation:
    """What exact inversion expected of an update before any work (`core.certificate.Feasibility`).

    Attributes:
        ranks: of the gradient of every hidden layer, the first layer first.
        row_constraints: per hidden layer, equations that its row space puts on every row.
        unit_constraints: the same of its column space.
        noise: estimated deviation of the gradient's elements, besides rounding.
        expected: how much of the update.
        reason: why.
    """

    ranks: tuple[int, ...] = ()
    row_constraints: tuple[int, ...] = ()
    unit_constraints: tuple[int, ...] = ()
    noise: float | None = None
    expected: Outcome | None = None
    reason: str | None = None


@dataclass(frozen=True, kw_only=True)
class ClientRow(Row):
    """What rows about updates of clients say.

    Attributes:
        setting: name of the setting in a paper's table.
        labels: what the attack knew of the labels: ``true`` or ``restored``.
        source: ``initial`` (a fresh client against the untrained network), ``given`` (against the weights that a user's
            own module had) or ``training`` (captured while the target trained, in ``epoch``).
        batch_size: rows behind the update.
        batch_index: number of the update; attacks on the same update share it.
        local_epochs: passes of a FedAvg client over its rows.
        local_batches: its steps in each.
        local_batch_size: rows of one step.
        n_clients: clients averaged into the update.
        releases: gradients of the same rows, sent in as many rounds, that the attack combined; left out: one.
        epsilon: what differential privacy the whole training grants.
        release_epsilon: what it grants for one update whose batch is known to the server, or for all ``releases``.
        delta: the probability with which it may fail.
        privacy_unit: what neighboring inputs of a framework's filter differ in: one ``client``'s whole update.
        no_guarantee: why a framework's filter that has an epsilon guarantees nothing here.
        column_accuracy: share of right cells by column.
        row_status: by row of the reconstruction, what the attack knew of it without the truth.
        row_digits: by row of the reconstruction, whether its numbers are certified as well.
        labels_proven: whether the label of a certified row is certified as well.
        normalized_columns: numerical columns whose mean is assumed, as BatchNorm's statistics are unknown.
        row_normalized_proven: by row of the reconstruction, whether its normalized numbers are certified.
        certified_rows: number of certified rows.
        certified_wrong: certified rows that equal no true row in categories and label.
        certified_digits_wrong: rows with certified numbers that equal no true row.
        certificate_residual: part of the update that the rows leave unexplained.
        expected: what was expected before any work.
        feasibility: ranks and equations behind ``expected``.
        reconstruction: path of the reconstructed rows, relative to the run folder.
    """

    METRICS: ClassVar[Mapping[str, Share]] = {
        "cell_accuracy": SHARE,
        "categorical_accuracy": SHARE,
        "numerical_accuracy": SHARE,
        "exact_match_rate": SHARE,
        "close_match_rate": SHARE,
        "rmse": POSITIVE,
        "top25_categorical": SHARE,
        "bottom25_categorical": SHARE,
        "top25_numerical": SHARE,
        "bottom25_numerical": SHARE,
        "mean_entropy_categorical": SHARE,
        "mean_entropy_numerical": ANY,
        "label_count_error": POSITIVE,
        "loss": ANY,
        "certified_share": SHARE,
        "certified_digits_share": SHARE,
        "certified_accuracy": SHARE,
        "certified_exact": SHARE,
    }

    setting: str | None = None
    labels: str | None = None
    source: str | None = None
    batch_size: int | None = json_field(low=0, default=None)
    batch_index: int | str | None = None
    local_epochs: int | None = None
    local_batches: int | None = None
    local_batch_size: int | None = None
    n_clients: int | None = None
    releases: int | None = None
    epsilon: float | None = json_field(low=0, default=None)
    release_epsilon: float | None = json_field(low=0, default=None)
    delta: float | None = json_field(low=0, high=1, default=None)
    privacy_unit: str | None = None
    no_guarantee: str | None = None
    column_accuracy: Mapping[str, float] = field(default_factory=dict)
    row_status: tuple[RowStatus, ...] = ()
    row_digits: tuple[bool, ...] = ()
    labels_proven: bool | None = None
    normalized_columns: tuple[str, ...] = ()
    row_normalized_proven: tuple[bool, ...] = ()
    certified_rows: int | None = json_field(low=0, default=None)
    certified_wrong: int | None = json_field(low=0, default=None)
    certified_digits_wrong: int | None = json_field(low=0, default=None)
    certificate_residual: float | None = json_field(low=0, default=None)
    expected: Outcome | None = None
    feasibility: Expectation = field(default_factory=Expectation)
    reconstruction: str | None = None

    @property
    def released(self) -> str:
        """What ``release_epsilon`` is about, in words."""
        return "one update" if self.releases in (None, 1) else f"{self.releases} updates of the same rows"


@dataclass(frozen=True, kw_only=True)
class UpdateRow(ClientRow):
    """One attack on one update that a client sent.

    Attributes:
        planned_batch_size: mean size of the batches, where each row enters one at random (Poisson sampling).
    """

    KIND: ClassVar[str] = "updates"
    ALIASES: ClassVar[tuple[str, ...]] = ("horizontal", "gradient inversion")

    planned_batch_size: int | None = json_field(low=1, default=None)

    @property
    def size(self) -> int | None:
        """Rows behind the update; the mean size of the batches where each row enters one at random."""
        return self.planned_batch_size or self.batch_size

    @property
    def on_fedavg(self) -> bool:
        """Whether the update is a change of weights after local training."""
        return self.protocol == "fedavg"

    @property
    def proves_labels(self) -> bool:
        """Whether some row is certified together with its label."""
        return bool(self.labels_proven and self.certified_rows)

    @property
    def is_fully_certified(self) -> bool:
        """Whether every row is certified."""
        return bool(self.row_status) and set(self.row_status) == {"certified"}

    @classmethod
    def read(cls, raw: Mapping[str, Any], where: str, run: str = "") -> "UpdateRow":
        """Read a row, and check that its certificate agrees with itself; see `read_row`."""
        row = super().read(raw, where, run)
        assert isinstance(row, UpdateRow)
        certified = row.row_status.count("certified")
        if row.row_status and row.certified_rows != certified:
            raise UsageError(
                f"{where}, key 'certified_rows': expected {certified}, the certified of row_status, got "
                f"{row.certified_rows}"
            )
        return row


@dataclass(frozen=True, kw_only=True)
class VerticalRow(Row):
    """One estimate of a property's share by a party of vertical federated learning; shares are in [0, 1].

    Attributes:
        property_name: the property, as ``column=value``.
        label: name of the attack in the config.
        variant: how it was carried out, such as ``passive``, ``MR`` or ``LR+MR``.
        adversary: ``C1`` (active party) or ``C2`` (passive party).
        parties: number of parties.
        capture: name of the capture, where one was attacked.
        true_fraction: share of the victim's records with the property, before a defense.
        trained_fraction: the same among the records that were trained on.
        estimated_fraction: the estimate of an adversary who does not know the defense.
        low: lower end of the attack's own 95% interval.
        high: upper end.
        informed_fraction: the estimate of an adversary who knows the defense and its strength.
        informed_low: lower end of its interval.
        informed_high: upper end.
        prior: share among the auxiliary rows.
        covers_truth: whether the attack's own interval contains the truth, for one who does not know the defense.
        own_columns_error: how far off the adversary's own columns alone are in the same training.
        by_kind: estimate by kind of intermediate result.
        informed_by_kind: the same of an adversary who knows the defense.
        auc: AUC of the target on its test rows.
        accuracy: its accuracy.
        training_seconds: wall time of its training.
        defense_name: name of the defense, without its strength.
        details: what else the attack says of its estimate, by name.
    """

    KIND: ClassVar[str] = "vertical"
    ON_TEST_ROWS: ClassVar[tuple[str, ...]] = ("accuracy", "auc")
    METRICS: ClassVar[Mapping[str, Share]] = {
        "absolute_error": POSITIVE,
        "trained_error": POSITIVE,
        "informed_error": POSITIVE,
        "learned_from_exchange": ANY,
    }

    property_name: str = json_field(key="property")
    label: str | None = None
    variant: str = ""
    adversary: str = ""
    parties: int | None = json_field(low=2, default=None)
    capture: str | None = None
    true_fraction: float | None = json_field(low=0, high=1, default=None)
    trained_fraction: float | None = json_field(low=0, high=1, default=None)
    estimated_fraction: float | None = None
    low: float | None = None
    high: float | None = None
    informed_fraction: float | None = None
    informed_low: float | None = None
    informed_high: float | None = None
    prior: float | None = json_field(low=0, high=1, default=None)
    covers_truth: bool | None = json_field(key="covered", default=None)
    own_columns_error: float | None = json_field(low=0, default=None)
    by_kind: Mapping[str, float] = field(default_factory=dict)
    informed_by_kind: Mapping[str, float] = field(default_factory=dict)
    auc: float | None = json_field(low=0, high=1, default=None)
    accuracy: float | None = json_field(low=0, high=1, default=None)
    training_seconds: float | None = None
    defense_name: str | None = None
    details: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_informed(self) -> bool:
        """Whether the estimate of an adversary who knows the defense is there."""
        return self.informed_fraction is not None

    @property
    def estimated(self) -> float | None:
        """Best estimate: that of an adversary who knows the defense, where there is one."""
        return self.informed_fraction if self.is_informed else self.estimated_fraction

    @property
    def ends(self) -> tuple[float | None, float | None]:
        """The attack's own 95% interval around `estimated`."""
        return (self.informed_low, self.informed_high) if self.is_informed else (self.low, self.high)

    @property
    def error(self) -> float | None:
        """Absolute error of `estimated`."""
        return _distance(self.estimated, self.true_fraction)

    @property
    def unaware_error(self) -> float | None:
        """Absolute error of an adversary who does not know the defense."""
        return _distance(self.estimated_fraction, self.true_fraction)

    @property
    def trained_error(self) -> float | None:
        """Distance of that adversary's estimate from the share that was trained on."""
        return _distance(self.estimated_fraction, self.trained_fraction)

    @property
    def learned(self) -> float | None:
        """How much closer than the adversary's own columns alone; negative where they are closer."""
        return None if self.error is None or self.own_columns_error is None else self.own_columns_error - self.error

    @property
    def covered(self) -> bool | None:
        """Whether the attack's own interval contains the truth."""
        low, high = self.ends
        if self.true_fraction is None or low is None or high is None:
            return None
        return low <= self.true_fraction <= high

    @property
    def kind_errors(self) -> dict[str, float]:
        """Absolute error of the estimate from each kind of intermediate result, in their order."""
        estimates = self.informed_by_kind if self.is_informed else self.by_kind
        found = {kind: _distance(estimates.get(kind), self.true_fraction) for kind in KINDS}
        return {kind: error for kind, error in found.items() if error is not None}


_JUDGED = ("attack_accuracy", "disjoint_accuracy", "class_shapes_score", "distinct_nearest_rows", "nearer_to_train")


@dataclass(frozen=True, kw_only=True)
class ReleasedRow(Row):
    """One evaluation of one attack on a released model, over all classes or in one of them.

    Attributes:
        label: name of the attack in the config.
        evaluation: the network that judges.
        setting: name of the split into private and public classes.
        evaluation_index: number of the evaluation; those of one seed judge the same generator.
        latent_search: how latent codes were chosen.
        bridge: how the generator's output reaches the target.
        class_name: the class, or ``all``.
        samples: rows made and judged.
        excluded_classes: private classes that the attack makes no rows for.
    """

    KIND: ClassVar[str] = "released-model"
    ON_TEST_ROWS: ClassVar[tuple[str, ...]] = ("target_test_accuracy",)
    METRICS: ClassVar[Mapping[str, Share]] = {
        "shapes_score": SHARE,
        "pair_trends_score": SHARE,
        "sdmetrics_quality": SHARE,
        "sdmetrics_column_shapes": SHARE,
        "sdmetrics_column_pair_trends": SHARE,
        "inversion_loss": POSITIVE,
        "inversion_loss_searched": POSITIVE,
        "inversion_loss_start": POSITIVE,
        "exact_match_rate": SHARE,
        "gower_distance": POSITIVE,
        "fit_seconds": POSITIVE,
        "real_rows_accuracy": SHARE,
        "real_rows_accuracy_class": SHARE,
        "disjoint_real_rows_accuracy": SHARE,
        "real_rows_accuracy_pooled": SHARE,
        "target_test_accuracy": SHARE,
        "target_train_accuracy": SHARE,
        "attack_accuracy_low": SHARE,
        "attack_accuracy_high": SHARE,
        "exact_match_rate_with_label": SHARE,
        "condition_accuracy": SHARE,
        "public_condition_accuracy": SHARE,
        **{f"{prefix}{name}": ANY for name in _JUDGED for prefix in ("", "public_", "over_public_")},
    }
    EARLIER: ClassVar[Mapping[str, str]] = {
        "real_rows_accuracy": "ceiling",
        "real_rows_accuracy_class": "ceiling_class",
    }

    label: str | None = None
    evaluation: str | None = None
    setting: str | None = None
    evaluation_index: int | str | None = None
    latent_search: str | None = None
    bridge: str | None = None
    class_name: str = json_field(key="class", default=ALL)
    samples: int | None = json_field(low=0, default=None)
    excluded_classes: int | None = json_field(low=0, default=None)

    @property
    def name(self) -> str:
        """Name of the attack in the config."""
        return self.label or self.attack


@dataclass(frozen=True, kw_only=True)
class FrontierRow(ClientRow):
    """One training under a defense (its attack is ``none``), or one attack on a client under it.

    Attributes:
        training: how the target is trained, in one phrase.
        label_setting: what attacks know of the labels in this frontier.
        defense_label: name of its curve.
        defense_option: which setting of the defense is varied.
        defense_words: the defense and its strength in one line.
        defense_settings: the defense as a config's ``defense`` has it; empty in results of earlier versions.
        defense_knowledge: of attacks that know the defense, settings that depend on those of the defense.
        accuracy: accuracy of the trained network on the test rows.
        auroc: area under its ROC curve.
        majority: accuracy of always answering the commonest label of the test rows.
    """

    KIND: ClassVar[str] = "defense-frontier"
    ALIASES: ClassVar[tuple[str, ...]] = ("defence-frontier",)
    ON_TEST_ROWS: ClassVar[tuple[str, ...]] = ("accuracy", "auroc")

    training: str | None = None
    label_setting: str | None = None
    defense_label: str | None = None
    defense_option: str | None = None
    defense_words: str = ""
    defense_settings: Mapping[str, Any] = field(default_factory=dict)
    defense_knowledge: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    accuracy: float | None = json_field(low=0, high=1, default=None)
    auroc: float | None = json_field(low=0, high=1, default=None)
    majority: float | None = json_field(low=0, high=1, default=None)

    @property
    def is_training(self) -> bool:
        """Whether the row is about a training and no attack."""
        return self.attack == NONE

    @property
    def curve(self) -> str:
        """Name of its curve."""
        return self.defense_label or self.defense or NONE


@dataclass(frozen=True, kw_only=True)
class TrialRow(Row):
    """One trial of a tuning study.

    Attributes:
        trial: its number, from 0.
        state: how it ended.
        worker: host and process that ran it.
        values: by name of the objective; empty unless complete.
        parameters: by dotted key; a conditional one may be absent.
        intermediate: step and value of the first objective, as far as it came.
        is_default: whether it is the trial of the defaults.
        is_best: whether it is the best of a single objective.
        on_front: whether no other trial is better in one objective and as good in all.
        is_knee: whether it is the knee of the front.
        retry_of: number of the trial that it runs again.
        error: why it failed.
    """

    KIND: ClassVar[str] = "tuning"

    attack: str = NONE
    trial: int = json_field(low=0)
    state: Literal["complete", "pruned", "failed", "running"] = json_field()
    worker: str | None = None
    values: Mapping[str, float] = field(default_factory=dict)
    parameters: Mapping[str, Any] = field(default_factory=dict)
    intermediate: tuple[tuple[float | None, float | None], ...] = ()
    is_default: bool = False
    is_best: bool = False
    on_front: bool = False
    is_knee: bool = False
    retry_of: int | None = json_field(low=0, default=None)
    error: str | None = None


@dataclass(frozen=True, kw_only=True)
class ValueRow(Row):
    """One number of a reproduced table: one that no attack gave, or in ``comparison.json`` our value for a printed one.

    Attributes:
        metric: name of the number.
        value: the number, unless it has a key of its own; None where nothing was measured.
        column: column of the table, such as a layer.
        property_name: the property that it is about.
        paper: authors, title and venue of the paper.
        table: name of the reproduction.
        page: section of the paper that shows the table.
        cell: coordinates of the cell in the table.
        value_unit: unit of the numbers in the row.
        printed: the paper's value.
        printed_error: its standard error, from the deviation over the paper's runs.
        std: standard deviation of our measurements.
        n: number of our measurements.
        low: lower end of our 95% interval.
        high: its upper end.
        agrees: whether the two values agree; None where that cannot be judged.
        measured_on: the data that replace the paper's.
    """

    KIND: ClassVar[str] = "value"

    attack: str = NONE
    metric: str = json_field()
    value: float | None = None
    column: str | None = None
    property_name: str | None = json_field(key="property", default=None)
    paper: str | None = None
    table: str | None = None
    page: str | None = None
    cell: Mapping[str, Any] = field(default_factory=dict)
    value_unit: str | None = None
    printed: float | None = None
    printed_error: float | None = json_field(low=0, default=None)
    std: float | None = json_field(low=0, default=None)
    n: int | None = json_field(low=0, default=None)
    low: float | None = None
    high: float | None = None
    agrees: bool | None = None
    measured_on: str | None = None


def row_kinds() -> dict[str, type[Row]]:
    """Classes of rows by the name of their kind, earlier names included."""
    return {name: kind for kind in _row_classes(Row) for name in (kind.KIND, *kind.ALIASES)}


def _row_classes(base: type[Row]) -> Iterator[type[Row]]:
    for kind in base.__subclasses__():
        yield from (kind,) if kind.KIND else ()
        yield from _row_classes(kind)


def kind_name(name: object) -> str:
    """Today's name of a kind of run; of updates, the kind that once needed no name, where it is unknown.

    >>> kind_name("horizontal"), kind_name("defence-frontier"), kind_name(None)
    ('updates', 'defense-frontier', 'updates')
    """
    return row_kinds()[name].KIND if isinstance(name, str) and name in row_kinds() else UpdateRow.KIND


def read_row(raw: Any, where: str, run: str = "") -> Row:
    """Read one row; one without a ``kind`` is a `ValueRow` if it names a metric and no attack, else an `UpdateRow`.

    Args:
        raw: what the file holds.
        where: file and row, for errors.
        run: name of the run.

    Raises:
        UsageError: it is no mapping, its kind is unknown, a required key is missing, or a value has a wrong type.

    >>> read_row({"attack": "tableak", "cell_accuracy": 0.6}, "row 0").number("cell_accuracy")
    0.6
    """
    if not isinstance(raw, Mapping):
        raise UsageError(f"{where}: expected a mapping, got {quoted(raw)}")
    unnamed = ValueRow if "metric" in raw and "attack" not in raw else UpdateRow
    name = raw.get("kind", unnamed.KIND)
    if name not in (kinds := row_kinds()):
        raise UsageError(f"{where}, key 'kind': expected one of {', '.join(kinds)}, got {quoted(name)}")
    return kinds[name].read(raw, where, run)


def read_rows(raw: Mapping[str, Any], where: str, run: str = "") -> tuple[Row, ...]:
    """Read the rows of the content of a ``results.json``.

    Raises:
        UsageError: a row cannot be read (`read_row`), there are none, or the file is of another schema version.
    """
    if raw.get("schema_version") != SCHEMA_VERSION:
        raise UsageError(f"{where}: schema_version must be {SCHEMA_VERSION}, got {raw.get('schema_version')!r}")
    if not isinstance(raw.get("rows"), list):
        raise UsageError(f"{where}: expected a mapping with a list 'rows'")
    return tuple(read_row(row, f"{where}, row {i}", run) for i, row in enumerate(raw["rows"]))


def read_file(folder: Path) -> Mapping[str, Any]:
    """Content of the ``results.json`` of a run folder.

    Raises:
        UsageError: there is none, or it is no JSON mapping.
    """
    file = folder / FILE_NAME
    if not folder.is_dir():
        raise UsageError(f"{folder} is no run folder: expected a folder with {FILE_NAME}, got no folder")
    if not file.is_file():
        found = ", ".join(sorted(entry.name for entry in folder.iterdir())[:8]) or "an empty folder"
        raise UsageError(f"{folder} is no run folder: {FILE_NAME} is missing, got {found}")
    try:
        raw = json.loads(file.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{file}: expected JSON, got {error}") from error
    if not isinstance(raw, Mapping):
        raise UsageError(f"{file}: expected a mapping with a list 'rows', got {quoted(raw)}")
    return raw


def read_results(folder: Path | str, run: str | None = None) -> tuple[Row, ...]:
    """Read the rows of a run folder.

    Args:
        folder: the run folder.
        run: what to call it; the folder's name where that is left out.

    Raises:
        UsageError: ``results.json`` is missing or cannot be read.
    """
    path = Path(folder)
    return read_rows(read_file(path), str(path / FILE_NAME), path.resolve().name if run is None else run)


def load_results(folder: Path | str) -> "pd.DataFrame":
    """Read the results of a run of any kind as a table: one line a row, a column for each key of ``results.json``.

    Raises:
        UsageError: ``results.json`` is missing or cannot be read.
    """
    import pandas as pd  # heavy, and only this function needs it

    return pd.DataFrame([row.to_dict() for row in read_results(folder)])


def flat(settings: Mapping[Any, Any], prefix: str = "") -> dict[str, str]:
    """Settings as text, those of a part under ``part.name``.

    >>> flat({"steps": 50, "exact": {"starts": None}})
    {'steps': '50', 'exact.starts': 'default'}
    """
    found: dict[str, str] = {}
    for name, value in settings.items():
        if isinstance(value, Mapping):
            found |= flat(value, f"{prefix}{name}.")
        else:
            found[f"{prefix}{name}"] = setting_words(value)
    return found


def setting_words(value: Any) -> str:
    """The value of a setting as a reader sees it."""
    if value is None or value == []:
        return "default" if value is None else "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    is_list = isinstance(value, Sequence) and not isinstance(value, str)
    return ", ".join(map(str, value)) if is_list else str(value)


def _distance(value: float | None, true: float | None) -> float | None:
    return None if value is None or true is None else abs(value - true)
