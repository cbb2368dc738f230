"""The summary of attacks on updates: what is at risk, which defense helps, what it costs."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import get_args

import pytest

from lightleak.core.threat_model import Knows, ThreatModel
from lightleak.report.format import interval, of_hundred
from lightleak.report.intervals import Estimate
from lightleak.report.kinds.updates import summary_section
from lightleak.report.kinds.updates_groups import exposures
from lightleak.report.kinds.updates_runs import measured_runs
from lightleak.report.kinds.updates_words import KNOWLEDGE
from lightleak.report.page import Page, render
from lightleak.report.read import load_run

JARGON = (
    "gradient", "FedSGD", "FedAvg", "batch", "epoch 0", "honest-but-curious", "entropy", "marginal", "encoder", "cell",
    "threat model", "AUROC", "baseline", "inversion", "seed",
)  # fmt: skip


class Summary:
    """The first section of a page: its text, the values of its tiles, the items of its lists, and its table."""

    def __init__(self, outline, *folders: Path) -> None:
        page = render(Page("", "", [summary_section([load_run(folder) for folder in folders])]))
        source = re.search(r'<section id="summary".*?</section>', page, re.DOTALL)[0]
        found = outline(source)
        self.text, self.rows = found.text, found.rows
        self.tiles = re.findall(r"<dd>([^<]*)</dd></div>", source)
        self.defenses = found.text.partition("Does a defense help, and what does it cost?")[2].partition("Records in")[
            0
        ]
        self.headings = [row[0] for row in found.rows if len(row) == 1]
        self.lines = [row for row in found.rows[1:] if len(row) == 5]


@pytest.fixture
def summary(outline) -> Callable[..., Summary]:
    return lambda *folders: Summary(outline, *folders)


def test_one_run_says_what_is_at_risk_and_that_no_defense_was_tried(plain, summary) -> None:
    found = summary(plain(attacks=("tableak", "audit_max", "random")))
    assert (
        "Whoever reads a message made from 8 records could reconstruct all of them in full or with proof." in found.text
    )
    assert "95% interval 60.7 to 100.0" in found.text and found.tiles[0] == "100"
    assert "Measured on 6 messages at the start of training." in found.text
    assert found.lines[0][1:3] == ["100 60.7 to 100.0"] * 2  # at risk, proven
    assert "Not known from this one run" in found.defenses and "without a defense" in found.defenses
    assert "“Proven”:" in found.text


def test_the_defense_that_helps_is_named_with_its_price(plain, defended, summary) -> None:
    first = plain(0.85)
    found = summary(first, defended(first, 0.2, accuracy=0.80))
    assert "Gaussian noise 0.01 helps: records at risk go from" in " ".join(found.defenses.split())
    assert "The model's accuracy loses 5.0 points." in found.defenses
    assert found.tiles[-1] == "−5.0"
    assert re.search(r"80 of 100 new records correctly \(\S+ to \S+\); change −5.0 \(−\S+ to −\S+\)", found.headings[1])
    assert all("▼" in found.lines[1][column] for column in (1, 3))


@pytest.mark.parametrize(("kept", "says"), [(1.0, "does not help measurably"), (1.02, "makes it worse")])
def test_a_defense_that_does_not_help_is_said_to(plain, defended, summary, kept: float, says: str) -> None:
    first = plain()
    found = summary(first, defended(first, kept))
    assert says in found.defenses
    assert "price" not in found.text  # none is shown for what buys nothing


def test_the_best_of_several_defenses_is_named_after_the_fact(plain, defended, summary) -> None:
    first = plain()
    found = summary(first, defended(first, 0.4, "some"), defended(first, 0.1, "much"))
    assert "2 of 2 changes help measurably; gaussian noise 0.01 (much) leaves fewest" in found.defenses
    assert "named after the fact" in found.defenses


def test_the_worst_of_several_situations_has_a_wider_interval_where_it_is_explained(plain, summary) -> None:
    folder = plain(batch_sizes=(8, 32))
    found = summary(folder)
    worst = max(exposures(load_run(folder)), key=lambda one: one.risk().mean)
    plain_interval, shown = worst.risk(), worst.risk(2)
    assert shown.low < plain_interval.low and shown.high > plain_interval.high
    assert (
        f"worst of 2 situations measured, all listed below; to allow for that choice, read {interval(shown)}"
        in found.text
    )
    assert f"95% interval {interval(plain_interval)}" in found.text  # the same in tile and table
    assert any(interval(plain_interval) in line[1] for line in found.lines)


def test_a_long_table_keeps_the_worst_line_of_each_run(plain, defended, summary) -> None:
    first = plain(batch_sizes=(8, 32, 128), epochs=2)
    found = summary(first, defended(first, 0.5, "a"), defended(first, 0.4, "b"))
    assert "Of each run the worst situation is shown; all others" in found.text
    assert (len(found.headings), len(found.lines)) == (3, 3)


def test_of_many_runs_those_that_protect_most_are_shown(plain, defended, summary) -> None:
    first = plain()
    kept = [0.8, 0.1, 0.7, 0.2, 0.6, 0.3, 0.5, 0.4]
    found = summary(first, *(defended(first, part, f"kept_{part}") for part in kept))
    assert [title.partition(" ·")[0] for title in found.headings[1:]] == [
        "Gaussian noise 0.01 (kept_0.1)",
        "Gaussian noise 0.01 (kept_0.2)",
    ]
    assert "Shown are the 2 of 8 that leave fewest" in found.defenses
    assert [part for part in kept if f"(kept_{part})" in found.defenses] == [0.1, 0.2]


def test_without_truth_only_proofs_are_counted(plain, summary) -> None:
    unknown = dict.fromkeys(("cell_accuracy", "exact_match_rate", "certified_exact", "certified_accuracy"))
    found = summary(plain(attacks=("audit_max",), extra=unknown))
    assert "with proof; of the others nothing is known here" in found.text


def test_no_results_say_so(outline) -> None:
    assert "Nothing can be said yet" in Summary(outline).text


def test_it_is_free_of_jargon(plain, defended, summary) -> None:
    first = plain(attacks=("tableak", "audit_max", "random"), epochs=2)
    text = summary(first, defended(first)).text.lower()
    assert [word for word in JARGON if word.lower() in text] == []


@pytest.mark.parametrize("n_clients", [1, 3])
def test_fedavg_is_described_plainly_too(plain, summary, n_clients: int) -> None:
    local = {"protocol": "fedavg", "local_epochs": 5, "local_batches": 4, "n_clients": n_clients}
    text = summary(plain(extra=local)).text
    assert "how the model has changed" in text
    assert ("average of 3 participants" in text) is (n_clients == 3)


def test_every_assumption_of_a_threat_model_has_plain_words() -> None:
    of_servers = set(get_args(Knows)) - {"restored_labels", "property_sample", "public_rows", "input_statistics"}
    assert set(KNOWLEDGE) == of_servers


def test_knowledge_is_data_and_the_sentence_of_an_older_file_is_shown_unchanged(plain, rewritten, summary) -> None:
    threat = ThreatModel(labels="true", marginals=True).threat(True).to_dict()
    text = summary(rewritten(plain(), threat=threat, threat_model="Other words.")).text
    for name in ("true_labels", "column_bounds", "encoder_statistics", "marginals", "counted_with_attacked"):
        assert KNOWLEDGE[name] in text
    assert KNOWLEDGE["batch_labels"] not in text and "Other words." not in text
    assert "Other words." in summary(rewritten(plain(), threat=None, threat_model="Other words.")).text


def test_small_shares_are_not_rounded_away() -> None:
    assert of_hundred(Estimate(0.0002)) == "under 0.1"
    assert of_hundred(Estimate(0.0)) == "0"
    assert interval(Estimate(-0.05, 4, -0.2, 0.1), -1.0) == "−20.0 to 10.0"


NOT_LEARNED = "cannot be judged: the model has learned no more than the commonest outcome yet (train longer)."


@pytest.mark.parametrize(("accuracy", "judged"), [(0.67, False), (0.675, False), (0.65, False), (0.75, True)])
def test_a_model_that_learned_nothing_has_nothing_to_lose(plain, defended, summary, accuracy, judged: bool) -> None:
    first = plain(accuracy, majority=0.672)
    found = summary(first, defended(first, 0.2, accuracy=accuracy, majority=0.672))
    assert (NOT_LEARNED in found.defenses) is not judged
    assert ("The model's accuracy is unchanged" in found.defenses) is judged
    assert found.tiles[-1] == ("0.0" if judged else "–")
    assert "always answering the commonest outcome 67.2" in found.headings[0]


def test_what_does_not_change_is_unchanged(plain, defended, summary) -> None:
    first = plain(0.85)
    found = summary(first, defended(first, 0.2, accuracy=0.8501))
    assert "accuracy is unchanged" in found.defenses
    assert "gains" not in found.defenses and "may be chance" not in found.defenses
    assert "points of accuracy, unchanged" in found.text


def all_or_none(row: dict) -> float:
    return 0.0 if row["defense"] != "none" or row["attack"] == "random" else 1.0


@pytest.mark.parametrize(("n", "sign", "verdict"), [(4, "○", "helps in one respect:"), (6, "▼", "helps:")])
def test_words_and_sign_follow_one_rule(plain, defended, rewritten, summary, n: int, sign: str, verdict: str) -> None:
    first = plain(n_batches=n)
    found = summary(*(rewritten(run, exact_match_rate=all_or_none) for run in (defended(first, 0.2), first)))
    assert f"Gaussian noise 0.01 {verdict} records at risk go from 100 to 0 of 100" in found.defenses
    assert f"{sign} −100.0" in found.lines[1][1]
    assert ("of 100 (may be chance), values" in found.defenses) is (sign == "○")
    assert ("With 4 messages not even a change from all records to none would be sure" in found.defenses) is (n == 4)


def test_names_of_runs_stand_only_where_they_tell_runs_apart(plain, defended, summary) -> None:
    first = plain()
    some = defended(first, 0.5, "some")
    assert "(plain)" not in summary(first).text and "(some)" not in summary(first, some).text
    text = summary(first, some, defended(first, 0.1, "much")).text
    assert "(plain)" not in text and "(some)" in text and "(much)" in text


BOUND = "The figures are a lower bound"


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"steps": 50, "restarts": 30}, "TabLeak, 50 steps in place of 1500."),
        ({"steps": 50, "restarts": 1}, "TabLeak, 1 restart in place of 30, 50 steps in place of 1500."),
        ({"steps": 1500, "restarts": 40}, None),
        ({}, None),
    ],
)
def test_an_attack_with_fewer_steps_than_published_is_named(plain, summary, options: dict, says: str | None) -> None:
    text = summary(plain(attacks=("tableak", "random"), extra={"options": options})).text
    assert (BOUND in text) is (says is not None)
    assert says is None or f"Attack budget: {says}" in text


def test_a_weakened_attack_that_another_surpasses_bounds_nothing(plain, rewritten, summary) -> None:
    folder = rewritten(plain(attacks=("tableak", "audit_max", "random")), options={"steps": 50})
    assert BOUND not in summary(folder).text
    staged = {"options": {"tableak": {"steps": 50}}}
    assert BOUND in summary(plain(attacks=("audit_max", "random"), batch_sizes=(32,), extra=staged)).text


def test_a_weakened_attack_that_leads_under_a_defense_alone_counts_too(plain, defended, rewritten, summary) -> None:
    first = rewritten(plain(attacks=("tableak", "audit_max", "random")), options={"steps": 50})
    after = rewritten(defended(first), cell_accuracy=lambda row: 0.9 if row["attack"] == "tableak" else 0.4)
    assert BOUND in summary(first, after).text


def test_nothing_is_concluded_about_a_defense_from_less_than_the_published_budget(
    plain, defended, rewritten, summary
) -> None:
    first = rewritten(plain(attacks=("tableak", "random")), options={"steps": 50})
    found = summary(first, defended(first))
    assert "Attack budget: TabLeak, 50 steps in place of 1500." in found.text
    assert found.defenses.strip().startswith("No conclusion is drawn.") and "helps" not in found.defenses
    full = rewritten(plain(attacks=("tableak", "random")), options={"steps": 1500, "restarts": 30})
    assert "Attack budget: TabLeak (30 restarts, 1500 steps, as published)." in summary(full).text


def test_an_attack_below_guessing_is_seen_to_be(plain, rewritten, summary) -> None:
    folder = rewritten(plain(), cell_accuracy=lambda row: 0.9 if row["attack"] == "random" else 0.4)
    found = summary(folder)
    assert "by guessing 90" in found.text and found.tiles[1] == "40"
    assert [line[3].split()[0] for line in found.lines] == ["40"] and found.lines[0][4].startswith("90 ")


def test_another_table_or_network_is_named(plain, defended, rewritten, summary) -> None:
    first = plain(0.85)
    network = rewritten(defended(first, 0.2, "network"), target="linear", defense="none")
    table = rewritten(defended(first, 0.2, "table"), target="linear", dataset="german")
    both = summary(first, network)
    assert "It has another network (linear in place of mlp-100-100), so the defense is not all" in both.defenses
    other = summary(first, table)
    assert (
        "Gaussian noise 0.01: measured on another table (german in place of adult) and another network (linear in "
        "place of mlp-100-100), so it cannot be compared." in other.defenses
    )
    assert "change" not in other.headings[1]  # two tables have no difference of accuracies
    assert measured_runs([load_run(first), load_run(table)])[1].cost is None
