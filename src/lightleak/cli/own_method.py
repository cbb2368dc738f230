"""Compare a method of the user's, given as a CSV file of scores, with the attacks of a run, paired by observation."""

import csv
import json
import math
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from lightleak.core.errors import UsageError, close_match
from lightleak.core.grouping import by_key
from lightleak.core.private_files import private_files
from lightleak.core.results import FILE_NAME, NONE, read_results
from lightleak.experiments.terminal import Column, Lines
from lightleak.report.intervals import Estimate, estimate, paired_difference

Row = Mapping[str, Any]

CONDITION = (
    *("dataset", "target", "evaluation", "protocol", "batch_size", "local_epochs", "local_batches"),
    *("local_batch_size", "n_clients", "source", "epoch", "defense", "defense_label", "defense_strength"),
    *("label_setting", "property", "adversary", "class"),
)
"""Keys of a row that say under which condition an observation was made; conditions are compared one by one."""

REPETITION = ("seed", "batch_index")
"""Keys that number the independent observations of one condition, over which the intervals are."""

AVERAGED = "evaluation_index"
"""Evaluations of one training are no independent observations: their scores are averaged."""

KEYS = ("unit", *CONDITION, *REPETITION, AVERAGED)
"""Columns of the CSV file that name an observation."""

METHOD = ("attack", "label", "variant", "labels", "latent_search", "setting")
"""Keys that distinguish the attacks of a run."""

WITHOUT_COLUMN = {"class": "all"}
"""Value of a key that the CSV file has no column for, where a run has rows for each of several."""

ERRORS = {"estimated_fraction": "absolute_error", "informed_fraction": "informed_error"}
"""Estimates of a property's share are scored by their distance from the row's ``true_fraction``."""

_SHARE = re.compile(
    r"(?!over_|learned)(.*(accuracy|_rate|_score|_fraction|_share)$|.*_rate_with_label$|(absolute|informed)_error$|"
    r"(top|bottom)25_|certified_exact$|nearer_to_train$)"
)
_POSITIVE = re.compile(r"rmse$|.*(error|distance|seconds|_rows)$")


@dataclass(frozen=True)
class Compared:
    """The user's method against one attack of the run, by one score under one condition.

    Attributes:
        condition: what all its observations share, of the keys in `CONDITION`.
        method: name of the user's method.
        attack: the attack of the run, with what distinguishes it from others of the same name.
        metric: name of the score.
        own: mean of the user's method.
        ours: mean of the attack, on the same observations.
        difference: ``own - ours``, paired by observation, with a 95% interval.
    """

    condition: Mapping[str, Any]
    method: str
    attack: str
    metric: str
    own: Estimate
    ours: Estimate
    difference: Estimate

    @property
    def verdict(self) -> str:
        """What the interval of the difference says."""
        low, high = self.difference.low, self.difference.high
        if low is None or high is None:
            return "one observation, no interval"
        return "higher" if low > 0 else "lower" if high < 0 else "no difference shown"


@dataclass(frozen=True)
class _Line:
    """One line of the CSV file: its number, the name of the method, the keys of the observation, the scores."""

    number: int
    method: str
    keys: Mapping[str, str]
    scores: Mapping[str, float]


def compare_with(folder: Path, file: Path) -> list[Compared]:
    """Pair the scores of a CSV file with the rows of a run.

    Args:
        folder: run folder of any kind of audit.
        file: CSV file; see docs/compare.md for its columns.

    Raises:
        UsageError: a file cannot be read, a column or observation is unknown, or a value is out of its range.
    """
    rows = _read_rows(folder)
    pairs: dict[tuple[Any, ...], dict[tuple[Any, ...], list[tuple[float, float]]]] = defaultdict(dict)
    taken: dict[tuple[Any, ...], int] = {}
    for line in _read_lines(file, rows):
        matched = _matched(line, rows)
        place = (line.method, _values(matched[0], (*CONDITION, *REPETITION)), line.keys.get(AVERAGED))
        if place in taken:
            raise UsageError(f"{file}, line {line.number}: repeats the observation of line {taken[place]}")
        taken[place] = line.number
        for attack, of_attack in _by_attack(matched, rows).items():
            for metric, own in _scored(line, matched[0]).items():
                theirs = [value for row in of_attack if (value := _number(row.get(metric))) is not None]
                if theirs:
                    group = (_values(matched[0], CONDITION), line.method, attack, metric)
                    repetition = _values(matched[0], REPETITION)
                    pairs[group].setdefault(repetition, []).append((own, math.fsum(theirs) / len(theirs)))
    if not pairs:
        raise UsageError(f"no attack in {folder} has the scores in {file}: without the truth there is no accuracy")
    return [_compared(group, by_repetition) for group, by_repetition in pairs.items()]


def _read_rows(folder: Path) -> list[Row]:
    found: list[Row] = [row.to_dict() for row in read_results(folder) if row.attack != NONE]
    if not found:
        raise UsageError(f"{folder / FILE_NAME} has no row of an attack; name the folder of an audit")
    return found


def _read_lines(file: Path, rows: Sequence[Row]) -> Iterator[_Line]:
    try:
        with file.open(encoding="utf-8-sig", newline="") as opened:
            reader = csv.DictReader(opened, strict=True)
            columns, lines = list(reader.fieldnames or ()), list(reader)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UsageError(f"{file} cannot be read as CSV in UTF-8: {error}") from error
    metrics = _metrics(rows)
    _check_columns(file, columns, rows, metrics)
    if not lines:
        raise UsageError(f"{file} has no line below its column names")
    for number, line in enumerate(lines, 2):
        where = f"{file}, line {number}"
        if None in line or None in line.values():
            raise UsageError(f"{where}: expected {len(columns)} cells, as the first line has")
        keys = {key: line[key].strip() for key in columns if key in KEYS and line[key].strip()}
        scores = {name: _score(where, name, line[name]) for name in columns if name in metrics and line[name].strip()}
        yield _Line(number, (line.get("attack") or file.stem).strip(), keys, scores)


def _metrics(rows: Iterable[Row]) -> set[str]:
    """Names of the scores that a run has."""
    keys = {*KEYS, *METHOD}
    return {name for row in rows for name, value in row.items() if name not in keys and _number(value) is not None}


def _check_columns(file: Path, columns: Sequence[str], rows: Sequence[Row], metrics: set[str]) -> None:
    keys = [key for key in KEYS if any(row.get(key) is not None for row in rows)]
    listed = f"keys of an observation are {', '.join(keys)}; scores are {', '.join(sorted(metrics))}"
    for column in columns:
        if column not in metrics and column not in keys and column != "attack":
            hint = close_match(column, [*metrics, *keys])
            raise UsageError(f"{file}: column {column!r} is neither a key nor a score of this run{hint}; {listed}")
    if len(set(columns)) < len(columns):
        raise UsageError(f"{file}: a column name occurs twice in {', '.join(columns)}")
    if not any(column in keys for column in columns):
        raise UsageError(f"{file} has no column that names the observation; {listed}")
    if not any(column in metrics for column in columns):
        raise UsageError(f"{file} has no column with a score; {listed}")


def _score(where: str, name: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError as error:
        raise UsageError(f"{where}: {name} must be a number or empty, got {text!r}") from error
    low, high = _range(name)
    if not (math.isfinite(value) and low <= value <= high):
        allowed = "a share from 0 to 1 (no percentage)" if high == 1 else f"at least {low:g}" if low == 0 else "finite"
        raise UsageError(f"{where}: {name} must be {allowed}, got {text}")
    return value


def _range(metric: str) -> tuple[float, float]:
    """Return the lowest and highest value of a score.

    >>> _range("cell_accuracy"), _range("rmse"), _range("over_public_attack_accuracy")
    ((0.0, 1.0), (0.0, inf), (-inf, inf))
    """
    if _SHARE.match(metric):
        return 0.0, 1.0
    return (0.0, math.inf) if _POSITIVE.match(metric) else (-math.inf, math.inf)


def _matched(line: _Line, rows: Sequence[Row]) -> list[Row]:
    """Return the rows of all attacks on the observation of a line."""
    wanted: Mapping[str, Any] = line.keys
    if "unit" in wanted:
        of_unit = [row for row in rows if row.get("unit") == wanted["unit"]]
        if of_unit:
            named = {key: of_unit[0].get(key) for key in (*CONDITION, *REPETITION) if key in of_unit[0]}
            wanted = {**named, **{key: text for key, text in wanted.items() if key != "unit"}}
    for key, value in WITHOUT_COLUMN.items():
        if key not in wanted and any(row.get(key) == value for row in rows):
            wanted = {**wanted, key: value}
    found = [row for row in rows if all(_is(row.get(key), value) for key, value in wanted.items())]
    said = ", ".join(f"{key} {text}" for key, text in line.keys.items()) or "no key"
    if not found:
        known = {key: sorted({str(row[key]) for row in rows if row.get(key) is not None}) for key in line.keys}
        listed = "; ".join(f"{key}: {_some(values)}" for key, values in known.items())
        raise UsageError(f"line {line.number} ({said}) matches no row of the run, which has {listed}")
    differing = [key for key in (*CONDITION, *REPETITION) if len({str(row.get(key)) for row in found}) > 1]
    if differing:
        raise UsageError(
            f"line {line.number} ({said}) matches several observations, which differ in {', '.join(differing)}: add "
            f"{'this column' if len(differing) == 1 else 'columns that distinguish them'}"
        )
    return found


def _is(value: Any, wanted: Any) -> bool:
    """Whether a value of a row is the one that a cell names.

    >>> _is(8, "8.0"), _is(None, "8"), _is("C1", "C1")
    (True, False, True)
    """
    if value == wanted or str(value) == str(wanted):
        return True
    try:
        return _number(value) is not None and float(value) == float(wanted)
    except (TypeError, ValueError):
        return False


def _some(values: Sequence[str], most: int = 8) -> str:
    return ", ".join(values[:most]) + (f", ... ({len(values)} in all)" if len(values) > most else "")


def _by_attack(matched: Iterable[Row], rows: Iterable[Row]) -> dict[str, list[Row]]:
    """Return the rows of one observation by attack, with what distinguishes it from others in the same condition."""
    groups: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
    for row in matched:
        groups[_values(row, METHOD)].append(row)
    condition = _values(next(iter(groups.values()))[0], CONDITION)
    known = {_values(row, METHOD) for row in rows if _values(row, CONDITION) == condition}
    named = {}
    for values, group in groups.items():
        attack, label, *_ = values
        same = [other for other in known if other[:2] == values[:2]]
        differing = [at for at in range(2, len(METHOD)) if len({other[at] for other in same}) > 1]
        details = ", ".join(f"{METHOD[at]} {values[at]}" for at in differing)
        named[f"{label or attack}{f' ({details})' if details else ''}"] = group
    return named


def _scored(line: _Line, row: Row) -> dict[str, float]:
    """Return the scores of a line; estimates of a share as their error."""
    scores = dict(line.scores)
    for name, error in ERRORS.items():
        truth = _number(row.get("true_fraction"))
        if name in scores and truth is not None:
            scores.setdefault(error, abs(scores.pop(name) - truth))
    return scores


def _compared(group: tuple[Any, ...], pairs: Mapping[tuple[Any, ...], list[tuple[float, float]]]) -> Compared:
    condition, method, attack, metric = group
    own = {key: math.fsum(pair[0] for pair in found) / len(found) for key, found in pairs.items()}
    ours = {key: math.fsum(pair[1] for pair in found) / len(found) for key, found in pairs.items()}
    difference = paired_difference(ours, own, _range(metric)[1])
    mine, theirs = estimate(own.values()), estimate(ours.values())
    assert difference is not None and mine is not None and theirs is not None  # there is a pair
    known = {key: value for key, value in zip(CONDITION, condition, strict=True) if value is not None}
    return Compared(known, method, attack, metric, mine, theirs, difference)


def _values(row: Row, keys: Iterable[str]) -> tuple[Any, ...]:
    return tuple(row.get(key) for key in keys)


def _number(value: Any) -> float | None:
    known = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return float(value) if known else None


HEADS = ("method", "attack", "score", "method's mean", "attack's mean", "difference", "95% interval", "n", "result")

WIDTHS = {"attack": 24, "method's mean": 8, "attack's mean": 8, "result": 12}
"""Greatest width of the columns of a terminal's table that may take several lines."""


def table(compared: Sequence[Compared]) -> list[tuple[str, ...]]:
    """Return the comparison as lines of text, the first with column names; what all lines share is in `shared`."""
    same = shared(compared)
    varying = [key for key in CONDITION if key not in same and any(key in one.condition for one in compared)]
    named = [head for head in HEADS if head not in same]
    lines: list[tuple[str, ...]] = [(*varying, *named)]
    for one in compared:
        low, high = one.difference.low, one.difference.high
        interval = "" if low is None or high is None else f"{low:+.3f} to {high:+.3f}"
        means = (f"{one.own.mean:.3f}", f"{one.ours.mean:.3f}", f"{one.difference.mean:+.3f}")
        place = [str(one.condition.get(key, "")) for key in varying]
        cells = (one.method, one.attack, one.metric, *means, interval, str(one.difference.n), one.verdict)
        known = dict(zip(HEADS, cells, strict=True))
        lines.append((*place, *(known[head] for head in named)))
    return lines


def shared(compared: Sequence[Compared]) -> dict[str, Any]:
    """Return the conditions, the method and the score that all comparisons have in common."""
    places = [_place(one) for one in compared]
    return {key: value for key, value in places[0].items() if all(one.get(key) == value for one in places)}


def _place(one: Compared) -> dict[str, Any]:
    return {**one.condition, "method": one.method, "score": one.metric}


def _said(place: Mapping[str, Any]) -> str:
    return ", ".join(f"{key} {value}" for key, value in place.items())


def tables(compared: Sequence[Compared]) -> list[Lines]:
    """Return the comparison for a terminal: a table for each condition, method and score, so that no name is cut."""
    same, found = shared(compared), []
    for place, group in by_key(compared, lambda one: tuple(_place(one).items())).items():
        said = _said({key: value for key, value in place if key not in same})
        head, *cells = table(group)
        longest = min(max(len(line[0]) for line in cells), WIDTHS["attack"])
        columns = [
            Column(name, name not in ("attack", "result"), longest if name == "attack" else None, WIDTHS.get(name))
            for name in head
        ]
        found.append(Lines([said] if said else [], columns, cells))
    found[0] = replace(found[0], said=[f"Same for all: {_said(same)}.", *found[0].said])
    return found


def markdown(compared: Sequence[Compared], folder: Path, file: Path) -> str:
    """Return the comparison as a page."""
    head, *cells = [[cell.replace("|", r"\|") for cell in line] for line in table(compared)]
    parts = [
        f"# {file.name} and the attacks in {folder.resolve().name}",
        f"Differences are paired by observation ({', '.join(REPETITION)}), with Student's 95% intervals, and positive "
        "where the method's score is higher. Intervals are not adjusted: of 20 comparisons of equal methods, about one "
        f"excludes zero by chance; here are {len(compared)}.",
        f"Same for all: {_said(shared(compared))}.",
        "\n".join(f"| {' | '.join(line)} |" for line in (head, ["---"] * len(head), *cells)),
    ]
    return "\n\n".join(parts) + "\n"


def write(compared: Sequence[Compared], folder: Path, file: Path) -> Path:
    """Write ``comparison-<name of the CSV file>.md`` and ``.json`` into the run folder; return the path of the page."""
    page = folder / f"comparison-{file.stem}.md"
    content = {"with": file.name, "comparisons": [asdict(one) | {"result": one.verdict} for one in compared]}
    with private_files():
        page.write_text(markdown(compared, folder, file), encoding="utf-8")
        page.with_suffix(".json").write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    return page
