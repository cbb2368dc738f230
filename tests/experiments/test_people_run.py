"""Whole epochs and rounds: every batch is captured, every row is somebody's, and redaction leaves counts alone."""

import json
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from rich.console import Console

import lightleak
from lightleak.callbacks.capture_store import Capture, list_captures
from lightleak.cli import main
from lightleak.core.errors import ObservationError, UsageError
from lightleak.core.people import CSV_FILE, read_people
from lightleak.core.small_groups import without_small_groups
from lightleak.experiments.config import AuditConfig
from lightleak.experiments.experiment import prepare_experiment
from lightleak.experiments.kinds.updates.kind import UpdatesKind
from lightleak.experiments.kinds.updates.people import require_ids
from lightleak.experiments.kinds.updates.plan import plan_units
from lightleak.experiments.run import resumed_config, run_audit

Config = Callable[..., AuditConfig]

WHOLE: dict[str, Any] = {
    "data__options": {"n_discrete": 2, "n_continuous": 1, "n_rows": 60},
    "training__epochs": 1,
    "capture__epochs": [0],
    "capture__coverage": "epoch",
    "initial__batches": 0,
    "attacks": {"exact": {"patience": 1, "chains": 4, "sweeps": 2}, "random": {}},
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, tiny: Config, silent: Console) -> Path:
    """The folder of a run; tests only read it."""
    folder = tmp_path_factory.mktemp("people") / "run"
    run_audit(tiny(**WHOLE), folder, console=silent)
    return folder


def captured(folder: Path) -> list[Capture]:
    return [Capture.load(path) for path in list_captures(folder / "captures")]


def ids_of(folder: Path) -> list[int]:
    found = [one.truth.ids for one in captured(folder)]
    return [row for ids in found if ids is not None for row in ids.tolist()]


def results_of(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "results.json").read_text())
    return found


def same_people(truth: Any, experiment: Any) -> bool:
    rows = experiment.table.train.iloc[truth.ids.tolist()]
    return bool(torch.allclose(experiment.encoder.encode(rows), truth.inputs)) and bool(
        experiment.encoder.encode_labels(rows).equal(truth.labels)
    )


def test_every_row_of_an_epoch_is_in_one_update_and_known(run: Path, tiny: Config) -> None:
    experiment = prepare_experiment(tiny(**WHOLE))
    sizes = [len(one.truth.labels) for one in captured(run)]
    n_rows = len(experiment.table.train) - round(0.1 * len(experiment.table.train))
    assert sum(sizes) == n_rows and set(sizes[:-1]) == {8} and 0 < sizes[-1] < 8  # a smaller last batch too
    assert set(Counter(ids_of(run)).values()) == {1}
    assert all(same_people(one.truth, experiment) for one in captured(run))


def test_results_hold_one_entry_per_attack_that_covers_everybody(run: Path) -> None:
    exact, random = read_people(results_of(run), "results.json")
    assert [exact.attack, random.attack] == ["exact", "random"]
    for entry in (exact, random):
        assert entry.n == entry.rows == len(ids_of(run))
        assert entry.proven + entry.recovered + entry.not_recovered == entry.n
        assert (entry.unit, entry.means.updates, entry.means.epochs) == ("step", len(captured(run)), (0,))
        assert entry.means.cpu_seconds is not None and entry.means.peak_memory is not None
        assert entry.curve[-1].seen == entry.n and entry.curve[-1].proven == entry.proven
    assert exact.has_certificates and not random.has_certificates and random.proven == 0


def test_counts_are_those_of_the_rows_of_results(run: Path) -> None:
    rows = [row for row in results_of(run)["rows"] if row["attack"] == "exact"]
    (exact,) = (one for one in read_people(results_of(run), "") if one.attack == "exact")
    assert exact.claims == sum(row["certified_rows"] for row in rows)
    assert exact.proven == exact.claims - exact.wrong  # everybody is in one update


def test_the_table_has_a_line_for_each_attack_and_person(run: Path) -> None:
    table = lightleak.load_people(run)
    assert table.groupby("attack")["person"].apply(sorted).to_dict() == {
        name: sorted(ids_of(run)) for name in ("exact", "random")
    }
    entries = {one.attack: one for one in read_people(results_of(run), "")}
    for attack, of in table.groupby("attack"):
        verdicts = of["verdict"].value_counts()
        assert verdicts.get("proven", 0) == entries[str(attack)].proven
        assert verdicts.get("recovered", 0) == entries[str(attack)].recovered


def test_a_capture_of_other_people_is_refused(run: Path, tiny: Config) -> None:
    config = tiny(**WHOLE)
    experiment = prepare_experiment(config)
    unit = plan_units(config, experiment, run)[0]
    _, truth = unit.observe()
    assert truth is not None and truth.ids is not None
    require_ids([(unit, truth)], experiment)
    for ids in (truth.ids.roll(1), None):
        other = replace(truth, ids=ids)
        with pytest.raises(ObservationError, match=r"whose rows|people whom"):
            require_ids([(unit, truth), (unit, other)], experiment)


def returned(*observed: Any) -> Any:
    return observed


@pytest.mark.parametrize("redact", [True, "all"])
def test_a_redacted_run_keeps_counts_and_nobody(tmp_path: Path, tiny: Config, run: Path, redact: Any) -> None:
    folder = tmp_path / "run"
    run_audit(tiny(**WHOLE, redact=redact), folder, console=Console(quiet=True))
    assert not (folder / CSV_FILE).exists() and not (folder / "people").exists()
    kept, plain = (read_people(results_of(one), "") for one in (folder, run))
    assert [(one.n, one.proven, one.wrong, one.curve) for one in kept] == [
        (one.n, one.proven, one.wrong, without_small_groups(one).curve) for one in plain
    ]
    assert all(0 < len(one.curve) < len(whole.curve) for one, whole in zip(kept, plain, strict=True))
    assert all(one.merged_below and without_small_groups(one) == one for one in kept)
    before = results_of(folder)
    run_audit(resumed_config(folder), folder, console=Console(quiet=True))
    assert results_of(folder) == before
    with pytest.raises(UsageError, match="redacted"):
        lightleak.load_people(folder)


def test_a_resumed_run_ends_as_an_uninterrupted_one(tmp_path: Path, tiny: Config, run: Path, silent: Console) -> None:
    folder = tmp_path / "run"
    run_audit(tiny(**WHOLE), folder, console=silent)
    gone = sorted((folder / "units").glob("exact-*"))[0]
    gone.unlink()
    (folder / "people" / f"{gone.stem}.npz").unlink()
    run_audit(resumed_config(folder), folder, console=silent)
    pd.testing.assert_frame_equal(lightleak.load_people(folder), lightleak.load_people(run))


@pytest.mark.parametrize("damage", ["cut", "changed", "deleted"])
def test_what_is_kept_of_people_is_made_again(
    tmp_path: Path, run: Path, silent: Console, caplog: pytest.LogCaptureFixture, damage: str
) -> None:
    folder = tmp_path / "run"
    shutil.copytree(run, folder)
    file = sorted((folder / "people").glob("random-*"))[0]
    if damage == "deleted":
        file.unlink()
        (folder / "people.json").unlink()
    else:
        content = file.read_bytes()
        middle = len(content) // 2
        changed = content[:middle] + bytes([content[middle] ^ 255]) + content[middle + 1 :]
        file.write_bytes(content[:middle] if damage == "cut" else changed)
    results = run_audit(resumed_config(folder), folder, console=silent)
    again, before = ([{**one, "means": None} for one in found["people"]] for found in (results, results_of(run)))
    assert again == before
    pd.testing.assert_frame_equal(lightleak.load_people(folder), lightleak.load_people(run))
    assert file.name in caplog.text and (folder / "units" / f"{file.stem}.json.damaged-1").is_file()


def test_python_and_the_command_read_the_people(tmp_path: Path, run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    frame = pd.DataFrame({"age": range(20, 60), "sex": ["f", "m"] * 20, "ill": ["no", "no", "yes", "yes"] * 10})
    frame.index = pd.Index([f"patient {age}" for age in frame["age"]])
    settings = {"capture.coverage": "epoch", "capture.epochs": [0], "training.optimizer.learning_rate": 0.01}
    leakage = lightleak.audit_model(
        frame,
        label="ill",
        output=tmp_path / "own",
        attacks="random",
        batch_size=8,
        batches=0,
        epochs=1,
        settings=settings,
    )
    assert leakage.people["verdict"].isin(["recovered", "not recovered"]).all() and leakage.people["seen"].eq(1).all()
    assert set(leakage.people["row"]) < set(frame.index)
    assert leakage.people["label"].tolist() == frame["ill"][leakage.people["row"]].tolist()
    capsys.readouterr()
    assert main(["compare", str(run), str(run)]) == 0
    lines = capsys.readouterr().out.replace("┃", "│").splitlines()
    table = [[cell.strip() for cell in line.split("│")] for line in lines if "│" in line]
    of_exact = {cells[1]: cells[table[0].index("exact")] for cells in table}
    proven = sum(lightleak.load_people(run).query("attack == 'exact'")["verdict"] == "proven")
    assert of_exact["people in both"] == str(len(ids_of(run))) and of_exact["stay proven"] == str(proven)
    assert {of_exact[name] for name in ("newly proven", "become safe", "in DIR only", "in OTHER only")} == {"0"}
    file = tmp_path / "changes.csv"
    for _ in range(2):  # one of ours is replaced
        assert main(["compare", str(run), str(run), "--output", str(file)]) == 0
    found = pd.read_csv(file)
    assert len(found) == 2 * len(ids_of(run)) and (found["before"] == found["after"]).all()
    assert file.stat().st_mode & 0o077 == 0
    file.write_text("other")
    assert main(["compare", str(run), str(run), "--output", str(file)]) == 2 and file.read_text() == "other"


def test_an_attack_on_captures_gives_their_people(tmp_path: Path, run: Path) -> None:
    attacks = WHOLE["attacks"]
    again = lightleak.attack_updates(run / "captures", attacks, output=tmp_path / "again")
    by_person = [one.set_index(["attack", "person"]).sort_index() for one in (again.people, lightleak.load_people(run))]
    for name in ("verdict", "first_proven"):
        assert by_person[0][name].to_dict() == by_person[1][name].to_dict()
    assert again.people["unique"].eq("").all()  # of the table nothing else is known
    exact, _ = read_people(again.results, "")
    assert not exact.is_whole and exact.unique is None and exact.means.updates == len(captured(run))
    assert again.risks.query("risk == 'singling out'")["main"].isna().all()
    place = again.people["row"][0].rpartition(":")
    rows = pd.read_csv(tmp_path / "again" / "reconstructions" / f"exact-{place[0]}.csv")
    assert int(place[2]) in set(rows["row"])


def test_costly_attacks_take_a_sample_of_the_updates(tmp_path: Path, run: Path, tiny: Config, silent: Console) -> None:
    sampled = {**WHOLE, "attacks": {"random": {}, "inverting_gradients": {"steps": 2}}}
    config = tiny(**sampled, capture__sample={"inverting_gradients": 3})
    run_audit(config, tmp_path / "run", console=silent)
    random, optimized = read_people(results_of(tmp_path / "run"), "")
    assert (random.is_whole, random.means.updates) == (True, len(captured(run)))
    assert (optimized.is_whole, optimized.means.updates) == (False, 3)
    people = lightleak.load_people(tmp_path / "run")
    assert (people["attack"] == "inverting_gradients").sum() == optimized.n < random.n
    kind = UpdatesKind()
    lines = dict(kind.plan(kind.check(config), torch.device("cpu")).lines)
    assert f"{len(captured(run)) + 3} on the training run" in lines["units"]
    assert lines["captures"].startswith(f"{len(captured(run))} updates of ")
    fewer = plan_units(tiny(**sampled, capture__sample={"inverting_gradients": 2}), prepare_experiment(config), run)
    named = {unit.facts["batch_index"] for unit in fewer if unit.attack == "inverting_gradients"}
    rows = results_of(tmp_path / "run")["rows"]
    assert named < {row["batch_index"] for row in rows if row["attack"] == "inverting_gradients"}


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"capture__sample": {"random": 0}}, "sample.random"),
        ({"capture__sample": {"random": True}}, "sample.random"),
        ({"capture__coverage": "first", "capture__sample": {"random": 2}}, "capture.coverage"),
    ],
)
def test_a_wrong_sample_is_refused(tiny: Config, changes: dict[str, Any], named: str) -> None:
    with pytest.raises(UsageError, match=named):
        tiny(**{**WHOLE, **changes})


def test_a_sample_for_an_attack_that_is_not_run_is_refused(tiny: Config) -> None:
    with pytest.raises(UsageError, match="tableak"):
        UpdatesKind().check(tiny(**WHOLE, capture__sample={"tableak": 2}))


@pytest.mark.parametrize("redact", [True, "all"])
def test_a_redacted_attack_on_captures_keeps_counts(tmp_path: Path, run: Path, redact: Any) -> None:
    folder, updates = tmp_path / "again", captured(run)[:2]
    for _ in range(2):  # the second finds it finished
        leakage = lightleak.attack_updates(updates, "random", output=folder, settings={"redact": redact})
        (entry,) = read_people(leakage.results, "")
        assert entry.n == sum(len(one.truth.labels) for one in updates)
        assert not (folder / CSV_FILE).exists() and not (folder / "people").exists()
        with pytest.raises(UsageError, match="redacted"):
            _ = leakage.people


def test_updates_without_rows_have_no_people(tmp_path: Path, run: Path) -> None:
    updates = [one.update for one in captured(run)[:1]]
    leakage = lightleak.attack_updates(updates, "random", output=tmp_path / "again")
    assert "people" not in leakage.results and leakage.risks.empty
    with pytest.raises(UsageError, match="private row"):
        _ = leakage.people


def test_without_whole_epochs_there_are_no_people(finished: Path) -> None:
    assert "people" not in results_of(finished) and not (finished / "people").exists()


@pytest.mark.parametrize("aggregate", [1, 2])
def test_rounds_of_a_federation_cover_all_their_clients(
    tmp_path: Path, tiny_fedavg: Config, silent: Console, aggregate: int
) -> None:
    config = tiny_fedavg(
        **{"capture": {"epochs": [0, 2], "coverage": "rounds"}, "initial__batches": 0, "attacks": {"random": {}}},
        protocol__aggregate=aggregate,
    )
    run_audit(config, tmp_path / "run", console=silent)
    experiment = prepare_experiment(config)
    taken = captured(tmp_path / "run")
    assert Counter(one.update.facts.epoch for one in taken) == {0: 4 // aggregate, 2: 4 // aggregate}
    assert all(same_people(one.truth, experiment) for one in taken)
    (entry,) = read_people(results_of(tmp_path / "run"), "")
    assert (entry.unit, entry.rows, entry.n) == ("round", 48, len(set(ids_of(tmp_path / "run"))))
    assert [point.round for point in entry.curve] == [1, 3]


def test_runs_over_rounds_are_compared_and_others_refused(
    tmp_path: Path, tiny: Config, tiny_fedavg: Config, silent: Console, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, defense in (("plain", {}), ("noise", {"defense": {"name": "gaussian_noise", "options": {"scale": 1.0}}})):
        changes = {"capture": {"epochs": [0, 2], "coverage": "rounds"}, "initial__batches": 0, **defense}
        run_audit(tiny_fedavg(**changes, attacks={"random": {}}), tmp_path / name, console=silent)
    assert main(["compare", str(tmp_path / "plain"), str(tmp_path / "noise")]) == 0
    n = lightleak.load_people(tmp_path / "plain")["person"].nunique()
    (line,) = (line.split() for line in capsys.readouterr().out.splitlines() if "│ people in both" in line)
    assert next(word for word in line if word.isdigit()) == str(n)
    run_audit(tiny(**{**WHOLE, "attacks": {"random": {}}}, data__split_seed=5), tmp_path / "other", console=silent)
    assert main(["compare", str(run), str(tmp_path / "other")]) == 2
    assert "different tables or splits" in " ".join(capsys.readouterr().err.split())


def test_micro_batches_and_poisson_batches_know_their_rows(tmp_path: Path, tiny: Config, silent: Console) -> None:
    for name, changes in {
        "accumulated": {"training__trainer": {"accumulate_grad_batches": 2}},
        "poisson": {"defense": {"name": "dp_sgd", "options": {"noise_multiplier": 0.1}}},
    }.items():
        config = tiny(**{**WHOLE, "attacks": {"random": {}}, **changes})
        run_audit(config, tmp_path / name, console=silent)
        experiment = prepare_experiment(config)
        assert captured(tmp_path / name) and all(
            same_people(one.truth, experiment) for one in captured(tmp_path / name)
        )


def test_the_plan_counts_updates_and_what_they_take_on_disk(run: Path, tiny: Config) -> None:
    kind = UpdatesKind()
    lines = dict(kind.plan(kind.check(tiny(**WHOLE)), torch.device("cpu")).lines)
    assert lines["captures"].startswith(f"{len(captured(run))} updates of ")
    assert f"{2 * len(captured(run))} on the training run" in lines["units"]
