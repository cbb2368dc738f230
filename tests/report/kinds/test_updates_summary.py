import re
from typing import get_args

import pytest

from lightleak.core.threat_model import Knows, ThreatModel
from lightleak.report.change.comparison import compare_runs
from lightleak.report.format import interval, of_hundred
from lightleak.report.intervals import Estimate
from lightleak.report.kinds.updates_exposure import exposures
from lightleak.report.kinds.updates_summary import summary
from lightleak.report.kinds.updates_words import KNOWLEDGE
from lightleak.report.read import load_run

JARGON = (
    "gradient", "FedSGD", "FedAvg", "batch", "epoch 0", "honest-but-curious", "entropy", "marginal", "encoder", "cell",
    "threat model", "AUROC", "baseline", "inversion", "seed",
)  # fmt: skip


def words(found) -> str:
    tiles = [part for tile in found.tiles for part in (tile.label, tile.detail)]
    told = [*found.sentences, *tiles, *found.defenses, *found.notes, *found.terms, found.note]
    return " ".join([*told, *(answer for _, answer in found.attacker)])


def test_one_run_says_what_is_at_risk_and_that_no_defense_was_tried(plain) -> None:
    found = summary([load_run(plain(attacks=("tableak", "audit_max", "random")))])
    assert found.sentences[0] == (
        "Whoever reads a message made from 8 records could reconstruct all of them (95% interval 60.7 to 100.0 "
        "of every 100) in full or with proof."
    )
    assert "Proven: 100 of every 100 records" in found.sentences[1]
    assert "without a defense" in found.defenses[0] and "not known from it" in found.defenses[0]
    assert found.terms[0].startswith("“Proven” means")
    assert found.tiles[0].value == "100"


def test_the_defense_that_helps_is_named_with_its_price(plain, defended) -> None:
    first = plain(0.85)
    found = summary([load_run(first), load_run(defended(first, 0.2, accuracy=0.80))])
    (told,) = found.defenses
    assert told.startswith("Gaussian noise 0.01 helps: records at risk go from")
    assert len(re.findall(r"95% interval", told)) == 3
    assert "The model then judges 80 of 100 new records rightly: it loses 5.0 points" in told
    assert found.tiles[-1].value == "−5.0"


@pytest.mark.parametrize(("kept", "says"), [(1.0, "does not help measurably"), (1.02, "makes it worse")])
def test_a_defense_that_does_not_help_is_said_to(plain, defended, kept: float, says: str) -> None:
    first = plain()
    found = summary([load_run(first), load_run(defended(first, kept))])
    assert says in found.defenses[0]
    assert len(found.tiles) == 2  # no price is shown for what buys nothing


def test_the_best_of_several_defenses_is_named_after_the_fact(plain, defended) -> None:
    first = plain()
    runs = [first, defended(first, 0.4, "some"), defended(first, 0.1, "much")]
    found = summary([load_run(run) for run in runs])
    assert found.defenses[0].startswith("2 of 2 changes help measurably; gaussian noise 0.01 (much) leaves fewest")
    assert "named after the fact" in found.defenses[0]


def test_the_worst_of_several_situations_is_told_with_a_wider_interval_where_it_is_explained(plain) -> None:
    folder = plain(batch_sizes=(8, 32))
    run = load_run(folder)
    found = summary([run])
    (explained,) = [text for text in found.sentences if "worst of 2 situations" in text]
    worst = max(exposures(run), key=lambda one: one.risk().mean)
    plain_interval, shown = worst.risk(), worst.risk(2)
    assert shown.low < plain_interval.low and shown.high > plain_interval.high
    assert f"to allow for that choice, read {interval(shown)} as the first interval" in explained
    one_interval = interval(plain_interval)  # the same in sentence, tile and table
    assert one_interval in found.sentences[0] and one_interval in found.tiles[0].detail
    assert one_interval in [line.cells[1].small[0] for line in found.table.groups[0].lines]


def test_a_long_table_keeps_the_worst_line_of_each_run(plain, defended) -> None:
    first = plain(batch_sizes=(8, 32, 128), epochs=2)
    runs = [first, defended(first, 0.5, "a"), defended(first, 0.4, "b")]
    found = summary([load_run(run) for run in runs])
    assert "Of each run the worst situation is shown; all others" in found.note
    assert [len(group.lines) for group in found.table.groups] == [1, 1, 1]


def test_of_many_runs_those_that_protect_most_are_shown(plain, defended) -> None:
    first = plain()
    kept = [0.8, 0.1, 0.7, 0.2, 0.6, 0.3, 0.5, 0.4]
    runs = [first, *(defended(first, part, f"kept_{part}") for part in kept)]
    found = summary([load_run(run) for run in runs])
    assert [group.title.partition(" <")[0] for group in found.table.groups[1:]] == [
        "Gaussian noise 0.01 (kept_0.1)",
        "Gaussian noise 0.01 (kept_0.2)",
    ]
    assert "Shown are the 2 of 8 that leave fewest" in found.defenses[-1]
    assert all(any(f"kept_{part}" in line for line in found.defenses) for part in (0.1, 0.2))


def test_without_truth_only_proofs_are_counted(plain) -> None:
    unknown = dict.fromkeys(("cell_accuracy", "exact_match_rate", "certified_exact", "certified_accuracy"))
    found = summary([load_run(plain(attacks=("audit_max",), extra=unknown))])
    assert "with proof; of the others nothing is known here" in found.sentences[0]


def test_no_results_say_so() -> None:
    assert "Nothing can be said yet" in summary([]).sentences[0]


def test_it_is_free_of_jargon(plain, defended) -> None:
    first = plain(attacks=("tableak", "audit_max", "random"), epochs=2)
    told = words(summary([load_run(first), load_run(defended(first))]))
    assert [word for word in JARGON if word.lower() in told.lower()] == []


@pytest.mark.parametrize("n_clients", [1, 3])
def test_fedavg_is_told_plainly_too(plain, n_clients: int) -> None:
    local = {"protocol": "fedavg", "local_epochs": 5, "local_batches": 4, "n_clients": n_clients}
    told = words(summary([load_run(plain(extra=local))]))
    assert "how the model has changed" in told
    assert ("average of 3 participants" in told) is (n_clients == 3)


def test_every_assumption_of_a_threat_model_has_plain_words() -> None:
    of_servers = set(get_args(Knows)) - {"restored_labels", "property_sample", "public_rows", "input_statistics"}
    assert set(KNOWLEDGE) == of_servers


def test_knowledge_is_data_and_the_sentence_of_an_older_file_is_shown_unchanged(plain, rewritten) -> None:
    threat = ThreatModel(labels="true", marginals=True).threat(True).to_dict()
    known = dict(summary([load_run(rewritten(plain(), threat=threat, threat_model="Other words."))]).attacker)
    told = known["What else do they know?"]
    for name in ("true_labels", "column_bounds", "encoder_statistics", "marginals", "counted_with_attacked"):
        assert KNOWLEDGE[name] in told
    assert KNOWLEDGE["batch_labels"] not in told and "Other words." not in told
    older = dict(summary([load_run(rewritten(plain(), threat=None, threat_model="Other words."))]).attacker)
    assert "Other words." in older["What else do they know?"]


def test_small_shares_are_not_rounded_away() -> None:
    assert of_hundred(Estimate(0.0002)) == "under 0.1"
    assert of_hundred(Estimate(0.0)) == "0"
    assert interval(Estimate(-0.05, 4, -0.2, 0.1), -1.0) == "−20.0 to 10.0"


NOT_LEARNT = "cannot be judged: the model has learned no more than the commonest outcome yet (train longer)."


@pytest.mark.parametrize(("accuracy", "judged"), [(0.67, False), (0.675, False), (0.65, False), (0.75, True)])
def test_a_model_that_learnt_nothing_has_nothing_to_lose(plain, defended, accuracy: float, judged: bool) -> None:
    first = plain(accuracy, majority=0.672)
    found = summary([load_run(first), load_run(defended(first, 0.2, accuracy=accuracy, majority=0.672))])
    (told,) = found.defenses
    assert (NOT_LEARNT in told) is not judged
    assert ("The model then judges" in told) is judged
    assert found.tiles[-1].value == ("0.0" if judged else "–")
    assert "always answering the commonest outcome 67.2" in found.table.groups[0].title


def test_what_does_not_change_is_unchanged(plain, defended) -> None:
    first = plain(0.85)
    found = summary([load_run(first), load_run(defended(first, 0.2, accuracy=0.8501))])
    assert "85 of 100 new records rightly: unchanged (95% interval" in found.defenses[0]
    assert "gains" not in found.defenses[0] and "may be chance" not in found.defenses[0]
    assert found.tiles[-1].label == "points of accuracy, unchanged"


def all_or_none(row: dict) -> float:
    return 0.0 if row["defense"] != "none" or row["attack"] == "random" else 1.0


@pytest.mark.parametrize(("n", "sign", "verdict"), [(4, "○", "helps in one respect:"), (6, "▼", "helps:")])
def test_words_and_sign_follow_one_rule(plain, defended, rewritten, n: int, sign: str, verdict: str) -> None:
    first = plain(n_batches=n)
    runs = [rewritten(run, exact_match_rate=all_or_none) for run in (defended(first, 0.2), first)]
    found = summary([load_run(run) for run in runs])
    (told,) = found.defenses
    assert told.startswith(f"Gaussian noise 0.01 {verdict} records at risk go from 100 to 0 of 100 (change −100.0")
    assert found.table.groups[1].lines[0].cells[1].small[-1].startswith(sign)
    assert ("which may be chance); values" in told) is (sign == "○")
    assert ("With 4 messages not even a change from all records to none would be sure" in told) is (n == 4)


def test_names_of_runs_stand_only_where_they_tell_runs_apart(plain, defended) -> None:
    first = plain()
    before, some, much = (load_run(run) for run in (first, defended(first, 0.5, "some"), defended(first, 0.1, "much")))
    assert "(plain)" not in words(summary([before])) and "(some)" not in words(summary([before, some]))
    told = words(summary([before, some, much]))
    assert "(plain)" not in told and "(some)" in told and "(much)" in told


FEWER = "ran with 50 steps in place of 1500: less than published, so the figures are a lower bound"


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"steps": 50, "restarts": 30}, f"TabLeak {FEWER}"),
        ({"steps": 50, "restarts": 1}, "TabLeak ran with 1 restart in place of 30, 50 steps in place of 1500: less"),
        ({"steps": 1500, "restarts": 40}, None),
        ({}, None),
    ],
)
def test_an_attack_with_fewer_steps_than_published_is_named(plain, options: dict, says: str | None) -> None:
    found = summary([load_run(plain(attacks=("tableak", "random"), extra={"options": options}))])
    assert any("less than published" in one for one in found.sentences) is (says is not None)
    assert says is None or says in found.sentences[-2]


def test_a_weakened_attack_that_another_surpasses_is_not_named(plain, rewritten) -> None:
    folder = rewritten(plain(attacks=("tableak", "audit_max", "random")), options={"steps": 50})
    assert not any("less than published" in one for one in summary([load_run(folder)]).sentences)
    staged = {"options": {"tableak": {"steps": 50}}}
    found = summary([load_run(plain(attacks=("audit_max", "random"), batch_sizes=(32,), extra=staged))])
    assert f"Exact + TabLeak {FEWER}" in found.sentences[-2]


def test_a_weakened_attack_that_leads_under_a_defense_alone_is_named_too(plain, defended, rewritten) -> None:
    first = rewritten(plain(attacks=("tableak", "audit_max", "random")), options={"steps": 50})
    after = rewritten(defended(first), cell_accuracy=lambda row: 0.9 if row["attack"] == "tableak" else 0.4)
    assert f"TabLeak {FEWER}" in summary([load_run(first), load_run(after)]).sentences[-2]


def test_nothing_is_concluded_about_a_defense_from_less_than_the_published_budget(plain, defended, rewritten) -> None:
    first = rewritten(plain(attacks=("tableak", "random")), options={"steps": 50})
    found = summary([load_run(first), load_run(defended(first))])
    assert found.sentences[-1].startswith("Attack budget: TabLeak, 50 steps in place of 1500.")
    assert len(found.defenses) == 1 and "No conclusion is drawn about defenses" in found.defenses[0]
    full = rewritten(plain(attacks=("tableak", "random")), options={"steps": 1500, "restarts": 30})
    assert summary([load_run(full)]).sentences[-1] == "Attack budget: TabLeak (30 restarts, 1500 steps, as published)."


def test_an_attack_below_guessing_is_seen_to_be(plain, rewritten) -> None:
    above = summary([load_run(plain())])
    assert any(re.search(r"guessing from general statistics gets \d", one) for one in above.sentences)
    folder = rewritten(plain(), cell_accuracy=lambda row: 0.9 if row["attack"] == "random" else 0.4)
    assert any("guessing from general statistics gets more, 90" in one for one in summary([load_run(folder)]).sentences)


def test_another_table_or_network_is_named(plain, defended, rewritten) -> None:
    first = plain(0.85)
    network = rewritten(defended(first, 0.2, "network"), target="linear", defense="none")
    table = rewritten(defended(first, 0.2, "table"), target="linear", dataset="german")
    both = summary([load_run(first), load_run(network)])
    assert "It has another network (linear in place of mlp-100-100), so the defense is not all" in both.defenses[0]
    other = summary([load_run(first), load_run(table)])
    assert other.defenses == (
        "Gaussian noise 0.01: measured on another table (german in place of adult) and another network (linear in "
        "place of mlp-100-100), so it cannot be compared.",
    )
    assert "change" not in other.table.groups[1].title  # two tables have no difference of accuracies
    assert compare_runs([load_run(first), load_run(table)])[0].cost is None
