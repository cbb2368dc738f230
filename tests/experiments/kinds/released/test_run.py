"""An audit of a released model from config to report, interrupted and resumed."""

import json
import math
import shutil
import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any, ClassVar

import pandas as pd
import pytest
import torch
from rich.console import Console

from lightleak.attacks.model_inversion.fitted_plgmi import FittedPLGMI
from lightleak.attacks.model_inversion.pseudo_labels import PseudoLabelConfig
from lightleak.core.class_samples import ClassSamples
from lightleak.core.errors import LightLeakError, ObservationError, UnsupportedError
from lightleak.core.seeds import derive_seed
from lightleak.core.summary import summarize
from lightleak.experiments.kinds.released import job, models
from lightleak.experiments.kinds.released.config import ReleasedConfig
from lightleak.experiments.kinds.released.models import ROLES, ModelPack, load_judge, load_model, training_rows
from lightleak.experiments.kinds.released.reference import PublicReference, compared_with_public
from lightleak.experiments.kinds.released.summary import released_tables
from lightleak.experiments.plan_text import describe_plan
from lightleak.experiments.run import attack_captures, run_audit
from lightleak.experiments.terminal import print_results
from lightleak.experiments.took import TOOK
from lightleak.metrics.inversion.score import MEASURES

SILENT = Console(quiet=True)
UNTIMED = (*TOOK, "fit_seconds", "training_seconds")


@pytest.fixture(scope="module")
def finished(settings: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A finished run, shared by all tests of this module."""
    folder = tmp_path_factory.mktemp("released") / "run"
    return folder, run_audit(ReleasedConfig.parse(settings), folder, ["lightleak", "audit"], SILENT)


@pytest.fixture
def done(finished: tuple[Path, dict[str, Any]], tmp_path: Path) -> tuple[Path, dict[str, Any]]:
    """A copy of the finished run, to do with as one likes."""
    shutil.copytree(finished[0], tmp_path / "done")
    return tmp_path / "done", finished[1]


def untimed(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{key: value for key, value in row.items() if key not in UNTIMED} for row in rows]


def test_every_attack_search_and_class_has_a_row(done: tuple[Path, dict[str, Any]]) -> None:
    folder, results = done
    rows = results["rows"]
    found = {(row["label"], row["latent_search"], row["class"], row["evaluation_index"]) for row in rows}
    searches = {"plgmi": ("random", "gradient"), "public_pseudo_labeled": ("random",), "public_random": ("random",)}
    classes = ("all", "d0", "d1", "d2")
    assert found == {(a, s, c, k) for a, names in searches.items() for s in names for c in classes for k in (0, 1)}
    for row in rows:
        assert row["kind"] == "released-model" and row["setting"] == "small"
        assert 0 <= row["attack_accuracy"] <= 1 and 0 <= row["real_rows_accuracy"] <= 1
        assert math.isfinite(row["inversion_loss"])
        if row["class"] == "all":
            assert row["samples"] == 3 * (30 if row["latent_search"] == "random" else 10)
            assert (row["shapes_score"] is not None) == (row["latent_search"] == "random")
    assert (folder / "report.html").stat().st_size > 10_000
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_the_mean_over_classes_is_the_row_of_all(done: tuple[Path, dict[str, Any]]) -> None:
    rows = done[1]["rows"]
    for whole in (row for row in rows if row["class"] == "all"):
        same = [
            row
            for row in rows
            if row["class"] != "all" and row["unit"].startswith(whole["unit"] + "-") and row["label"] == whole["label"]
        ]
        assert len(same) == 3
        assert whole["attack_accuracy"] == pytest.approx(sum(row["attack_accuracy"] for row in same) / 3)


def test_the_gradient_search_lowers_the_loss_it_searches(done: tuple[Path, dict[str, Any]]) -> None:
    searched = [row for row in done[1]["rows"] if row["latent_search"] == "gradient" and row["class"] == "all"]
    assert all(row["inversion_loss_searched"] < row["inversion_loss_start"] for row in searched)


def test_the_folder_holds_what_the_report_needs(done: tuple[Path, dict[str, Any]]) -> None:
    folder, _ = done
    entries = json.loads((folder / "inversion.json").read_text())["entries"]
    own = next(one for one in entries if one["label"] == "plgmi" and one["latent_search"] == "random")
    assert own["losses"]["iteration"][-1] == 150
    assert {one["class"] for one in own["nearest"]} == {"d0", "d1", "d2"}
    assert own["task"]["classes"] == 3 and own["target_scores"]["epochs"] <= 6
    table = pd.read_csv(folder / "reconstructions" / "plgmi-random-s0-e00.csv")
    assert len(table) == 90 and "patient" not in table.columns
    assert table["diagnosis"].value_counts().to_dict() == {"d0": 30, "d1": 30, "d2": 30}
    assert not (folder / "generators").exists()


def test_resumed_nothing_runs_and_another_seed_changes_everything(
    done: tuple[Path, dict[str, Any]], config: ReleasedConfig, changed: Callable[..., ReleasedConfig], tmp_path: Path
) -> None:
    folder, results = done
    resumed = run_audit(config, folder, [], SILENT)
    assert resumed["rows"] == results["rows"]  # seconds as well: nothing ran
    attacks = {"public_random": {"top_n": 30}}
    other = run_audit(changed(seed=1, attacks=attacks), tmp_path / "other", [], SILENT)["rows"]
    assert untimed(other) != untimed([row for row in results["rows"] if row["label"] in attacks])


def test_interrupted_it_keeps_finished_evaluations_and_ends_where_it_would_have(
    done: tuple[Path, dict[str, Any]], config: ReleasedConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "stopped"
    generate, calls = FittedPLGMI.generate, []

    def stop(self: FittedPLGMI, *told: Any, **more: Any) -> Any:
        calls.append(told)
        if len(calls) == 4:  # the second evaluation's statistics
            raise KeyboardInterrupt
        return generate(self, *told, **more)

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(FittedPLGMI, "generate", stop)
        run_audit(config, folder, [], SILENT)
    kept = folder / "units" / "plgmi-random-s0-e00.json"
    before = kept.stat().st_mtime_ns
    assert (folder / "report.html").is_file()
    assert len(json.loads((folder / "results.json").read_text())["rows"]) == 4
    finished = run_audit(config, folder, [], SILENT)
    assert kept.stat().st_mtime_ns == before
    assert untimed(finished["rows"]) == untimed(done[1]["rows"])


@pytest.mark.slow
def test_two_workers_give_the_rows_of_one(
    done: tuple[Path, dict[str, Any]], changed: Callable[..., ReleasedConfig], tmp_path: Path
) -> None:
    two = run_audit(changed(workers=2), tmp_path / "two", [], SILENT)
    assert untimed(two["rows"]) == untimed(done[1]["rows"])


def test_a_kept_model_is_attacked_with_and_without_its_truth(
    done: tuple[Path, dict[str, Any]], config: ReleasedConfig, tmp_path: Path
) -> None:
    capture = done[0] / "captures"
    whole = attack_captures(config, capture, tmp_path / "whole", [], SILENT)
    accuracies = [row["attack_accuracy"] for row in whole["rows"]]
    assert all(value is not None for value in accuracies)
    (capture / "s0" / "truth").rename(tmp_path / "away")
    bare = attack_captures(config, capture, tmp_path / "bare", [], SILENT)
    assert all(row.get("attack_accuracy") is None and row["real_rows_accuracy"] is None for row in bare["rows"])
    assert [row["inversion_loss"] for row in bare["rows"]] == [row["inversion_loss"] for row in whole["rows"]]
    assert (tmp_path / "bare" / "report.html").is_file()


def test_two_workers_attack_a_kept_model_as_one_does(
    done: tuple[Path, dict[str, Any]], config: ReleasedConfig, tmp_path: Path
) -> None:
    capture = done[0] / "captures"
    few = replace(config, attacks={name: config.attacks[name] for name in ("public_pseudo_labeled", "public_random")})
    one = attack_captures(few, capture, tmp_path / "one", [], SILENT)
    two = attack_captures(replace(few, workers=2), capture, tmp_path / "two", [], SILENT)
    assert untimed(one["rows"]) == untimed(two["rows"])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda facts: facts["network"].update(n_classes="2"), "n_classes must be a whole number from 2"),
        (lambda facts: facts["network"]["layout"]["blocks"].pop(), "are not those of the encoder"),
        (lambda facts: facts["encoder"]["schema"]["columns"].pop(), "must have shape|not those of the encoder"),
        (lambda facts: facts.update(encoder={}), "needs 'schema'"),
    ],
)
def test_facts_that_do_not_fit_are_refused_before_any_work(
    done: tuple[Path, dict[str, Any]], config: ReleasedConfig, tmp_path: Path, change: Any, message: str
) -> None:
    file = done[0] / "captures" / "s0" / "observation" / "facts.json"
    facts = json.loads(file.read_text())
    change(facts)
    file.write_text(json.dumps(facts))
    with pytest.raises(ObservationError, match=message):
        attack_captures(config, done[0] / "captures", tmp_path / "new", [], SILENT)
    assert not (tmp_path / "new").exists()


def test_redacted_it_leaves_no_rows(changed: Callable[..., ReleasedConfig], tmp_path: Path) -> None:
    folder = tmp_path / "redacted"
    run_audit(changed(redact=True), folder, [], SILENT)
    assert not (folder / "captures").exists() and not (folder / "reconstructions").exists()
    for one in json.loads((folder / "inversion.json").read_text())["entries"]:
        assert all(set(pair) == {"class", "distance"} for pair in one["nearest"])
    assert not (folder / "models").exists()  # the evaluation model has seen private rows
    marked = str(job.prepare_world(changed(redact=True), 0).task.private_train["glucose"].max()).encode()
    assert not [file for file in folder.rglob("*") if file.is_file() and marked in file.read_bytes()]


def test_trees_are_attacked_without_gradients(
    changed: Callable[..., ReleasedConfig], settings: dict[str, Any], tmp_path: Path
) -> None:
    trees = {"target__network": "boosted_trees", "target__options": {"rounds": 5}}
    with pytest.raises(UnsupportedError, match="plgmi_black_box"):
        run_audit(changed(**trees), tmp_path / "refused", [], SILENT)
    own = {"plgmi_black_box": {**settings["attacks"]["plgmi"]}}
    with pytest.raises(UnsupportedError, match="holds gradient"):
        run_audit(changed(**trees, attacks=own), tmp_path / "refused", [], SILENT)
    searches = ["random", "tpe", "random_best"]
    config = changed(**trees, attacks=own, samples__searches=searches, samples__tpe_per_class=2, samples__evaluations=1)
    rows = run_audit(config, tmp_path / "trees", [], SILENT)["rows"]
    assert {row["latent_search"] for row in rows} == set(searches)
    assert {row["samples"] for row in rows if row["latent_search"] != "random" and row["class"] == "all"} == {6}
    searched = replace(config, samples=replace(config.samples, searches=("random", "gradient")))
    with pytest.raises(UnsupportedError, match=r"holds gradient, which attacks\.plgmi_black_box cannot take"):
        attack_captures(searched, tmp_path / "trees" / "captures", tmp_path / "attacked", [], SILENT)


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        ({"attacks": {"plgmy": {}}}, "attacks.plgmy: unknown model inversion attack"),
        ({"attacks": {"plgmi": {"iteration": 3}}}, "attacks.plgmi.*iteration"),
        ({"samples__searches": ["best"]}, "samples.searches"),
        ({"training__batch_size": 100_000}, "training.batch_size must be at most"),
        ({"data__encoding": "quantile"}, r"data\.encoding 'quantile' would release every number"),
        ({"task__private_classes": 1}, "task.private_classes"),
        ({"evaluation_model__network": "gandolf"}, "unknown network"),
        ({"training__patience": 0}, "training.patience"),
        ({"task__group": "person"}, "'person'"),
        ({"attacks": {"plgmi": {"trainer": {"devices": 2}}}}, "cannot set devices in an audit"),
        ({"attacks": {"plgmi": {"trainer": {"foo": 1}}}}, "foo"),
        ({"attacks": {"gan_without_target": {"inversion_weight": 1}}}, "inversion_weight must be 0"),
    ],
)
def test_wrong_settings_are_refused_before_any_work(
    changed: Callable[..., ReleasedConfig], overrides: dict[str, Any], said: str, tmp_path: Path
) -> None:
    with pytest.raises(LightLeakError, match=said):
        run_audit(changed(**overrides), tmp_path / "run", [], SILENT)
    assert not (tmp_path / "run").exists()


def test_the_plan_says_what_would_be_done(config: ReleasedConfig, capsys: pytest.CaptureFixture[str]) -> None:
    describe_plan(config, Console(width=200), seconds=0.1)
    said = capsys.readouterr().out
    lines = [line.split() for line in said.splitlines()]
    assert [line[2] for line in lines if line[:1] == ["training"] and line[1].isdigit()] == list(ROLES)
    assert {line[0] for line in lines if line[2:3] == ["target"]} == {"training", *config.attacks}
    assert " of this run, without its start" in said
    assert "3 private: d0, d1, d2" in said and "plgmi, public_pseudo_labeled, public_random" in said


def test_the_attack_sees_no_private_row(done: tuple[Path, dict[str, Any]], config: ReleasedConfig) -> None:
    """Destroy the private rows once the models are trained: what an attack returns stays the same."""
    folder, results = done
    world = job.prepare_world(config, 0)
    seen = job.observe(config, world, 0, folder)
    task = world.task
    for frame in (task.private_train, task.private_test, task.private_validation, task.private_judge):
        frame.drop(frame.index, inplace=True)
    try:
        fitted = job.AttackPack(config, 0, "plgmi").attack.fit(seen, derive_seed(0, "plgmi"))
        labels = torch.tensor(list(fitted.classes)).repeat_interleave(30)
        samples = fitted.generate(labels, derive_seed(0, "evaluation", 0), "random")
    finally:
        models._world.cache_clear()
    told = next(row for row in results["rows"] if row["label"] == "plgmi" and row["class"] == "all")
    assert float(samples.loss.double().mean()) == pytest.approx(told["inversion_loss"], rel=1e-12)


def test_one_split_serves_all_seeds_where_it_has_a_seed_of_its_own(changed: Callable[..., ReleasedConfig]) -> None:
    def split(seed: int, **settings: Any) -> list[pd.DataFrame]:
        task = job.prepare_world(changed(**settings), seed).task
        return [task.private_train, task.private_test, task.private_judge, task.public]

    fixed = {"data__split_seed": 1}
    for one, same, other in zip(split(5, **fixed), split(6, **fixed), split(6), strict=True):
        pd.testing.assert_frame_equal(one, same)
        assert not one.equals(other)
    for one, own in zip(split(5, **fixed), split(1), strict=True):
        pd.testing.assert_frame_equal(one, own)


def test_what_is_damaged_is_made_again(done: tuple[Path, dict[str, Any]], config: ReleasedConfig) -> None:
    folder, results = done
    weights = folder / "models" / "target-s0" / "weights.safetensors"
    rows = folder / "reconstructions" / "public_random-random-s0-e00.csv"
    scores = folder / "inversion" / "public_pseudo_labeled-random-s0-e00.json"
    whole = {file: file.read_bytes() for file in (weights, rows, scores)}
    for file, content in whole.items():
        file.write_bytes(content[: len(content) // 2])
    again = run_audit(config, folder, [], SILENT)
    assert untimed(again["rows"]) == untimed(results["rows"])
    assert weights.read_bytes() == whole[weights] and rows.read_bytes() == whole[rows] and scores.is_file()
    aside = {file.name for file in folder.rglob("*.damaged-1")}
    assert aside == {f"{file.name}.damaged-1" for file in whole} | {
        "model-target-s0.json.damaged-1",
        "public_random-random-s0-e00.json.damaged-1",
        "public_pseudo_labeled-random-s0-e00.json.damaged-1",
    }


def test_a_torn_capture_is_written_again(done: tuple[Path, dict[str, Any]], config: ReleasedConfig) -> None:
    folder, _ = done
    (folder / "captures" / "s0").rename(folder / "captures" / "s0.part")
    (folder / "captures" / "s0.part" / "truth" / "tensors.safetensors").unlink()
    run_audit(config, folder, [], SILENT)
    assert not (folder / "captures" / "s0.part").exists()
    assert (folder / "captures" / "s0" / "truth" / "tensors.safetensors").is_file()


def test_accuracy_on_real_rows_is_a_mean_over_classes_as_the_accuracy_is(
    done: tuple[Path, dict[str, Any]], config: ReleasedConfig
) -> None:
    folder, results = done
    world = job.prepare_world(config, 0)
    judge = load_judge(folder, world, 0)
    test = world.task.private_test
    named = judge.network(world.encoder.encode(test)).argmax(1) == world.encoder.encode_labels(test)
    by_class = [float(named[(test["diagnosis"] == name).to_numpy()].double().mean()) for name in ("d0", "d1", "d2")]
    row = next(row for row in results["rows"] if row["class"] == "all")
    assert row["real_rows_accuracy"] == pytest.approx(sum(by_class) / 3)
    assert row["real_rows_accuracy_pooled"] == pytest.approx(float(named.double().mean()))
    target = load_model(folder, world, "target", 0)(world.encoder.encode(test)).argmax(1)
    hit = float((target == world.encoder.encode_labels(test)).double().mean())
    assert row["target_test_accuracy"] == pytest.approx(hit)
    unseen = pd.concat([test, world.task.private_judge])  # what neither target nor first evaluation model learned from
    assert judge.private.held_out_labels.tolist() == world.encoder.encode_labels(unseen).tolist()
    assert len(judge.private.train_labels) == len(world.task.private_train)


def test_the_second_judge_shares_no_row_and_no_patient_with_the_target(
    done: tuple[Path, dict[str, Any]], config: ReleasedConfig
) -> None:
    folder, results = done
    world = job.prepare_world(config, 0)
    table = pd.read_csv(config.data.table)
    patients = {}
    for role in ("target", "evaluation", "disjoint"):
        rows = training_rows(world, role).merge(table, how="left", on=["glucose", "visits", "diagnosis"])
        patients[role] = set(rows["patient"])
    assert patients["target"] == patients["evaluation"] and len(patients["disjoint"]) > 20
    judge = load_judge(folder, world, 0)
    assert judge.unseen is world.task.private_judge
    named = judge.disjoint(world.encoder.encode(world.task.private_judge)).argmax(1)
    right = float((named == world.encoder.encode_labels(world.task.private_judge)).double().mean())
    assert judge.models["disjoint"].train_accuracy == pytest.approx(right)
    row = next(row for row in results["rows"] if row["class"] == "all")
    own = judge.models["disjoint"].by_class
    assert row["disjoint_real_rows_accuracy"] == pytest.approx(sum(own[name] for name in ("d0", "d1", "d2")) / 3)


def test_every_measure_stands_beside_as_many_public_rows(
    done: tuple[Path, dict[str, Any]], config: ReleasedConfig
) -> None:
    folder, results = done
    world = job.prepare_world(config, 0)
    seen, judge = job.observe(config, world, 0, folder), load_judge(folder, world, 0)
    for row in (row for row in results["rows"] if row["class"] == "all"):
        for name in MEASURES:
            assert row[f"over_public_{name}"] == pytest.approx(row[name] - row[f"public_{name}"])
    reference = PublicReference.of(seen, PseudoLabelConfig(top_n=30))
    own = next(row for row in results["rows"] if row["label"] == "plgmi" and row["class"] == "all")
    seed = derive_seed(derive_seed(0, "evaluation", 0), "public reference")
    public = reference.rows.generate(torch.arange(3).repeat_interleave(30), seed)
    logits = judge.disjoint(world.encoder.encode(public.rows))
    right = float((logits.argmax(1) == public.labels).double().mean())
    assert own["public_disjoint_accuracy"] == pytest.approx(right)  # 30 rows of each class, as the attack made


def test_a_generator_that_never_learned_its_condition_is_recognised_without_private_rows(
    done: tuple[Path, dict[str, Any]], config: ReleasedConfig
) -> None:
    folder, results = done
    rows = [row for row in results["rows"] if row["class"] == "all" and row["latent_search"] == "random"]
    learned = {row["label"]: row["condition_accuracy"] for row in rows}
    assert learned["public_random"] < 0.6 < learned["public_pseudo_labeled"]
    assert {row["public_condition_accuracy"] for row in rows} == {rows[0]["public_condition_accuracy"]}
    world = job.prepare_world(config, 0)
    reference = PublicReference.of(job.observe(config, world, 0, folder), PseudoLabelConfig(top_n=30))

    class Fitted:
        losses: ClassVar[dict[str, list[float]]] = {"generator": [1.0]}

    def warned(samples: ClassSamples) -> list[str]:
        return compared_with_public(reference, Fitted(), samples, None, 0)["warnings"]  # type: ignore[arg-type]

    labels = torch.arange(3).repeat_interleave(60)
    right = reference.rows.generate(labels, 0)
    assert not warned(right)
    wrong = replace(right, labels=labels.roll(60))  # rows of the next class
    assert "the generator did not learn its condition" in warned(wrong)[0]
    assert "condition_accuracy" not in compared_with_public(reference, Fitted(), replace(wrong, search="tpe"), None, 0)  # type: ignore[arg-type]


def test_an_interval_is_over_trainings_and_evaluations_are_averaged(
    done: tuple[Path, dict[str, Any]], changed: Callable[..., ReleasedConfig], tmp_path: Path
) -> None:
    (one,) = (s for s in done[1]["summary"] if (s["label"], s["class"]) == ("public_random", "all"))
    assert one["attack_accuracy"]["n"] == 1 and one["attack_accuracy"]["low"] is None
    results = run_audit(changed(seeds=[0, 1], attacks={"public_random": {"top_n": 30}}), tmp_path / "two", [], SILENT)
    rows = [row for row in results["rows"] if row["class"] == "all"]
    means = [fmean(row["attack_accuracy"] for row in rows if row["seed"] == seed) for seed in (0, 1)]
    (found,) = (s for s in results["summary"] if s["class"] == "all")
    assert len(rows) == 4 and found["attack_accuracy"] == summarize(means).to_dict()


def test_training_stops_when_the_loss_stands_still(changed: Callable[..., ReleasedConfig], tmp_path: Path) -> None:
    still = changed(training__min_delta=100.0, training__patience=2, training__max_epochs=20)
    ModelPack(still, 0, "target").run(tmp_path, torch.device("cpu"), lambda done: None)
    found = json.loads((tmp_path / "units" / "model-target-s0.json").read_text())
    assert found["epochs"] == 3  # the first sets the mark, two more do not reach it


@pytest.mark.parametrize("rate", [0.01, 1e18], ids=["patience", "diverged"])
def test_a_training_that_had_stopped_is_not_trained_on_when_it_is_resumed(
    changed: Callable[..., ReleasedConfig], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rate: float
) -> None:
    still = changed(
        training__min_delta=100.0,
        training__patience=1,
        training__max_epochs=20,
        training__optimizer={"name": "sgd", "learning_rate": rate},
    )
    trained: list[int] = []

    def stop(network: Any, world: Any, role: Any, device: Any, epochs: int, seconds: float) -> None:
        trained.append(epochs)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(models, "_scores", stop)  # the last checkpoint is there, the model is not
        ModelPack(still, 0, "target").run(tmp_path, torch.device("cpu"), lambda done: None)
    ModelPack(still, 0, "target").run(tmp_path, torch.device("cpu"), lambda done: None)
    assert json.loads((tmp_path / "units" / "model-target-s0.json").read_text())["epochs"] == trained[0] < 3


def test_the_summary_on_the_terminal_stands_beside_public_rows(
    done: tuple[Path, dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    print_results(released_tables(done[1]), done[1], Console(width=80))
    said = capsys.readouterr().out
    assert "trained on the target's rows it is right on" in said and "n: trainings" in said
    (group,) = (s for s in done[1]["summary"] if (s["label"], s["class"]) == ("public_random", "all"))
    line = next(line.split() for line in said.splitlines() if line.startswith("public_random"))
    assert line[2] == f"{100 * group['attack_accuracy']['mean']:.1f}"
    assert line[3] == f"{100 * group['over_public_attack_accuracy']['mean']:+.1f}"
    assert line[-1] == "1"  # two evaluations of one training


def test_the_summary_on_the_terminal_gives_means_of_the_rows_that_have_a_value(
    done: tuple[Path, dict[str, Any]],
) -> None:
    rows = [row for row in done[1]["rows"] if row["class"] == "all"]
    own = next(row for row in rows if row["latent_search"] == "random")
    searched = next(row for row in rows if row["latent_search"] == "gradient")
    assert "public_condition_accuracy" not in searched
    mixed = [
        searched | {"real_rows_accuracy": 0.2, "disjoint_real_rows_accuracy": None},
        own | {"real_rows_accuracy": 0.6, "disjoint_real_rows_accuracy": 0.3, "public_condition_accuracy": 0.9},
    ]
    for of, figures in ((mixed, ("40.0%", "30.0%", "90.0%")), ([searched], ("-% when trained on public rows",))):
        ((said,),) = (table.said for table in released_tables(done[1] | {"rows": of}))
        assert all(figure in said for figure in figures)


def test_evaluations_differ(done: tuple[Path, dict[str, Any]]) -> None:
    losses = [
        row["inversion_loss"]
        for row in done[1]["rows"]
        if row["label"] == "plgmi" and row["latent_search"] == "random" and row["class"] == "all"
    ]
    assert len(set(losses)) == 2


def test_several_captures_are_told_apart(
    done: tuple[Path, dict[str, Any]], config: ReleasedConfig, tmp_path: Path
) -> None:
    captures = done[0] / "captures"
    shutil.copytree(captures / "s0", captures / "s1")
    rows = attack_captures(config, captures, tmp_path / "both", [], SILENT)["rows"]
    assert {row["setting"] for row in rows} == {"small, capture s0", "small, capture s1"}
    assert not (tmp_path / "both" / "generators").exists()


def test_scores_of_sdmetrics_are_an_option(settings: dict[str, Any], tmp_path: Path) -> None:
    pytest.importorskip("sdmetrics", reason="the extra scores brings it")
    samples = {**settings["samples"], "sdmetrics": True, "searches": ["random"], "evaluations": 1}
    chosen = {**settings, "attacks": {"public_random": {"top_n": 30}}, "samples": samples}
    rows = run_audit(ReleasedConfig.parse(chosen), tmp_path / "run", ["lightleak", "audit"], SILENT)["rows"]
    scored = [row for row in rows if row["class"] == "all"]
    assert scored and all(0 < row["sdmetrics_quality"] <= 1 for row in scored)
    assert all(row["sdmetrics_column_shapes"] == pytest.approx(row["shapes_score"], abs=1e-5) for row in scored)
