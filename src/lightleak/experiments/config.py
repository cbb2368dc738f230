"""One experiment as typed data: what is trained, what leaves the client, which attacks read it.

A config is a YAML file; any key can be changed on the command line (``--training.epochs 3``). Unknown keys and values
of the wrong type are refused with their place.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from lightleak.core.bounds import Section, bounded, require_at_most
from lightleak.core.errors import UsageError
from lightleak.data.column import MissingPolicy
from lightleak.data.encoder import Encoding
from lightleak.defenses.horizontal import TrainingDefense
from lightleak.experiments.federation_config import (
    LABEL_METHODS,
    DefenseConfig,
    LabelMethod,
    ProtocolConfig,
    defense_of,
)
from lightleak.experiments.settings import RunConfig, write_out_labels
from lightleak.targets.optimizers import OptimizerConfig

Coverage = Literal["first", "epoch", "rounds"]
LabelSetting = Literal["true", "restored"]
ClientRows = Literal["all", "validation", "held_out"]


@dataclass(frozen=True)
class TableSource(Section, section="data"):
    """Which table.

    Attributes:
        name: dataset of the registry; or leave it out and give ``table`` and ``label``.
        table: a CSV, TSV or Parquet file of your own.
        label: label column of ``table``.
        schema: YAML schema of ``table``; inferred where there is none.
        drop: columns of ``table`` that are no features, such as dates, free text and identifiers.
        missing: what to do where cells of ``table`` are missing, unless a schema says it: ``refuse``, ``impute``, or
            make it a ``category`` (see `lightleak.data.user_table.load_table`).
        categorical: columns of ``table`` whose numbers are codes of categories, unless a schema says it.
        folder: folder with one subfolder of raw files per dataset.
        options: options of the dataset's loader.
        split_seed: seed of the split of the rows into those of training, of the test and of the public, where the table
            has none of its own; left out, the root seed.
    """

    name: str | None = None
    table: str | None = None
    label: str | None = None
    schema: str | None = None
    folder: str | None = None
    options: dict[str, Any] = field(default_factory=dict)
    split_seed: int | None = None
    drop: tuple[str, ...] = ()
    missing: MissingPolicy = "refuse"
    categorical: tuple[str, ...] = ()

    def check(self) -> None:
        """Require exactly one table."""
        if (self.name is None) == (self.table is None):
            raise UsageError(f"data needs either name or table, got name={self.name!r} and table={self.table!r}")
        if self.table is not None and self.label is None:
            raise UsageError(f"data.table {self.table!r} needs data.label, the name of its label column")
        if self.table is None and (self.drop or self.missing != "refuse" or self.categorical):
            raise UsageError("data.drop, data.missing and data.categorical are for your own table and need data.table")

    @property
    def title(self) -> str:
        """The dataset's name, or the file's without its endings."""
        return self.name or Path(str(self.table)).name.split(".")[0]

    def split_by(self, seed: int) -> int:
        """The seed that splits the rows in a run of this root seed."""
        return seed if self.split_seed is None else self.split_seed


@dataclass(frozen=True)
class DataConfig(TableSource):
    """Which table (see `TableSource`), and what of it the server knows.

    Attributes:
        encoding: how cells become numbers.
        statistics: rows the encoder takes means and deviations from: ``train``, ``all`` as TabLeak does, or ``test``,
            which are disjoint from every client's. Column bounds that no schema declares are those of all rows, unless
            this is ``test``: then they, too, come from there, and numbers beyond them cannot be reconstructed. Threat
            models state whether attacked rows are included. Categories are those of all rows.
        marginals: rows the random baseline takes its marginals from: ``test`` rows, disjoint from every client's, or
            ``all`` as TabLeak does.
    """

    encoding: Encoding = "standardized"
    statistics: Literal["train", "all", "test"] = "train"
    marginals: Literal["test", "all"] = "test"

    def check(self) -> None:
        """Check as `TableSource` does, and refuse an encoding that needs the bounds of all rows."""
        super().check()
        if self.statistics == "test" and self.encoding == "quantile":
            raise UsageError(
                "data.statistics 'test' leaves training rows beyond the bounds, which data.encoding 'quantile' cannot "
                "encode; choose standardized, onehot or minmax"
            )


@dataclass(frozen=True)
class TargetConfig:
    """The network under audit.

    Attributes:
        network: its registered name; see ``lightleak list targets``.
        options: its settings, such as ``hidden`` for the widths of an MLP.
    """

    network: str = "mlp"
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class TrainingConfig(Section, section="training"):
    """How the target is trained.

    Attributes:
        epochs: passes over the training rows; 0 audits the untrained network alone. FedAvg has ``protocol.rounds``.
        batch_size: rows a client sends the gradient of (FedSGD).
        optimizer: name, learning rate, momentum, weight decay (FedSGD; FedAvg's clients have their own SGD).
        validation_fraction: share of the training rows held out.
        trainer: further arguments of ``lightning.Trainer`` (accelerator, devices, precision, gradient_clip_val, ...).
    """

    epochs: int = bounded(2, ge=0)
    batch_size: int = bounded(32, ge=1)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    validation_fraction: float = bounded(0.1, ge=0, lt=1)
    trainer: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class CaptureConfig(Section, section="capture"):
    """Which updates of the training run are recorded and attacked.

    Attributes:
        epochs: epochs, or rounds under FedAvg (0-based), at which updates are recorded; none: nothing is.
        rounds: the first so many epochs or rounds, in place of ``epochs``.
        per_epoch: updates recorded in each, from its first batch (or its first client) on.
        coverage: ``first`` records ``per_epoch`` updates of each; ``epoch`` (FedSGD) every batch of these epochs, a
            smaller last one too, and ``rounds`` (FedAvg) every update of these rounds. With the latter two, results
            say of every person whether some update gave them away (key ``people`` and file ``people.csv``). An
            update takes about twice the size of the network on disk.
        sample: attacks that are run on some of the recorded updates only, with the number of these, such as
            ``{audit_max: 20}``; drawn at random, the same for every attack. For attacks that optimize, which take half
            a minute per update, while exact inversion of all of them takes minutes. With ``coverage`` only.
        at: ``raw`` or ``clipped``: at which point the gradient is taken. Where clients defend themselves it is what
            leaves the defense, and ``noised`` may say so.
    """

    epochs: tuple[int, ...] = bounded((0, 1), ge=0, distinct=True)
    rounds: int | None = bounded(None, ge=1)
    per_epoch: int = bounded(2, ge=1)
    coverage: Coverage = "first"
    sample: dict[str, int] = field(default_factory=dict)
    at: Literal["raw", "clipped", "noised"] = "raw"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rounds is None:
            return
        first = tuple(range(self.rounds))
        if self.epochs not in ((0, 1), first):  # the default, and what a saved config says
            raise UsageError(
                f"capture.rounds: {self.rounds} is short for epochs {list(first)}, got {list(self.epochs)}"
            )
        object.__setattr__(self, "epochs", first)

    @property
    def is_whole(self) -> bool:
        """Whether every update of the chosen epochs or rounds is recorded."""
        return self.coverage != "first"


@dataclass(frozen=True)
class InitialConfig(Section, section="initial"):
    """Fresh clients against the untrained network: what the papers report.

    Attributes:
        batch_sizes: rows per client.
        batches: clients per batch size. From 5 on, a defense that takes all from every client is measurably better.
        rows: training rows that the clients draw from. A study chooses settings on clients of the ``validation`` rows,
            a fifth, and reports on clients of the others, ``held_out``: no row is in both, whatever the seed.
        releases: FedSGD rounds in which each client sends the gradient of the same batch, with a new draw of its
            defense; an attack combines them (``exact_joint``, and ``audit_max`` by it). A frontier has 1.
        server_rate: learning rate of the server's step with each of these gradients before the next round; 0 leaves
            the weights unchanged.
    """

    batch_sizes: tuple[int, ...] = bounded((8, 32), ge=1, distinct=True)
    batches: int = bounded(6, ge=0)
    rows: ClientRows = "all"
    releases: int = bounded(1, ge=1)
    server_rate: float = bounded(0.05, ge=0)


@dataclass(frozen=True)
class MonitorConfig(Section, section="monitor"):
    """The attack that runs during training, so that leakage stands next to the validation metrics.

    Attributes:
        attack: name of the attack; ``None`` turns the monitor off.
        every: epochs between two looks.
        options: settings of the attack.
    """

    attack: str | None = None
    every: int = bounded(1, ge=1)
    options: dict[str, Any] = field(default_factory=dict)


NOT_FEDERATED = (
    "accumulate_grad_batches",
    "gradient_clip_algorithm",
    "gradient_clip_val",
    "num_nodes",
    "precision",
    "strategy",
)
"""Arguments of the Trainer that have no meaning for clients which train by themselves."""


@dataclass(frozen=True)
class FederatedConfig(RunConfig):
    """What the configs of all audits of federated training share.

    Attributes:
        data: the table.
        target: the network.
        protocol: what a client sends.
        training: how it is trained.
        initial: fresh clients against the untrained network.
        attacks: attack names and the settings to change.
        labels: whether the attacks are given the labels or restore them.
        label_method: how they are restored: one of `LABEL_METHODS`; the protocol's usual one where it is left out.
        seed: root seed.
        raw_csv: write text cells of ``reconstructions/*.csv`` as they are. Otherwise one that a spreadsheet would take
            for a formula gets an apostrophe in front.
    """

    data: DataConfig
    target: TargetConfig = field(default_factory=TargetConfig)
    protocol: ProtocolConfig = field(default_factory=ProtocolConfig)
    training: TrainingConfig = field(default_factory=TrainingConfig)
    initial: InitialConfig = field(default_factory=InitialConfig)
    attacks: dict[str, dict[str, Any]] = field(default_factory=lambda: {"tableak": {}, "audit_max": {}, "random": {}})
    labels: LabelSetting = "true"
    label_method: LabelMethod | None = None
    seed: int = 0
    raw_csv: bool = False

    @property
    def rounds(self) -> int:
        """Epochs of the training run, or its rounds under FedAvg."""
        return self.protocol.rounds if self.protocol.is_fedavg else self.training.epochs

    @property
    def rounds_setting(self) -> str:
        """Name of the setting that `rounds` reads."""
        return "protocol.rounds" if self.protocol.is_fedavg else "training.epochs"

    @classmethod
    def write_out(cls, tree: dict[str, Any]) -> None:
        """See `RunConfig.write_out`."""
        super().write_out(tree)
        write_out_labels(tree, *tree.get("attacks", {}).values())


@dataclass(frozen=True)
class AuditConfig(FederatedConfig):
    """A whole audit of one federated training (``kind: updates``).

    Attributes:
        defense: what a client does to what it sends before it leaves.
        capture: updates taken from the training run.
        monitor: the attack that runs during training.
        kind: what is audited.
        title: heading of the report.
    """

    defense: DefenseConfig = field(default_factory=DefenseConfig)
    capture: CaptureConfig = field(default_factory=CaptureConfig)
    monitor: MonitorConfig = field(default_factory=MonitorConfig)
    kind: Literal["updates"] = "updates"
    title: str = "Gradient leakage audit"

    def check(self) -> None:
        """Refuse settings that cannot work together."""
        if not self.attacks:
            raise UsageError("attacks must name at least one attack")
        if not (self.rounds and self.capture.epochs) and not (self.initial.batches and self.initial.batch_sizes):
            without = "capture.epochs names no epoch" if self.rounds else f"{self.rounds_setting} is 0"
            raise UsageError(f"nothing to attack: {without}, and initial names no batches")
        allowed = LABEL_METHODS[self.protocol.name]
        if self.label_method is not None and self.label_method not in allowed:
            raise UsageError(
                f"label_method must be one of {', '.join(allowed)} under {self.protocol.name}, got {self.label_method}"
            )
        if self.rounds and self.capture.epochs and min(self.capture.epochs) >= self.rounds:
            raise UsageError(
                f"capture.epochs must name one below {self.rounds} ({self.rounds_setting}; the first is 0), got "
                f"{list(self.capture.epochs)}"
            )
        self._check_coverage()
        self._check_defense()
        if self.protocol.is_fedavg:
            self._check_fedavg()
        elif self.rounds:
            clips = self.training.trainer.get("gradient_clip_val")
            if self.capture.at == "clipped" and not clips:
                raise UsageError("capture.at 'clipped' needs training.trainer.gradient_clip_val; nothing clips here")

    def _check_coverage(self) -> None:
        capture, fitting = self.capture, "rounds" if self.protocol.is_fedavg else "epoch"
        if not capture.is_whole and capture.sample:
            raise UsageError(f"capture.sample is about whole epochs or rounds: set capture.coverage to {fitting}")
        for attack, n in capture.sample.items():
            if type(n) is not int or n < 1:
                raise UsageError(f"capture.sample.{attack} must be a number of updates from 1, got {n!r}")
        if not capture.is_whole:
            return
        if capture.coverage != fitting:
            raise UsageError(
                f"capture.coverage must be first or {fitting} under {self.protocol.name}, got {capture.coverage!r}"
            )
        if not self.rounds or not capture.epochs:
            without = "capture.epochs names no epoch" if self.rounds else f"{self.rounds_setting} is 0"
            raise UsageError(f"capture.coverage {capture.coverage!r} is about updates of a training, and {without}")

    def _check_defense(self) -> None:
        if self.defense.is_none:
            if self.defense.options:
                raise UsageError("defense.options need defense.name, which says whose settings they are")
            if self.rounds and self.capture.at == "noised":
                raise UsageError("capture.at 'noised' needs a defense (defense.name); clients send what they computed")
        elif self.capture.at == "clipped":
            raise UsageError(
                f"capture.at 'clipped' leaves out what {self.defense.name} does to the gradient after it; leave it out"
            )
        if self.defense.point == "steps" and (self.defense.is_none or not self.protocol.is_fedavg):
            raise UsageError("defense.point 'steps' is about local steps of a FedAvg client with a defense")
        defense = defense_of(self.defense)
        if self.initial.releases > 1 and (
            self.protocol.is_fedavg or defense is None or isinstance(defense, TrainingDefense)
        ):
            raise UsageError(
                "initial.releases repeats FedSGD gradients behind a defense of updates, such as gaussian_noise: got "
                f"{self.protocol.name} and defense.name {self.defense.name!r}"
            )
        if self.protocol.is_fedavg and isinstance(defense, TrainingDefense) and self.defense.point != "steps":
            raise UsageError(
                f"under fedavg {self.defense.name} acts on the rows of every local step: set defense.point to steps"
            )

    def _check_fedavg(self) -> None:
        usual = TrainingConfig()
        for name, instead in (
            ("epochs", "protocol.rounds"),
            ("batch_size", "protocol.local_batch_size or protocol.local_batches"),
            ("optimizer", "protocol.learning_rate, momentum and weight_decay"),
        ):
            if getattr(self.training, name) != getattr(usual, name):
                raise UsageError(f"training.{name} is a setting of FedSGD; FedAvg has {instead}")
        if refused := [name for name in NOT_FEDERATED if self.training.trainer.get(name) is not None]:
            raise UsageError(
                f"training.trainer.{refused[0]} is a setting of FedSGD; a federation averages clients that train by "
                "themselves, on one device and in full precision"
            )
        if self.protocol.label_order == "batches" and self.labels != "true":
            raise UsageError(
                f"protocol.label_order 'batches' reveals the labels of every local batch; it needs labels true, got "
                f"{self.labels}"
            )
        for size in self.initial.batch_sizes if self.initial.batches else ():
            self.protocol.local_batch_of(size)
        if self.rounds and not self.capture.is_whole:
            updates = self.protocol.updates_of_round
            require_at_most("capture.per_epoch", self.capture.per_epoch, updates, "updates of one round")
        if self.capture.at == "clipped":
            raise UsageError("capture.at 'clipped' is about FedSGD gradients; a FedAvg client sends changed weights")

    @classmethod
    def write_out(cls, tree: dict[str, Any]) -> None:
        """See `RunConfig.write_out`; ``defense: sign`` is short for ``defense: {name: sign}``."""
        if isinstance(tree.get("defense"), str):
            tree["defense"] = {"name": tree["defense"]}
        super().write_out(tree)
        if isinstance(monitor := tree.get("monitor"), dict):
            write_out_labels(monitor.get("options"))
