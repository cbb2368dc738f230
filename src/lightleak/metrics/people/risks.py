"""Singling out, linkage and inference (WP216) for the people behind the updates of a training.

What is measured is stated with `lightleak.core.people`; main attack, control and baseline follow Anonymeter (Giomi et
al., PoPETs 2023).
"""

from itertools import product

import numpy as np

from lightleak.attacks.gradient_inversion.tables.codec import TOLERANCE
from lightleak.core.certificate import NUMBERS_WITHIN
from lightleak.core.people import Links, Rate, Repeated, Risk
from lightleak.core.seeds import numpy_generator
from lightleak.metrics.cells import table_cells
from lightleak.metrics.certificate import NO_CLAIM, WRONG
from lightleak.metrics.people.evidence import Evidence
from lightleak.metrics.people.guess import SecretGuess
from lightleak.metrics.people.rows import LABEL, Bools, Floats, Ints, RowIndex, Rows

NOBODY = -1
"""No place of a row."""

UNPROVEN = -1
"""No class."""


def singling_out(evidence: Evidence) -> Risk | None:
    """Naming the one row of the table that a proposed row is; None where the table is not known."""
    population = evidence.population
    if population.marginals is None:
        return None
    everyone, others = (RowIndex(rows, population.deviation) for rows in (population.everyone, population.others))
    unproven = evidence.person == NO_CLAIM
    rows = evidence.rows[unproven]
    named = _only(everyone, rows, TOLERANCE)
    if evidence.has_certificates:
        by_proof = evidence.proofs_of[_by_proof(everyone, population.everyone, evidence) == evidence.proofs_of]
        pairs = set(zip(evidence.update.tolist(), evidence.ids.tolist(), strict=True))
        right = [pair in pairs for pair in zip(evidence.update[unproven].tolist(), named.tolist(), strict=True)]
        singled_out = np.union1d(by_proof, named[np.array(right, dtype=bool)])
        attack = Rate.of(len(singled_out), len(evidence.people))
    else:
        attack = _of_proposals(named, len(evidence.people))
    control = _of_proposals(
        np.concatenate([_by_proof(others, population.others, evidence), _only(others, rows, TOLERANCE)]),
        len(evidence.people),
    )
    n, draws = len(evidence.people), numpy_generator(population.seed, "singling out")
    cells = table_cells(population.encoder, population.marginals.sample(population.schema, n, draws))
    guess = Rows(cells.codes.numpy(), cells.numbers.numpy(), draws.choice(population.everyone.labels, n))
    # A guess of categories alone fits more people than one of numbers too: whichever singles out more of them counts.
    ways = [_only(everyone, guess, within) for within in (np.zeros(n, dtype=bool), TOLERANCE)]
    guessed = max(int((one != NOBODY).sum()) for one in ways)
    return Risk(attack, control, Rate.of(guessed, n))


def _of_proposals(named: Ints, people: int) -> Rate | None:
    """Share of proposed rows that name somebody.

    Rows that are proposed again in other updates are no trials of their own: n is at most the number of people.
    """
    n = min(len(named), people)
    return Rate.of(float((named != NOBODY).mean()) * n, n) if n else None


def _by_proof(index: RowIndex, rows: Rows, evidence: Evidence) -> Ints:
    """By proof, the place of the only row that fits all that is proven; `NOBODY` as for `_only`.

    Args:
        index: of the rows, labels included.
        rows: where to look.
        evidence: whose proofs.
    """
    found = _only(index, evidence.proof_rows, evidence.proof_digits)
    if (unlabeled := ~evidence.proof_labels).any():
        any_label = RowIndex(rows, evidence.population.deviation, without=(LABEL,))
        found[unlabeled] = _only(any_label, evidence.proof_rows[unlabeled], evidence.proof_digits[unlabeled])
    return found


def _only(index: RowIndex, rows: Rows, within: float | Bools) -> Ints:
    """By row, the place of the only one that fits it; `NOBODY` where none does, or several do."""
    found = [int(places[0]) if len(places) == 1 else NOBODY for places in index.fitting(rows, within)]
    return np.array(found, dtype=np.int64)


def linkage(evidence: Evidence, by_client: bool = False) -> tuple[Risk | None, Links | None]:
    """Linking rows of one person across epochs; None without certificates, or where nothing can be linked.

    What is linked is a lower bound (`Links`).

    Args:
        evidence: of all updates.
        by_client: each update of a round is of another client, and rows of two clients are linked, too.
    """
    occasion = evidence.update if by_client else evidence.epoch_of_ids
    seen = np.unique(np.column_stack([evidence.ids, occasion]), axis=0)
    people, times = np.unique(seen[:, 0], return_counts=True)
    repeated = people[times > 1]
    if not evidence.has_certificates or not (len(repeated) or by_client):
        return None, None
    claims = evidence.person != NO_CLAIM
    # A row that was certified wrongly is nobody's: every link with it is wrong.
    person = np.where(evidence.person == WRONG, -1 - np.arange(len(evidence.person)), evidence.person)[claims]
    others, deviation = evidence.population.others, evidence.population.deviation
    values = [_linking(evidence.rows[claims], evidence.digits[claims], evidence.labels_proven[claims], deviation)]
    values += [
        _linking(others, np.full(len(others), digits), np.full(len(others), labels), deviation)
        for digits, labels in product((True, False), repeat=2)
    ]
    of_row, of_other = np.split(
        np.unique(np.concatenate(values), axis=0, return_inverse=True)[1].reshape(-1), [len(person)]
    )
    columns = [of_row, occasion[claims], person, evidence.epoch_of_ids[claims]]
    claimed = np.unique(np.column_stack(columns), axis=0)

    def alike(*columns: int) -> Ints:
        """How many of the claims agree with each in these columns."""
        of, number = np.unique(claimed[:, columns], axis=0, return_inverse=True, return_counts=True)[1:]
        return np.asarray(number[of.reshape(-1)])

    value, when, whose, epoch = range(4)
    right = alike(value, whose) - 1
    wrong = alike(value) - alike(value, when) - right
    of_clients = alike(value, whose, epoch) - 1
    mistaken = alike(value, epoch) - alike(value, when) - of_clients
    pairs = [int((times * (times - 1)).sum()), *(int(one.sum()) for one in (right, wrong, of_clients, mistaken))]
    links = Links(*(number // 2 for number in pairs))
    if not len(repeated):
        return None, links
    linked = np.setdiff1d(claimed[right > 0, whose], claimed[wrong > 0, whose])
    strangers = np.unique(person[np.isin(of_row, of_other) & (person >= 0)])
    of_a_round = len(np.unique(evidence.rows_of_epochs, axis=0)) / len(np.unique(evidence.epoch_of_ids))
    risk = Risk(
        Rate.of(len(np.intersect1d(repeated, linked)), len(repeated)),
        Rate.of(len(strangers), len(np.unique(evidence.proofs_of))) if len(others) else None,
        Rate.of(len(repeated) / of_a_round, len(repeated)),
    )
    return risk, links


def _linking(rows: Rows, digits: Bools, labels_proven: Bools, deviation: Floats) -> Ints:
    """By what rows are linked, ``[n, K + L + 2]``: categories, certified classes, and certified numbers on a grid.

    Certified numbers lie within `NUMBERS_WITHIN` deviations of the true ones, so that two of one person differ by twice
    that at most: the width of the grid. Two that lie on either side of an edge are not linked, so that the links are a
    lower bound; numbers certified to the last digits of a float hardly ever lie so.
    """
    grid = np.where(digits[:, None], _grid(rows, 2 * NUMBERS_WITHIN * deviation), 0)
    return np.column_stack([rows.codes, np.where(labels_proven, rows.labels, UNPROVEN), digits, grid]).astype(np.int64)


def _grid(rows: Rows, width: Floats) -> Floats:
    """Numbers ``[n, L]`` as whole multiples of a width."""
    return np.round(rows.numbers / np.maximum(width, np.finfo(float).tiny))


def repeated(evidence: Evidence) -> tuple[Repeated, ...]:
    """Rows without proof that came back in other updates; none where no person is in several."""
    members = set(zip(evidence.update.tolist(), evidence.ids.tolist(), strict=True))
    if len(members) == len(evidence.people):
        return ()
    population, unproven = evidence.population, evidence.person == NO_CLAIM
    rows, update = evidence.rows[unproven], evidence.update[unproven]
    # Guesses come back by the thousand: what is as good as equal is looked up once.
    values = np.column_stack([rows.categories, _grid(rows, NUMBERS_WITHIN * population.deviation)])
    first, value = np.unique(values, axis=0, return_index=True, return_inverse=True)[1:]
    once = np.unique(np.column_stack([value.reshape(-1), update]), axis=0, return_index=True)[1]
    of_value = np.split(update[once], np.flatnonzero(np.diff(value.reshape(-1)[once])) + 1)
    alike = RowIndex(rows[first], population.deviation).fitting(rows[first], TOLERANCE)
    seen = np.array([len(set().union(*(of_value[place].tolist() for place in places))) for places in alike])
    times = seen[value.reshape(-1)[once]]
    once, times = once[times > 1], times[times > 1]
    fitting = RowIndex(population.sent[evidence.people], population.deviation).fitting(rows[once], TOLERANCE)
    named = [
        {person for person in evidence.people[places].tolist() if (of, person) in members}
        for of, places in zip(update[once].tolist(), fitting, strict=True)
    ]
    found, least = [], 2
    while (often := np.flatnonzero(times >= least)).size:
        whom = [named[i] for i in often]
        found.append(Repeated(least, len(often), sum(map(bool, whom)), len(set().union(*whom))))
        least *= 2
    return tuple(found)


def inferences(evidence: Evidence) -> tuple[Risk, ...]:
    """Reading each secret column off the rows that agree with a person in all others, the largest gain first."""
    found = [_inference(evidence, *one) for one in evidence.population.guesses.items()]
    return tuple(sorted(found, key=lambda risk: -risk.gain))


def _inference(evidence: Evidence, secret: str, guess: SecretGuess) -> Risk:
    digits, labels = evidence.digits, evidence.labels_proven
    is_label = guess.column == evidence.rows.codes.shape[1]
    proven = (evidence.person != NO_CLAIM) & (labels if is_label else True)
    # A later source wins: rows with certified numbers, which have to agree too, over other certified ones, and these
    # over the rest. A label that is not certified does not have to agree.
    parts = [(~proven, False, True)]
    parts += [
        (proven & (digits == numbers) & (labels == labeled), numbers, labeled)
        for numbers, labeled in product((False, True), repeat=2)
    ]
    sources = [
        (
            RowIndex(rows, evidence.population.deviation, (guess.column, *(() if labeled else (LABEL,)))),
            rows.categories[:, guess.column],
            numbers,
        )
        for of, numbers, labeled in parts
        if len(rows := evidence.rows[of])
    ]

    def rates(people: Rows, guessed: Ints) -> tuple[Rate | None, Rate | None]:
        true, inferred = people.categories[:, guess.column], np.array(guessed)
        for index, secrets, numbers in sources:
            for i, places in enumerate(index.fitting(people, np.full(len(people), numbers))):
                if len(places):
                    inferred[i] = np.bincount(secrets[places]).argmax()
        return Rate.of(int((inferred == true).sum()), len(true)), Rate.of(int((guessed == true).sum()), len(true))

    attack, baseline = rates(evidence.population.sent[evidence.people], guess.of(evidence.people))
    control, _ = rates(guess.strangers, guess.of_strangers)
    return Risk(attack, control, baseline, secret)
