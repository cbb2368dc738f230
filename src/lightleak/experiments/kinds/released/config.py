"""One audit of a released model as typed data: the task, target and evaluation model, attacks, latent searches."""

from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from lightleak.core.bounds import Section, bounded, one_of
from lightleak.core.errors import UsageError
from lightleak.data.encoder import Encoding
from lightleak.data.task_config import TaskConfig
from lightleak.experiments.config import TableSource, TargetConfig
from lightleak.experiments.settings import RunConfig
from lightleak.targets.optimizers import OptimizerConfig

SEARCHES = ("random", "softmax", "gradient", "tpe", "random_best")


@dataclass(frozen=True)
class ReleasedDataConfig(TableSource):
    """The table, and how the target's input is encoded.

    Attributes:
        encoding: how rows become the target's input; ``onehot`` by default. Its statistics are released with the model:
            bounds of numbers (of all rows, private ones included, where no schema declares them) and their deviations
            in the private training rows; with ``onehot`` also their means, with ``standardized`` those of categories
            too. ``quantile`` is refused: it would release every private number.
    """

    encoding: Encoding = "onehot"

    def check(self) -> None:
        """Check as `TableSource` does, and refuse an encoding that holds every private number."""
        super().check()
        if self.encoding == "quantile":
            raise UsageError(
                "data.encoding 'quantile' would release every number of the private training rows with the model; "
                "choose onehot, standardized or minmax"
            )


@dataclass(frozen=True)
class ReleasedTrainingConfig(Section, section="training"):
    """How target and evaluation model are trained (thesis Sec. 4.4.2).

    Attributes:
        max_epochs: at most so many.
        batch_size: rows per step.
        patience: stop after so many epochs whose training loss did not fall by ``min_delta``.
        min_delta: in nats.
        optimizer: theirs; PyTorch Tabular's default is Adam with 0.001.
        trainer: further arguments of ``lightning.Trainer``.
    """

    max_epochs: int = bounded(150, ge=1)
    batch_size: int = bounded(256, ge=1)
    patience: int = bounded(3, ge=1)
    min_delta: float = bounded(0.001, ge=0)
    optimizer: OptimizerConfig = field(default_factory=lambda: OptimizerConfig("adam", 0.001))
    trainer: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class SamplesConfig(Section, section="samples"):
    """How often and how much is generated.

    Attributes:
        evaluations: repetitions with fresh latent vectors; results are their mean and deviation.
        per_class: rows per class for the attack accuracy (thesis: 1,000).
        searches: latent searches, each with rows of its own.
        searched_per_class: rows per class of the gradient search.
        tpe_per_class: rows per class of the Bayesian search, which takes seconds for each, and of ``random_best``, its
            control at equal budget.
        sdmetrics: also score rows of all classes by SDMetrics' quality report (extra ``scores``); seconds per score.
    """

    evaluations: int = bounded(5, ge=1)
    per_class: int = bounded(1000, ge=1)
    searches: tuple[str, ...] = one_of(("random",), SEARCHES, distinct=True, some=True)
    searched_per_class: int = bounded(50, ge=1)
    tpe_per_class: int = bounded(2, ge=1)
    sdmetrics: bool = False

    def rows_per_class(self, search: str) -> int:
        """Rows of each class for one evaluation of a search."""
        searched = {"random": self.per_class, "tpe": self.tpe_per_class, "random_best": self.tpe_per_class}
        return searched.get(search, self.searched_per_class)


USUAL = {
    "target": TargetConfig("mlp", {"hidden": [2048, 1024, 512, 256]}),
    "evaluation_model": TargetConfig("gandalf", {"stages": 16, "dropout": 0.1, "embedding_dropout": 0.1}),
}
"""Networks of the thesis (Sec. 4.4.2), where a config names none."""


@dataclass(frozen=True)
class ReleasedConfig(RunConfig):
    """A whole audit of one released model.

    Attributes:
        data: the table.
        task: private classes, public rows, features.
        target: the model that is released.
        evaluation_model: trained on the same private rows; it says what a reconstructed row looks like.
        training: how both are trained.
        attacks: attacks and the settings to change. A name that is no attack's needs the setting ``attack``.
        samples: what is generated.
        setting: name of the setting in results, such as the ID in thesis Table 4.3.
        seeds: root seeds; every one is another split, other models and other attacks. ``seeds: 5`` is short for five
            seeds, from ``seed`` (or 0) on, and ``seed: 3`` alone for ``seeds: [3]``.
        kind: what is audited.
        title: heading of the report.
        keep_captures: keep the released model and the public rows, for ``lightleak attack``.
        redact: leave rows out of files and report, and keep no captures and no networks; ``all`` is the same here.
        raw_csv: write text cells of ``reconstructions/*.csv`` as they are (see `FederatedConfig`).
    """

    lists_seeds: ClassVar[bool] = True

    data: ReleasedDataConfig
    task: TaskConfig = field(default_factory=TaskConfig)
    target: TargetConfig = field(default_factory=lambda: USUAL["target"])
    evaluation_model: TargetConfig = field(default_factory=lambda: USUAL["evaluation_model"])
    training: ReleasedTrainingConfig = field(default_factory=ReleasedTrainingConfig)
    attacks: dict[str, dict[str, Any]] = bounded(
        some=True, default_factory=lambda: {"plgmi": {}, "gan_without_target": {}, "public_pseudo_labeled": {}}
    )
    samples: SamplesConfig = field(default_factory=SamplesConfig)
    setting: str = "custom"
    seeds: tuple[int, ...] = bounded((0,), distinct=True, some=True)
    kind: Literal["released-model"] = "released-model"
    title: str = "What a released model gives away of its private classes"
    keep_captures: bool = True
    raw_csv: bool = False

    @classmethod
    def write_out(cls, tree: dict[str, Any]) -> None:
        """See `RunConfig.write_out`."""
        super().write_out(tree)
        for name, usual in USUAL.items():
            chosen = tree.get(name)
            if isinstance(chosen, dict) and chosen.get("network") not in (None, usual.network):
                chosen.setdefault("options", {})  # not those of the usual network
