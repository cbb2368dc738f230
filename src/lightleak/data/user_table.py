"""A user's own table: CSV, Parquet or DataFrame, with a schema inferred or given."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pandas as pd

from lightleak.core.errors import DataError
from lightleak.data.assembly import cut_table
from lightleak.data.cells import category_strings, without_blanks
from lightleak.data.codes import possible_codes, possible_identifiers
from lightleak.data.column import Column, MissingPolicy
from lightleak.data.column_problems import (
    column_problems,
    holds_dates,
    problem_report,
    rarely_repeats,
    read_as_missing,
)
from lightleak.data.schema import TableSchema
from lightleak.data.splits import holdout
from lightleak.data.table import DatasetCard, Table
from lightleak.data.table_file import Spelling, read_spelling, read_table, require_distinct


def load_table(
    source: Path | str | pd.DataFrame,
    label: str | int,
    schema: TableSchema | Path | str | None = None,
    test_fraction: float = 0.2,
    seed: int = 0,
    sensitive: Sequence[str | int] = (),
    group: str | int | None = None,
    drop: Sequence[str | int] = (),
    missing: MissingPolicy = "refuse",
    categorical: Sequence[str | int] = (),
) -> Table:
    """Make a table of a user's file or DataFrame.

    Names of columns are text: 2, as pandas numbers the columns of a file without names, is "2".

    Args:
        source: ``.csv``, ``.tsv`` (also gzipped), ``.parquet`` or a DataFrame. Where cells are not separated by commas,
            3,5 is read as a number with a decimal comma. Cells of whitespace alone are missing.
        label: name of the label column.
        schema: a schema, a YAML file with one, or ``None`` to infer it (`TableSchema.infer`).
        test_fraction: share of rows held out at random.
        seed: root seed of the split.
        sensitive: columns to mark as sensitive where the schema is inferred.
        group: column that says whose row it is (a patient's number, say). It is no feature: it stays out of an inferred
            schema, and in the frames. Rows are held out one by one, so that a group may have rows on both sides; a
            released-model audit splits all rows anew, by group (`make_inversion_task`). `group_holdout` splits a frame
            of your own by group.
        drop: columns that are no features, such as dates, free text and identifiers.
        missing: what to do where cells of a column whose kind is inferred are missing: ``refuse`` the table, ``impute``
            the median or the most frequent category, or make missing a ``category`` (of numbers: impute).
        categorical: columns whose numbers are codes of categories, where the schema is inferred.
            `Table.possible_codes` names those that look so (`lightleak.data.codes.possible_codes`), and those that the
            file writes with leading zeros. Cells of a CSV file are then taken literally (`read_table`).

    Raises:
        DataError: the file is missing, unreadable or empty, or a column is not what it should be: absent, with missing
            values, constant, of one class, of dates, an identifier, or with too many distinct strings. The message
            names every such column, what is wrong with it, and the setting that fixes it.

    >>> frame = pd.DataFrame({"age": [30, 40, 50, 60], "ill": ["no", "yes", "no", "yes"]})
    >>> load_table(frame, label="ill", test_fraction=0.25).schema.names
    ('age',)
    """
    label, group = str(label), None if group is None else str(group)
    sensitive, drop, categorical = map(_as_text, (sensitive, drop, categorical))
    given = None if schema is None else _given(schema, label, sensitive)
    texts = _declared_texts(given, categorical)
    if isinstance(source, pd.DataFrame):
        frame, name, spelling = source, "table", Spelling()
    else:
        path = Path(source)
        frame, name = read_table(path, texts), path.name
        spelling = read_spelling(path, frame) if given is None else Spelling()
    frame = frame.rename(columns=str)
    require_distinct(frame.columns, name)
    frame = _without(frame, drop, label, name)
    if len(frame) < 2:
        raise DataError(f"{name!r} must have at least 2 rows below its column names, got {len(frame)}")
    if group is not None and group not in frame.columns:
        raise DataError(f"column {group!r}, the group of each row, is not in {name!r}; columns: {list(frame.columns)}")
    words = [column for column in frame.columns if not pd.api.types.is_numeric_dtype(frame[column])]
    frame = frame.assign(**{column: without_blanks(frame[column], column in texts) for column in words})
    features = frame if group is None else frame.drop(columns=group)
    _check_missing(missing, given is not None)
    features = _with_codes(features, categorical, label, name, given is not None)
    schema = _infer(features, label, sensitive, missing, name, spelling, categorical) if given is None else given
    _require_two_classes(frame, schema)
    card = DatasetCard(
        name=name.split(".")[0],
        title=name,
        urls=(),
        files=() if isinstance(source, pd.DataFrame) else (name,),
        license="The user's own table",
        citation="",
        notes="Schema inferred from the table." if given is None else "Schema given by the user.",
    )
    table = cut_table(card, schema, frame, *holdout(len(frame), test_fraction, seed), group=group)
    if given is not None:
        return table
    codes = {*possible_codes(frame, schema), *spelling.padded}
    return replace(
        table,
        seen_bounds=tuple(column.name for column in schema.columns if column.is_numerical),
        possible_codes=tuple(column for column in schema.names if column in codes),
        possible_identifiers=possible_identifiers(frame, schema),
    )


def _as_text(names: Sequence[str | int]) -> Sequence[str]:
    """Names of columns as text; a single text is no list, and is refused later."""
    return names if isinstance(names, str) else [str(name) for name in names]


def _given(schema: TableSchema | Path | str, label: str, sensitive: Sequence[str]) -> TableSchema:
    if not isinstance(schema, TableSchema):
        schema = TableSchema.from_yaml(Path(schema))
    if schema.label.name != label:
        raise DataError(f"label {label!r} differs from the label of the schema, {schema.label.name!r}")
    return replace(schema, sensitive=tuple(sensitive)) if sensitive else schema


def _declared_texts(schema: TableSchema | None, categorical: Sequence[str]) -> list[str]:
    """Columns whose cells are categories, whatever they look like."""
    if schema is None:
        return list(categorical)
    return [column.name for column in (*schema.columns, schema.label) if not column.is_numerical]


def _infer(
    frame: pd.DataFrame,
    label: str,
    sensitive: Sequence[str],
    missing: MissingPolicy,
    name: str,
    spelling: Spelling,
    categorical: Sequence[str],
) -> TableSchema:
    if label in frame.columns:
        if problems := column_problems(frame, label, missing != "refuse", spelling.missing, categorical):
            raise DataError(problem_report(name, problems))
        if gaps := int(frame[label].isna().sum()):
            words = spelling.missing.get(label, ())
            raise DataError(
                f"label {label!r} has {gaps} missing values{read_as_missing(words)}; leave out the rows without a label"
                + ", or declare the classes in a schema, which takes words literally" * bool(words)
            )
        if holds_dates(frame[label]) or rarely_repeats(category_strings(frame[label])):
            n_values = frame[label].nunique()
            raise DataError(
                f"label {label!r} must be a class that repeats, got {n_values} distinct values in {len(frame)} rows; "
                "name another column, or cut its numbers into ranges, as by pandas.cut"
            )
    schema = TableSchema.infer(frame, label, sensitive)
    filled = tuple(_filled(column, missing) if frame[column.name].isna().any() else column for column in schema.columns)
    return replace(schema, columns=filled)


def _filled(column: Column, missing: MissingPolicy) -> Column:
    """The column with a policy for its gaps; numbers have no category of their own for them."""
    if missing == "category" and not column.is_numerical:
        return Column.categorical(column.name, column.categories, "category")
    return replace(column, missing="impute")


def _without(frame: pd.DataFrame, drop: Sequence[str], label: str, name: str) -> pd.DataFrame:
    if isinstance(drop, str):
        raise DataError(f"drop must be a list of columns, got the string {drop!r}")
    if unknown := [column for column in drop if column not in frame.columns]:
        raise DataError(f"drop names columns that are not in {name!r}: {unknown}; columns: {list(frame.columns)}")
    if label in drop:
        raise DataError(f"drop must leave the label, {label!r}")
    return frame.drop(columns=list(drop))


def _with_codes(frame: pd.DataFrame, categorical: Sequence[str], label: str, name: str, is_given: bool) -> pd.DataFrame:
    """Return the features with the numbers of categorical columns as text, so that they are inferred as categories."""
    if isinstance(categorical, str):
        raise DataError(f"categorical must be a list of columns, got the string {categorical!r}")
    if is_given and categorical:
        raise DataError("categorical is for inferred columns; in a schema write kind: categorical for the column")
    if unknown := [column for column in categorical if column not in frame.columns or column == label]:
        raise DataError(f"categorical names columns that are not features of {name!r}: {unknown}")
    return frame.assign(**{column: category_strings(frame[column]) for column in categorical})


def _check_missing(missing: MissingPolicy, is_given: bool) -> None:
    if missing not in get_args(MissingPolicy):
        raise DataError(f"missing must be one of {', '.join(get_args(MissingPolicy))}, got {missing!r}")
    if is_given and missing != "refuse":
        raise DataError(f"missing {missing!r} is for inferred columns; in a schema write missing: ... for each column")


def _require_two_classes(frame: pd.DataFrame, schema: TableSchema) -> None:
    label = schema.label.name
    if label in frame.columns and category_strings(frame[label]).nunique() < 2:
        found = frame[label].dropna().unique().tolist()
        raise DataError(f"label {label!r} must have rows of at least 2 classes, got only {found}")
