"""The first page of attacks on updates: who is at risk, which defense helps, what it costs, what was not tested."""

import json
import re
import shlex
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from lightleak.experiments.load import load_config
from lightleak.report import build_report
from lightleak.report.blocks import Page
from lightleak.report.budget import NOTHING_FOLLOWS
from lightleak.report.format import interval, of_hundred
from lightleak.report.intervals import Estimate
from lightleak.report.kinds.updates_groups import exposures
from lightleak.report.kinds.updates_runs import measured_runs
from lightleak.report.kinds.updates_summary import risk_section, summary_section
from lightleak.report.kinds.updates_words import words
from lightleak.report.page import render
from lightleak.report.read import load_run

JARGON = (
    "gradient", "FedSGD", "FedAvg", "batch", "epoch 0", "honest-but-curious", "entropy", "marginal", "encoder", "cell",
    "threat model", "AUROC", "baseline", "inversion", "seed",
)  # fmt: skip


class Summary:
    """The first page: its text and its facts by name; and the table of all situations."""

    def __init__(self, outline, *folders: Path) -> None:
        runs = [load_run(folder) for folder in folders]
        found = [one for one in measured_runs(runs) if one.exposed]
        source = render(Page("", "", [summary_section(runs, found, None, "")]))
        first = outline(re.search(r'<section id="summary".*?</section>', source, re.DOTALL)[0])
        self.text = first.text
        self.facts = {
            name: outline(f"<p>{said}</p>").text
            for name, said in re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", source, re.DOTALL)
        }
        self.defenses = self.facts.get("What would help", "")
        self.risks = {row[0].split()[0]: row[1:] for row in first.rows[1:]}
        table = outline(render(Page("", "", [risk_section(found)])))
        self.headings = [row[0] for row in table.rows if len(row) == 1]
        self.lines = [row for row in table.rows[1:] if len(row) == 5]
        self.reading = words("reading_updates", found)


@pytest.fixture
def summary(outline) -> Callable[..., Summary]:
    return lambda *folders: Summary(outline, *folders)


def test_one_run_says_what_is_at_risk_and_how_to_find_out_what_helps(plain, summary) -> None:
    found = summary(plain(attacks=("tableak", "audit_max", "random")))
    assert (
        "Whoever reads a message made from 8 records could reconstruct all of them in full or with proof "
        "(95% interval 60.7 to 100.0 of 100; 6 messages at the start of training)." in found.text
    )
    assert found.risks["Singling"][0] == "100 60.7 to 100.0"
    assert found.risks["Linkage"][0] == "not measured"
    assert found.lines[0][1:3] == ["100 60.7 to 100.0"] * 2  # at risk, proven
    assert "“Proven”:" in found.reading
    assert found.facts["Not tested"].startswith(
        "Membership inference, model inversion, extraction, property inference."
    )


@pytest.mark.parametrize("name", ["plain", "my 'plain' run"])
def test_the_command_that_finds_out_is_one_that_runs(tmp_path: Path, plain, summary, name: str) -> None:
    folder = plain().rename(tmp_path / name)
    (folder / "config.yaml").write_text("data: {name: german}\ntarget: {network: mlp}\nattacks: {random: {}}\n")
    command, _, report = summary(folder).defenses.partition("run: ")[2].partition(" lightleak report ")
    program, verb, config, flag, defense, _, output = shlex.split(command)
    assert (program, verb, flag, output) == ("lightleak", "audit", "--defense", f"{folder}-noise")
    assert shlex.split(report)[:2] == [str(folder), output]
    found = load_config(tmp_path / config, {"defense": yaml.safe_load(defense)})
    assert found.defense.name == "gaussian_noise" and found.defense.options == {"scale": 0.01}


@pytest.mark.parametrize(("proof", "protocol"), [("exact", "fedsgd"), ("exact_fedavg", "fedavg")])
def test_what_proves_alone_is_compared_with_what_recovers_without_proof(
    tmp_path: Path, plain, summary, proof: str, protocol: str
) -> None:
    folder = plain(attacks=("tableak", "random"))
    written = (folder / "results.json").read_text()
    (folder / "results.json").write_text(written.replace('"attack": "tableak"', f'"attack": "{proof}"'))
    config = {"data": {"name": "german"}, "target": {"network": "mlp"}, "protocol": {"name": protocol}}
    (folder / "config.yaml").write_text(yaml.safe_dump(config | {"attacks": {proof: {}}}))
    command = shlex.split(summary(folder).defenses.partition("run: ")[2].partition(" lightleak report")[0])
    assert command[5:] == ["--attacks.audit_max", "{}", "--output", f"{folder}-noise"]
    found = load_config(tmp_path / command[2], {"attacks.audit_max": {}, "defense": yaml.safe_load(command[4])})
    assert list(found.attacks) == [proof, "audit_max"]


def test_the_command_names_the_folder_as_it_was_given(tmp_path: Path, plain, summary, monkeypatch) -> None:
    folder = plain()
    monkeypatch.chdir(tmp_path.parent)
    given = folder.relative_to(tmp_path.parent)
    said = summary(given).defenses
    assert f"lightleak audit {given}/config.yaml " in said and f"--output {given}-noise" in said
    monkeypatch.chdir(folder)
    assert f"lightleak audit {folder}/config.yaml " in summary(Path()).defenses


def test_captures_made_elsewhere_are_not_trained_anew(plain, summary) -> None:
    folder = plain()
    (folder / "capture.json").write_text(json.dumps({"capture": "/from/elsewhere"}))
    said = summary(folder)
    assert "lightleak audit" not in said.defenses
    assert "capture updates of a training with a defense where these were captured" in said.defenses
    again = "lightleak attack config.yaml --capture /from/elsewhere --output again"
    assert again in build_report(folder).read_text()


def test_a_run_with_a_defense_names_the_run_without_one(plain, defended, summary) -> None:
    found = summary(defended(plain()))
    assert "{name: none}" in found.defenses and "noise of standard deviation 0.01" in found.defenses
    assert found.text.startswith("In plain language With noise of standard deviation 0.01, whoever")


def test_clipping_by_the_trainer_is_taken_out_where_it_was_put_in(tmp_path: Path, plain, summary) -> None:
    folder = plain()
    results = json.loads((folder / "results.json").read_text())
    for row in results["rows"]:
        row["defense"] = "clipped"
    (folder / "results.json").write_text(json.dumps(results))
    config = {"data": {"name": "german"}, "target": {"network": "mlp"}, "capture": {"at": "clipped", "epochs": [0]}}
    config |= {"training": {"epochs": 1, "trainer": {"gradient_clip_val": 0.2}}, "attacks": {"exact": {}}}
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    found = summary(folder)
    assert found.text.startswith("In plain language With clipping by the trainer, whoever")
    command = shlex.split(found.defenses.partition("run: ")[2].partition(" lightleak report")[0])
    flags = dict(zip(command[3:-2:2], map(yaml.safe_load, command[4:-2:2]), strict=True))
    plainly = load_config(tmp_path / command[2], {flag.removeprefix("--"): value for flag, value in flags.items()})
    assert plainly.capture.at == "raw" and plainly.training.trainer.get("gradient_clip_val") is None


def test_the_first_page_is_short(plain, defended, summary) -> None:
    first = plain(attacks=("tableak", "audit_max", "random"), batch_sizes=(8, 32), epochs=2)
    second, third = defended(first, 0.4, "some"), defended(first, 0.1, "much")
    for folders in ((first,), (first, second), (first, second, third)):
        assert len(summary(*folders).text.split()) <= 350


def test_the_defense_that_helps_is_named_with_its_price(plain, defended, summary) -> None:
    first = plain(0.85)
    found = summary(first, defended(first, 0.2, accuracy=0.80))
    assert "Noise of standard deviation 0.01 helps: records at risk go from" in " ".join(found.defenses.split())
    assert "The model's accuracy loses 5.0 points." in found.defenses
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
    assert "2 of 2 changes help measurably; noise of standard deviation 0.01 (much) leaves fewest" in found.defenses
    assert "named after the fact" in found.defenses


def test_one_interval_that_allows_for_the_choice_stands_wherever_the_worst_situation_does(plain, summary) -> None:
    folder = plain(batch_sizes=(8, 32))
    found = summary(folder)
    worst = max(exposures(load_run(folder)), key=lambda one: one.order)
    alone, shown = worst.risk, replace(worst, situations=2).risk
    assert shown.low < alone.low and shown.high > alone.high
    assert f"95% interval {interval(shown)} of 100" in found.text and "the worst of 2 situations" in found.text
    assert found.risks["Singling"][0].endswith(interval(shown))
    assert any(line[1].endswith(interval(shown)) for line in found.lines)


def test_of_equal_situations_the_one_with_more_messages_leads_and_no_interval_is_named_without_one(
    plain, rewritten, summary
) -> None:
    folder = rewritten(plain(batch_sizes=(8, 32)), exact_match_rate=lambda row: 1.0, cell_accuracy=lambda row: 1.0)
    results = json.loads((folder / "results.json").read_text())
    results["rows"] = [row for row in results["rows"] if row["batch_size"] == 8 or row["batch_index"] == 0]
    (folder / "results.json").write_text(json.dumps(results))
    found = summary(folder)
    assert "a message made from 8 records" in found.text and "6 messages at the start of training" in found.text
    results["rows"] = [row for row in results["rows"] if row["batch_index"] == 0]
    (folder / "results.json").write_text(json.dumps(results))
    single = summary(folder)
    assert "(1 message at the start of training, the worst of 2 situations; no interval)" in single.text
    worst = exposures(load_run(folder))[0]
    assert words("attempts", worst, None) == "1 message; no interval follows from one"


def test_the_table_has_every_situation_of_every_run(plain, defended, summary) -> None:
    first = plain(batch_sizes=(8, 32, 128), epochs=2)
    found = summary(first, defended(first, 0.5, "a"), defended(first, 0.4, "b"))
    assert (len(found.headings), len(found.lines)) == (3, 12)


def test_of_many_runs_those_that_protect_most_are_shown(plain, defended, summary) -> None:
    first = plain()
    kept = [0.8, 0.1, 0.7, 0.2, 0.6, 0.3, 0.5, 0.4]
    found = summary(first, *(defended(first, part, f"kept_{part}") for part in kept))
    assert len(found.headings) == 9
    assert "Shown are the 2 of 8 that leave fewest" in found.defenses
    assert [part for part in kept if f"(kept_{part})" in found.defenses] == [0.1, 0.2]


def test_without_truth_only_proofs_are_counted(plain, summary) -> None:
    unknown = dict.fromkeys(("cell_accuracy", "exact_match_rate", "certified_exact", "certified_accuracy"))
    found = summary(plain(attacks=("audit_max",), extra=unknown))
    assert "with proof; of the others nothing is known here" in found.text


def test_no_results_say_so(outline) -> None:
    assert "Nothing can be said yet" in outline(render(Page("", "", [summary_section([], [], None, "")]))).text
    assert risk_section([]) is None


def test_it_is_free_of_jargon(plain, defended, summary) -> None:
    first = plain(attacks=("tableak", "audit_max", "random"), epochs=2)
    found = summary(first, defended(first))
    text = found.text.replace(found.facts["Not tested"], "").lower()  # which has the terms of regulators
    assert [word for word in JARGON if word.lower() in text] == []


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
    assert "always answering the commonest outcome 67.2" in found.headings[0]


def test_what_does_not_change_is_unchanged(plain, defended, summary) -> None:
    first = plain(0.85)
    found = summary(first, defended(first, 0.2, accuracy=0.8501))
    assert "accuracy is unchanged" in found.defenses
    assert "gains" not in found.defenses and "may be chance" not in found.defenses


def all_or_none(row: dict) -> float:
    return 0.0 if row["defense"] != "none" or row["attack"] == "random" else 1.0


@pytest.mark.parametrize(("n", "sign", "verdict"), [(4, "○", "helps in one respect:"), (6, "▼", "helps:")])
def test_words_and_sign_follow_one_rule(plain, defended, rewritten, summary, n: int, sign: str, verdict: str) -> None:
    first = plain(n_batches=n)
    found = summary(*(rewritten(run, exact_match_rate=all_or_none) for run in (defended(first, 0.2), first)))
    assert f"Noise of standard deviation 0.01 {verdict} records at risk go from 100 to 0 of 100" in found.defenses
    assert f"{sign} −100.0" in found.lines[1][1]
    assert ("of 100 (may be chance), values" in found.defenses) is (sign == "○")
    assert ("With 4 messages not even a change from all records to none would be sure" in found.defenses) is (n == 4)


def test_names_of_runs_stand_only_where_they_tell_runs_apart(plain, defended, summary) -> None:
    first = plain()
    some = defended(first, 0.5, "some")
    assert "(plain)" not in summary(first).text and "(some)" not in summary(first, some).text
    text = summary(first, some, defended(first, 0.1, "much")).text
    assert "(plain)" not in text and "(some)" in text and "(much)" in text


@pytest.mark.parametrize(
    ("options", "is_weak"),
    [
        ({"steps": 50, "restarts": 30}, True),
        ({"steps": 50, "restarts": 1}, True),
        ({"steps": 1500, "restarts": 40}, False),
    ],
)
def test_a_budget_below_the_published_one_limits_what_follows(plain, summary, options: dict, is_weak: bool) -> None:
    limits = summary(plain(attacks=("tableak", "random"), extra={"options": options})).facts.get("Limits", "")
    assert (NOTHING_FOLLOWS in limits) is is_weak


def test_nothing_is_concluded_about_a_defense_from_less_than_the_published_budget(
    plain, defended, rewritten, summary
) -> None:
    first = rewritten(plain(attacks=("tableak", "random")), options={"steps": 50})
    found = summary(first, defended(first))
    assert NOTHING_FOLLOWS in found.facts["Limits"]
    assert found.defenses.strip().startswith("No conclusion is drawn:") and "helps" not in found.defenses


SHARES = ("cell_accuracy", "close_match_rate", "exact_match_rate")


def test_a_defense_is_judged_where_every_attack_was_run(plain, defended, summary) -> None:
    """Weak noise that takes proofs away, and an attack on a third of the updates that recovers all rows behind it."""
    every, options = dict.fromkeys(SHARES, 1.0), {"chains": 192, "sweeps": 15}
    first = plain(attacks=("tableak", "audit_max", "random"))
    noised, rows = defended(first), {}
    for folder, shares, sampled in ((first, every, range(0)), (noised, dict.fromkeys(every, 0.1), range(2))):
        raw = json.loads((folder / "results.json").read_text())
        for row in raw["rows"]:
            row |= {"audit_max": {"attack": "exact", "options": options, **shares}, "tableak": every}.get(
                row["attack"], {}
            )
        raw["rows"] = [row for row in raw["rows"] if row["attack"] != "tableak" or row["batch_index"] in sampled]
        (folder / "results.json").write_text(json.dumps(raw))
        rows[folder] = raw["rows"]
    said = summary(first, noised)
    assert (
        "Noise of standard deviation 0.01 does not help measurably: records at risk go from 100 to 100 of 100"
        in said.defenses
    )

    alone = {"schema_version": 1, "rows": [row for row in rows[noised] if row["attack"] != "tableak"]}
    (noised / "results.json").write_text(json.dumps(alone))
    said = summary(first, noised)
    assert said.defenses.strip().startswith("No conclusion is drawn:")
    assert f"lightleak audit {noised}/config.yaml --attacks.audit_max '{{}}' --output {noised}-more" in said.defenses
    assert f"lightleak report {first} {noised}-more" in said.defenses


def test_an_attack_below_guessing_is_seen_to_be(plain, rewritten, summary) -> None:
    folder = rewritten(plain(), cell_accuracy=lambda row: 0.9 if row["attack"] == "random" else 0.4)
    found = summary(folder)
    assert [cell.split()[0] for cell in found.risks["Inference"]] == ["40", "90"]
    assert [line[3].split()[0] for line in found.lines] == ["40"] and found.lines[0][4].startswith("90 ")


def test_another_table_or_network_is_named(plain, defended, rewritten, summary) -> None:
    first = plain(0.85)
    network = rewritten(defended(first, 0.2, "network"), target="linear", defense="none")
    table = rewritten(defended(first, 0.2, "table"), target="linear", dataset="german")
    both = summary(first, network)
    assert "It has another network (linear in place of mlp-100-100), so the defense is not all" in both.defenses
    other = summary(first, table)
    assert (
        "Noise of standard deviation 0.01: measured on another table (german in place of adult) and another network "
        "(linear in place of mlp-100-100), so it cannot be compared." in other.defenses
    )
    assert "change" not in other.headings[1]  # two tables have no difference of accuracies
    assert measured_runs([load_run(first), load_run(table)])[1].cost is None
