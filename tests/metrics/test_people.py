"""From rows to people on tables small enough to count by hand: verdicts, wrong proofs, and the three risks."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.ensemble import HistGradientBoostingClassifier

from lightleak.core.certificate import Certificate, Feasibility, RowStatus
from lightleak.core.ground_truth import GroundTruth
from lightleak.core.people import CSV_COLUMNS, Links, Point, Rate, Repeated, Sharing
from lightleak.core.reconstruction import Reconstruction
from lightleak.core.threat_model import ThreatModel
from lightleak.data.encoder import TableEncoder
from lightleak.data.marginals import Marginals
from lightleak.data.schema import Column, TableSchema
from lightleak.data.table import DatasetCard, Table
from lightleak.metrics.certificate import NO_CLAIM, WRONG
from lightleak.metrics.people.evidence import Proposed
from lightleak.metrics.people.guess import SecretGuess
from lightleak.metrics.people.population import Population
from lightleak.metrics.people.revealed import CURVE_POINTS, GROUP_POINTS, bands, people_of, table_of
from lightleak.metrics.people.rows import RowIndex, Rows
from lightleak.metrics.score import match

COLUMNS = Column.integer("age", 0, 100), Column.categorical("sex", ["F", "M"]), Column.categorical("job", list("abc"))
SCHEMA = TableSchema(COLUMNS, Column.categorical("ill", ["no", "yes"]), ("sex", "age"))
SENT = pd.DataFrame(
    {
        "age": [20, 20, 40, 60, 80, 33],
        "sex": ["F", "F", "M", "M", "F", "M"],
        "job": ["a", "a", "b", "c", "c", "b"],
        "ill": ["no", "no", "yes", "no", "yes", "no"],
    }
)
"""People 0 and 1 are equal."""
OTHERS = pd.DataFrame(
    {
        "age": [20, 50, 60, 70, 25, 35, 45, 55],
        "sex": ["F", "M", "M", "F", "F", "M", "F", "M"],
        "job": ["a", "b", "c", "a", "b", "c", "a", "b"],
        "ill": ["no", "yes", "no", "no", "yes", "no", "yes", "no"],
    }
)
"""The first equals people 0 and 1, the third person 3."""
PLANNED = Feasibility((4,), (9,), (8,), 0.0, "exact", "enough")


@pytest.fixture(scope="module")
def encoder() -> TableEncoder:
    return TableEncoder(SCHEMA).fit(SENT)


@pytest.fixture(scope="module")
def population(encoder: TableEncoder) -> Population:
    card = DatasetCard("toy", "Toy", (), ())
    return Population.of(Table(card, SCHEMA, SENT, OTHERS), encoder, Marginals.of(SCHEMA, OTHERS))


def proposed(
    encoder: TableEncoder,
    people: Sequence[int],
    found: pd.DataFrame,
    status: Sequence[RowStatus] | None,
    digits: Sequence[bool] | None = None,
    epoch: int = 0,
    step: int = 0,
    labels_proven: bool = True,
) -> Proposed:
    """What an attack proposed for an update of these people."""
    behind = SENT.iloc[list(people)]
    truth = GroundTruth(encoder.encode(behind), encoder.encode_labels(behind), ids=torch.tensor(people))
    n, rows = len(found), found.reset_index(drop=True)
    sure = tuple(one == "certified" for one in status or ()) if digits is None else tuple(digits)
    reconstruction = Reconstruction(
        "x",
        ThreatModel(labels="restored"),
        rows[list(SCHEMA.names)],
        encoder.encode_labels(rows),
        encoder.encode(rows),
        pd.DataFrame(float("nan"), index=range(n), columns=list(SCHEMA.names)),
        0.0,
        1.5,
        certificate=None
        if status is None
        else Certificate(0.0, tuple(status), sure, (1,) * n, PLANNED, labels_proven=labels_proven),
    )
    batch = match(reconstruction, truth, encoder)
    return Proposed.of(reconstruction, truth, encoder, batch, epoch=epoch, step=step, cpu_seconds=2.0, peak_memory=9)


def changed(row: int, **cells: Any) -> pd.DataFrame:
    return SENT.iloc[[row]].assign(**cells)


def test_a_proof_names_its_person_wherever_it_stands(encoder: TableEncoder) -> None:
    found = proposed(encoder, [2, 3, 4], SENT.iloc[[4, 2, 3]], ["certified", "likely", "certified"])
    assert found.person.tolist() == [4, NO_CLAIM, 3]
    assert found.recovered.tolist() == [True, True, True]


@pytest.mark.parametrize(
    ("wrong", "digits", "cells"),
    [
        ({"job": "a"}, [False], 1),  # no such row in the update
        ({"ill": "no"}, [False], 1),  # the label is part of the claim
        ({"age": 42}, [True], 0),  # 0.09 deviations off, and the numbers are certified
    ],
)
def test_a_proof_that_no_row_bears_out_is_wrong(
    encoder: TableEncoder, population: Population, wrong: dict[str, Any], digits: list[bool], cells: int
) -> None:
    found = proposed(encoder, [2], changed(2, **wrong), ["certified"], digits)
    assert found.person.tolist() == [WRONG]
    people = people_of("x", [found], population, "step")
    assert (people.claims, people.wrong, people.wrong_cells, people.proven) == (1, 1, cells, 0)


def test_numbers_that_are_not_certified_are_not_claimed(encoder: TableEncoder) -> None:
    found = proposed(encoder, [2], changed(2, age=42), ["certified"], [False])
    assert found.person.tolist() == [2]


def test_two_proofs_of_one_row_are_one_wrong_proof(encoder: TableEncoder) -> None:
    found = proposed(encoder, [2, 3], SENT.iloc[[2, 2]], ["certified"] * 2)
    assert sorted(found.person.tolist()) == [WRONG, 2]


def test_of_two_people_with_equal_categories_the_numbers_decide(encoder: TableEncoder) -> None:
    both = pd.concat([changed(5), changed(2, ill="no")])  # ages 33 and 40
    assert proposed(encoder, [5, 2], SENT.iloc[[2, 5]], ["certified"] * 2, [False] * 2).person.tolist() == [2, 5]
    only = proposed(encoder, [5], both.iloc[[1]], ["certified"], [False])
    assert only.person.tolist() == [5]


def test_rows_without_ids_are_numbered_and_named_later(encoder: TableEncoder) -> None:
    behind = SENT.iloc[[2, 3]]
    truth = GroundTruth(encoder.encode(behind), encoder.encode_labels(behind))
    certificate = Certificate(0.0, ("certified", "likely"), (True, False), (1, 1), PLANNED)
    made = Reconstruction(
        "x",
        ThreatModel(labels="restored"),
        behind.iloc[::-1][list(SCHEMA.names)].reset_index(drop=True),
        truth.labels.flip(0),
        truth.inputs.flip(0),
        pd.DataFrame(float("nan"), index=range(2), columns=list(SCHEMA.names)),
        0.0,
        0.0,
        certificate=certificate,
    )
    found = Proposed.of(made, truth, encoder, match(made, truth, encoder), epoch=0, step=0)
    assert (found.ids.tolist(), found.person.tolist()) == ([0, 1], [1, NO_CLAIM])
    named = found.named(np.array([7, 4]))
    assert (named.ids.tolist(), named.person.tolist()) == ([7, 4], [4, NO_CLAIM])


def test_a_file_gives_back_what_was_written(encoder: TableEncoder) -> None:
    written = proposed(encoder, [2, 3], SENT.iloc[[3, 2]], ["certified", "likely"], epoch=1, step=7)
    read = Proposed.from_bytes(written.to_bytes())
    assert (read.epoch, read.step, read.has_certificate, read.seconds) == (1, 7, True, 1.5)
    for name in ("ids", "recovered", "person", "digits", "codes", "numbers", "labels"):
        assert np.array_equal(getattr(read, name), getattr(written, name)), name


@pytest.fixture(scope="module")
def training(encoder: TableEncoder) -> list[Proposed]:
    """Two epochs over people 0 to 4; person 5 was in no update.

    Epoch 0 proves 0 and 2 and names a wrong row, epoch 1 proves 1, 2 and 3 and recovers 4 without proof.
    """
    return [
        proposed(encoder, [0, 2], SENT.iloc[[0, 2]], ["certified", "certified"], step=0),
        proposed(
            encoder,
            [1, 3, 4],
            pd.concat([changed(1, job="b"), changed(3, age=90, job="a"), changed(4, sex="M")]),
            ["likely", "certified", "likely"],
            step=1,
        ),
        proposed(encoder, [2, 4], SENT.iloc[[4, 2]], ["likely", "certified"], epoch=1, step=2),
        proposed(encoder, [1, 3], SENT.iloc[[1, 3]], ["certified", "certified"], epoch=1, step=3),
    ]


def test_every_person_gets_the_strongest_verdict(training: list[Proposed], population: Population) -> None:
    people = people_of("x", training, population, "step")
    assert (people.n, people.rows, people.unique) == (5, 9, 2)  # 0, 1 and 3 have equals
    assert (people.proven, people.recovered, people.not_recovered) == (4, 1, 0)
    assert (people.claims, people.wrong, people.has_certificates) == (6, 1, True)
    table = table_of("x", training, population).set_index("person").sort_index()
    assert table["verdict"].to_dict() == {0: "proven", 1: "proven", 2: "proven", 3: "proven", 4: "recovered"}
    assert table["proven"].to_dict() == {0: 1, 1: 1, 2: 2, 3: 1, 4: 0}
    assert table["first_proven"].dropna().to_dict() == {0: 0, 1: 3, 2: 0, 3: 3}
    assert table["first_seen"].to_dict() == {0: 0, 1: 1, 2: 0, 3: 1, 4: 1}
    assert table["seen"].tolist() == [1, 2, 2, 2, 2]
    assert table["recovered"].to_dict() == {0: 1, 1: 1, 2: 2, 3: 1, 4: 1}
    assert table["unique"].to_dict() == {0: False, 1: False, 2: True, 3: False, 4: True}
    assert table["sharing"].to_dict() == {0: 2, 1: 2, 2: 0, 3: 1, 4: 0}  # the equals of 0 and 1: each other, a test row
    assert table["label"].to_dict() == {0: "no", 1: "no", 2: "yes", 3: "no", 4: "yes"}
    assert table["sensitive.age"].tolist() == ["20", "20", "40", "60", "80"]
    assert set(CSV_COLUMNS) <= {*table.columns, "person"}


def test_the_most_exposed_people_come_first(training: list[Proposed], population: Population) -> None:
    # Proven are 2 (unique), 3 (one other has its row), and 0 and 1 (two others; 0 in its only update), recovered is 4.
    assert table_of("x", training, population)["person"].tolist() == [2, 3, 0, 1, 4]
    alone = replace(population, others=population.others[:0], marginals=None)
    # By the share of updates, how often, how early.
    assert table_of("x", training, alone)["person"].tolist() == [2, 0, 1, 3, 4]


def test_the_curve_counts_people_and_ends_at_the_verdicts(training: list[Proposed], population: Population) -> None:
    assert people_of("x", training, population, "step").curve == (
        Point(1, 2, 2, 0),
        Point(2, 5, 2, 0),
        Point(3, 5, 2, 1),
        Point(4, 5, 4, 1),
    )
    assert people_of("x", training[::-1], population, "step").curve[-1] == Point(4, 5, 4, 1)


def test_a_long_curve_is_thinned_to_its_end(training: list[Proposed], population: Population) -> None:
    long = [replace(training[0], step=step) for step in range(3 * CURVE_POINTS)]
    curve = people_of("x", long, population, "step").curve
    assert len(curve) == CURVE_POINTS and (curve[0].round, curve[-1].round) == (1, 3 * CURVE_POINTS)


def test_groups_are_the_categories_of_sensitive_columns(training: list[Proposed], population: Population) -> None:
    groups = people_of("x", training, population, "step").groups
    assert [(one.column, one.category, one.n, one.proven) for one in groups] == [
        ("sex", "F", 3, 2),
        ("sex", "M", 2, 2),
        ("age", "20 or less", 2, 2),  # of the training rows 20, 20, 33, 40, 60 and 80; 33 was in no update
        ("age", "above 33 to 60", 2, 2),
        ("age", "above 60", 1, 0),
    ]
    of_sex = sum(one.recovered or 0 for one in groups if one.column == "sex")
    assert of_sex == people_of("x", training, population, "step").recovered


@pytest.mark.parametrize(
    ("numbers", "sizes"),
    [
        (range(17, 91), {"35 or less": 19, "above 35 to 53": 18, "above 53 to 72": 19, "above 72": 18}),
        ([0.0] * 6 + [1.5, 2.5], {"0 or less": 6, "above 0": 2}),
        ([1, 1, 1, 2, 2, 2, 3, 3, 3, 3], {"1 or less": 3, "above 1 to 2": 3, "above 2": 4}),
        ([4] * 9, {}),
        ([0] * 500 + [3] * 490 + [7], {"0 or less": 500, "above 0 to 3": 490, "above 3": 1}),  # 7 names its owner
        ([1234.56, 2345.67, 3456.78, 4567.89], {"2300 or less": 1, "above 2300 to 3500": 2, "above 3500": 1}),
        (
            [20200101 + day for day in range(4) for _ in range(25)],
            {"20200101 or less": 25, "above 20200101 to 20200102": 25, "above 20200102 to 20200103": 25}
            | {"above 20200103": 25},
        ),
    ],
)
def test_numbers_are_grouped_in_bands_that_name_neither_the_least_nor_the_most(
    numbers: Sequence[float], sizes: dict[str, int]
) -> None:
    names, of = bands(np.array(numbers, dtype=float))
    assert {name: int((of == name).sum()) for name in names} == sizes


def test_the_curve_of_a_group_is_its_part_of_the_whole_curve(training: list[Proposed], population: Population) -> None:
    people = people_of("x", training, population, "step")
    female, male, *_ = (one.curve for one in people.groups)
    assert female == (Point(1, 1, 1, 0), Point(2, 3, 1, 0), Point(3, 3, 1, 1), Point(4, 3, 2, 1))
    assert male == (Point(1, 1, 1, 0), Point(2, 2, 1, 0), Point(3, 2, 1, 0), Point(4, 2, 2, 0))
    assert all((one.curve[-1].proven, one.curve[-1].recovered) == (one.proven, one.recovered) for one in people.groups)
    long = [replace(training[0], step=step) for step in range(3 * GROUP_POINTS)]
    assert len(people_of("x", long, population, "step").groups[0].curve) == GROUP_POINTS


def test_how_many_others_share_a_row(training: list[Proposed], population: Population) -> None:
    people = people_of("x", training[:1], population, "step")
    assert people.sharing == (Sharing(0, 1, 1), Sharing(2, 1, 1))
    assert people_of("x", training, population, "step").sharing == (
        Sharing(0, 2, 2),
        Sharing(1, 1, 1),
        Sharing(2, 2, 2),
    )


def test_who_has_an_equal_is_not_singled_out(training: list[Proposed], population: Population) -> None:
    risk = people_of("x", training, population, "step").singling_out
    assert risk is not None and risk.attack is not None and risk.control is not None and risk.baseline is not None
    assert (risk.attack.share, risk.attack.n) == (2 / 5, 5)  # person 2 with proof, person 4 without
    # Of five right proofs those of 0 and 1 fit the first test row, that of 3 the third; the three others fit none.
    # Rows that come back in several updates are no trials of their own: n is that of the people.
    assert (risk.control.share, risk.control.n) == (3 / 8, 5)
    assert risk.baseline.n == 5


@pytest.mark.parametrize(
    ("ill", "labels_proven", "singled_out"), [("yes", True, 1), ("yes", False, 0), ("no", False, 0)]
)
def test_a_label_without_proof_singles_nobody_out(
    encoder: TableEncoder, population: Population, ill: str, labels_proven: bool, singled_out: int
) -> None:
    twin = Rows.of(
        encoder.project(encoder.encode(changed(2)), clamp=False), encoder.encode_labels(changed(2, ill="no"))
    )
    found = proposed(encoder, [2], changed(2, ill=ill), ["certified"], labels_proven=labels_proven)
    people = people_of("x", [found], replace(population, others=twin), "step")
    assert (people.proven, people.wrong) == (1, 0)
    assert people.singling_out is not None and people.singling_out.control is not None
    assert people.singling_out.attack == Rate.of(singled_out, 1)
    assert people.singling_out.control.share == 1 - labels_proven


def test_a_row_of_a_wrong_label_without_proof_singles_out_whom_it_proves(
    encoder: TableEncoder, population: Population
) -> None:
    found = proposed(encoder, [4], changed(4, ill="no"), ["certified"], [False], labels_proven=False)
    people = people_of("x", [Proposed.from_bytes(found.to_bytes())], population, "step")
    assert people.singling_out is not None and people.singling_out.attack == Rate.of(1, 1)  # nobody else is F and c


def test_labels_without_proof_neither_link_nor_tell_rows_apart(encoder: TableEncoder, population: Population) -> None:
    def update(person: int, epoch: int, ill: str, digits: bool) -> Proposed:
        row = changed(person, ill=ill)
        return proposed(encoder, [person], row, ["certified"], [digits], epoch, epoch, labels_proven=False)

    one = people_of("x", [update(2, 0, "yes", True), update(2, 1, "no", True)], population, "round")
    assert one.links == Links(1, 1, 0, 0, 0)
    two = people_of("x", [update(2, 0, "yes", False), update(5, 1, "no", False)], population, "round")
    assert two.links == Links(0, 0, 1, 0, 0)  # both are M and b


def test_a_secret_is_read_off_proven_rows_whatever_their_label_without_proof(
    encoder: TableEncoder, population: Population, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema = replace(SCHEMA, sensitive=("sex", "ill"))
    several = replace(population, encoder=TableEncoder(schema).fit(SENT))
    monkeypatch.setattr(SecretGuess, "of", lambda guess, ids: 1 - population.sent.categories[ids, guess.column])
    rows = pd.concat([changed(4, ill="no"), changed(4), changed(4)])
    found = proposed(encoder, [4, 2, 3], rows, ["certified", "likely", "likely"], labels_proven=False)
    alone = proposed(encoder, [4], rows.iloc[[0]], ["certified"], labels_proven=False)

    def inferred(of: Proposed) -> dict[str | None, Rate | None]:
        people = people_of("x", [of], several, "step")
        assert people.inference is not None
        return {risk.column: risk.attack for risk in (people.inference, *people.other_inferences)}

    assert inferred(alone) == {"sex": Rate.of(1, 1), "ill": Rate.of(0, 1)}
    assert inferred(found) == {"sex": Rate.of(1, 3), "ill": Rate.of(1, 3)}  # two rows without proof outvote the label


def test_rows_without_proof_single_out_only_people_of_their_update(
    encoder: TableEncoder, population: Population
) -> None:
    rows = pd.concat([changed(2), changed(4)])  # person 4 is not in the update, and its row is right by chance
    found = proposed(encoder, [2, 3], rows, ["likely", "likely"])
    people = people_of("x", [found], population, "step")
    assert people.singling_out is not None and people.singling_out.attack is not None
    assert (people.singling_out.attack.share, people.singling_out.attack.n) == (1 / 2, 2)
    assert (people.proven, people.recovered) == (0, 1)


def test_a_secret_is_read_off_rows_without_proof_where_there_is_no_other(
    encoder: TableEncoder, population: Population
) -> None:
    wrong_sex = changed(4, sex="M")
    alone = people_of("x", [proposed(encoder, [4], wrong_sex, ["likely"])], population, "step").inference
    assert alone is not None and alone.attack is not None and alone.attack.share == 0
    both = pd.concat([wrong_sex, changed(4)])
    proven = people_of("x", [proposed(encoder, [2, 4], both, ["likely", "certified"])], population, "step").inference
    assert proven is not None and proven.attack is not None
    guessed = 0 if proven.baseline is None else proven.baseline.share
    assert proven.attack.share >= max(1 / 2, guessed)


def test_links_are_right_only_within_a_person(training: list[Proposed], population: Population) -> None:
    people = people_of("x", training, population, "step")
    # Proven in both epochs: 2. Equal and proven in different epochs: 0 and 1.
    assert people.links == Links(4, 1, 1, 0, 0)
    assert (people.links.found, people.links.mistaken) == (Rate.of(1, 4), Rate.of(1, 2))
    assert people.linkage is not None and people.linkage.attack is not None and people.linkage.baseline is not None
    assert (people.linkage.attack.share, people.linkage.attack.n) == (1 / 4, 4)
    assert people.linkage.control is not None
    assert (people.linkage.control.share, people.linkage.control.n) == (3 / 4, 4)  # 0, 1 and 3 have equals
    assert people.linkage.baseline.share == pytest.approx(1 / 4.5)


def test_a_link_with_a_wrong_proof_is_wrong(encoder: TableEncoder, population: Population) -> None:
    row = changed(3, age=90, job="a")
    updates = [proposed(encoder, [3], row, ["certified"], epoch=epoch, step=epoch) for epoch in (0, 1)]
    people = people_of("x", updates, population, "round")
    assert people.links == Links(1, 0, 1, 0, 0) and people.wrong == 2


def test_rows_of_two_clients_of_one_round_are_linked(encoder: TableEncoder, population: Population) -> None:
    def update(people: list[int], epoch: int = 0) -> Proposed:
        return proposed(encoder, people, SENT.iloc[people], ["certified"] * len(people), epoch=epoch, step=epoch)

    # Person 2 is held by both clients of the round, 0 and 1 are equal, one at each client.
    one_round = people_of("x", [update([0, 2]), update([1, 2])], population, "round")
    assert one_round.links == Links(1, 1, 1, 1, 1)
    assert one_round.linkage is not None and one_round.linkage.attack == Rate.of(1, 1)
    two_rounds = people_of("x", [update([0, 2]), update([1, 2]), update([0, 3], epoch=1)], population, "round")
    # Possible are the two rows of 2 in a round, and of 0 over rounds; wrong: 0 with 1 in the round and across.
    assert two_rounds.links == Links(2, 2, 2, 1, 1)
    apart = people_of("x", [update([0]), update([1])], population, "round")
    assert apart.linkage is None and apart.links == Links(0, 0, 1, 0, 1) and apart.links.found is None


def test_rows_without_proof_that_come_back_are_counted_by_how_often(
    encoder: TableEncoder, population: Population
) -> None:
    right, guess, alone = changed(2), changed(3, job="a"), changed(4, job="a")

    def update(epoch: int, *rows: pd.DataFrame) -> Proposed:
        people = [2, 3, 4][: len(rows)]
        return proposed(encoder, people, pd.concat(rows), ["likely"] * len(rows), epoch=epoch, step=epoch)

    # Right in four updates, once two years off; a guess comes back in two, in one of them twice; two occur once.
    updates = [
        update(0, right, guess, guess),
        update(1, right.assign(age=42), guess),
        update(2, right, alone),
        update(3, right, changed(4)),
    ]
    people = people_of("x", updates, population, "round")
    assert people.repeated == (Repeated(2, 6, 4, 1), Repeated(4, 4, 4, 1))
    assert people.repeated[0].share == 4 / 6
    # Person 4 is in no update of these, so that a row that fits it is right of nobody.
    strange = [proposed(encoder, [2], changed(4), ["likely"], epoch=epoch, step=epoch) for epoch in (0, 1)]
    assert people_of("x", strange, population, "round").repeated == (Repeated(2, 2, 0, 0),)


def test_proven_rows_and_rows_of_one_epoch_do_not_come_back(encoder: TableEncoder, population: Population) -> None:
    proven = [proposed(encoder, [2], changed(2), ["certified"], epoch=epoch, step=epoch) for epoch in (0, 1)]
    assert people_of("x", proven, population, "round").repeated == ()
    once = [proposed(encoder, [person], changed(5), ["likely"], step=person) for person in (2, 3)]
    assert people_of("x", once, population, "step").repeated == ()


def test_without_the_table_only_what_updates_show_is_measured(training: list[Proposed], population: Population) -> None:
    alone = replace(population, others=population.others[:0], marginals=None, names=np.arange(6) * 10)
    people = people_of("x", training, alone, "step", is_whole=False)
    assert (people.n, people.proven, people.unique, people.is_whole) == (5, 4, None, False)
    assert people.singling_out is None and people.inference is None
    assert people.linkage is not None and people.linkage.attack is not None and people.linkage.control is None
    table = table_of("x", training, alone)
    assert sorted(table["person"]) == [0, 10, 20, 30, 40] and table["unique"].isna().all()


def test_within_one_epoch_nothing_is_linked(training: list[Proposed], population: Population) -> None:
    people = people_of("x", training[:2], population, "step")
    assert people.links is None and people.linkage is None


def test_a_secret_is_read_off_proven_rows(training: list[Proposed], population: Population) -> None:
    risk = people_of("x", training, population, "step").inference
    assert risk is not None and risk.column == "sex" and risk.attack is not None and risk.baseline is not None
    assert risk.attack.n == risk.baseline.n == 5
    # All four proven people have their sex in a row that agrees in everything else; 4 is guessed.
    assert risk.attack.share >= 4 / 5 and risk.attack.share >= risk.baseline.share
    assert risk.control is not None and risk.control.n == 4


def test_every_secret_column_is_inferred_and_the_largest_gain_comes_first(
    training: list[Proposed], population: Population
) -> None:
    schema = replace(SCHEMA, sensitive=("job", "sex", "ill"))
    several = replace(population, encoder=TableEncoder(schema).fit(SENT))
    people = people_of("x", training, several, "step")
    assert people.inference is not None
    found = [people.inference, *people.other_inferences]
    assert {one.column for one in found} == {"job", "sex", "ill"}
    assert [one.gain for one in found] == sorted((one.gain for one in found), reverse=True)
    assert all(one.attack and one.control and one.baseline and one.attack.n == 5 for one in found)
    (of_sex,) = (one for one in found if one.column == "sex")
    assert of_sex == people_of("x", training, population, "step").inference


def test_a_guess_is_trained_once_for_all_attacks(
    training: list[Proposed], population: Population, monkeypatch: pytest.MonkeyPatch
) -> None:
    fresh, fits = replace(population), []
    fit = HistGradientBoostingClassifier.fit
    monkeypatch.setattr(HistGradientBoostingClassifier, "fit", lambda *args: fits.append(1) or fit(*args))
    first = people_of("x", training, fresh, "step").inference
    second = people_of("y", training[:2], fresh, "step").inference
    assert len(fits) == 1 and first is not None and second is not None
    assert first.control != second.control or first.baseline != second.baseline or first.attack != second.attack


def test_an_attack_without_certificates_recovers_and_proves_nobody(
    encoder: TableEncoder, population: Population
) -> None:
    found = proposed(encoder, [2, 3], pd.concat([changed(2), changed(3, job="a")]), None)
    people = people_of("x", [found], population, "step")
    assert (people.proven, people.recovered, people.not_recovered, people.claims) == (0, 1, 1, 0)
    assert not people.has_certificates and people.linkage is None
    assert people.singling_out is not None and people.singling_out.attack is not None
    assert people.singling_out.attack.n == 2


def test_means_add_up(training: list[Proposed], population: Population) -> None:
    means = people_of("x", training, population, "step").means
    assert (means.updates, means.epochs, means.seconds, means.cpu_seconds, means.peak_memory) == (4, (0, 1), 6, 8, 9)
    unknown = [replace(training[0], cpu_seconds=float("nan"), peak_memory=0)]
    means = people_of("x", unknown, population, "step").means
    assert means.cpu_seconds is None and means.peak_memory is None


def test_an_index_finds_what_fits(population: Population) -> None:
    index = RowIndex(population.sent, population.deviation)
    assert [found.tolist() for found in index.fitting(population.sent[[0, 2]])] == [[0, 1], [2]]
    shifted = replace(population.sent[[2]], numbers=population.sent.numbers[[2]] + 1)
    assert [len(found) for found in index.fitting(shifted)] == [0]
    assert [len(found) for found in index.fitting(shifted, np.array([False]))] == [1]
    without_sex = RowIndex(population.sent, population.deviation, without=(0,))
    assert [found.tolist() for found in without_sex.fitting(population.sent[[5]])] == [[5]]


def test_numbers_of_people_keep_their_digits() -> None:
    columns = Column.integer("income"), Column.continuous("weight"), Column.continuous("time")
    schema = TableSchema(columns, Column.categorical("ill", ["no", "yes"]), ("income", "weight"))
    rows = pd.DataFrame(
        {
            "income": [1234567, 1234599, 9876543, 12],
            "weight": [75.3, 80.2, 61.7, 99.1],
            "time": [1234567.25, 1234568.5, 1234569.125, 1234566.0],
            "ill": ["no", "yes"] * 2,
        }
    )
    table = Table(DatasetCard("toy", "Toy", (), ()), schema, rows, rows)
    people = Population.of(table, TableEncoder(schema).fit(rows), Marginals.of(schema, rows))
    ids = np.arange(4)
    assert people.text("income", ids) == ["1234567", "1234599", "9876543", "12"]
    assert people.text("weight", ids) == ["75.3", "80.2", "61.7", "99.1"]
    assert people.text("time", ids) == ["1234567.25", "1234568.5", "1234569.125", "1234566"]
