import json
import shutil
import stat
from functools import partial, partialmethod

import pytest
import torch

from lightleak.attacks.property_inference import PROPERTY_ATTACKS
from lightleak.attacks.property_inference.attack import TrainingPart
from lightleak.attacks.property_inference.augmentation import Augmentation
from lightleak.callbacks.intermediate_store import load_observation, load_truth
from lightleak.core.errors import LightLeakError, UsageError
from lightleak.core.seeds import derive_seed
from lightleak.data.property import Property
from lightleak.experiments import campaign, training
from lightleak.experiments.kinds.vertical import job as job_module
from lightleak.experiments.kinds.vertical.config import VerticalConfig
from lightleak.experiments.kinds.vertical.job import Job, plan_jobs
from lightleak.experiments.kinds.vertical.kind import VerticalKind
from lightleak.experiments.kinds.vertical.world import prepare_world
from lightleak.experiments.run import run_audit
from lightleak.experiments.took import TOOK


def rows_of(folder):
    return json.loads((folder / "results.json").read_text())["rows"]


def comparable(rows):
    return [{key: value for key, value in row.items() if key not in (*TOOK, "training_seconds")} for row in rows]


def test_every_attack_on_every_training_has_a_row(finished, small):
    rows = rows_of(finished)
    expected = {
        (attack, adversary, defense)
        for attack in ("provfl_b_mixture", "provfl_m", "prior", "aia_raw_adjusted")
        for adversary in ("C1", "C2")
        for defense in ("none", "half")
    }
    assert {(row["attack"], row["adversary"], row["defense"]) for row in rows} == expected
    assert len(rows) == len(expected) == sum(len(job.ids) for job in plan_jobs(small()))
    for row in rows:
        assert row["kind"] == "vertical"
        assert row["epoch"] == 1  # the penultimate of three
        assert row["absolute_error"] == pytest.approx(abs(row["estimated_fraction"] - row["true_fraction"]))
        assert row["covered"] == (row["low"] <= row["true_fraction"] <= row["high"])
        assert 0 < row["auc"] < 1
        assert row["variant"] == (
            {"C1": "LR+MR", "C2": "MR"}[row["adversary"]] if "_m" in row["unit"][:8] else "passive"
        )


def test_a_withdrawal_leaves_the_truth_and_moves_what_is_seen(finished):
    rows = {(row["attack"], row["adversary"], row["defense"]): row for row in rows_of(finished)}
    plain, hidden = (rows["provfl_b_mixture", "C1", defense] for defense in ("none", "half"))
    assert plain["true_fraction"] == hidden["true_fraction"]
    kept = [path for path in (finished / "captures").iterdir() if "half-passive" in path.name and "C1" in path.name]
    truth = load_truth(kept[0] / "truth")
    assert float(truth.has_property.float().mean()) == pytest.approx(0.5 * truth.fraction, abs=0.01)


def test_attacks_that_watch_share_a_training(small):
    jobs = plan_jobs(small())
    assert len(jobs) == 2 * 3  # two defenses; one for watching, one for each adversary of ProVFL-M
    assert len(plan_jobs(small(attacks={"prior": {}, "provfl_b": {}}, seeds=[0, 1]))) == 2 * 2


def test_what_was_kept_gives_the_same_estimate_without_the_truth(finished):
    """The attack boundary: an observation read back, its truth destroyed, and the same result."""
    rows = {row["unit"]: row for row in rows_of(finished)}
    row = rows["provfl_b_mixture-C1-religious=strongly-none-s0-e001"]
    place = finished / "captures" / "religious=strongly-none-passive-s0-C1-e001"
    seen = load_observation(place / "observation")
    seed = derive_seed(0, "provfl_b_mixture", "religious=strongly", "C1")
    assert PROPERTY_ATTACKS.get("provfl_b_mixture")().run(seen, seed).fraction == row["estimated_fraction"]


def test_a_passive_adversarys_capture_holds_its_own_outputs_only(finished):
    for place in (finished / "captures").glob("*-C2-*"):
        assert set(load_observation(place / "observation").results) == {"AO"}


def test_run_folder_is_the_owners_and_whole(finished):
    assert stat.S_IMODE(finished.stat().st_mode) == 0o700
    norms = json.loads((finished / "norms.json").read_text())
    assert {(entry["kind"], entry["norm"]) for entry in norms["entries"]} == {
        (kind, norm) for kind in ("VO", "AO") for norm in ("l1", "l2", "linf")
    }
    assert "religious" in (finished / "report.html").read_text()


def test_the_number_of_workers_changes_nothing(finished, small, silent, tmp_path):
    run_audit(small(workers=2), tmp_path / "run", [], silent)
    assert comparable(rows_of(tmp_path / "run")) == comparable(rows_of(finished))


def test_a_run_that_was_stopped_goes_on(finished, small, silent, tmp_path, monkeypatch):
    folder, done = tmp_path / "run", []

    def stop_after_two(self, *arguments):
        if len(done) == 2:
            raise KeyboardInterrupt
        done.append(self)
        return run(self, *arguments)

    run = Job.run
    with monkeypatch.context() as patch:
        patch.setattr(Job, "run", stop_after_two)
        with pytest.raises(KeyboardInterrupt):
            run_audit(small(), folder, [], silent)
    assert 0 < len(rows_of(folder)) < len(rows_of(finished))
    left = []
    monkeypatch.setattr(Job, "run", lambda self, *arguments: (left.append(self), run(self, *arguments)))
    run_audit(small(), folder, [], silent)
    assert len(left) == len(plan_jobs(small())) - 2
    assert comparable(rows_of(folder)) == comparable(rows_of(finished))


def test_what_is_damaged_is_made_again(finished, small, silent, tmp_path):
    folder = shutil.copytree(finished, tmp_path / "run")
    norms, capture = next((folder / "norms").glob("*none*")), next((folder / "captures").glob("*half-passive*"))
    unit = next((folder / "units").glob("prior*none*"))
    for file in (norms, unit, capture / "truth" / "tensors.safetensors", folder / "norms.json"):
        file.write_bytes(file.read_bytes()[:-20])
    run_audit(small(), folder, console=silent)
    assert comparable(rows_of(folder)) == comparable(rows_of(finished))
    for file in (norms, folder / "norms.json"):
        assert file.read_text() == (finished / file.relative_to(folder)).read_text()
    assert (capture / "truth" / "tensors.safetensors").is_file()
    assert {file.name.removesuffix(".damaged-1") for file in folder.rglob("*.damaged-1")} >= {norms.name, capture.name}


def test_a_folder_of_another_run_is_refused(finished, small, silent):
    with pytest.raises(UsageError, match="another config"):
        run_audit(small(seeds=[1]), finished, [], silent)


def test_a_redacted_run_keeps_no_captures(small, silent, tmp_path):
    config = small(redact=True, attacks={"prior": {}}, defenses={"none": {}}, training__epochs=2)
    run_audit(config, tmp_path / "run", [], silent)
    assert not (tmp_path / "run" / "captures").exists()


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"attacks": {"provfl": {}}}, "attacks.provfl: unknown property inference attack 'provfl'"),
        ({"attacks": {"provfl_b": {"norms": "l1"}}}, "attacks.provfl_b: .*no setting norms"),
        ({"defenses": {"noise": {}}}, "defenses.noise: unknown defense 'noise'"),
        ({"defenses": {"laplace": {"scale": -1.0}}}, "defenses.laplace: "),
        ({"properties": ["religious=very"]}, "has no value 'very'"),
        ({"properties": ["faith=1"]}, "no column 'faith'"),
        ({"training__trainer": {"max_epochs": 3}}, "max_epochs"),
        ({"attacks": {"provfl_m": {"label_replacement": True}}}, "label replacement needs an active adversary"),
        (
            {"attacks": {"provfl_b": {"sample_size": 6000}}},
            r"attacks.provfl_b in C1, seed 0: a query draws sample_size 6000 .*: set sample_size to a part .* as \d",
        ),
        (
            {"attacks": {"provfl_b_mixture": {"kinds": ["AG"]}}},
            "in C2, seed 0: an adversary C2 can see AO; kinds asks for AG",
        ),
        ({"attacks": {"sm_pia": {}}}, "names one of two fractions"),
        ({"auxiliary__size": 6000}, "auxiliary.size must be at most 5093"),
        ({"properties": ["affair=1"]}, "'affair' is the label"),
        ({"properties": ["age=1000"]}, "is absent from these rows"),
        (
            {"training__batch_size": 5000, "defenses": {"half": {"defense": "withdraw", "ratio": 0.5}}},
            r"training.batch_size must be at most \d+ \(training rows under withdraw\), got 5000",
        ),
        ({"properties": ["age=old"]}, "holds numbers, got 'old'"),
    ],
)
def test_what_cannot_be_served_is_refused_before_any_training(small, changed, message):
    with pytest.raises(UsageError, match=message):
        VerticalKind().check(small(**changed))


def test_every_seed_is_checked_before_any_training():
    """A rare property: of the first seed's training rows ten have it, of the second's fewer."""
    data = {"name": "german"}
    config = {"kind": "vertical", "data": data, "properties": ["purpose=others"], "auxiliary": {"size": 200}}
    config |= {"attacks": {"provfl_b_mixture": {}}, "training": {"epochs": 3, "batch_size": 32}}
    wanted = Property.parse("purpose=others")
    plain = VerticalConfig.parse(config, {})
    having = {seed: int(prepare_world(plain, wanted, seed).has_property.sum()) for seed in range(12)}
    enough, few = (next(s for s, n in having.items() if (n >= 10) is is_enough) for is_enough in (True, False))
    VerticalKind().check(VerticalConfig.parse(config, {"seeds": [enough]}))
    with pytest.raises(LightLeakError, match=f"seed {few}: .*distinct auxiliary rows"):
        VerticalKind().check(VerticalConfig.parse(config, {"seeds": [enough, few]}))


def test_the_device_of_a_job_is_the_trainers(small, tmp_path, monkeypatch):
    asked = []
    make = training.make_trainer
    monkeypatch.setattr(
        training, "make_trainer", lambda s, device, **k: (asked.append(device), make(s, device, **k))[1]
    )
    job = plan_jobs(small(training__epochs=2, attacks={"prior": {}}, defenses={"none": {}}))[0]
    job.run(tmp_path, torch.device("cpu"), lambda _: None)
    assert asked == ["cpu"]
    assert all(campaign.unit_file(tmp_path, unit).is_file() for unit in job.ids)


def test_captures_beyond_the_memory_go_to_files_and_are_removed(small, tmp_path, monkeypatch):
    made = []
    capture = job_module.IntermediateCapture

    def with_no_memory(*arguments, **options):
        made.append(capture(*arguments, **options, memory_bytes=0))
        return made[-1]

    config = small(training__epochs=2, attacks={"provfl_b_mixture": {}}, defenses={"none": {}})
    job = plan_jobs(config)[0]
    job.run(tmp_path / "memory", torch.device("cpu"), lambda _: None)
    monkeypatch.setattr(job_module, "IntermediateCapture", with_no_memory)
    job.run(tmp_path / "disk", torch.device("cpu"), lambda _: None)
    assert all(one.folder is not None for one in made)
    assert not (tmp_path / "disk" / "spill" / job._name).exists()
    for unit in job.ids:
        rows = [json.loads(campaign.unit_file(tmp_path / place, unit).read_text()) for place in ("memory", "disk")]
        assert comparable(rows)[0] == comparable(rows)[1]


def test_an_observation_does_not_carry_the_victims_columns(small):
    done = plan_jobs(small(training__epochs=2, attacks={"prior": {}}))[0].train(torch.device("cpu"), lambda _: None)
    for seen in done.observations:
        assert seen.features.untyped_storage().nbytes() == seen.features.numel() * seen.features.element_size()


def test_a_withdrawal_is_the_truth_before_it_also_with_foreign_rows(small):
    config = small(training__epochs=2, attacks={"prior": {}}, auxiliary__misaligned="rows")
    plain, hidden = (job.train(torch.device("cpu"), lambda _: None).truth for job in plan_jobs(config))
    assert plain.fraction == hidden.fraction
    assert float(hidden.has_property.float().mean()) < plain.fraction


def test_names_that_look_alike_as_files_stay_apart(small):
    config = small(properties=["age=<30", "age=>30", "a=男", "a=女"], attacks={"prior": {}})
    ids = [unit for job in plan_jobs(config) for unit in job.ids]
    assert len(set(ids)) == len(ids)


def test_the_label_of_cheating_replacement_reaches_nobody_else(small, monkeypatch):
    given = []

    def noted(make, self, *arguments):
        given.append((self.describe(), arguments[-1] is not None))
        return make(self, *arguments)

    for part in (TrainingPart, Augmentation):
        monkeypatch.setattr(part, "callbacks", partialmethod(partial(noted, part.callbacks)))
    config = small(training__epochs=2, defenses={"none": {}}, attacks={"provfl_m": {}, "prior": {}})
    for job in plan_jobs(config):
        job.train(torch.device("cpu"), lambda _: None)
    published = small(
        training__epochs=2,
        defenses={"none": {}},
        adversaries=["C1"],
        attacks={"provfl_m": {"as_published": True, "estimator": "mixture"}},
    )
    plan_jobs(published)[-1].train(torch.device("cpu"), lambda _: None)
    assert given == [("passive", False), ("LR+MR", False), ("MR", False), ("LR+MR", True)]
