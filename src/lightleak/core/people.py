"""What a training revealed of every person: the key ``people`` of ``results.json``, and ``people.csv``.

A person is a private row. In an audit, an entry of ``people`` is about one attack on all updates of the training run
that were captured with ``capture.coverage`` ``epoch`` or ``rounds``; fresh clients of ``initial`` are not included. For
updates that a callback captured or that come from elsewhere, it is about all of them whose private rows are known.
Counts, shares and intervals name nobody; ``people.csv`` has a line for each person and stays with the owner of the
table (a redacted run has none).

The three risks are those of the Article 29 Working Party's opinion 05/2014 (WP216). How each is measured, a main attack
against a control and a baseline, follows Anonymeter (Giomi et al., A Unified Framework for Quantifying Privacy Risk in
Synthetic Data, PoPETs 2023, Sec. 3 and 4).
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from lightleak.core.errors import UsageError
from lightleak.core.records import json_field, quoted, read_record
from lightleak.core.summary import wilson

if TYPE_CHECKING:
    import pandas as pd

KEY = "people"
"""Key of ``results.json`` with a list of `People`; absent where the people behind the updates are not known."""

CSV_FILE = "people.csv"
"""File of the run folder with a line for each attack and person that was in some update.

Of each attack the most exposed people come first (`exposure`); earlier versions wrote them by number.
"""

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
    "sharing",
)
"""Columns of `CSV_FILE`; the table's sensitive columns stand between ``label`` and ``seen``, as ``sensitive.NAME``.

``person`` is the row's number in the training part of the table (from 0); ``row`` its label in the source: the index of
a DataFrame, or the line of a file (from 0, below the column names), empty where that is not known. Where the table is
not known, ``person`` is the number that the capture gives, or else a digest of the row, so that equal rows of different
updates are one person, and ``row`` is ``CAPTURE:NUMBER``, where the row occurs first. ``seen``, ``proven``
and ``recovered`` count updates; ``first_seen`` and ``first_proven`` are steps or rounds (from 0; empty where it never
was); ``verdict`` is one of `Verdict`; ``unique`` says whether no other row of the table, training or test, equals it in
every column and the label, and ``sharing`` how many rows do (both empty where the table is not known).
"""

LATER = {"sharing"}
"""Columns of `CSV_COLUMNS` that files of earlier versions lack."""

MOSTLY_RIGHT = 0.9
"""Share of rows that are right from which the attacker may take all of them for right."""

Verdict = Literal["proven", "recovered", "not recovered"]
"""The strongest that some update gave: certified and right; right in every column but not certified; neither."""


def exposure(
    verdict: str, seen: int, proven: int, recovered: int, first_proven: int | None, sharing: int | None
) -> tuple[float, ...]:
    """Return what people are ordered by, from the most exposed on; arguments are columns of `CSV_COLUMNS`.

    Verdict, how few others have the same row, share of updates that gave it away, how often and how early it was
    proven.

    >>> exposure("proven", 2, 2, 2, 0, 0) < exposure("proven", 2, 1, 2, 0, 0) < exposure("recovered", 2, 0, 2, None, 0)
    True
    """
    share = (proven if verdict == "proven" else recovered) / max(seen, 1)
    unknown = float("inf")
    n_others, first = (unknown if value is None else value for value in (sharing, first_proven))
    return get_args(Verdict).index(verdict), n_others, -share, -proven, first


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
        return cls.known(successes, n) if n else None

    @classmethod
    def known(cls, successes: float, n: int) -> "Rate":
        """Return the rate of at least one trial."""
        low, high = wilson(successes / n, n)
        return cls(successes / n, n, max(0.0, low), min(1.0, high))


@dataclass(frozen=True)
class Risk:
    """One of the three risks: what the attack achieves, next to what would be achieved anyway.

    Attributes:
        attack: success of the attack on the people in the updates. Singling out: people of whom a proven row (its
            categories, certified label and numbers), or a row without proof (numbers within the tolerance), fits nobody
            else in the table; of an attack without certificates, proposed rows that fit exactly one person. Linkage: of
            the people in several updates that can be linked (`Links`), those of whom two proven rows were linked, and
            none with a row of somebody else. Inference: people whose secret column was named rightly by who knows all
            their other columns and the label, and reads the secret off a row that agrees with these (in all but its
            label where only that is not certified): a proven one, else another.
        control: success of the same attack on people of the test rows, who were in no update. Singling out: rows that
            fit exactly one of them. Linkage: proven rows that would be linked to one of them. Inference: as for the
            attack.
        baseline: success of who reads no update. Singling out: rows guessed from the marginals that fit exactly one
            person in the table. Linkage: a partner drawn at random in the other round. Inference: a gradient boosted
            classifier that was trained on test rows and predicts the secret column from the others.
        column: the secret column; of inference alone.
    """

    attack: Rate | None = None
    control: Rate | None = None
    baseline: Rate | None = None
    column: str | None = None

    @property
    def rates(self) -> tuple[Rate | None, Rate | None, Rate | None]:
        """Main attack, control and baseline."""
        return self.attack, self.control, self.baseline

    @property
    def gain(self) -> float:
        """How much more the attack achieves than the baseline; 0 where either is not known."""
        return self.attack.share - self.baseline.share if self.attack and self.baseline else 0.0


@dataclass(frozen=True)
class Links:
    """Pairs of proven rows that the attacker takes for one person, as they are equal.

    The rows are of different epochs, in which a training uses every row once; under FedAvg of different updates: of
    different rounds, or of two clients in one round. Equal are categories, certified classes, and certified numbers
    rounded to a grid, which cuts off pairs on either side of an edge: an attacker who compares numbers one by one links
    more.

    Attributes:
        possible: pairs of such updates that one person was in, over all people.
        correct: linked pairs of rows of one person.
        wrong: linked pairs of rows of two people with equal values.
        clients_correct: of the correct ones, those of two clients in one round; None in results of earlier versions,
            which did not link within a round.
        clients_wrong: of the wrong ones, likewise.
    """

    possible: int = json_field(low=0)
    correct: int = json_field(low=0)
    wrong: int = json_field(low=0)
    clients_correct: int | None = json_field(low=0, default=None)
    clients_wrong: int | None = json_field(low=0, default=None)

    @property
    def found(self) -> Rate | None:
        """Share of the possible pairs that were linked; None where there are none."""
        return Rate.of(self.correct, self.possible)

    @property
    def mistaken(self) -> Rate | None:
        """Share of the linked pairs that are of two people; None where nothing was linked."""
        return Rate.of(self.wrong, self.correct + self.wrong)


@dataclass(frozen=True)
class Repeated:
    """Rows without proof that came back in other updates, which the attacker sees without the truth.

    Two are one where categories and label agree, and numbers within the tolerance of TabLeak's Eq. 6.

    Attributes:
        times: updates for which the row was proposed, at least.
        rows: such rows, once for each of these updates.
        right: of these, rows that are right in every column for somebody in their update.
        people: people of whom some are.
    """

    times: int = json_field(low=2)
    rows: int = json_field(low=1)
    right: int = json_field(low=0)
    people: int = json_field(low=0)

    @property
    def share(self) -> float:
        """Share of the rows that is right; without an interval, as a row counts once for each of its updates."""
        return self.right / self.rows


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
class Group:
    """People with one category of a sensitive column, or with numbers in one band.

    Attributes:
        column: the column.
        category: its category; of a column of numbers a band, such as ``above 29 to 37``.
        n: people of that category in the updates.
        proven: how many of them were proven at least once.
        low: lower end of Wilson's 95% interval of their share.
        high: upper end.
        recovered: how many others were recovered without proof; None in results of earlier versions.
        curve: the same over the training, `People.curve` of this group thinned out.
    """

    column: str
    category: str
    n: int = json_field(low=1)
    proven: int = json_field(low=0)
    low: float = json_field(low=0, high=1)
    high: float = json_field(low=0, high=1)
    recovered: int | None = json_field(low=0, default=None)
    curve: tuple[Point, ...] = ()

    @classmethod
    def of(
        cls, column: str, category: str, n: int, proven: int, recovered: int | None, curve: tuple[Point, ...] = ()
    ) -> "Group":
        """Return the group with its interval."""
        rate = Rate.known(proven, n)
        return cls(column, category, n, proven, rate.low, rate.high, recovered, curve)

    @property
    def exposed(self) -> Rate:
        """Share that is proven, or, where that is known, recovered without proof."""
        return Rate.known(self.proven + (self.recovered or 0), self.n)


@dataclass(frozen=True)
class Sharing:
    """People whose row equally many other rows of the table, training or test, equal in every column and the label.

    Attributes:
        others: how many other rows do.
        people: people of whom that is true.
        exposed: of these, proven or recovered without proof.
        most: where small groups are merged: up to how many other rows do, from ``others`` on.
    """

    others: int = json_field(low=0)
    people: int = json_field(low=1)
    exposed: int = json_field(low=0)
    most: int | None = json_field(low=0, default=None)


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
        proven: people of whom at least one update gave a certified row that is right: in its categories, and in its
            label and numbers where these are certified too. Always 0 for an attack without certificates.
        proven_numbers: of these, people of whom a row with certified numbers is right.
        recovered: people of whom no row was proven, but some row was right in every column (numbers within the
            tolerance of TabLeak's Eq. 6).
        not_recovered: all others.
        has_certificates: whether the attack gives any; without them nobody can be proven.
        claims: certified rows over all updates.
        wrong: of these, rows whose claim fits no private row that is left in their update.
        wrong_cells: of the wrong, rows that are wrong in a category or a certified label; the others are off in a
            number.
        rows: rows behind the updates, people counted as often as they were in one.
        unique: people whose row no other row of the table, training or test, equals; None where the table is not known.
        sharing: in how far people share their row with others, from unique ones on; empty where the table is not known.
        unit: what a point of the curve counts.
        curve: people over the training, at most 200 points, the last one at its end.
        groups: people by category of each sensitive column, and by band of each of numbers.
        singling_out: the first risk; None where the table is not known.
        linkage: the second; None where no person was in two updates that can be linked (see `Links`).
        links: the pairs behind it.
        repeated: rows without proof that came back in other updates, in at least 2, 4, 8 ... of them; empty where no
            person was in several updates, or nothing came back.
        inference: the third, of the categorical sensitive column with the largest gain; None without such a column.
        other_inferences: of all others, the largest gain first.
        means: what the attack took.
        is_whole: the updates are all of whole epochs or rounds; otherwise those that were captured.
        merged_below: groups of fewer people are merged with others (`core.small_groups`); None where none are.
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
    unit: Literal["step", "round"] = json_field()
    wrong_cells: int = json_field(low=0, default=0)
    unique: int | None = json_field(low=0, default=None)
    sharing: tuple[Sharing, ...] = ()
    curve: tuple[Point, ...] = ()
    groups: tuple[Group, ...] = ()
    singling_out: Risk | None = None
    linkage: Risk | None = None
    links: Links | None = None
    repeated: tuple[Repeated, ...] = ()
    inference: Risk | None = None
    other_inferences: tuple[Risk, ...] = ()
    means: Means = field(default_factory=lambda: Means(0))
    is_whole: bool = True
    merged_below: int | None = json_field(low=0, default=None)

    @property
    def proven_rate(self) -> Rate:
        """Share of the people that is proven."""
        return Rate.known(self.proven, self.n)

    @property
    def exposed(self) -> Rate:
        """Share of the people that is proven, or recovered without proof."""
        return Rate.known(self.proven + self.recovered, self.n)

    @property
    def recurring(self) -> Repeated | None:
        """Rows without proof that came back often enough for 9 of 10 to be right, else most often; None without any."""
        found = [one for one in self.repeated if one.share >= MOSTLY_RIGHT] or self.repeated[-1:]
        return found[0] if found else None

    @property
    def linked(self) -> Risk | None:
        """The second risk where something was proven: only proven rows are linked."""
        return self.linkage if self.proven else None

    @property
    def risks(self) -> list[tuple[str, Risk]]:
        """The three risks with their names, inference once by column; one that was not measured has no rates."""
        named = (("singling out", self.singling_out), ("linkage", self.linked), ("inference", self.inference))
        return [(name, risk or Risk()) for name, risk in named] + [("inference", one) for one in self.other_inferences]


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


def risks_table(entries: Iterable[People]) -> "pd.DataFrame":
    """Return a row for each attack and risk, of inference for each secret column; unmeasured risks have one too.

    Columns: ``attack``, ``risk``, ``column`` (the secret one), and for each of ``main``, ``control`` and ``baseline``
    (see `Risk`) the share, the ends of its 95% interval (``_low``, ``_high``) and the number of trials (``_n``).
    """
    import pandas as pd  # heavy, and only this and the file need it

    lines = []
    for one in entries:
        for name, risk in one.risks:
            line: dict[str, Any] = {"attack": one.attack, "risk": name, "column": risk.column}
            for kind, rate in zip(_RATES, risk.rates, strict=True):
                if rate is not None:
                    ends = {f"{kind}_low": rate.low, f"{kind}_high": rate.high, f"{kind}_n": rate.n}
                    line |= {kind: rate.share, **ends}
            lines.append(line)
    parts = {"": "float64", "_low": "float64", "_high": "float64", "_n": "Int64"}
    kinds = {f"{kind}{part}": type_ for kind in _RATES for part, type_ in parts.items()}
    return pd.DataFrame(lines, columns=["attack", "risk", "column", *kinds]).astype(kinds)


_RATES = ("main", "control", "baseline")


def load_people(folder: Path | str) -> "pd.DataFrame":
    """Read ``people.csv`` of a run: a line for each attack and person, with the columns of `CSV_COLUMNS`.

    Raises:
        UsageError: the run has none, or it is no such file.
    """
    import pandas as pd  # heavy, and only reading the file needs it

    file = Path(folder) / CSV_FILE
    if not file.is_file():
        raise UsageError(
            f"{folder} holds no {CSV_FILE}: a finished run writes it where every private row is known: an audit with "
            "capture.coverage epoch or rounds, or captured updates with the rows of one table (a redacted run keeps "
            "counts alone)"
        )
    try:
        numbers: dict[Any, Any] = {"first_seen": "Int64", "first_proven": "Int64", "sharing": "Int64"}
        empty = {name: [""] for name in numbers}  # a category may be called NA
        found = pd.read_csv(file, dtype={**numbers, "label": str}, keep_default_na=False, na_values=empty)
    except ValueError as error:
        raise UsageError(f"{file}: expected a table of people, got {error}") from error
    if missing := [name for name in CSV_COLUMNS if name not in found.columns and name not in LATER]:
        raise UsageError(f"{file}: columns {missing} are missing")
    for name in LATER - set(found):
        found[name] = pd.Series(pd.NA, found.index, dtype="Int64")
    return found


Outcome = Literal["stay proven", "newly proven", "still recovered", "newly recovered", "become safe", "stay safe"]
"""What became of a person between two runs: proven in the second, recovered without proof in it, or neither (safe)."""


def outcome_of(before: Verdict, after: Verdict) -> Outcome:
    """Return what became of a person.

    >>> outcome_of("proven", "recovered"), outcome_of("recovered", "not recovered")
    ('still recovered', 'become safe')
    """
    if after == "proven":
        return "stay proven" if before == "proven" else "newly proven"
    if after == "recovered":
        return "newly recovered" if before == "not recovered" else "still recovered"
    return "stay safe" if before == "not recovered" else "become safe"


@dataclass(frozen=True)
class Change:
    """What became of the people whom an attack met in two runs, such as without and with a defense.

    Attributes:
        attack: name of the attack.
        n: people in updates of both runs.
        only_before: people in updates of the first run alone.
        only_after: people in updates of the second alone.
        from_to: how many had which verdict before and after, as ``before -> after``.
        updates: in how many attacked updates the n people were on average, before and after: more give more away.
    """

    attack: str
    n: int
    only_before: int
    only_after: int
    from_to: Mapping[str, int]
    updates: tuple[float, float]

    def count(self, before: Verdict | None, after: Verdict | None) -> int:
        """People with these verdicts; None stands for any."""
        verdicts = get_args(Verdict)
        return sum(
            self.from_to[f"{one} -> {other}"]
            for one in ([before] if before else verdicts)
            for other in ([after] if after else verdicts)
        )

    @property
    def outcomes(self) -> dict[Outcome, int]:
        """How many people had each outcome; the numbers add up to `n`."""
        found = dict.fromkeys(get_args(Outcome), 0)
        for before, after in product(get_args(Verdict), repeat=2):
            found[outcome_of(before, after)] += self.count(before, after)
        return found


def changed_people(before: "pd.DataFrame", after: "pd.DataFrame") -> "pd.DataFrame":
    """Return a row for each attack and person in updates of two runs on one table, with the verdicts of both.

    Args:
        before: people of the first run (`load_people`).
        after: people of the second.

    Returns:
        ``attack``, ``person``, ``row``, ``label`` and the sensitive columns, then ``before``, ``after`` and ``outcome``
        (`Outcome`).

    Raises:
        UsageError: the runs share no attack or nobody, or a person is another one in the other run.
    """
    joined = before.merge(after, on=["attack", "person"], suffixes=("", " after"))
    if joined.empty:
        attacks = [sorted(set(run["attack"])) for run in (before, after)]
        why = "attacks" if not set(attacks[0]) & set(attacks[1]) else "people"
        raise UsageError(
            f"the runs have no {why} in common (attacks {', '.join(attacks[0])} and {', '.join(attacks[1])}); compare "
            "runs of the same attack on the same table, both with capture.coverage or both with the private rows known"
        )
    facts = [name for name in before.columns if name == "label" or name.startswith("sensitive.")]
    of_table = ["row", "unique"] if all(run["unique"].astype(str).ne("").all() for run in (before, after)) else []
    for name in [*facts, *of_table]:
        other = f"{name} after"
        differ = joined[name].astype(str) != joined[other].astype(str) if other in joined else joined["person"].notna()
        if differ.any():
            person = joined["person"][differ].iloc[0]
            raise UsageError(
                f"the runs are of different tables or splits: {int(differ.sum())} of {len(differ)} people differ in "
                f"{name!r}, the first is person {person}"
            )
    named = {"verdict": "before", "verdict after": "after"}
    pairs = zip(joined["verdict"], joined["verdict after"], strict=True)
    found = joined[["attack", "person", "row", *facts, *named]].rename(columns=named)
    return found.assign(outcome=[outcome_of(*pair) for pair in pairs])


ALL_ATTACKS = "all attacks together"
"""Attack of a `Change` of the people whom every attack that both runs tried met."""


def compare_people(before: "pd.DataFrame", after: "pd.DataFrame", guesses: Collection[str] = ()) -> list[Change]:
    """Count what became of the people of one run in another, by attack of both, and all together where there are more.

    Of all attacks together, those that both runs tried, the one counts that got most of a person, whom every attack
    met: an attack that was run on a sample of the updates says nothing of the others.

    Args:
        before: see `changed_people`.
        after: likewise.
        guesses: attacks that read no update, which do not count among all.
    """
    import pandas as pd  # heavy, and only this needs it

    runs = [before, after]
    shared = {*before["attack"]} & {*after["attack"]} - {*guesses}
    if len(shared) > 1:
        runs = [pd.concat([run, _together(run[run["attack"].isin(shared)])], ignore_index=True) for run in runs]
    verdicts, found = get_args(Verdict), []
    seen = runs[0].merge(runs[1], on=["attack", "person"]).groupby("attack")[["seen_x", "seen_y"]].mean()
    for attack, of in changed_people(*runs).groupby("attack", sort=False):
        alone = [int((run["attack"] == attack).sum()) - len(of) for run in runs]
        pairs = Counter(zip(of["before"], of["after"], strict=True))
        from_to = {f"{one} -> {other}": pairs[one, other] for one in verdicts for other in verdicts}
        times_before, times_after = map(float, seen.loc[attack])
        found.append(Change(str(attack), len(of), alone[0], alone[1], from_to, (times_before, times_after)))
    return found


def _together(people: "pd.DataFrame") -> "pd.DataFrame":
    """A line for everybody whom every attack met, with the verdict of the one that got most."""
    ranked = people.assign(rank=people["verdict"].map({one: i for i, one in enumerate(get_args(Verdict))}))
    met = ranked.groupby("person")["attack"].transform("nunique") == people["attack"].nunique()
    return (
        ranked[met]
        .sort_values("rank")
        .groupby("person", as_index=False)
        .first()
        .assign(attack=ALL_ATTACKS)[[*people.columns]]
    )
