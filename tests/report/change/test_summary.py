import re

import pytest

from lightleak.core.threat_model import ThreatModel
from lightleak.report.change.exposure import exposures
from lightleak.report.change.plain import KNOWLEDGE
from lightleak.report.change.summary import summary
from lightleak.report.estimate import Estimate
from lightleak.report.plain import of_hundred, range_of
from lightleak.report.run_folder import load_run

JARGON = (
    "gradient", "FedSGD", "FedAvg", "batch", "epoch 0", "honest-but-curious", "entropy", "marginal", "encoder", "cell",
    "threat model", "AUROC", "baseline", "inversion", "seed",
)  # fmt: skip


def words(found) -> str:
    tiles = [part for tile in found.tiles for part in (tile.label, tile.detail)]
    told = [*found.sentences, *tiles, *found.defences, *found.notes, *found.terms, found.table.note]
    return " ".join([*told, *(answer for _, answer in found.attacker)])


def test_one_run_says_what_is_at_risk_and_that_no_defence_was_tried(plain) -> None:
    found = summary([load_run(plain(attacks=("tableak", "audit_max", "random")))])
    assert found.sentences[0] == (
        "Whoever reads a message made from 8 records could reconstruct all of them (95% interval 60.7 to 100.0) "
        "in full or with proof."
    )
    assert "Proven: 100 of every 100 records" in found.sentences[1]
    assert "without a defence" in found.defences[0] and "not known from it" in found.defences[0]
    assert found.terms[0].startswith("“Proven” means")
    assert found.tiles[0].value == "100"


def test_the_defence_that_helps_is_named_with_its_price(plain, defended) -> None:
    first = plain(0.85)
    found = summary([load_run(first), load_run(defended(first, 0.2, accuracy=0.80))])
    (told,) = found.defences
    assert told.startswith("Gaussian noise 0.01 (noisy) helps: records at risk go from")
    assert len(re.findall(r"95% interval", told)) == 3
    assert "The model then judges 80 of 100 new records rightly: it loses 5.0 points" in told
    assert found.tiles[-1].value == "−5.0"


@pytest.mark.parametrize(("kept", "says"), [(1.0, "does not help measurably"), (1.02, "makes it worse")])
def test_a_defence_that_does_not_help_is_said_to(plain, defended, kept: float, says: str) -> None:
    first = plain()
    found = summary([load_run(first), load_run(defended(first, kept))])
    assert says in found.defences[0]
    assert len(found.tiles) == 2  # no price is shown for what buys nothing


def test_the_best_of_several_defences_is_named_after_the_fact(plain, defended) -> None:
    first = plain()
    runs = [first, defended(first, 0.4, "some"), defended(first, 0.1, "much")]
    found = summary([load_run(run) for run in runs])
    assert found.defences[0].startswith("2 of 2 changes help measurably; gaussian noise 0.01 (much) leaves fewest")
    assert "named after the fact" in found.defences[0]


def test_the_worst_of_several_situations_has_a_wider_interval(plain) -> None:
    folder = plain(batch_sizes=(8, 32))
    run = load_run(folder)
    found = summary([run])
    assert any("worst of 2 situations" in text for text in found.sentences)
    worst = max(exposures(run), key=lambda one: one.rows().mean)
    plain_interval, shown = worst.rows(), worst.rows(2)
    assert shown.low < plain_interval.low and shown.high > plain_interval.high
    assert range_of(shown) in found.sentences[0]


def test_a_long_table_keeps_the_worst_line_of_each_run(plain, defended) -> None:
    first = plain(batch_sizes=(8, 32, 128), epochs=2)
    runs = [first, defended(first, 0.5, "a"), defended(first, 0.4, "b")]
    found = summary([load_run(run) for run in runs])
    assert "Of each run the worst situation is shown; all others" in found.table.note
    assert [len(block.rows) for block in found.table.blocks] == [1, 1, 1]


def test_of_many_runs_those_that_protect_most_are_shown(plain, defended) -> None:
    first = plain()
    kept = [0.8, 0.1, 0.7, 0.2, 0.6, 0.3, 0.5, 0.4]
    runs = [first, *(defended(first, part, f"kept_{part}") for part in kept)]
    found = summary([load_run(run) for run in runs])
    assert [block.title for block in found.table.blocks[1:]] == [
        "Gaussian noise 0.01 (kept_0.1)",
        "Gaussian noise 0.01 (kept_0.2)",
    ]
    assert "Shown are the 2 of 8 that leave fewest" in found.defences[-1]
    assert all(any(f"kept_{part}" in line for line in found.defences) for part in (0.1, 0.2))


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
    everything = ThreatModel(
        labels="true", marginals=True, batch_statistics=True, local_training=True, batch_labels=True
    )
    sentences = everything.describe() + ThreatModel(labels="true").describe()
    assert [phrase for phrase in KNOWLEDGE if phrase not in sentences] == []
    for phrase in sentences.split("knows ")[1].rstrip(".").replace(" and ", ", ").split(", "):
        assert phrase.startswith("the update") or any(known in phrase for known in KNOWLEDGE), phrase


def test_small_shares_are_not_rounded_away() -> None:
    assert of_hundred(Estimate(0.0002)) == "under 0.1"
    assert of_hundred(Estimate(0.0)) == "0"
    assert range_of(Estimate(-0.05, 4, -0.2, 0.1), -1.0) == "−20.0 to 10.0"
