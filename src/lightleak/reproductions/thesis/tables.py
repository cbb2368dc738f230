"""The thesis's tables on Diabetes-130; its own MIMIC-IV needs credentials, so ours are measured on another table."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from lightleak.core.errors import UsageError
from lightleak.core.results import ALL
from lightleak.core.stored import read_json
from lightleak.core.summary import Summary, summarize, summarize_by
from lightleak.experiments.kinds.released.config import ReleasedConfig
from lightleak.experiments.kinds.released.job import plan_attacks, plan_models
from lightleak.experiments.kinds.released.kind import gather_entries
from lightleak.experiments.kinds.released.models import prepare_world
from lightleak.experiments.pack import Pack
from lightleak.reproductions.paper.values import PaperCell, paper_settings
from lightleak.reproductions.reproduction import MOST_TRAININGS, Reproduction, Row, Rows, Stage, scale
from lightleak.reproductions.settings import Selection, selected

THESIS = paper_settings("thesis")
SETTINGS: dict[str, dict[str, Any]] = THESIS["settings"]
"""What the settings of Table 4.3 change in the thesis's audit, by their ID."""


def setting(
    name: str,
    selection: Selection | None = None,
    attacks: Mapping[str, Mapping[str, Any]] | None = None,
    samples: Mapping[str, Any] | None = None,
) -> ReleasedConfig:
    """The audit of one setting.

    Args:
        name: ID of Table 4.3.
        selection: seeds, the folder of the data, and iterations of the published generator.
        attacks: in place of PLG-MI and its companions; each with the hyperparameters of Table 5.4.
        samples: changes to the thesis's ten evaluations of random latent vectors.
    """
    selection = selection or Selection()
    published = THESIS["published"]
    if selection.iterations is not None:
        published = {**published, "iterations": selection.iterations}
    chosen = {label: {**published, **options} for label, options in (attacks or {"plgmi": {}}).items()}
    changes = {
        **SETTINGS[name],
        "setting": name,
        "attacks": chosen if attacks else {**chosen, **THESIS["companions"]},
        "seeds": selection.seeds,
        "data.folder": selection.data_folder,
        **{f"samples.{key}": value for key, value in (samples or {}).items()},
    }
    return ReleasedConfig.parse(THESIS["audit"], changes, "thesis.yaml")


class ReleasedAudits(Reproduction):
    """Audits of released models in one or several settings of the thesis, each in its own folder.

    Options of a table: ``attacks`` and ``samples``, as `setting` takes them.
    """

    per = "seed"  # evaluations of one training are not trainings
    repeats = "seeds"
    most = MOST_TRAININGS
    iterations = THESIS["published"]["iterations"]
    has_code = False

    def choose(self) -> list[PaperCell]:
        """The selected cells; another dataset than the one there is, is refused."""
        if self.selection.dataset not in (None, "diabetes130"):
            raise UsageError(
                f"{self.table.name} runs on diabetes130, got --dataset {self.selection.dataset}; an audit takes any "
                "table"
            )
        everywhere = replace(self.selection, dataset=None)
        return selected(self.table, self.table.cells or self.table.drawn, everywhere)

    def prepare(self) -> None:
        """Make the audits, by ID of their setting (Table 4.3): every setting of a cell, or else setting 2."""
        names = dict.fromkeys(str(cell.value) for cell in self.cells if cell.option == "setting") or ("2",)
        self.audits = {name: setting(name, self.selection, **self.table.options) for name in names}

    def stages(self) -> Sequence[Stage]:
        """Of every audit the models, then the attacks on them."""
        found: list[Stage] = []
        for name, config in self.audits.items():
            place = f"setting-{name}"
            found += [
                Stage.of_audit(plan_models, config, noun="models trained", place=place, reported=False),
                Stage.of_audit(plan_attacks, config, noun="evaluations of attacks", place=place),
            ]
        return found

    def row(self, row: Row, stage: Stage, unit: str) -> Row | None:
        """Rows over all classes."""
        return row if row["class"] == ALL else None

    def leave(self, rows: Rows, folder: Path) -> None:
        """Write the entries that the report reads."""
        for name in self.audits:
            gather_entries(folder / f"setting-{name}")

    def stand_in(self, cell: PaperCell) -> str:
        """The table in place of the thesis's."""
        return f"{THESIS['audit']['data']['name']} (stand-in)"

    def where(self, cell: PaperCell) -> Row:
        """The rows of the published attack, in the cell's setting, with its search or with its weight of the loss."""
        found: Row = {"label": f"alpha1 {cell.value:g}" if cell.option == "alpha1" else "plgmi"}
        found |= {"setting": cell.value} if cell.option == "setting" else {}
        return found | ({"latent_search": cell.variant} if cell.variant else {})

    def measured(self, cell: PaperCell, rows: Rows) -> Summary:
        """The mean over trainings; evaluations of one training are one measurement."""
        return over_trainings(self.behind(cell, rows), self.column(cell), scale(cell))

    def notes(self, rows: Rows) -> list[str]:
        """What is the same for every run, the baselines, and how long generators were trained."""
        iterations = None if self.iterations is None else self.selection.iterations
        trained = [] if iterations is None else [f"Generators were trained for {iterations} iterations."]
        return [*super().notes(rows), *self.baselines(rows), *trained]

    def baselines(self, rows: Rows) -> Iterable[str]:
        """Numbers to compare those of the cells with."""
        return ()


class TargetQuality(ReleasedAudits):
    """Table 5.3: training and test accuracy of the targets."""

    iterations = None

    def stages(self) -> Sequence[Stage]:
        """The targets alone."""
        return [
            Stage.of_audit(_targets, config, noun="models trained", place=f"setting-{name}")
            for name, config in self.audits.items()
        ]

    def row(self, row: Row, stage: Stage, unit: str) -> Row:
        """The scores of a target, with its setting and seed."""
        return {"setting": stage.place.removeprefix("setting-"), "seed": int(unit.rpartition("-s")[2]), **row}

    def where(self, cell: PaperCell) -> Row:
        """The scores in the cell's setting."""
        return {"setting": cell.value}

    def leave(self, rows: Rows, folder: Path) -> None:
        """Nothing: no generator was trained."""


class AttackQuality(ReleasedAudits):
    """Table 5.5: attack accuracy and statistics in every setting, and the baselines as notes."""

    def baselines(self, rows: Rows) -> Iterator[str]:
        """Every attack and baseline of each setting."""
        for name in self.audits:
            found = [row for row in rows if row["setting"] == name]
            if not found:
                continue
            means = {
                label: over_trainings([row for row in found if row["label"] == label], "attack_accuracy", 100).mean
                for label in dict.fromkeys(row["label"] for row in found)
            }
            listed = ", ".join(f"{label} {mean:.1f}%" for label, mean in means.items())
            yield (
                f"Setting {name}: attack accuracy {listed}; evaluation model on held-out private rows "
                f"{over_trainings(found, 'real_rows_accuracy', 100).mean:.1f}%. n is the number of trainings; "
                "evaluations of one are averaged."
            )


class LatentSearches(ReleasedAudits):
    """Table 5.6: the latent searches in setting 2, from the same latent vectors."""

    # The thesis's loss is that at z*, before a row is decoded.
    columns: ClassVar[Mapping[str, str]] = {"inversion_loss": "inversion_loss_searched"}

    def baselines(self, rows: Rows) -> Iterator[str]:
        """The same with the transform that both networks share."""
        for search in self.audits["2"].samples.searches:
            own = [row for row in rows if (row["label"], row["latent_search"]) == ("plgmi shared", search)]
            if own:
                accuracy, loss = (over_trainings(own, name) for name in ("attack_accuracy", "inversion_loss"))
                yield (
                    f"With the shared transform {search} has attack accuracy {100 * accuracy.mean:.1f}% and inversion "
                    f"loss {loss.mean:.2g}."
                )


class ClosestRows(ReleasedAudits):
    """Table A.2: the closest reconstructed and private row of every class in setting 2."""

    def prepare(self) -> None:
        """Setting 2 with one evaluation of one training."""
        super().prepare()
        self.audits = {name: replace(one, seeds=one.seeds[:1]) for name, one in self.audits.items()}

    def leave(self, rows: Rows, folder: Path) -> None:
        """See `ReleasedAudits.leave`; also read the closest rows by class; none if no attack finished."""
        super().leave(rows, folder)
        entries = read_json(folder / "setting-2" / "inversion.json")["entries"]
        self.nearest: Mapping[str, Any] = {pair["class"]: pair for entry in entries[:1] for pair in entry["nearest"]}
        self.classes = prepare_world(self.audits["2"], self.selection.seeds[0]).task.schema.label.categories

    def measured(self, cell: PaperCell, rows: Rows) -> Summary:
        """The difference of the two rows in a column; nothing for what our table or the attack lacks."""
        column, pair = THESIS["columns"].get(str(cell.column)), self.nearest.get(self.classes[int(str(cell.value))])
        if column is None or pair is None or column not in pair["private"]:
            return summarize([])
        made, private = pair["reconstructed"][column], pair["private"][column]
        return summarize([float(made == private) if isinstance(made, str) else float(abs(made - private))])


def over_trainings(rows: Rows, metric: str, scale: float = 1.0) -> Summary:
    """The mean of a column over trainings; evaluations of one training are averaged first."""
    return summarize_by((row["seed"], scale * row[metric]) for row in rows)


def _targets(config: ReleasedConfig) -> Sequence[Pack]:
    return [pack for pack in plan_models(config) if pack.role == "target"]
