"""Every person of a training on the first page and in a section: numbers, groups and the three risks."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from lightleak.core.people import Group, Links, Means, People, Point, Rate, Repeated, Risk, Sharing
from lightleak.core.records import write_record
from lightleak.report import build_report
from lightleak.report.blocks import Details, Page
from lightleak.report.kinds.updates_groups import compare
from lightleak.report.kinds.updates_runs import measured_runs
from lightleak.report.kinds.updates_summary import findings
from lightleak.report.page import render
from lightleak.report.read import Run, load_run
from lightleak.report.sections.exposed import MOST_PEOPLE, always_exposed, most_exposed
from lightleak.report.sections.people import (
    FEWEST,
    people_figure,
    people_section,
    risk_lines,
    stands_out,
    strongest,
    worst_group,
    worst_words,
)
from lightleak.report.sections.tested import Findings

SINGLED_OUT = "a recovered record that fits nobody else; a guess counts if its categories alone fit one person"


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
        "Whoever runs the server or breaks into it could prove the records of 684 of 720 people (95 of 100, ",
        "95% interval 93.2 to 96.4; 23",
        "recover 21 more without proof",
        "proven at least once",
        "guessed records that fit exactly one person",
        f"Singling out {SINGLED_OUT} 94.4 92.5 to 95.9 0 0.0 to 1.9 0.3",
        "Linkage two proven records of one person: takes two epochs not measured",
        "sex = female: 99.1 of 100 proven",
        "measurably more than the 95 of all; picked among 2 groups, which is taken into account",
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


def test_each_risk_has_its_control_baseline_interval_and_sample_size(covered, outline) -> None:
    text = outline(render(Page("", "", [people_section([load_run(covered(ALL))])]))).text
    assert f"Singling out {SINGLED_OUT} 94.4 92.5 to 95.9 n = 720 0 0.0 to 1.9 n =" in text
    assert "Linkage two proven records of one person: takes two epochs not measured not measured not measured" in text


def test_links_and_shared_rows_are_counted(covered, outline) -> None:
    shared = (Sharing(0, 715, 690), Sharing(1, 4, 4), Sharing(6, 1, 1))
    linked = replace(ALL, links=Links(700, 650, 50, 3, 9), sharing=shared)
    text = outline(render(Page("", "", [people_section([load_run(covered(linked))])]))).text
    assert "715 of 720 people share their record with nobody in the table; 4 with 1 other, 1 with 6 others." in text
    assert "Of 700 pairs of records of one person, the attacker links 650 as equal (92.9 of 100; 95%" in text
    assert "50 of 700 links are wrong (7.1 of 100; 5.5 to 9.3); of two clients in one round: 3 right, 9 wrong." in text


def test_the_share_of_each_group_is_drawn_over_the_training_with_intervals(covered, outline) -> None:
    curve = (Point(0, 0, 0, 0), Point(12, 110, 108, 0), Point(23, 220, 218, 0))
    female, male = (replace(one, curve=curve) for one in ALL.groups)
    few = replace(group("unknown", FEWEST - 1, 3), curve=curve)
    drawn = render(Page("", "", [people_section([load_run(covered(replace(ALL, groups=(female, male, few))))])]))
    assert "Share of each group of sex that is proven or recovered so far, with 95% intervals" in drawn
    assert "female (220): 49.1% (95% interval 42.6 to 55.7)" in drawn
    assert "male (500)" in drawn and "unknown (19)" not in drawn


def test_records_of_an_attack_without_certificates_are_not_called_people(covered, page_of) -> None:
    first = page_of(covered(WITHOUT_PROOF)).text.partition("Records in a message")[0]
    assert "Of 100 people or records" in first
    assert f"per 100 records, not people: {SINGLED_OUT} 94.4" in first
    assert "Of 100 people By attack" in page_of(covered(ALL, name="proofs")).text


def test_a_table_of_many_groups_is_folded(covered) -> None:
    few, many = (replace(ALL, groups=tuple(group(f"c{i}", 50, 40) for i in range(n))) for n in (12, 13))
    section = people_section([load_run(covered(few, name="few"))]), people_section([load_run(covered(many))])
    assert [any(isinstance(one, Details) for one in found.blocks) for found in section] == [False, True]
    assert "All 13 groups" in render(Page("", "", [section[1]]))


PERSONS = """attack,person,row,label,seen,proven,first_seen,first_proven,recovered,verdict,unique,sharing
audit_max,0,p0,no,2,2,0,0,2,proven,False,3
audit_max,1,p1,no,2,1,0,5,2,proven,True,0
audit_max,2,p2,no,2,0,0,,2,recovered,True,0
audit_max,3,p3,no,2,0,0,,0,not recovered,True,0
audit_max,4,p4,no,2,2,0,1,2,proven,True,0
tableak,4,p4,no,2,0,0,,2,recovered,True,0
"""


def test_the_most_exposed_people_are_listed_unless_redacted(covered, outline) -> None:
    folder = covered(ALL)
    (folder / "people.csv").write_text(PERSONS)
    shown, n_alike = most_exposed(load_run(folder), ALL)
    assert [one.person for one in shown] == ["4", "1", "0", "2"] and n_alike == 1
    page = outline(build_report(folder).read_text())
    assert ["4 row p4", "proven", "2 of 2 messages", "2", "2 of 2 messages", "0"] in page.rows
    assert "This file contains private data" in page.text
    redacted = outline(build_report(folder, redact=True).read_text())
    assert "p4" not in redacted.text and "Most exposed people" not in redacted.text


@pytest.mark.parametrize("by_flag", [True, False])
def test_a_redacted_page_says_nothing_of_a_few(covered, outline, by_flag: bool) -> None:
    shared = (Sharing(0, 700, 690), Sharing(1, 17, 4), Sharing(6, 3, 3))
    few = replace(ALL, unique=700, groups=(*ALL.groups, group("unknown", 3, 3)), sharing=shared)
    folder = covered(few)
    assert "unknown 3 100" in outline(build_report(folder).read_text()).text
    if not by_flag:  # a redacted run of an earlier version
        config = (folder / "config.yaml").read_text() if (folder / "config.yaml").is_file() else ""
        (folder / "config.yaml").write_text(config + "\nredact: true\n")
    text = outline(build_report(folder, redact=by_flag).read_text()).text
    assert "unknown, female 223 99.1" in text and "unknown 3 100" not in text
    assert "sex = unknown, female: 99.1 of 100 proven" in text
    assert "people share their record with nobody in the table; 20 with 1 to 6 others." in text
    assert "groups of fewer than 10 people are merged with others or left out" in text


def test_of_equally_exposed_people_the_first_are_shown_and_all_counted(covered, outline) -> None:
    folder = covered(ALL)
    head, line = PERSONS.splitlines()[0], "audit_max,{0},p{0},no,1,1,0,0,1,proven,True,0"
    (folder / "people.csv").write_text("\n".join([head, *(line.format(i) for i in range(12)), "audit_max,x"]))
    shown, n_alike = most_exposed(load_run(folder), ALL)
    assert (len(shown), n_alike) == (MOST_PEOPLE, 12)
    text = outline(build_report(folder).read_text()).text
    assert "12 people are as exposed as the first; 10 of them are shown." in text


def answers(run: Run) -> tuple[Findings, dict[str, str]]:
    return findings(measured_runs([run]), compare([run]))


def test_the_checklist_names_the_worst_group_and_who_is_exposed_whenever_they_take_part(covered) -> None:
    folder = covered(ALL)
    (folder / "people.csv").write_text(PERSONS)
    assert always_exposed(load_run(folder), ALL) == (4, 4)
    (folder / "people.csv").write_text(PERSONS.replace("1,p1,no,2,1,0,5,2", "1,p1,no,2,1,0,5,1"))
    assert always_exposed(load_run(folder), ALL) == (3, 3)
    found, said = answers(load_run(folder))
    proven = "684 of 720 people proven, 95% interval 671 to 694, 21 more recovered without proof"
    assert found["reconstruction"].startswith(proven) and "by guessing" not in found["reconstruction"]
    guessed, _ = answers(load_run(covered(ALL, GUESS, name="guessed")))
    assert guessed["reconstruction"].endswith("; 6 by guessing")
    assert said["persons"].startswith(f"{proven} (705 of 720 people together, 95% interval ")
    assert "most exposed group: sex = female: 99.1 of 100 proven" in said["persons"]
    assert said["persons"].endswith("Exposed in every update that they were in: 3 people, 3 of them in several")
    redacted = replace(load_run(folder), redact=True)
    assert always_exposed(redacted, ALL) is None and "in every update" not in answers(redacted)[1]["persons"]


def test_the_checklist_says_why_the_cost_of_a_defense_is_not_known(covered) -> None:
    assert answers(load_run(covered(ALL)))[1]["utility"].startswith("Not tested: no two runs here")


def test_the_checklist_compares_all_three_risks_with_control_and_baseline(covered) -> None:
    _, said = answers(load_run(covered(ALL)))
    whole, secret = "Singling out: 94.4 of 100 (92.5 to 95.9), ", "Inference: 97.2 of 100 (95.7 to 98.2), "
    assert said["baseline"] == (
        f"{whole}0.3 (0.1 to 1.0) by guessing; Linkage: not measured; {secret}75 (71.7 to 78.0) by guessing"
    )
    assert said["control"] == (
        f"{whole}0 (0.0 to 1.9) of people who took no part; Linkage: not measured; "
        f"{secret}75 (68.6 to 80.5) of people who took no part"
    )


def test_without_people_there_is_no_such_section(make_run) -> None:
    run = load_run(make_run())
    assert strongest(run) is None and people_section([run]) is None


def test_the_attack_that_exposes_most_is_the_one_that_counts(covered) -> None:
    assert strongest(load_run(covered(WITHOUT_PROOF, ALL))).attack == "audit_max"
    last_batch = replace(ALL, attack="exact", proven=3, proven_numbers=3, recovered=1, not_recovered=716, claims=3)
    assert strongest(load_run(covered(last_batch, WITHOUT_PROOF, name="averaged"))).attack == "tableak"
    alike = replace(WITHOUT_PROOF, recovered=705, not_recovered=15)
    assert strongest(load_run(covered(alike, ALL, name="alike"))).attack == "audit_max"


def test_rows_without_proof_that_come_back_are_not_called_unknown(covered, page_of) -> None:
    unproven = replace(ALL, proven=0, proven_numbers=0, recovered=100, not_recovered=620, claims=0, wrong=0)
    assert "None is proven: which are right, the messages alone do not say." in page_of(covered(unproven)).text
    again = (Repeated(2, 1_400, 750, 106), Repeated(4, 460, 426, 44), Repeated(8, 137, 136, 15))
    page = page_of(covered(replace(unproven, repeated=again), name="again")).text
    assert (
        "None is proven, but of the records that came back in at least 4 messages 92.6 of 100 are right (44 people)"
        in page
    )
    assert "in at least 2 messages 1,400, of which 53.6 of 100 are right (106 people), in at least" in page


GUESS = replace(WITHOUT_PROOF, attack="random", recovered=6, not_recovered=714)


def test_a_guess_is_no_attack_and_its_share_is_the_baseline_of_the_picture(covered, page_of) -> None:
    nobody = replace(ALL, attack="exact", proven=0, proven_numbers=0, recovered=0, not_recovered=720, claims=0, wrong=0)
    sampled = replace(GUESS, n=64, recovered=40, not_recovered=24, is_whole=False)
    folder = covered(nobody, GUESS, sampled)
    assert strongest(load_run(folder)).attack == "exact"
    assert strongest(load_run(covered(GUESS, name="guess"))) is None
    page = page_of(covered(nobody, GUESS, name="both"))
    assert "recovered nobody's whole record: 0 of 720 people" in page.text
    assert "people recovered by guessing without an update" in page.text
    assert "guessed records that fit exactly one person" not in page.text


def test_the_picture_has_each_curve_with_its_band_also_without_groups() -> None:
    drawn = people_figure(replace(ALL, groups=()))
    assert [entry[1] for entry in drawn.legend.entries][:2] == [
        "proven at least once",
        "proven, or recovered without proof",
    ]
    assert drawn.drawing.count("curve-band") == 2
    assert people_figure(replace(ALL, recovered=0)).drawing.count("curve-band") == 1


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


@pytest.mark.parametrize(
    ("groups", "said"),
    [
        (
            (group("female", 220, 209), group("male", 500, 475)),
            "No group of at least 20 people more than all together: 95",
        ),
        ((group("female", 10, 9),), "No group of people was compared: none that this report shows has 20 people."),
        (
            (),
            "No group of people was compared: the table has no sensitive column of several groups (set sensitive in "
            "its schema).",
        ),
    ],
)
def test_the_first_page_names_no_group_where_none_is_more_exposed(covered, page_of, groups, said: str) -> None:
    assert f"Most exposed {said}" in page_of(covered(replace(ALL, groups=groups))).text


def test_a_redacted_report_blames_small_groups_only_where_there_was_a_sensitive_column() -> None:
    merged = replace(ALL, groups=(), merged_below=10)
    assert merged.inference and "none that this report shows has 20 people" in worst_words(merged)
    assert "no sensitive column of several groups" in worst_words(replace(merged, inference=None))


def test_without_proofs_the_most_exposed_group_is_the_one_recovered_most(covered, page_of) -> None:
    groups = (group("female", 220, 0, 150), group("male", 500, 0, 298))
    noisy = replace(ALL, proven=0, proven_numbers=0, recovered=448, not_recovered=272, claims=0, wrong=0, groups=groups)
    page = page_of(covered(noisy)).text
    assert "could recover the records of 448 of 720 people (62.2 of 100, 95% interval 58.6 to 65.7; 23 messages" in page
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


def test_the_first_page_shows_the_column_with_the_largest_gain_and_the_others_are_folded(covered, page_of) -> None:
    race = Risk(Rate.of(710, 720), Rate.of(170, 200), Rate.of(620, 720), "race")
    page = page_of(covered(replace(ALL, other_inferences=(race,))))
    first, _, rest = page.text.partition("Records in a message")
    assert "Inference a person's sex: the largest gain of 2 columns 97.2" in first and "race" not in first
    assert "Inference of 1 other sensitive column Risk, of 100" in rest
    assert "Inference a person's race 98.6 97.5 to 99.2 n = 720" in rest
    assert "sex of 97.2 of 100 people named rightly, 75 by a model that knows the other columns (the largest" in rest


def test_the_next_command_attacks_a_sample_of_the_epoch_without_proof(covered, page_of) -> None:
    folder = covered(replace(ALL, attack="exact"))
    raw = json.loads((folder / "results.json").read_text())
    raw["rows"] = [row | {"attack": "exact"} for row in raw["rows"] if row["attack"] == "tableak"]
    (folder / "results.json").write_text(json.dumps(raw))
    expected = f"--attacks.audit_max '{{}}' --capture.sample.audit_max 20 --output {folder}-noise"
    assert expected in page_of(folder).text


SAFER = replace(ALL, proven=12, proven_numbers=12, recovered=0, not_recovered=708)


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ((ALL,), (SAFER,), "from 705 of 720 to 12 of 720,"),
        # What the first run alone tried is not compared.
        ((ALL, WITHOUT_PROOF), (replace(WITHOUT_PROOF, recovered=7, not_recovered=713),), "from 100 of 720 to 7 of"),
        ((ALL,), (WITHOUT_PROOF,), "from 705 of 720 (by Exact + TabLeak) to 100 of 720 (by TabLeak),"),
        # Under the defense another one of the same attacks is the strongest.
        (
            (ALL, WITHOUT_PROOF),
            (SAFER, WITHOUT_PROOF),
            "from 705 of 720 (by Exact + TabLeak) to 100 of 720 (by TabLeak),",
        ),
    ],
)
def test_a_defense_is_judged_by_people(before, after, said, covered, outline, tmp_path: Path) -> None:
    first, second = covered(*before), covered(*after, name="noisy")
    raw = json.loads((second / "results.json").read_text())
    for row in raw["rows"]:
        row |= {"defense": "gaussian_noise", "defense_strength": 0.01}
    (second / "results.json").write_text(json.dumps(raw))
    text = outline(build_report([first, second], tmp_path / "both.html").read_text()).text
    assert f"people proven or recovered go {said}" in text


def test_a_page_of_many_people_fits_a_desk_a_phone_and_paper(covered, browser) -> None:
    curve = tuple(Point(i, 32 * i, 31 * i, i) for i in range(0, 944, 10))
    groups = tuple(group(f"category {i}", 2_000, 1_900 + i) for i in range(15))
    many = replace(ALL, n=30_162, proven=29_233, recovered=900, not_recovered=29, curve=curve, groups=groups)
    report = build_report(covered(many))
    assert report.stat().st_size < 1_000_000
    for width, found in browser.measure(report).items():
        assert found["scroll"] <= found["client"] == int(width)
        assert found["outside"] == [] and found["scripts"] == 0
    assert browser.sheets(report) == 1


def test_a_group_stands_out_by_an_exact_test_that_counts_all_groups() -> None:
    one_of_four = replace(
        ALL, n=81_412, proven=4, recovered=0, groups=tuple(group(str(i), 551, i == 0, 0) for i in range(49))
    )
    assert not stands_out(one_of_four.groups[0], one_of_four)
    several = replace(one_of_four, proven=40, groups=(group("a", 551, 30, 0), *one_of_four.groups[1:]))
    assert stands_out(several.groups[0], several)


def test_a_group_that_stands_out_comes_before_a_smaller_one_with_a_larger_share() -> None:
    groups = (group("female", 20, 20, 0), group("male", 5_000, 4_900, 0), group("other", 5_000, 4_100, 0))
    people = replace(ALL, n=10_020, proven=9_020, recovered=0, not_recovered=1_000, groups=groups)
    assert not stands_out(groups[0], people) and worst_group(people) == groups[1]


def test_linkage_is_not_measured_where_nothing_was_proven() -> None:
    none = replace(ALL, proven=0, proven_numbers=0, recovered=700, not_recovered=20, claims=0, wrong=0)
    (_, linked, _) = risk_lines(replace(none, linkage=ALL.singling_out))
    assert linked.attack is None and linked.control is None
    assert linked.meaning == "two proven records of one person: nothing was proven"
