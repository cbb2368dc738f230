import io
import json
import pickle
import stat

import pytest
import torch
from rich.console import Console

from lightleak.core.errors import UnsupportedError, UsageError
from lightleak.defenses.horizontal.dp_sgd import DPSGD
from lightleak.experiments.campaign import rows_of as results_of
from lightleak.experiments.experiment import Experiment, prepare_experiment
from lightleak.experiments.kinds.frontier import kind as kind_module
from lightleak.experiments.kinds.frontier.config import FrontierConfig, Point
from lightleak.experiments.kinds.frontier.kind import (
    FrontierKind,
    attack_units,
    facts_at,
    frontier_packs,
    training_task,
)
from lightleak.experiments.kinds.frontier.summary import frontier_tables
from lightleak.experiments.pack import Task
from lightleak.experiments.plan_text import describe_plan
from lightleak.experiments.run import attack_captures, run_audit
from lightleak.experiments.terminal import print_results
from lightleak.experiments.took import TOOK

CPU = torch.device("cpu")
POINTS = ("none", "gaussian_noise-0.01", "gaussian_noise-10.0", "sign", "dp_sgd-1.0")


def prepare_frontier(config: FrontierConfig) -> Experiment:
    return prepare_experiment(config.audit_at(Point()))


def rows_of(folder):
    return json.loads((folder / "results.json").read_text())["rows"]


def comparable(rows):
    return [{key: value for key, value in row.items() if key not in TOOK} for row in rows]


def test_every_point_is_trained_and_attacked(finished) -> None:
    rows = rows_of(finished)
    assert {row["kind"] for row in rows} == {"defense-frontier"}
    units = [f"tableak-initial-b4-{i:03d}-{point}" for point in POINTS for i in range(2)]
    units += [f"random-initial-b4-{i:03d}-none" for i in range(2)]
    units += [f"training-{point}-s{i}" for point in POINTS for i in range(2)]
    assert sorted(row["unit"] for row in rows) == sorted(units)
    for row in rows:
        if row["attack"] == "none":
            assert 0 <= row["accuracy"] <= 1 and 0 <= row["auroc"] <= 1
        else:
            assert 0 <= row["cell_accuracy"] <= 1


def test_rows_name_defense_strength_and_guarantee(finished) -> None:
    told = {
        (row["defense"], row["defense_option"], row["defense_strength"], row["delta"], row["epsilon"] is None)
        for row in rows_of(finished)
        if row["attack"] == "none"
    }
    assert told == {
        ("none", None, None, None, True),
        ("gaussian_noise", "scale", 0.01, None, True),
        ("gaussian_noise", "scale", 10.0, None, True),
        ("sign", None, None, None, True),
        ("dp_sgd", "noise_multiplier", 1.0, 1e-5, False),
    }
    # 96 training rows in expected batches of 16: one epoch is 6 steps of sample rate 1/6.
    # It says nothing of a fresh client's one whole batch.
    (epsilon,) = {row["epsilon"] for row in rows_of(finished) if row["epsilon"] is not None}
    assert {row["attack"] for row in rows_of(finished) if row["epsilon"] is not None} == {"none"}
    assert epsilon == pytest.approx(DPSGD(noise_multiplier=1.0).epsilon(16 / 96, 6))
    (release,) = {row["release_epsilon"] for row in rows_of(finished) if row.get("release_epsilon") is not None}
    assert release == pytest.approx(DPSGD(noise_multiplier=1.0).release_epsilon())


@pytest.mark.parametrize("norm", ["batch", "none"])
def test_running_statistics_that_a_training_moves_leave_no_guarantee(small, norm: str) -> None:
    config = small(target__options={"hidden": [6], "norm": norm})
    facts = facts_at(config, Point(name="flower_local_dp"), prepare_frontier(config))
    assert (facts["release_epsilon"] is None) is (norm == "batch") is ("no_guarantee" in facts)


def test_the_clients_are_the_same_under_every_defense_and_their_updates_are_not(small) -> None:
    config = small()
    experiment = prepare_frontier(config)
    observed = {
        point.id: [unit.observe() for unit in attack_units(config, point, experiment) if unit.attack == "tableak"]
        for point in config.points
    }
    for index in range(2):
        sent, truths = zip(*(of_point[index] for of_point in observed.values()), strict=True)
        assert all(torch.equal(truth.inputs, truths[0].inputs) for truth in truths)
        for update in sent:
            assert all(torch.equal(update.parameters[name], value) for name, value in sent[0].parameters.items())
        flat = [torch.cat([value.flatten() for value in update.update.values()]) for update in sent]
        assert len({tuple(one.tolist()) for one in flat}) == len(POINTS)
        assert [update.state for update in sent] == ["raw"] + ["noised"] * 4
        # The same draws at both scales: the noise of the stronger is 1000 times that of the weaker.
        weak, strong = flat[1] - flat[0], flat[2] - flat[0]
        assert torch.allclose(strong, 1000 * weak, rtol=1e-2, atol=1e-2)


def test_trainings_share_first_weights_and_order_and_noise_enters_every_step(small, tmp_path, monkeypatch) -> None:
    config = small()
    experiment, made = prepare_frontier(config), []
    prepare = kind_module.prepare_training

    def noted(*arguments):
        made.append(prepare(*arguments))
        made[-1].model.first = {name: value.clone() for name, value in made[-1].model.network.named_parameters()}
        return made[-1]

    monkeypatch.setattr(kind_module, "prepare_training", noted)
    for point in config.points[:3]:
        training_task(config, point, 0, experiment).run(tmp_path, CPU, lambda _: None)
    first = [one.model.first for one in made]
    last = [torch.cat([value.flatten() for value in one.model.network.parameters()]).detach() for one in made]
    assert all(torch.equal(value, other[name]) for other in first for name, value in first[0].items())
    start = torch.cat([value.flatten() for value in first[0].values()]).detach()
    moved = [(one - start).norm().item() for one in last]
    # 6 steps of 0.1 with noise of deviation 10 in each entry: a random walk of length 0.1 * 10 * sqrt(6 * entries).
    assert moved[2] == pytest.approx((6 * len(start)) ** 0.5, rel=0.35)
    assert 0 < (last[1] - last[0]).norm().item() < 0.1 * moved[2]


def test_frontier_json_says_who_is_best(finished) -> None:
    content = json.loads((finished / "frontier.json").read_text())
    (entry,) = content["entries"]
    assert content["schema_version"] == 1 and entry["dataset"] == "synthetic"
    points = entry["points"]
    assert [(point["defense"], point["defense_strength"]) for point in points] == [
        ("none", None), ("gaussian_noise", 0.01), ("gaussian_noise", 10.0), ("sign", None), ("dp_sgd", 1.0),
    ]  # fmt: skip
    advice = entry["recommendation"]  # two clients and 2 steps of an attack
    assert advice["outcome"] in ("weak attacks", "none protects") and advice["cheapest"] is None
    assert [(one["defense"], one["defense_strength"]) for one in advice["tested"]] == [
        (point["defense"], point["defense_strength"]) for point in points[1:]
    ]
    for point in points:
        better = [
            other
            for other in points
            if other["accuracy"]["mean"] >= point["accuracy"]["mean"]
            and max(other["leakage"]["mean"], 0) <= max(point["leakage"]["mean"], 0)
            and (other["accuracy"]["mean"], max(other["leakage"]["mean"], 0))
            != (point["accuracy"]["mean"], max(point["leakage"]["mean"], 0))
        ]
        assert point["pareto_best"] is not bool(better)
        assert point["accuracy"]["n"] == point["leakage"]["n"] == 2


def test_the_run_folder_is_the_owners_and_its_report_is_the_frontiers(finished) -> None:
    assert stat.S_IMODE(finished.stat().st_mode) == 0o700
    assert "Leakage against accuracy" in (finished / "report.html").read_text()


def test_neither_order_nor_process_changes_a_result(finished, small, tmp_path) -> None:
    packs = frontier_packs(small(), prepare_frontier(small()), CPU, tmp_path)
    (tmp_path / "units").mkdir()
    for pack in reversed(packs):
        pickle.loads(pickle.dumps(pack)).run(tmp_path, CPU, lambda _: None)
    ids = [row["unit"] for row in rows_of(finished)]
    assert comparable(results_of(ids, tmp_path)) == comparable(rows_of(finished))


def test_a_run_that_was_stopped_goes_on(finished, small, silent, tmp_path, monkeypatch) -> None:
    folder, done, run = tmp_path / "run", [], Task.run

    def stop_after_three(self, *arguments):
        if len(done) == 3:
            raise KeyboardInterrupt
        done.append(self)
        return run(self, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(Task, "run", stop_after_three)
        with pytest.raises(KeyboardInterrupt):
            run_audit(small(), folder, [], silent)
    stopped = rows_of(folder)
    assert 0 < len(stopped) < len(rows_of(finished))
    assert "frontier" in (folder / "report.html").read_text() and (folder / "frontier.json").is_file()
    left = []
    monkeypatch.setattr(Task, "run", lambda self, *arguments: (left.append(self), run(self, *arguments)))
    run_audit(small(), folder, [], silent)
    assert len(left) == len(POINTS) * 2 - 3
    assert comparable(rows_of(folder)) == comparable(rows_of(finished))


def test_a_folder_of_another_run_is_refused(finished, small, silent) -> None:
    with pytest.raises(UsageError, match="another config"):
        run_audit(small(seeds=3), finished, [], silent)


def test_a_redacted_run_keeps_no_values(small, silent, tmp_path) -> None:
    run_audit(small(redact=True, defenses=["sign"], seeds=1), tmp_path / "run", [], silent)
    lines = [line.split(",") for file in (tmp_path / "run" / "reconstructions").glob("*.csv") for line in file.open()]
    assert len(lines) > 10
    assert {(line[2], line[3]) for line in lines if line[0] != "row"} == {("", "")}


def test_a_plan_says_what_would_be_done(small) -> None:
    console = Console(file=io.StringIO(), width=200)
    describe_plan(small(), console, seconds=0.1)
    said = console.file.getvalue()
    for words in (
        "synthetic: 96 training and 24 test rows",
        "mlp-6, 1 epoch, batches of 16, sgd at 0.1",
        "5: no defense; Gaussian noise of scale 0.01; Gaussian noise of scale 10",
        "trainings 10, 2 at each point",
        "12 on 2 clients of 4 rows: tableak, random",
        " of this run, without its start",
    ):
        assert words in said, words
    trainings = [line.split()[2:5] for line in said.splitlines() if line.startswith("training ")]
    assert trainings == [["none", "2", "2"], ["gaussian_noise", "4", "4"], ["sign", "2", "2"], ["dp_sgd", "2", "2"]]


@pytest.mark.parametrize(
    ("changed", "error", "message"),
    [
        ({"attacks": {"tableek": {}}}, UsageError, "unknown attack 'tableek'"),
        ({"attacks": {"tableak": {"steps": 0}}}, UsageError, "attacks.tableak: steps must be at least 1"),
        ({"initial__batch_size": 500}, UsageError, "batch_size must be at most 96"),
        ({"training__trainer": {"max_epochs": 3}}, UsageError, "max_epochs"),
        ({"target": {"network": "boosted_trees"}}, UsageError, "no gradient"),
        ({"target": {"network": "mlp", "options": {"norm": "batch"}}}, UnsupportedError, "^DP-SGD.*cannot protect"),
        ({"defenses": [{"name": "dp_sgd", "strengths": [1], "options": {"delta": 0.1}}]}, UsageError, "below 1/96"),
    ],
)  # fmt: skip
def test_what_cannot_be_served_is_refused_before_any_work(small, silent, tmp_path, changed, error, message) -> None:
    with pytest.raises(error, match=message):
        FrontierKind().check(small(**changed))
    with pytest.raises(error):
        run_audit(small(**changed), tmp_path / "run", [], silent)
    assert not (tmp_path / "run").exists()


def test_captures_are_refused(small, tmp_path) -> None:
    with pytest.raises(UsageError, match=r"takes no captures.*kind: updates with attacks: \[tableak, random\]"):
        attack_captures(small(), tmp_path, tmp_path / "run")


def test_fedavg_is_measured_too(small, silent, tmp_path) -> None:
    config = small(
        protocol={"name": "fedavg", "rounds": 2, "clients": 4, "local_epochs": 2, "local_batches": 2},
        training={},
        defenses=[{"name": "gaussian_noise", "strengths": [5.0]}],
        attacks={"tableak_fedavg": {"steps": 10, "restarts": 2}},
        seeds=1,
    )
    run_audit(config, tmp_path / "run", [], silent)
    rows = rows_of(tmp_path / "run")
    assert {row["protocol"] for row in rows} == {"fedavg"}
    assert {row["training"] for row in rows} == {"2 rounds of 4 of 4 clients, 2 local epochs, sgd at 0.01"}
    assert len({row["auroc"] for row in rows if row["attack"] == "none"}) == 2


def test_every_pack_has_units_of_its_own(small) -> None:
    config = small()
    ids = [id for pack in frontier_packs(config, prepare_frontier(config), CPU) for id in pack.ids]
    assert len(set(ids)) == len(ids)
    assert all(pack.cost > 0 for pack in frontier_packs(config, prepare_frontier(config), CPU))


def test_progress_of_a_training_adds_up_to_its_cost(small, tmp_path) -> None:
    config = small(training__epochs=3)
    job, told = training_task(config, config.points[0], 0, prepare_frontier(config)), []
    job.run(tmp_path, CPU, told.append)
    assert len(told) >= 3 and sum(told) == pytest.approx(job.cost)


def test_the_terminal_shows_every_point_in_80_columns(finished) -> None:
    console = Console(file=io.StringIO(), width=80)
    results = json.loads((finished / "results.json").read_text())
    # The longest name there is, and intervals as wide as they get.
    longest = {
        "defense_label": "gradient_compression",
        "defense_strength": 0.001,
        "epsilon": 0.00123,
        "release_epsilon": 0.0456,
    }
    for row in results["rows"]:
        if row["defense"] == "dp_sgd":
            row |= longest
    print_results(frontier_tables(results), results, console)
    lines = console.file.getvalue().splitlines()[2:]  # after the legend and the recommendation
    assert "…" not in console.file.getvalue() and max(map(len, lines)) <= 80
    assert len(lines) == 1 + len(POINTS)
    points = json.loads((finished / "frontier.json").read_text())["entries"][0]["points"]
    assert sum(line.startswith("*") for line in lines) == sum(point["pareto_best"] for point in points)
