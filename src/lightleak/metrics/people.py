"""From rows to people: who was proven or recovered over a whole training, and the three risks of WP216 for them.

One update gives `Proposed`: the rows that an attack proposes, whom each of them proves, and who was recovered.
`people_of` puts the updates of a training together. What is measured is stated with `lightleak.core.people`; main
attack, control and baseline follow Anonymeter (Giomi et al., PoPETs 2023).
"""

import io
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
import pandas as pd
from torch import Tensor

from lightleak.attacks.gradient_inversion.tables.codec import TOLERANCE
from lightleak.core.certificate import NUMBERS_WITHIN
from lightleak.core.ground_truth import GroundTruth
from lightleak.core.people import Group, Links, Means, People, Point, Rate, Risk
from lightleak.core.reconstruction import Reconstruction
from lightleak.core.seeds import numpy_generator
from lightleak.data.encoder import TableEncoder
from lightleak.data.marginals import Marginals
from lightleak.data.schema import TableSchema
from lightleak.data.table import Table
from lightleak.metrics.cells import table_cells
from lightleak.metrics.certificate import NO_CLAIM, WRONG, proven_rows, wrong_certificates
from lightleak.metrics.matched_batch import MatchedBatch

Ints = np.ndarray[Any, np.dtype[np.int64]]
Bools = np.ndarray[Any, np.dtype[np.bool_]]
Floats = np.ndarray[Any, np.dtype[np.float64]]

CURVE_POINTS = 200
"""Points of a curve at most."""

MOST_CATEGORIES = 255
"""Categories up to which scikit-learn's gradient boosting treats a column as categorical; beyond, as a number."""

NOBODY = -1
"""No place of a row."""

MOST_TRAINED = 20_000
"""Rows that the model which reads no update is trained on; more change its accuracy by less than its interval."""


@dataclass(frozen=True)
class Rows:
    """Rows as numbers.

    Attributes:
        codes: ``[n, K]`` category indices.
        numbers: ``[n, L]`` in the table's units.
        labels: ``[n]`` classes.
    """

    codes: Ints
    numbers: Floats
    labels: Ints

    @classmethod
    def of(cls, cells: tuple[Tensor, Tensor], labels: Tensor) -> "Rows":
        """Rows from category indices and numbers as an encoder's ``project`` returns them."""
        codes, numbers = cells
        return cls(codes.cpu().numpy(), numbers.double().cpu().numpy(), labels.cpu().numpy())

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, rows: Any) -> "Rows":
        return Rows(self.codes[rows], self.numbers[rows], self.labels[rows])

    @classmethod
    def together(cls, parts: "Sequence[Rows]") -> "Rows":
        """Several tables below each other."""
        columns = zip(*((part.codes, part.numbers, part.labels) for part in parts), strict=True)
        return cls(*(np.concatenate(column) for column in columns))

    @cached_property
    def categories(self) -> Ints:
        """Category indices and class, ``[n, K + 1]``."""
        return np.ascontiguousarray(np.column_stack([self.codes, self.labels]))


@dataclass(frozen=True)
class Proposed:
    """What one attack proposed for one update, set against the people behind it; private like these.

    Attributes:
        epoch: epoch, or round under FedAvg.
        step: optimizer step, or round.
        ids: ``[n]`` people behind the update.
        recovered: ``[n]``, whether a proposed row is right in every column of theirs.
        person: ``[n]`` by proposed row: whom it proves, `WRONG`, or `NO_CLAIM`.
        digits: ``[n]`` by proposed row: its numbers are certified.
        codes: ``[n, K]`` category indices of the proposed rows.
        numbers: ``[n, L]`` their numbers.
        labels: ``[n]`` their classes.
        has_certificate: the attack says which of them are proven.
        seconds: wall time of the attack.
        cpu_seconds: its processor time; NaN where unknown.
        peak_memory: most bytes that the process held; 0 where unknown.
        wrong_cells: certified rows that are wrong in a category or the class.
    """

    epoch: int
    step: int
    ids: Ints
    recovered: Bools
    person: Ints
    digits: Bools
    codes: Ints
    numbers: Floats
    labels: Ints
    has_certificate: bool
    seconds: float = float("nan")
    cpu_seconds: float = float("nan")
    peak_memory: int = 0
    wrong_cells: int = 0

    @classmethod
    def of(
        cls,
        reconstruction: Reconstruction,
        truth: GroundTruth,
        encoder: TableEncoder,
        batch: MatchedBatch,
        **facts: Any,
    ) -> "Proposed":
        """Set what an attack found against the people behind the update.

        Args:
            reconstruction: what it found.
            truth: the rows behind the update; without ids, people are the numbers of its rows (see `named`).
            encoder: of both.
            batch: the two matched (`lightleak.metrics.score.match`).
            facts: ``epoch``, ``step`` and what the attack took.
        """
        ids = np.arange(len(truth.labels)) if truth.ids is None else truth.ids.cpu().numpy()
        certificate = reconstruction.certificate
        proven = proven_rows(reconstruction, truth, encoder, batch).numpy()
        cells = table_cells(encoder, reconstruction.rows)
        rows = Rows.of((cells.codes, cells.numbers), reconstruction.labels)
        return cls(
            ids=ids,
            recovered=batch.hits.all(-1).numpy(),
            person=np.where(proven >= 0, ids[np.maximum(proven, 0)], proven),
            digits=np.array(certificate.digits if certificate else [False] * len(ids), dtype=bool),
            codes=rows.codes,
            numbers=rows.numbers,
            labels=rows.labels,
            has_certificate=certificate is not None,
            seconds=reconstruction.seconds,
            wrong_cells=wrong_certificates(reconstruction, truth, encoder, batch)[0],
            **facts,
        )

    def named(self, ids: Ints) -> "Proposed":
        """Return the same for people of other numbers, in the order of `ids`."""
        of_row = dict(zip(self.ids.tolist(), ids.tolist(), strict=True))
        return replace(self, ids=ids, person=np.array([of_row.get(one, one) for one in self.person.tolist()]))

    @property
    def rows(self) -> Rows:
        """The proposed rows."""
        return Rows(self.codes, self.numbers, self.labels)

    def to_bytes(self) -> bytes:
        """As the content of a file."""
        buffer = io.BytesIO()
        np.savez(buffer, **{one.name: getattr(self, one.name) for one in fields(self)})
        return buffer.getvalue()

    @classmethod
    def from_bytes(cls, content: bytes) -> "Proposed":
        """Inverse of `to_bytes`."""
        with np.load(io.BytesIO(content), allow_pickle=False) as file:
            return cls(**{name: file[name] if file[name].ndim else file[name].item() for name in file.files})


@dataclass(frozen=True)
class Population:
    """All rows of the table: those that clients hold, and the test rows, which nobody sent.

    Attributes:
        encoder: of the clients.
        sent: rows of the training part; a person is the number of a row.
        others: test rows.
        marginals: what a guess is drawn from; None where the table is not known: ``sent`` are the rows behind the
            updates then, ``others`` is empty, and risks that take the rest of the table are not measured.
        seed: root seed of guesses and of the split of the test rows.
        index: labels of the training rows in the source of the table.
        names: what each row of ``sent`` is called where that is not its number.
    """

    encoder: TableEncoder
    sent: Rows
    others: Rows
    marginals: Marginals | None
    seed: int = 0
    index: pd.Index | None = None
    names: Ints | None = None

    @classmethod
    def of(cls, table: Table, encoder: TableEncoder, marginals: Marginals, seed: int = 0) -> "Population":
        """The rows of a table as the clients' encoder gives them back."""
        sent, others = (
            Rows.of(encoder.project(encoder.encode(frame), clamp=False), encoder.encode_labels(frame))
            for frame in (table.train, table.test)
        )
        return cls(encoder, sent, others, marginals, seed, table.train_index)

    @property
    def schema(self) -> TableSchema:
        """The columns."""
        return self.encoder.schema

    @cached_property
    def deviation(self) -> Floats:
        """``[L]`` standard deviations of the numerical columns that the server knows."""
        return np.asarray(self.encoder.deviation.double().cpu().numpy())

    @cached_property
    def everyone(self) -> Rows:
        """All rows."""
        return Rows.together([self.sent, self.others])

    @cached_property
    def is_unique(self) -> Bools:
        """By person: no other row of the table is equal in every column and the label."""
        both = self.everyone
        _, of, times = np.unique(
            np.column_stack([both.categories, both.numbers]), axis=0, return_inverse=True, return_counts=True
        )
        return np.asarray(times[of.reshape(-1)] == 1)[: len(self.sent)]

    def text(self, column: str, ids: Ints) -> list[str]:
        """Cells of a feature or of the label of those people, as text."""
        if column == self.schema.label.name:
            return [self.schema.label.categories[code] for code in self.sent.labels[ids]]
        found = self.schema.column(column)
        if found.is_numerical:
            return [f"{value:g}" for value in self.sent.numbers[ids, self.schema.numerical.index(found)]]
        return [found.categories[code] for code in self.sent.codes[ids, self.schema.categorical.index(found)]]


class RowIndex:
    """Finds rows that agree with others in all categories and the class, and in numbers within a tolerance.

    Args:
        rows: where to look.
        deviation: ``[L]`` of the numbers.
        without: column of `Rows.categories` that does not count.
    """

    def __init__(self, rows: Rows, deviation: Floats, without: int | None = None) -> None:
        self._numbers, self._deviation, self._without = rows.numbers, deviation, without
        places: dict[Hashable, list[int]] = defaultdict(list)
        for place, key in enumerate(self._keys(rows)):
            places[key].append(place)
        self._places = {key: np.array(found) for key, found in places.items()}

    def fitting(self, rows: Rows, within: float | Bools = NUMBERS_WITHIN) -> Iterator[Ints]:
        """Yield for each row the places of the rows that fit it.

        Args:
            rows: what to look for.
            within: deviations by which numbers may differ; or by row, whether its numbers count at all (within
                `NUMBERS_WITHIN`).
        """
        counts = within if isinstance(within, np.ndarray) else np.ones(len(rows), dtype=bool)
        reach = self._deviation * (NUMBERS_WITHIN if isinstance(within, np.ndarray) else within)
        none = np.empty(0, dtype=np.int64)
        for i, key in enumerate(self._keys(rows)):
            places = self._places.get(key, none)
            if counts[i] and len(places):
                near = (np.abs(self._numbers[places] - rows.numbers[i]) <= reach).all(-1)
                places = places[near]
            yield places

    def _keys(self, rows: Rows) -> Iterator[bytes]:
        kept = rows.categories if self._without is None else np.delete(rows.categories, self._without, axis=1)
        yield from (row.tobytes() for row in kept)


def people_of(
    attack: str,
    updates: Sequence[Proposed],
    population: Population,
    unit: Literal["step", "round"],
    is_whole: bool = True,
) -> People:
    """What an attack revealed of every person behind the updates of a training.

    Args:
        attack: its name.
        updates: at least one, in any order.
        population: the rows of the table.
        unit: what `Proposed.step` counts.
        is_whole: see `lightleak.core.people.People`.
    """
    evidence = _Evidence(sorted(updates, key=lambda one: one.step), population)
    proven, recovered = evidence.verdicts == "proven", evidence.verdicts == "recovered"
    linkage, links = _linkage(evidence)
    return People(
        attack=attack,
        n=len(evidence.people),
        proven=int(proven.sum()),
        proven_numbers=len(np.unique(evidence.proofs_of[evidence.proof_digits])),
        recovered=int(recovered.sum()),
        not_recovered=int((~proven & ~recovered).sum()),
        has_certificates=evidence.has_certificates,
        claims=int((evidence.person != NO_CLAIM).sum()),
        wrong=int((evidence.person == WRONG).sum()),
        wrong_cells=sum(one.wrong_cells for one in updates),
        rows=len(evidence.ids),
        unique=int(population.is_unique[evidence.people].sum()) if population.marginals else None,
        unit=unit,
        curve=_curve(evidence),
        groups=_groups(evidence),
        singling_out=_singling_out(evidence),
        linkage=linkage,
        links=links,
        inference=_inference(evidence),
        means=_means(updates),
        is_whole=is_whole,
    )


def table_of(attack: str, updates: Sequence[Proposed], population: Population) -> pd.DataFrame:
    """One line per person: `lightleak.core.people.CSV_COLUMNS`, with the sensitive columns."""
    evidence = _Evidence(sorted(updates, key=lambda one: one.step), population)
    ids, schema = evidence.people, population.schema
    return pd.DataFrame(
        {
            "attack": attack,
            "person": ids if population.names is None else population.names[ids],
            "row": None if population.index is None else population.index[ids],
            "label": population.text(schema.label.name, ids),
            **{f"sensitive.{name}": population.text(name, ids) for name in schema.sensitive if name in schema.names},
            "seen": evidence.times(evidence.ids),
            "proven": evidence.times(evidence.proofs_of),
            "first_seen": evidence.first(evidence.ids, evidence.step_of_ids),
            "first_proven": evidence.first(evidence.proofs_of, evidence.proof_step),
            "recovered": evidence.times(evidence.ids[evidence.recovered]),
            "verdict": evidence.verdicts,
            "unique": population.is_unique[ids] if population.marginals else None,
        }
    )


class _Evidence:
    """What the updates of a training say together; arrays over all their rows."""

    def __init__(self, updates: Sequence[Proposed], population: Population) -> None:
        def joined(name: str) -> Any:
            return np.concatenate([getattr(one, name) for one in updates])

        def spread(name: str) -> Ints:
            return np.repeat([getattr(one, name) for one in updates], [len(one.ids) for one in updates])

        self.population = population
        self.has_certificates = any(one.has_certificate for one in updates)
        self.ids, self.recovered, self.person = joined("ids"), joined("recovered"), joined("person")
        self.step_of_ids, self.epoch_of_ids = spread("step"), spread("epoch")
        self.update = np.repeat(np.arange(len(updates)), [len(one.ids) for one in updates])
        self.rows = Rows.together([one.rows for one in updates])
        self.people = np.unique(self.ids)
        proofs = self.person >= 0
        self.digits = joined("digits")
        self.proofs_of, self.proof_digits = self.person[proofs], self.digits[proofs]
        self.proof_step, self.proof_rows = self.step_of_ids[proofs], self.rows[proofs]
        is_proven = np.isin(self.people, self.proofs_of)
        is_recovered = np.isin(self.people, self.ids[self.recovered])
        self.verdicts = np.select([is_proven, is_recovered], ["proven", "recovered"], "not recovered").astype(object)

    def places(self, ids: Ints) -> Ints:
        """Where people stand in `people`."""
        return np.searchsorted(self.people, ids)

    def times(self, ids: Ints) -> Ints:
        """How often each of `people` occurs."""
        return np.bincount(self.places(ids), minlength=len(self.people))

    def first(self, ids: Ints, steps: Ints) -> "pd.Series[Any]":
        """The first step of each of `people`; missing where they do not occur."""
        found = pd.Series(steps).groupby(ids).min() if len(ids) else pd.Series(dtype="Int64")
        return found.reindex(self.people).astype("Int64").reset_index(drop=True)


def _curve(evidence: _Evidence) -> tuple[Point, ...]:
    steps = np.unique(evidence.step_of_ids)
    if len(steps) > CURVE_POINTS:
        steps = steps[np.linspace(0, len(steps) - 1, CURVE_POINTS).round().astype(int)]

    def until(ids: Ints, at: Ints) -> Floats:
        first = evidence.first(ids, at).to_numpy("float64", na_value=np.inf)
        return first

    seen, proven = until(evidence.ids, evidence.step_of_ids), until(evidence.proofs_of, evidence.proof_step)
    recovered = until(evidence.ids[evidence.recovered], evidence.step_of_ids[evidence.recovered])
    return tuple(
        Point(
            int(step) + 1,
            int((seen <= step).sum()),
            int((proven <= step).sum()),
            int(((recovered <= step) & ~(proven <= step)).sum()),
        )
        for step in steps
    )


def _groups(evidence: _Evidence) -> tuple[Group, ...]:
    population, schema = evidence.population, evidence.population.schema
    found = []
    for name in _categorical_sensitive(schema):
        cells = np.array(population.text(name, evidence.people), dtype=object)
        for category, n in sorted(Counter(cells).items(), key=lambda pair: -pair[1]):
            verdicts = Counter(evidence.verdicts[cells == category])
            rate = Rate.of(verdicts["proven"], n)
            assert rate is not None  # a category that was counted has people
            found.append(Group(name, category, n, verdicts["proven"], rate.low, rate.high, verdicts["recovered"]))
    return tuple(found)


def _categorical_sensitive(schema: TableSchema) -> list[str]:
    categorical = {column.name for column in (*schema.categorical, schema.label)}
    return [name for name in schema.sensitive if name in categorical]


def _singling_out(evidence: _Evidence) -> Risk | None:
    population = evidence.population
    if population.marginals is None:
        return None
    everyone, others = (RowIndex(rows, population.deviation) for rows in (population.everyone, population.others))
    proofs, digits = evidence.proof_rows, evidence.proof_digits
    unproven = evidence.person == NO_CLAIM
    rows = evidence.rows[unproven]
    named = _only(everyone, rows, TOLERANCE)
    if evidence.has_certificates:
        by_proof = evidence.proofs_of[_only(everyone, proofs, digits) != NOBODY]
        pairs = set(zip(evidence.update.tolist(), evidence.ids.tolist(), strict=True))
        right = [pair in pairs for pair in zip(evidence.update[unproven].tolist(), named.tolist(), strict=True)]
        singled_out = np.union1d(by_proof, named[np.array(right, dtype=bool)])
        attack = Rate.of(len(singled_out), len(evidence.people))
    else:
        attack = Rate.of(int((named != NOBODY).sum()), len(rows))
    strangers = np.concatenate([_only(others, proofs, digits), _only(others, rows, TOLERANCE)])
    control = Rate.of(int((strangers != NOBODY).sum()), len(strangers))
    n, draws = len(evidence.people), numpy_generator(population.seed, "singling out")
    cells = table_cells(population.encoder, population.marginals.sample(population.schema, n, draws))
    guess = Rows(cells.codes.numpy(), cells.numbers.numpy(), draws.choice(population.everyone.labels, n))
    # A guess of categories alone fits more people than one of numbers too: whichever singles out more of them counts.
    ways = [_only(everyone, guess, within) for within in (np.zeros(n, dtype=bool), TOLERANCE)]
    guessed = max(int((one != NOBODY).sum()) for one in ways)
    return Risk(attack, control, Rate.of(guessed, n))


def _only(index: RowIndex, rows: Rows, within: float | Bools) -> Ints:
    """By row, the place of the only one that fits it; `NOBODY` where none does, or several do."""
    found = [int(places[0]) if len(places) == 1 else NOBODY for places in index.fitting(rows, within)]
    return np.array(found, dtype=np.int64)


def _linkage(evidence: _Evidence) -> tuple[Risk | None, Links | None]:
    seen = np.unique(np.column_stack([evidence.ids, evidence.epoch_of_ids]), axis=0)
    people, times = np.unique(seen[:, 0], return_counts=True)
    repeated = people[times > 1]
    if not evidence.has_certificates or not len(repeated):
        return None, None
    claims = evidence.person != NO_CLAIM
    # A row that was certified wrongly is nobody's: every link with it is wrong.
    person = np.where(evidence.person == WRONG, -1 - np.arange(len(evidence.person)), evidence.person)[claims]
    others, deviation = evidence.population.others, evidence.population.deviation
    values = [_linking(evidence.rows[claims], evidence.digits[claims], deviation)]
    values += [_linking(others, np.full(len(others), digits), deviation) for digits in (True, False)]
    of_row, of_other = np.split(
        np.unique(np.concatenate(values), axis=0, return_inverse=True)[1].reshape(-1), [len(person)]
    )
    claimed = np.unique(np.column_stack([of_row, evidence.epoch_of_ids[claims], person]), axis=0)

    def alike(*columns: int) -> Ints:
        """How many of the claims agree with each in these columns."""
        of, number = np.unique(claimed[:, columns], axis=0, return_inverse=True, return_counts=True)[1:]
        return np.asarray(number[of.reshape(-1)])

    value, epoch, whose = 0, 1, 2
    right = alike(value, whose) - 1
    wrong = alike(value) - alike(value, epoch) - right
    links = Links(int((times * (times - 1)).sum()) // 2, int(right.sum()) // 2, int(wrong.sum()) // 2)
    linked = np.setdiff1d(claimed[right > 0, whose], claimed[wrong > 0, whose])
    strangers = np.unique(person[np.isin(of_row, of_other) & (person >= 0)])
    of_a_round = len(seen) / len(np.unique(seen[:, 1]))
    risk = Risk(
        Rate.of(len(np.intersect1d(repeated, linked)), len(repeated)),
        Rate.of(len(strangers), len(np.unique(evidence.proofs_of))) if len(others) else None,
        Rate.of(len(repeated) / of_a_round, len(repeated)),
    )
    return risk, links


def _linking(rows: Rows, digits: Bools, deviation: Floats) -> Ints:
    """By what rows are linked, ``[n, K + L + 2]``: categories, class, and certified numbers on a grid.

    Certified numbers lie within `NUMBERS_WITHIN` deviations of the true ones, so that two of one person differ by twice
    that at most: the width of the grid.
    """
    width = np.maximum(2 * NUMBERS_WITHIN * deviation, np.finfo(float).tiny)
    grid = np.where(digits[:, None], np.round(rows.numbers / width), 0)
    return np.column_stack([rows.categories, digits, grid]).astype(np.int64)


def _inference(evidence: _Evidence) -> Risk | None:
    population, schema = evidence.population, evidence.population.schema
    secret = next(iter(_categorical_sensitive(schema)), None)
    if secret is None or len(population.others) < 2:
        return None
    of_label = secret == schema.label.name
    column = len(schema.categorical) if of_label else [one.name for one in schema.categorical].index(secret)
    order = numpy_generator(population.seed, "inference").permutation(len(population.others))
    half = len(order) // 2
    sizes = [len(one.categories) for one in (*schema.categorical, schema.label)]
    guess = _guesser(population.others[order[half:][:MOST_TRAINED]], column, sizes)
    named = _Inferred(evidence, column)

    def rates(people: Rows) -> tuple[Rate | None, Rate | None]:
        true, guessed = people.categories[:, column], guess(people)
        inferred = named.of(people, guessed)
        return Rate.of(int((inferred == true).sum()), len(true)), Rate.of(int((guessed == true).sum()), len(true))

    attack, baseline = rates(population.sent[evidence.people])
    control, _ = rates(population.others[order[:half]])
    return Risk(attack, control, baseline, secret)


class _Inferred:
    """Reads a secret column off the rows that agree with a person in all others.

    Rows with certified numbers, which have to agree too, come before other certified ones, and these before the rest.
    """

    def __init__(self, evidence: _Evidence, column: int) -> None:
        claims, digits = evidence.person != NO_CLAIM, evidence.digits
        parts = [evidence.rows[which] for which in (claims & digits, claims & ~digits, ~claims)]
        self._secrets = [rows.categories[:, column] for rows in parts]
        self._indices = [RowIndex(rows, evidence.population.deviation, column) for rows in parts]

    def of(self, people: Rows, guessed: Ints) -> Ints:
        """The secret column, ``[n]``; as guessed where no row agrees."""
        found = np.array(guessed)
        for secrets, index, numbers in list(zip(self._secrets, self._indices, (True, False, False), strict=True))[::-1]:
            for i, places in enumerate(index.fitting(people, np.full(len(people), numbers))):
                if len(places):
                    found[i] = np.bincount(secrets[places]).argmax()
        return found


def _guesser(rows: Rows, column: int, sizes: Sequence[int]) -> Any:
    """A function that predicts a column of `Rows.categories` from all others, trained on these rows.

    Args:
        rows: to train on.
        column: to predict.
        sizes: numbers of categories by column.
    """
    from sklearn.ensemble import HistGradientBoostingClassifier  # heavy, and used here alone

    def features(of: Rows) -> Floats:
        return np.column_stack([np.delete(of.categories, column, axis=1), of.numbers]).astype(float)

    inputs, secret = features(rows), rows.categories[:, column]
    if len(np.unique(secret)) < 2:
        return lambda of: np.full(len(of), secret[0])
    others = [size <= MOST_CATEGORIES for i, size in enumerate(sizes) if i != column]
    categorical = [*others, *[False] * rows.numbers.shape[1]]
    model = HistGradientBoostingClassifier(random_state=0, early_stopping=False, categorical_features=categorical)
    model.fit(inputs, secret)
    return lambda of: model.predict(features(of)) if len(of) else np.empty(0, dtype=np.int64)


def _means(updates: Sequence[Proposed]) -> Means:
    cpu = [one.cpu_seconds for one in updates]
    return Means(
        updates=len(updates),
        epochs=tuple(sorted({one.epoch for one in updates})),
        seconds=float(sum(one.seconds for one in updates)),
        cpu_seconds=None if np.isnan(cpu).any() else float(sum(cpu)),
        peak_memory=max(one.peak_memory for one in updates) or None,
    )
