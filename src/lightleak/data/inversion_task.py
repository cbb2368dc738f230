"""The task of a model inversion audit: private classes and rows on one side, public rows on the other."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd

from lightleak.core.errors import DataError, UsageError
from lightleak.core.results import ALL
from lightleak.data.cells import category_codes, category_strings, fill
from lightleak.data.class_split import ClassSplit, split_by_class
from lightleak.data.feature_selection import (
    EncodedColumn,
    encoded_columns,
    encoded_frame,
    encoded_matrix,
    importances,
)
from lightleak.data.schema import Column, TableSchema
from lightleak.data.table import Table
from lightleak.data.task_config import TaskConfig

__all__ = ["InversionTask", "TaskConfig", "make_inversion_task"]

CHOSEN_ON = (
    "Columns are chosen by the private training rows (permutation importance: and validation rows). The thesis takes "
    "the full data set, test rows and public labels included, which an honest release does not have."
)


@dataclass(frozen=True)
class InversionTask:
    """Rows of both sides, with the selected features only; no group (patient) has rows in two of the five frames.

    Attributes:
        schema: selected feature columns; the label's categories are the private classes, the most frequent first.
        private_train: rows that target and evaluation model are trained on, with their label.
        private_validation: rows for the scores of the models, for permutation importance, and to stop boosted trees,
            with their label.
        private_test: held-out rows of the private classes, with their label.
        private_judge: rows that only the second evaluation model is trained on, with their label.
        public: rows the attacker holds, without a label column.
        facts: what the split left, JSON-ready: rows and groups per part, rows dropped because their group has rows of
            private classes, importance of the selected features, the rule of the split.
    """

    schema: TableSchema
    private_train: pd.DataFrame
    private_validation: pd.DataFrame
    private_test: pd.DataFrame
    private_judge: pd.DataFrame
    public: pd.DataFrame
    facts: Mapping[str, Any]


def make_inversion_task(table: Table, config: TaskConfig, seed: int) -> InversionTask:
    """Cut a table into private and public rows and keep its most important encoded columns (thesis Sec. 4.4.2.1).

    All rows take part; the table's own split is not used. Missing cells of public rows are filled from public rows
    alone, those of private rows from private ones. The label has the private classes only. Numbers keep the bounds of
    the table's schema, and public values may lie beyond those of an encoder fitted on private rows: encoding extends
    its scale to them, decoding clamps.

    Args:
        table: the table; its frames may hold the group column in addition to the columns of the schema.
        config: settings.
        seed: root seed of split and forest.

    Raises:
        UsageError: a setting that does not fit this table, named ``task.<field>``.
        DataError: a row does not fit the schema, a group is missing, a part stays empty, a column with gaps has no
            value on one side, or a private class is named ``all``.
        UnsupportedError: scikit-learn is not installed.
    """
    frame = pd.concat([table.train, table.test], ignore_index=True)
    groups = _groups(frame, config, table.schema)
    label = table.schema.label
    labels = table.schema.validate_label(frame)
    split = split_by_class(category_codes(label, labels), groups, config, seed)
    frame = _filled_apart(frame, table, split)
    classes = Column.categorical(label.name, [label.categories[index] for index in split.classes])
    if ALL in classes.categories:
        raise DataError(
            f"the label column {label.name!r} has a private class named {ALL!r}, the name of all classes together in "
            "results.json; rename the class"
        )

    offered = [
        column
        for column in encoded_columns(table.schema, frame, split.private_train, config.min_frequency)
        if column.source != config.group  # a patient's name is not a feature
    ]
    if config.features > len(offered):
        raise UsageError(
            f"task.features must be at most {len(offered)} (encoded columns of {table.card.name!r} with a frequency of "
            f"at least {config.min_frequency}), got {config.features}"
        )
    parts = (split.private_train, split.private_validation)
    train, validation = ((encoded_matrix(offered, part), category_codes(classes, labels.iloc[part])) for part in parts)
    importance, forest = importances(train, validation, config, seed)
    chosen = np.argsort(-importance, kind="stable")[: config.features]
    kept = [offered[index] for index in sorted(chosen)]
    schema = TableSchema(tuple(column.column for column in kept), classes, _sensitive(table.schema, kept))

    def private(part: np.ndarray) -> pd.DataFrame:
        return encoded_frame(kept, part).assign(**{label.name: labels.to_numpy()[part]})

    return InversionTask(
        schema,
        private_train=private(split.private_train),
        private_validation=private(split.private_validation),
        private_test=private(split.private_test),
        private_judge=private(split.private_judge),
        public=encoded_frame(kept, split.public),
        facts={
            "config": asdict(config),
            **_class_facts(split, classes),
            "encoded_columns": len(offered),
            "importance": {offered[index].column.name: float(importance[index]) for index in chosen},
            "forest": forest,
            "chosen_on": CHOSEN_ON,
        },
    )


def _filled_apart(frame: pd.DataFrame, table: Table, split: ClassSplit) -> pd.DataFrame:
    """Fill what was imputed from all rows again, from those of the same side."""
    private = np.concatenate([split.private_train, split.private_validation, split.private_test, split.private_judge])
    filled = frame.copy(deep=False)
    for name, cells in table.imputed.items():
        column, values = table.schema.column(name), frame[name].to_numpy(copy=True)
        for side, rows in (("private", private), ("public", split.public)):
            if cells[rows].all():
                raise DataError(f"{column} has no value in any {side} row; nothing to impute from there: drop it")
            values[rows] = fill(column, frame[name].iloc[rows].mask(cells[rows]))
        filled[name] = values
    return filled


def _groups(frame: pd.DataFrame, config: TaskConfig, schema: TableSchema) -> np.ndarray:
    if config.group is None:
        return np.arange(len(frame))
    if config.group not in frame.columns or config.group == schema.label.name:
        raise UsageError(
            f"task.group must be a column of the table's rows other than the label, got {config.group!r}; columns: "
            f"{list(map(str, frame.columns))}"
        )
    groups = frame[config.group]
    if gaps := int(groups.isna().sum()):
        raise DataError(f"column {config.group!r} names the group of each row; {gaps} rows have none")
    # Numbers stay numbers: the split deals out groups in their order.
    return (groups if pd.api.types.is_numeric_dtype(groups) else category_strings(groups)).to_numpy()


def _sensitive(schema: TableSchema, kept: Sequence[EncodedColumn]) -> tuple[str, ...]:
    """Columns made of a sensitive one, and the label where it is sensitive itself."""
    made = [column.column.name for column in kept if column.source in schema.sensitive]
    return (*made, *(name for name in schema.sensitive if name == schema.label.name))


def _class_facts(split: ClassSplit, classes: Column) -> dict[str, Any]:
    """Facts of the split, with the rows of each private class under its name."""
    facts = dict(split.facts)
    parts = facts.pop("rows_per_class")
    per_class = [
        {"class": name, **{part: counts[index] for part, counts in parts.items()}}
        for index, name in enumerate(classes.categories)
    ]
    return {**facts, "classes": per_class}
