"""What a whole training revealed of every person: the key ``people`` of ``results.json``, and ``people.csv``.

A person is a row of the training part of the table. An entry of ``people`` is about one attack on all updates of the
training run that were captured with ``capture.coverage`` ``epoch`` or ``rounds``; fresh clients of ``initial`` are no
part of it. Counts, shares and intervals name nobody; ``people.csv`` has a line for each person and stays with the owner
of the table (a redacted run has none).

The three risks are those of the Article 29 Working Party's opinion 05/2014 (WP216). How each is measured, a main attack
against a control and a baseline, follows Anonymeter (Giomi et al., A Unified Framework for Quantifying Privacy Risk in
Synthetic Data, PoPETs 2023, Sec. 3 and 4).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from lightleak.core.errors import UsageError
from lightleak.core.records import json_field, quoted, read_record
from lightleak.core.summary import wilson

if TYPE_CHECKING:
    import pandas as pd

KEY = "people"
"""Key of ``results.json`` with a list of `People`; absent where no whole epoch or round was captured."""

CSV_FILE = "people.csv"
"""File of the run folder with a line for each attack and person that was in some update."""

CSV_COLUMNS = (
    "attack",
    "person",
    "row",
    "label",
    "seen",
    "proven",
    "first_seen",
    "first_proven",
    "recovered",
    "verdict",
    "unique",
)
"""Columns of `CSV_FILE`; the table's sensitive columns stand between ``label`` and ``seen``, as ``sensitive.NAME``.

``person`` is the row's number in the training part of the table (from 0); ``row`` its label in the source: the index of
a DataFrame, or the line of a file (from 0, below the column names), empty where that is not known. ``seen``, ``proven``
and ``recovered`` count updates; ``first_seen`` and ``first_proven`` are steps or rounds (from 0; empty where it never
was); ``verdict`` is one of `Verdict`; ``unique`` says whether no other row of the table, training or test, equals it in
every column and the label.
"""

Verdict = Literal["proven", "recovered", "not recovered"]
"""The strongest that some update gave: certified and right; right in every column but not certified; neither."""


@dataclass(frozen=True)
class Rate:
    """A share of n trials with Wilson's 95% interval.

    Attributes:
        share: successes over trials.
        n: trials.
        low: lower end of the interval.
        high: upper end.
    """

    share: float = json_field(low=0, high=1)
    n: int = json_field(low=1)
    low: float = json_field(low=0, high=1)
    high: float = json_field(low=0, high=1)

    @classmethod
    def of(cls, successes: float, n: int) -> "Rate | None":
        """Return the rate; None without trials.

        >>> Rate.of(2, 0) is None, Rate.of(9, 10).share
        (True, 0.9)
        """
        if not n:
            return None
        low, high = wilson(successes / n, n)
        return cls(successes / n, n, max(0.0, low), min(1.0, high))


@dataclass(frozen=True)
class Risk:
    """One of the three risks: what the attack achieves, next to what would be achieved anyway.

    Attributes:
        attack: success of the attack on the people in the updates. Singling out: people of whom a proven row (its
            categories, label and certified numbers) fits nobody else in the table; of an attack without
            certificates, proposed rows that fit exactly one person. Linkage: of the people in updates of several
            epochs or rounds, those of whom two proven rows were linked, and none with a row of somebody else.
            Inference: people whose secret column was named rightly by who knows all their other columns and the label.
        control: success of the same attack on people of the test rows, who were in no update. Singling out: proven
            rows that fit exactly one of them. Linkage: proven rows that would be linked to one of them. Inference: as
            for the attack.
        baseline: success of who reads no update. Singling out: rows guessed from the marginals that fit exactly one
            person in the table. Linkage: a partner drawn at random in the other round. Inference: a gradient boosted
            classifier that was trained on test rows and predicts the secret column from the others.
        column: the secret column; of inference alone.
    """

    attack: Rate | None = None
    control: Rate | None = None
    baseline: Rate | None = None
    column: str | None = None


@dataclass(frozen=True)
class Links:
    """Pairs of proven rows of different rounds that the attacker takes for one person, as they are equal.

    Attributes:
        possible: pairs of updates of different rounds that one person was in, over all people.
        correct: linked pairs of rows of one person.
        wrong: linked pairs of rows of two people with equal values.
    """

    possible: int = json_field(low=0)
    correct: int = json_field(low=0)
    wrong: int = json_field(low=0)


@dataclass(frozen=True)
class Group:
    """People with one category of a sensitive column.

    Attributes:
        column: the column.
        category: its category.
        n: people of that category in the updates.
        proven: how many of them were proven at least once.
        low: lower end of Wilson's 95% interval of their share.
        high: upper end.
    """

    column: str
    category: str
    n: int = json_field(low=1)
    proven: int = json_field(low=0)
    low: float = json_field(low=0, high=1)
    high: float = json_field(low=0, high=1)


@dataclass(frozen=True)
class Point:
    """How far the attack has come.

    Attributes:
        round: optimizer steps (FedSGD) or rounds (FedAvg) that are over.
        seen: people in some update so far.
        proven: of these, proven at least once.
        recovered: of these, recovered at least once, and never with proof.
    """

    round: int = json_field(low=0)
    seen: int = json_field(low=0)
    proven: int = json_field(low=0)
    recovered: int = json_field(low=0)


@dataclass(frozen=True)
class Means:
    """What the attack took.

    Attributes:
        updates: updates attacked.
        epochs: epochs, or rounds under FedAvg, whose updates they are.
        seconds: wall time, summed over the updates.
        cpu_seconds: processor time, summed over the updates.
        peak_memory: most bytes of main memory that an attacking process held.
    """

    updates: int = json_field(low=0)
    epochs: tuple[int, ...] = ()
    seconds: float | None = json_field(low=0, default=None)
    cpu_seconds: float | None = json_field(low=0, default=None)
    peak_memory: int | None = json_field(low=0, default=None)


@dataclass(frozen=True)
class People:
    """What one attack revealed of every person whose row was in some update of a training run.

    The verdicts partition the people: ``proven + recovered + not_recovered == n``.

    Attributes:
        attack: name of the attack.
        n: people in at least one update.
        proven: people of whom at least one update gave a certified row that is right: in its categories and label,
            and in its numbers where these are certified too. Always 0 for an attack without certificates.
        proven_numbers: of these, people of whom a row with certified numbers is right.
        recovered: people of whom no row was proven, but some row was right in every column (numbers within the
            tolerance of TabLeak's Eq. 6).
        not_recovered: all others.
        has_certificates: whether the attack gives any; without them nobody can be proven.
        claims: certified rows over all updates.
        wrong: of these, rows whose claim fits no private row that is left in their update.
        wrong_cells: of the wrong, rows that are wrong in a category or the label; the others are off in a number.
        rows: rows behind the updates, people counted as often as they were in one.
        unique: people whose row no other row of the table, training or test, equals.
        unit: what a point of the curve counts.
        curve: people over the training, at most 200 points, the last one at its end.
        groups: people by category of each categorical sensitive column.
        singling_out: the first risk.
        linkage: the second; None where no person was in updates of two rounds.
        links: the pairs behind it.
        inference: the third; None without a categorical sensitive column.
        means: what the attack took.
    """

    attack: str
    n: int = json_field(low=1)
    proven: int = json_field(low=0)
    proven_numbers: int = json_field(low=0)
    recovered: int = json_field(low=0)
    not_recovered: int = json_field(low=0)
    has_certificates: bool = json_field()
    claims: int = json_field(low=0)
    wrong: int = json_field(low=0)
    rows: int = json_field(low=0)
    unique: int = json_field(low=0)
    unit: Literal["step", "round"] = json_field()
    wrong_cells: int = json_field(low=0, default=0)
    curve: tuple[Point, ...] = ()
    groups: tuple[Group, ...] = ()
    singling_out: Risk | None = None
    linkage: Risk | None = None
    links: Links | None = None
    inference: Risk | None = None
    means: Means = field(default_factory=lambda: Means(0))

    @property
    def proven_rate(self) -> Rate:
        """Share of the people that is proven."""
        rate = Rate.of(self.proven, self.n)
        assert rate is not None  # n is at least 1
        return rate


def read_people(raw: Mapping[str, Any], where: str) -> tuple[People, ...]:
    """Read the entries of ``people`` in the content of a ``results.json``; none where the key is absent.

    Raises:
        UsageError: the key holds no list, or an entry cannot be read.

    >>> read_people({"rows": []}, "results.json")
    ()
    """
    entries = raw.get(KEY, [])
    if not isinstance(entries, list):
        raise UsageError(f"{where}, key {KEY!r}: expected a list, got {quoted(entries)}")
    return tuple(read_record(People, one, f"{where}, {KEY}, entry {i}") for i, one in enumerate(entries))


def load_people(folder: Path | str) -> "pd.DataFrame":
    """Read ``people.csv`` of a run: a line for each attack and person, with the columns of `CSV_COLUMNS`.

    Raises:
        UsageError: the run has none, or it is no such file.
    """
    import pandas as pd  # heavy, and only reading the file needs it

    file = Path(folder) / CSV_FILE
    if not file.is_file():
        raise UsageError(
            f"{folder} holds no {CSV_FILE}: a finished run writes it with capture.coverage epoch or rounds (a redacted "
            "one keeps counts alone)"
        )
    try:
        numbers: dict[Any, Any] = {"first_seen": "Int64", "first_proven": "Int64"}
        empty = {name: [""] for name in numbers}  # a category may be called NA
        found = pd.read_csv(file, dtype={**numbers, "label": str}, keep_default_na=False, na_values=empty)
    except ValueError as error:
        raise UsageError(f"{file}: expected a table of people, got {error}") from error
    if missing := [name for name in CSV_COLUMNS if name not in found.columns]:
        raise UsageError(f"{file}: columns {missing} are missing")
    return found


@dataclass(frozen=True)
class Change:
    """What became of the people whom an attack met in two runs, such as without and with a defense.

    Attributes:
        attack: name of the attack.
        n: people in updates of both runs.
        from_to: how many had which verdict before and after, as ``before -> after``.
    """

    attack: str
    n: int
    from_to: Mapping[str, int]

    def count(self, before: Verdict | None, after: Verdict | None) -> int:
        """People with these verdicts; None stands for any."""
        verdicts = get_args(Verdict)
        return sum(
            self.from_to[f"{one} -> {other}"]
            for one in ([before] if before else verdicts)
            for other in ([after] if after else verdicts)
        )

    @property
    def become_safe(self) -> int:
        """People who were proven or recovered, and are neither any more."""
        return self.count("proven", "not recovered") + self.count("recovered", "not recovered")

    @property
    def stay_proven(self) -> int:
        """People who were proven, and are."""
        return self.count("proven", "proven")

    @property
    def newly_proven(self) -> int:
        """People who were not proven, and are."""
        return self.count(None, "proven") - self.stay_proven


def compare_people(before: "pd.DataFrame", after: "pd.DataFrame") -> list[Change]:
    """Compare two runs on one table, person by person.

    Args:
        before: people of the first run (`load_people`).
        after: people of the second.

    Returns:
        A change for each attack of both runs.

    Raises:
        UsageError: the runs share no attack or nobody, or a person is another one in the other run.
    """
    joined = before.merge(after, on=["attack", "person"], suffixes=("", " after"))
    if joined.empty:
        attacks = [sorted(set(run["attack"])) for run in (before, after)]
        raise UsageError(f"the runs share no attack and person: their attacks are {attacks[0]} and {attacks[1]}")
    same = [name for name in before.columns if name in ("label", "unique") or name.startswith("sensitive.")]
    for name in same:
        if f"{name} after" not in joined or (joined[name] != joined[f"{name} after"]).any():
            raise UsageError(f"the runs are of different tables or splits: people differ in {name!r}")
    verdicts = get_args(Verdict)
    return [
        Change(
            str(attack),
            len(of),
            {
                f"{one} -> {other}": int(((of["verdict"] == one) & (of["verdict after"] == other)).sum())
                for one in verdicts
                for other in verdicts
            },
        )
        for attack, of in joined.groupby("attack", sort=False)
    ]
