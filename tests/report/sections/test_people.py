"""Every person of a training on the first page and in a section: numbers, groups and the three risks."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from lightleak.core.people import Group, Means, People, Point, Rate, Risk
from lightleak.core.records import write_record
from lightleak.report import build_report
from lightleak.report.blocks import Page
from lightleak.report.page import render
from lightleak.report.read import load_run
from lightleak.report.sections.people import FEWEST, people_section, risk_lines, strongest, worst_group


def group(category: str, n: int, proven: int, recovered: int | None = None) -> Group:
    rate = Rate.of(proven, n)
    return Group("sex", category, n, proven, rate.low, rate.high, recovered)


ALL = People(
    attack="audit_max",
    n=720,
    proven=684,
    proven_numbers=680,
    recovered=21,
    not_recovered=15,
    has_certificates=True,
    claims=690,
    wrong=2,
    rows=720,
    unique=715,
    unit="step",
    curve=(Point(0, 0, 0, 0), Point(12, 384, 360, 12), Point(23, 720, 684, 21)),
    groups=(group("female", 220, 218), group("male", 500, 466)),
    singling_out=Risk(Rate.of(680, 720), Rate.of(0, 200), Rate.of(2, 720)),
    inference=Risk(Rate.of(700, 720), Rate.of(150, 200), Rate.of(540, 720), "sex"),
    means=Means(23, (0,), 80.0, 79.0, 734_003_200),
)
WITHOUT_PROOF = replace(
    ALL,
    attack="tableak",
    proven=0,
    proven_numbers=0,
    recovered=100,
    not_recovered=620,
    has_certificates=False,
    claims=0,
)


@pytest.fixture
def covered(make_named_run) -> Callable[..., Path]:
    """A run folder with people."""

    def make(*people: People, name: str = "covered") -> Path:
        folder = make_named_run(name)(attacks=("tableak", "random"), batch_sizes=(32,), n_batches=3)
        raw = json.loads((folder / "results.json").read_text())
        raw["people"] = [write_record(one) for one in people]
        (folder / "results.json").write_text(json.dumps(raw))
        return folder

    return make


def test_the_first_page_is_about_people(covered, page_of) -> None:
    page = page_of(covered(WITHOUT_PROOF, ALL))
    first = page.text.partition("In plain language")[2].partition("Records in a message")[0]
    for fact in (
        "Whoever runs the server or breaks into it could prove the records of 684 of 720 people (95 of 100; 23",
        "recover 21 more without proof",
        "proven at least once",
        "guessing without an update",
        "Singling out a recovered record that fits nobody else 94.4 92.5 to 95.9 0 0.0 to 1.9 0.3",
        "Linkage two proven records of one person not measured",
        "sex = female: 99.1 of 100 proven",
        "measurably more than the 95 of all; picked among 2 groups.",
        "Not tested Membership inference, model inversion, extraction, property inference.",
    ):
        assert fact in first, fact
    assert len(first.split()) <= 350
    assert "people" in page.ids


def test_the_section_lists_every_attack_with_its_wrong_proofs_and_means(covered, outline) -> None:
    run = load_run(covered(WITHOUT_PROOF, ALL))
    rows = outline(render(Page("", "", [people_section([run])]))).rows
    assert ["TabLeak", "720", "–", "100 13.9 of 100", "620 86.1 of 100"] in [row[:5] for row in rows]
    assert ["1 min 19 s", "0.7 GB"] in [row[6:] for row in rows]
    assert ["Exact + TabLeak", "720", "684 95 of 100", "21 2.9 of 100", "15 2.1 of 100", "2 of 690"] in [
        row[:6] for row in rows
    ]
    assert ["female", "220", "99.1 96.7 to 99.8"] in rows


def test_without_people_there_is_no_such_section(make_run) -> None:
    run = load_run(make_run())
    assert strongest(run) is None and people_section([run]) is None


def test_the_attack_that_proves_most_is_the_one_that_counts(covered) -> None:
    assert strongest(load_run(covered(WITHOUT_PROOF, ALL))).attack == "audit_max"


def test_a_sample_counts_where_it_measurably_exposes_more_and_captured_updates_alone_do_not(covered, outline) -> None:
    exact = replace(ALL, attack="exact", proven=0, proven_numbers=0, recovered=0, not_recovered=720)
    sample = replace(WITHOUT_PROOF, n=64, recovered=40, not_recovered=24, is_whole=False, means=Means(2))
    assert strongest(load_run(covered(exact, sample))) == sample
    assert strongest(load_run(covered(ALL, sample, name="better"))) == ALL
    captured = covered(sample, name="captured")
    assert strongest(load_run(captured)) is None
    text = outline(build_report(captured).read_text()).text
    assert "The people behind the captured updates" in text and "TabLeak (2 updates)" in text
    assert "steps of the training" in text  # its curve


def test_a_small_group_is_not_called_the_most_exposed() -> None:
    few = replace(ALL, groups=(*ALL.groups, group("unknown", FEWEST - 1, FEWEST - 1)))
    assert worst_group(few).category == "female"
    assert worst_group(replace(ALL, groups=())) is None


def test_without_proofs_the_most_exposed_group_is_the_one_recovered_most(covered, page_of) -> None:
    groups = (group("female", 220, 0, 150), group("male", 500, 0, 298))
    noisy = replace(ALL, proven=0, proven_numbers=0, recovered=448, not_recovered=272, claims=0, wrong=0, groups=groups)
    page = page_of(covered(noisy)).text
    assert "could recover the records of 448 of 720 people (62.2 of 100; 23 messages of one training). None is" in page
    assert "sex = female: 68.2 of 100 recovered" in page
    assert "measurably more than the 62.2 of all" in page
    nobody = replace(
        noisy, recovered=0, not_recovered=720, groups=(group("female", 220, 0, 0), group("male", 500, 0, 0))
    )
    page = page_of(covered(nobody, name="nobody")).text
    assert "These attacks recovered nobody's whole record: 0 of 720 people (23 messages" in page
    assert "Nobody was proven or recovered, so no group more than another." in page


def test_risks_that_were_not_measured_have_no_number() -> None:
    found = {line.name: line for line in risk_lines(ALL)}
    assert found["Linkage"].attack is None
    assert found["Inference"].baseline.mean == 0.75 and found["Inference"].meaning == "a person's sex"


def test_a_defense_is_judged_by_people(covered, outline, tmp_path: Path) -> None:
    safer = replace(ALL, proven=12, proven_numbers=12, recovered=0, not_recovered=708)
    first, second = covered(ALL), covered(safer, name="noisy")
    raw = json.loads((second / "results.json").read_text())
    for row in raw["rows"]:
        row |= {"defense": "gaussian_noise", "defense_strength": 0.01}
    (second / "results.json").write_text(json.dumps(raw))
    text = outline(build_report([first, second], tmp_path / "both.html").read_text()).text
    assert "people proven go from 684 of 720 to 12 of 720" in text
