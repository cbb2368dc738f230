"""Captured updates attacked later: with truth, without it, and with one that is not theirs."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from rich.console import Console

from lightleak.attacks import ATTACKS
from lightleak.callbacks.capture_store import Capture
from lightleak.core.errors import ObservationError, UsageError
from lightleak.core.ground_truth import GroundTruth
from lightleak.core.observations import ClientUpdate
from lightleak.core.seeds import derive_seed
from lightleak.experiments import campaign, run
from lightleak.experiments.clients import FreshClients
from lightleak.experiments.experiment import prepare_experiment
from lightleak.experiments.kinds.updates.plan import stored_units
from lightleak.experiments.observed import find_captures
from lightleak.experiments.run import attack_captures, resumed_config, run_audit
from lightleak.protocols.records import RecordedBatch

Save = Callable[..., list[Path]]


@pytest.fixture
def no_attack(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "run_packs", lambda *_, **__: pytest.fail("an attack ran"))


def test_with_truth_every_row_is_scored(tmp_path: Path, tiny: Any, save_captures: Save, silent: Console) -> None:
    save_captures(tmp_path / "captures")
    results = attack_captures(tiny(), tmp_path / "captures", tmp_path / "run", console=silent)
    assert [(r["attack"], r["batch_size"], r["batch_index"]) for r in results["rows"]] == [
        ("tableak", 3, 0),
        ("tableak", 4, 1),
        ("random", 3, 0),
        ("random", 4, 1),
    ]
    for row in results["rows"]:
        assert 0 <= row["cell_accuracy"] <= 1 and row["rmse"] > 0
        assert (row["dataset"], row["target"], row["protocol"], row["defense"]) == (
            "synthetic",
            "mlp-6",
            "fedsgd",
            "none",
        )
    assert (tmp_path / "run" / "report.html").is_file()
    assert not (tmp_path / "run" / "checkpoints").exists()


def test_without_truth_there_are_reconstructions_and_no_accuracy(
    tmp_path: Path, tiny: Any, save_captures: Save, silent: Console
) -> None:
    for folder in save_captures(tmp_path / "captures"):
        shutil.rmtree(folder / "truth")
    attacks = {"tableak": {"steps": 20, "restarts": 3}}
    results = attack_captures(tiny(attacks=attacks), tmp_path / "captures", tmp_path / "run", console=silent)
    for row in results["rows"]:
        for name in ("cell_accuracy", "categorical_accuracy", "numerical_accuracy", "exact_match_rate", "rmse"):
            assert row[name] is None
        assert row["loss"] > 0 and row["seconds"] > 0
        cells = pd.read_csv(tmp_path / "run" / row["reconstruction"], keep_default_na=False)
        assert len(cells) == 4 * row["batch_size"]
        assert (cells["true"] == "").all() and (cells["reconstructed"].astype(str) != "").all()
        assert pd.to_numeric(cells["entropy"]).notna().all()
    assert (tmp_path / "run" / "report.html").is_file()


def test_truth_is_for_scores_alone(tmp_path: Path, tiny: Any, save_captures: Save, silent: Console) -> None:
    folders = save_captures(tmp_path / "captures")
    config = tiny(attacks={"tableak": {"steps": 20, "restarts": 2}})
    scored = attack_captures(config, tmp_path / "captures", tmp_path / "scored", console=silent)
    for folder in folders:
        shutil.rmtree(folder / "truth")
    blind = attack_captures(config, tmp_path / "captures", tmp_path / "blind", console=silent)
    for one, other in zip(scored["rows"], blind["rows"], strict=True):
        assert one["loss"] == other["loss"]
        first, second = (
            pd.read_csv(tmp_path / run / row["reconstruction"]) for run, row in (("scored", one), ("blind", other))
        )
        # With truth the rows stand in its order, so columns are compared as bags.
        for _, cells in first.groupby("column"):
            got = second[second["column"] == cells["column"].iloc[0]]
            assert sorted(cells["reconstructed"]) == sorted(got["reconstructed"])
            assert sorted(cells["entropy"]) == sorted(got["entropy"])


def test_a_row_says_that_labels_were_restored_where_none_were_shared(
    tmp_path: Path, tiny: Any, save_captures: Save
) -> None:
    save_captures(tmp_path / "shared")
    save_captures(tmp_path / "hidden", share_labels=False)
    for attack in ("exact", "audit_max", "random"):
        config = tiny(attacks={attack: {}})  # labels: true, as it is where nothing is said
        for folder, said in (("shared", "true"), ("hidden", "restored")):
            assert {unit.facts["labels"] for unit in stored_units(config, tmp_path / folder)} == {said}


def test_added_captures_are_numbered_as_in_a_fresh_folder(
    tmp_path: Path, tiny: Any, save_captures: Save, silent: Console
) -> None:
    root, config = tmp_path / "captures", tiny(attacks={"random": {}})
    save_captures(root / "m", sizes=(3,))
    attack_captures(config, root, tmp_path / "run", console=silent)
    save_captures(root / "a", sizes=(3, 4))  # sorted before those that are attacked already
    resumed = attack_captures(config, root, tmp_path / "run", console=silent)
    fresh = attack_captures(config, root, tmp_path / "fresh", console=silent)
    assert [row["batch_index"] for row in resumed["rows"]] == [0, 1, 2]
    numbers = [[(row["unit"], row["batch_index"]) for row in found["rows"]] for found in (resumed, fresh)]
    assert numbers[0] == numbers[1]


@pytest.mark.usefixtures("no_attack")
def test_truth_with_one_row_changed_is_refused(tmp_path: Path, tiny: Any, save_captures: Save, silent: Console) -> None:
    _, folder = save_captures(tmp_path / "captures", sizes=(3, 16))
    batch = RecordedBatch.load(folder / "truth")
    batch.inputs[7, -1] += 1.0
    batch.save(folder / "truth")
    with pytest.raises(ObservationError, match="the recorded batch does not reproduce the raw gradient"):
        attack_captures(tiny(), tmp_path / "captures", tmp_path / "run", console=silent)
    assert not (tmp_path / "run").exists()


@pytest.mark.usefixtures("no_attack")
def test_truth_of_another_framework_is_checked_as_well(
    tmp_path: Path, tiny: Any, save_captures: Save, silent: Console
) -> None:
    folder, _ = save_captures(tmp_path / "captures")
    truth = RecordedBatch.load(folder / "truth")
    shutil.rmtree(folder / "truth")
    GroundTruth(truth.inputs, truth.labels).save(folder / "truth")
    assert len(stored_units(tiny(), tmp_path / "captures")[0].observe()[1].inputs) == 3
    GroundTruth(truth.inputs.flip(1), truth.labels).save(folder / "truth")
    with pytest.raises(ObservationError, match="does not reproduce"):
        attack_captures(tiny(), tmp_path / "captures", tmp_path / "run", console=silent)


@pytest.mark.usefixtures("no_attack")
@pytest.mark.parametrize(
    ("change", "attacks", "message"),
    [
        ({"labels": None}, ["tableak"], "shares no labels"),
        ({"kind": "delta"}, ["tableak"], "FedAvg"),
        ({"network": "mlp"}, ["tableak"], "does not describe a client update|network"),
    ],
)
def test_an_update_an_attack_cannot_serve_is_refused(
    tmp_path: Path,
    tiny: Any,
    save_captures: Save,
    silent: Console,
    change: dict[str, Any],
    attacks: list[str],
    message: str,
) -> None:
    _, folder = save_captures(tmp_path / "captures")
    shutil.rmtree(folder / "truth")
    update = ClientUpdate.load(folder / "observation")
    if change.get("network"):
        facts = json.loads((folder / "observation" / "facts.json").read_text())
        (folder / "observation" / "facts.json").write_text(json.dumps(facts | change))
    else:
        shutil.rmtree(folder / "observation")
        replace(update, **change).save(folder / "observation")
    with pytest.raises(UsageError, match=message):
        attack_captures(tiny(attacks=attacks), tmp_path / "captures", tmp_path / "run", console=silent)
    assert not (tmp_path / "run").exists()


def test_captures_of_different_tables_are_attacked_each_by_its_own(
    tmp_path: Path, tiny: Any, save_captures: Save, silent: Console
) -> None:
    # Same network and batch size, so that they fall into one pack, but other encoder statistics.
    save_captures(tmp_path / "captures" / "first", sizes=(4,))
    save_captures(tmp_path / "captures" / "second", sizes=(4,), seed=5, data__options__table_seed=7)
    config = tiny(attacks={"tableak": {"steps": 20, "restarts": 2}})
    together = attack_captures(config, tmp_path / "captures", tmp_path / "together", console=silent)
    units = stored_units(config, tmp_path / "captures")
    for row, unit in zip(together["rows"], units, strict=True):
        update, _ = unit.observe()
        alone = ATTACKS.get("tableak")(**unit.options).run(update, derive_seed(unit.seed, unit.attack, unit.id))
        assert row["loss"] == alone.loss


def test_captures_of_tables_with_other_columns_are_refused(
    tmp_path: Path, tiny: Any, save_captures: Save, no_attack: None, silent: Console
) -> None:
    save_captures(tmp_path / "captures" / "adult", sizes=(4,))
    save_captures(tmp_path / "captures" / "german", sizes=(4,), data={"name": "german"})
    with pytest.raises(UsageError, match=r"of one table, got adult-.* and german-.*, which differ in 'd0' and .* more"):
        attack_captures(tiny(), tmp_path / "captures", tmp_path / "run", console=silent)
    assert not (tmp_path / "run").exists()


def test_captures_are_found_at_any_depth_and_alone(tmp_path: Path, save_captures: Save, finished: Path) -> None:
    first, second = save_captures(tmp_path / "deep" / "er")
    assert find_captures(tmp_path) == [first, second]
    assert find_captures(first) == [first]
    assert len(find_captures(finished)) == 2
    for empty in (tmp_path / "none", first / "truth"):
        with pytest.raises(UsageError, match=f"--capture {empty} holds no captured update"):
            find_captures(empty)


def test_units_are_named_after_the_path(tmp_path: Path, tiny: Any, save_captures: Save) -> None:
    save_captures(tmp_path / "a" / "b", sizes=(3,))
    config = tiny(attacks=["random"])
    assert [u.id for u in stored_units(config, tmp_path)] == ["random-a-b-e000-s000000-r0"]
    assert [u.id for u in stored_units(config, tmp_path / "a" / "b" / "e000-s000000-r0")] == ["random-e000-s000000-r0"]


def test_an_interrupted_attack_goes_on(
    tmp_path: Path, tiny: Any, save_captures: Save, silent: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_captures(tmp_path / "captures")
    config = tiny(attacks=["random"])
    plain = campaign.run_pack

    def half(pack: Any, *rest: Any) -> None:
        plain(pack[:1], *rest)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(campaign, "run_pack", half)
        attack_captures(config, tmp_path / "captures", tmp_path / "run", console=silent)
    kept = json.loads((tmp_path / "run" / "results.json").read_text())["rows"]
    assert len(kept) == 1
    rows = attack_captures(config, tmp_path / "captures", tmp_path / "run", console=silent)["rows"]
    assert kept[0] in rows and len(rows) == 2


def test_a_folder_takes_the_attack_on_one_set_of_captures(
    tmp_path: Path, tiny: Any, save_captures: Save, silent: Console, finished: Path
) -> None:
    save_captures(tmp_path / "one")
    save_captures(tmp_path / "two")
    config = tiny(attacks=["random"])
    attack_captures(config, tmp_path / "one", tmp_path / "run", console=silent)
    with pytest.raises(UsageError, match=r"holds an attack on .*one; choose another --output"):
        attack_captures(config, tmp_path / "two", tmp_path / "run", console=silent)
    with pytest.raises(UsageError, match=r"holds an attack on .*one"):
        run_audit(config, tmp_path / "run", console=silent)
    with pytest.raises(UsageError, match="was made by `lightleak attack`"):
        run_audit(resumed_config(tmp_path / "run"), tmp_path / "run", console=silent)
    with pytest.raises(UsageError, match="holds an audit"):
        attack_captures(config, tmp_path / "one", finished, console=silent)


def test_captures_of_an_audit_give_its_own_numbers(tmp_path: Path, finished: Path, tiny: Any, silent: Console) -> None:
    """What was captured in a run is attacked elsewhere as well as there, up to the seed's name of the unit."""
    rows = attack_captures(tiny(attacks=["random"]), finished / "captures", tmp_path / "run", console=silent)["rows"]
    audit = json.loads((finished / "results.json").read_text())["rows"]
    own = [row for row in audit if row["attack"] == "random" and row["source"] == "training"]
    for row, there in zip(rows, own, strict=True):
        assert row["unit"] == there["unit"]
        assert row["cell_accuracy"] == there["cell_accuracy"]


def test_reading_a_capture_leaves_the_global_generator(tmp_path: Path, tiny: Any, save_captures: Save) -> None:
    save_captures(tmp_path, target__options={"hidden": [6], "dropout": 0.5})
    state = torch.get_rng_state()
    for unit in stored_units(tiny(), tmp_path):
        unit.observe()
    assert torch.equal(torch.get_rng_state(), state)


def test_capture_of_fresh_clients_is_what_they_sent(tmp_path: Path, tiny: Any, save_captures: Save) -> None:
    (folder,) = save_captures(tmp_path, sizes=(5,))
    experiment = prepare_experiment(tiny())
    update, _ = FreshClients(experiment.population, experiment.spec, 0, True).observe(5, 0)
    loaded = Capture.load(folder).update
    assert all(torch.equal(loaded.update[name], value) for name, value in update.update.items())
