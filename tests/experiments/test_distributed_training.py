"""Training on two processes: each is a client with batches of its own, whoever started them and whatever befalls."""

import io
import json
import os
import signal
import socket
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import lightning
import pandas as pd
import pytest
import torch
import yaml
from rich.console import Console
from safetensors.torch import load_file
from torch import Tensor

from lightleak.callbacks.capture_store import Capture, list_captures
from lightleak.cli import main
from lightleak.core.errors import DataError, LightLeakError, UsageError
from lightleak.core.plugins import load_plugins
from lightleak.core.ranks import detect_ranks
from lightleak.experiments import launch, training
from lightleak.experiments.config import AuditConfig
from lightleak.experiments.experiment import prepare_experiment
from lightleak.experiments.took import TOOK
from lightleak.experiments.training import prepare_training, train, trains_together
from lightleak.protocols.fedsgd import require_replay
from lightleak.targets.classifier import TabularClassifier

SCRIPT = Path(__file__).with_name("train_together.py")
WITNESS = Path(__file__).with_name("witness.py")
EPOCHS, BATCH, STEPS = 4, 8, 7
SEEN_SECONDS = 400
"""Far more than any of these processes takes; one that hangs fails here."""

Left = list[dict[str, Any]]


def surroundings(**more: object) -> dict[str, str]:
    """The environment without the launchers that this test may itself run under."""
    named = ("PYTEST_", "SLURM_", "LOCAL_", "RANK", "WORLD_SIZE", "MASTER_", "NODE_RANK", "GROUP_", "TORCHELASTIC")
    kept = {key: value for key, value in os.environ.items() if not key.startswith(named)}
    return (
        kept
        | {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "LIGHTLEAK_PLUGINS": str(WITNESS)}
        | {key: str(value) for key, value in more.items()}
    )


def start(*command: object, **environment: object) -> "subprocess.Popen[str]":
    words = [sys.executable, *map(str, command)]
    return subprocess.Popen(
        words, env=surroundings(**environment), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def ended(process: "subprocess.Popen[str]") -> tuple[int, str]:
    """Exit code, and what it said."""
    try:
        out, err = process.communicate(timeout=SEEN_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    return process.returncode, out + err


def under_srun(*command: object) -> list["subprocess.Popen[str]"]:
    """Two tasks as srun starts them; the number of tasks per node it tells only where it was asked for."""
    with socket.socket() as found:
        found.bind(("", 0))
        job = {"SLURM_JOB_ID": "71", "SLURM_STEP_ID": 0, "SLURM_NTASKS": 2, "SLURM_NNODES": 1, "SLURM_NODEID": 0}
        job |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": found.getsockname()[1]}
    return [start(*command, **job, SLURM_PROCID=rank, SLURM_LOCALID=rank) for rank in (0, 1)]


def settings_of(tiny: Any, **more: Any) -> AuditConfig:
    """155 rows: 99 for training, 25 for validation, 31 for the test; two processes divide none of these."""
    return tiny(
        **{
            "data__options": {"n_discrete": 2, "n_continuous": 2, "n_rows": 155},
            "target__options": {"hidden": [6], "dropout": 0.3},
            "training__epochs": EPOCHS,
            "training__batch_size": BATCH,
            "training__validation_fraction": 0.2,
            "training__optimizer": {"name": "adam", "learning_rate": 0.05},
            "training__trainer": {"devices": 2},
            "capture__epochs": [0, 1, 3],
            "capture__per_epoch": 2,
            "monitor__attack": "inverting_gradients",
            "monitor__options": {"steps": 5},
            **more,
        }
    )


@pytest.fixture(scope="module")
def config(tiny: Any) -> AuditConfig:
    return settings_of(tiny)


def write(config: AuditConfig, file: Path, **trainer: Any) -> None:
    """The config as a file, with these arguments of the Trainer instead of its own."""
    settings = config.to_dict()
    settings["training"]["trainer"] = trainer
    file.write_text(yaml.safe_dump(settings))


def rows_of(root: Path) -> list[dict[str, Any]]:
    rows = json.loads((root / "run" / "results.json").read_text())["rows"]
    return [{key: value for key, value in row.items() if key not in TOOK} for row in rows]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, config: AuditConfig) -> Path:
    """An audit that one command started, which started the second process itself."""
    root = tmp_path_factory.mktemp("whole")
    write(config, root / "config.yaml")
    code, said = ended(start(SCRIPT, root))
    assert code == 0, said
    return root


@pytest.fixture(scope="module")
def left(whole: Path) -> Left:
    return [torch.load(whole / f"rank-{rank}.pt", weights_only=True) for rank in (0, 1)]


def captures_of(root: Path) -> list[Capture]:
    return [Capture.load(folder) for folder in list_captures(root / "run" / "captures")]


@pytest.mark.slow
def test_both_processes_know_their_place_and_one_runs_the_audit(whole: Path, left: Left) -> None:
    expected = [
        f"e{e:03d}-s{s:06d}-r{r}" for e, s in ((0, 0), (0, 1), (1, 7), (1, 8), (3, 21), (3, 22)) for r in (0, 1)
    ]
    for rank, one in enumerate(left):
        assert one["place"] == [rank, 2]
    assert [folder.name for folder in list_captures(whole / "run" / "captures")] == expected
    (ended,) = whole.glob("ended-*")  # the command; it started both processes for the training alone
    assert ended.name not in {f"ended-{one['pid']}" for one in left}
    # The captures of both are attacked, once each.
    attacked = [row["unit"] for row in rows_of(whole)]
    assert len(set(attacked)) == len(attacked)
    assert {f"{attack}-{capture}" for attack in ("tableak", "random") for capture in expected} < set(attacked)


@pytest.mark.slow
def test_every_row_is_trained_on_once_an_epoch_and_evaluated_once(left: Left, config: AuditConfig) -> None:
    data = prepare_training(config, prepare_experiment(config)).data
    rows = {part: data.part(part).tensors for part in ("train", "validation", "test")}
    one_process = data.train_dataloader()
    for epoch in range(EPOCHS):
        shares = [[(x, y) for e, x, y in one["batches"] if e == epoch] for one in left]
        assert [len(share) for share in shares] == [STEPS, STEPS]
        # The order of one process, dealt out batch by batch; the last step has fewer rows.
        dealt = [batch for step in zip(*shares, strict=True) for batch in step]
        assert [len(y) for _, y in dealt] == [BATCH] * 2 * (STEPS - 1) + [2, 1]
        one_process.sampler.set_epoch(epoch)
        for got, expected in zip(zip(*dealt, strict=True), zip(*one_process, strict=True), strict=True):
            assert torch.equal(torch.cat(got), torch.cat(expected))
    for part in ("validation", "test"):
        shown = torch.cat([one["evaluated"][part] for one in left])
        assert counted(shown) == counted(torch.cat([rows[part][0], rows[part][1][:, None]], 1))


def counted(rows: Tensor) -> Counter[tuple[float, ...]]:
    return Counter(map(tuple, rows.tolist()))


@pytest.mark.slow
def test_a_capture_is_the_gradient_of_its_process_and_their_mean_is_applied(whole: Path, left: Left) -> None:
    captures = captures_of(whole)
    for first, second in zip(captures[::2], captures[1::2], strict=True):
        step = first.update.facts.step
        assert (first.rank, second.rank, second.update.facts.step) == (0, 1, step)
        for capture in (first, second):
            # Recomputed here, by one process, from the recorded batch, dropout included ...
            assert require_replay(capture.update, capture.truth) < 1e-6
            _, inputs, labels = left[capture.rank]["batches"][step]
            assert torch.equal(capture.truth.inputs, inputs) and torch.equal(capture.truth.labels, labels)
            assert capture.update.facts.n_rows == BATCH and capture.update.facts.n_clients == 1
        # ... and their mean is what both optimisers were given.
        for name, applied in left[0]["reduced"][step].items():
            assert torch.equal(applied, left[1]["reduced"][step][name])
            mean = (first.update.update[name] + second.update.update[name]) / 2
            torch.testing.assert_close(mean, applied, rtol=1e-5, atol=1e-7)
            assert not torch.equal(first.update.update[name], applied)


@pytest.mark.slow
def test_what_is_logged_is_of_all_rows_whichever_process_saw_them(whole: Path, config: AuditConfig) -> None:
    metrics = pd.read_csv(whole / "run" / "metrics.csv", float_precision="round_trip")
    told = json.loads((whole / "run" / "training.json").read_text())
    assert told["epochs"] == EPOCHS
    prepared = prepare_training(config, prepare_experiment(config))
    model = TabularClassifier.load_from_checkpoint(whole / "run" / "checkpoints" / "last.ckpt", weights_only=True)
    trainer = launch.make_trainer({}, "cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False)
    loaders = {"test": prepared.data.test_dataloader(), "val": prepared.data.val_dataloader()}
    last = metrics[metrics["epoch"] == EPOCHS - 1]
    for stage, loader in loaders.items():
        (alone,) = trainer.test(model, loader, verbose=False)
        for name in ("loss", "accuracy", "auroc"):
            value = alone[f"test/{name}"]
            got = told["test"][f"test/{name}"] if stage == "test" else last[f"val/{name}"].dropna().item()
            assert got == pytest.approx(value, abs=1e-6), (stage, name)
    for column in ("train/loss", "val/auroc", "reconstruction/inverting_gradients/cell_accuracy"):
        epochs = metrics.loc[metrics[column].notna(), "epoch"].tolist()
        assert epochs == ([0, 1, 3] if column.startswith("reconstruction") else list(range(EPOCHS))), column


@pytest.mark.slow
def test_a_killed_training_goes_on_under_another_launcher_to_the_same_bits(
    tmp_path: Path, tiny: Any, config: AuditConfig, whole: Path
) -> None:
    write(config, tmp_path / "config.yaml")
    alone = settings_of(tiny, training__trainer={})
    write(alone, tmp_path / "alone.yaml")
    first, second = under_srun(SCRIPT, tmp_path, "--die", 2)
    assert ended(second)[0] == -signal.SIGKILL
    assert ended(first)[0] != 0  # nobody waits for the dead
    assert not (tmp_path / "run" / "training.json").exists()

    torchrun = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")
    code, said = ended(start(*torchrun, SCRIPT, tmp_path, "--alone"))
    assert code == 0, said
    assert len(list(tmp_path.glob("ended-*"))) == 2  # the second took part in the training, and no more
    assert len(json.loads((tmp_path / "run" / "environment.json").read_text())["sessions"]) == 2
    assert [epoch for epoch, *_ in torch.load(tmp_path / "rank-1.pt", weights_only=True)["batches"]] == [
        epoch for epoch in (2, 3) for _ in range(STEPS)
    ]
    run, expected = tmp_path / "run", whole / "run"
    assert (run / "training.json").read_text() == (expected / "training.json").read_text()
    files = sorted(path.relative_to(expected) for path in expected.glob("captures/*/*/*.safetensors"))
    assert files == sorted(path.relative_to(run) for path in run.glob("captures/*/*/*.safetensors"))
    for file in files:
        ours, theirs = load_file(run / file), load_file(expected / file)
        assert all(torch.equal(ours[name], value) for name, value in theirs.items()), file
    assert_same_metrics(run, expected)
    assert rows_of(tmp_path) == rows_of(whole)

    # In the same two processes the second trained once more, by itself: as if there were no other.
    here = tmp_path / "here"
    train(alone, prepare_experiment(alone), here, Console(file=io.StringIO()))
    assert (tmp_path / "alone" / "training.json").read_text() == (here / "training.json").read_text()
    assert_same_metrics(tmp_path / "alone", here)
    names = [[folder.name for folder in list_captures(root / "captures")] for root in (here, tmp_path / "alone")]
    assert names[0] == names[1] and {name[-2:] for name in names[0]} == {"r0"}


def assert_same_metrics(got: Path, expected: Path) -> None:
    first, second = (pd.read_csv(root / "metrics.csv", float_precision="round_trip") for root in (got, expected))
    pd.testing.assert_frame_equal(first[sorted(first)], second[sorted(second)], check_exact=True)


@pytest.fixture
def trainer_rank() -> Any:
    """Lightning's idea of the rank is of the whole process; it is put back."""
    held = launch.rank_zero_only.rank  # type: ignore[attr-defined]
    yield
    launch.rank_zero_only.rank = held  # type: ignore[attr-defined]


TORCHRUN = {"TORCHELASTIC_RUN_ID": "none", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1", "GROUP_RANK": "0"}


def torchrun_of(monkeypatch: pytest.MonkeyPatch, world: int, rank: int, here: int | None = None) -> None:
    here = here or world
    place = {"RANK": rank, "WORLD_SIZE": world, "LOCAL_RANK": rank % here, "LOCAL_WORLD_SIZE": here}
    for name, value in {**TORCHRUN, **place}.items():
        monkeypatch.setenv(name, str(value))


@pytest.mark.usefixtures("trainer_rank")
@pytest.mark.parametrize("rank", [0, 1, 2])
def test_processes_that_were_not_started_are_refused_by_each(
    tmp_path: Path, config: AuditConfig, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], rank: int
) -> None:
    write(config, tmp_path / "three.yaml", devices=2)
    torchrun_of(monkeypatch, 3, rank)
    assert main(["audit", str(tmp_path / "three.yaml"), "--output", str(tmp_path / "run")]) == 2
    said = capsys.readouterr().err
    assert said.startswith("lightleak: training.trainer asks for devices 2 and num_nodes 1; the launcher started 3 ")
    assert said.count("lightleak:") == 1 and not (tmp_path / "run").exists()


@pytest.mark.usefixtures("trainer_rank")
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"devices": 2, "num_nodes": 2},
            "needs 2 processes on every node.*srun --nodes=2 --ntasks-per-node=2.*torchrun",
        ),
        ({"devices": 100_000}, r"training.trainer.devices must be at most \d+ \(CPU cores\), got 100000"),
        ({"devices": 2, "strategy": "spread"}, "invalid strategy name: `strategy='spread'`"),
        ({"devices": 2, "strategy": "fsdp"}, "requires a GPU"),
        ({"devices": 2, "strategy": "ddp_spawn"}, "'ddp_spawn' trains in copies of this process"),
        ({"devices": "many"}, "devices"),
        ({"devices": 0}, "devices=0"),
        ({"plugins": "x"}, "training.trainer cannot set plugins"),
        ({"num_nodes": 0}, "num_nodes"),
    ],
)
def test_a_training_that_cannot_be_started_is_refused(config: AuditConfig, settings: dict, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        launch.make_trainer(settings, "cpu", logger=False, enable_checkpointing=False)


@pytest.mark.usefixtures("trainer_rank")
@pytest.mark.parametrize(
    ("changed", "error", "message"),
    [
        ({"training__batch_size": 64}, DataError, "batch_size 64 on 2 processes takes 128 rows"),
        (
            {"defense__name": "gaussian_noise"},
            UsageError,
            "'noised' comes after the all-reduce.*or",
        ),
        (
            {"defense__name": "dp_sgd", "defense__options": {"noise_multiplier": 1.0}},
            UsageError,
            "dp_sgd trains on one device, got 2 processes",
        ),
        (
            {"capture__at": "clipped", "training__trainer": {"devices": 2, "gradient_clip_val": 1.0}},
            UsageError,
            "clipped",
        ),
    ],
)
def test_processes_without_a_gradient_of_their_own_are_refused_before_any_work(
    tiny: Any, changed: dict[str, Any], error: type[Exception], message: str
) -> None:
    config = settings_of(tiny, **changed)
    with pytest.raises(error, match=f"(?i){message}"):
        prepare_training(config, prepare_experiment(config))


@pytest.mark.usefixtures("trainer_rank")
def test_a_federation_trains_on_one_device(tiny_fedavg: Any) -> None:
    config = tiny_fedavg(training__trainer={"devices": 2})
    with pytest.raises(UsageError, match="a federation averages clients that train by themselves"):
        prepare_training(config, prepare_experiment(config))


@pytest.mark.usefixtures("trainer_rank")
def test_trainings_that_run_side_by_side_take_one_device_each() -> None:
    training.check_trainer({"strategy": "ddp"}, "cpu")
    with pytest.raises(UsageError, match=r"side by side.*devices 2 and num_nodes 1"):
        training.check_trainer({"devices": 2}, "cpu")


@pytest.mark.parametrize(
    ("settings", "device", "expected"),
    [
        ({}, "cuda:3", ("gpu", [3])),
        ({"devices": 1}, "cuda:3", ("gpu", [3])),
        ({"accelerator": "auto"}, "cuda:3", ("gpu", [3])),
        ({"accelerator": "cuda", "devices": "1"}, "cuda:3", ("gpu", [3])),
        ({"devices": 2}, "cuda:3", ("gpu", 2)),
        ({"devices": [1]}, "cuda:3", ("gpu", [1])),
        ({"devices": "auto"}, "cuda:3", ("gpu", "auto")),
        ({"accelerator": "cpu"}, "cuda:3", ("cpu", 1)),
        ({"accelerator": "gpu"}, "cpu", ("gpu", 1)),
        ({"devices": 2}, "cpu", ("cpu", 2)),
        ({"devices": 1}, "auto", ("auto", 1)),
    ],
)
def test_one_gpu_is_the_one_of_this_lane(settings: dict[str, Any], device: str, expected: tuple[str, Any]) -> None:
    chosen = launch.chosen_devices(settings, device)
    assert (chosen["accelerator"], chosen["devices"]) == expected


@pytest.mark.parametrize(
    ("work", "error", "message"),
    [("fail", DataError, "damaged"), ("die", LightLeakError, "a process of the training ended .* with code -9")],
)
def test_how_a_training_ended_is_reported(
    monkeypatch: pytest.MonkeyPatch, work: str, error: type[Exception], message: str
) -> None:
    monkeypatch.setenv("LIGHTLEAK_PLUGINS", str(WITNESS))
    load_plugins()
    with pytest.raises(error, match=message):
        launch.run_on_devices(getattr(sys.modules[WITNESS.stem], work))


SRUN = {"SLURM_STEP_ID": "0", "SLURM_PROCID": "1", "SLURM_LOCALID": "1", "SLURM_NTASKS": "2", "SLURM_NODEID": "0"}


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, "LightningEnvironment"),
        (SRUN, "SLURMEnvironment"),
        (SRUN | {"SLURM_NTASKS": "1", "SLURM_PROCID": "0"}, "LightningEnvironment"),  # it starts the others itself ...
        (SRUN | {"LOCAL_RANK": "1", "WORLD_SIZE": "2"}, "LightningEnvironment"),  # ... and this is one of them
        (SRUN | TORCHRUN | {"LOCAL_RANK": "1", "WORLD_SIZE": "2"}, "TorchElasticEnvironment"),
    ],
)
def test_lightning_is_told_the_launcher_that_counts(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], expected: str
) -> None:
    monkeypatch.setattr(os, "environ", surroundings(**environment))
    monkeypatch.setattr(launch, "detect_ranks", lambda: detect_ranks(os.environ))
    assert type(launch.cluster_environment()).__name__ == expected


@pytest.mark.usefixtures("trainer_rank")
@pytest.mark.parametrize("rank", [0, 1])
def test_who_trains_follows_from_the_config_alone(tiny: Any, monkeypatch: pytest.MonkeyPatch, rank: int) -> None:
    torchrun_of(monkeypatch, 4, rank, here=2)
    assert not trains_together(tiny())
    assert not trains_together(tiny(training__trainer={"strategy": "ddp"}))
    assert trains_together(tiny(training__trainer={"devices": 2, "num_nodes": 2}))
    assert not trains_together(tiny(training__trainer={"devices": 2}, training__epochs=0))
    trainer = launch.make_trainer({"devices": 2, "num_nodes": 2}, "cpu", logger=False, enable_checkpointing=False)
    assert (trainer.world_size, trainer.global_rank, trainer.strategy.launcher.procs) == (4, rank, [])
    assert launch.rank_zero_only.rank == rank  # type: ignore[attr-defined]
    launch.make_trainer({}, "cpu", logger=False, enable_checkpointing=False)
    assert launch.rank_zero_only.rank == 0  # type: ignore[attr-defined]


def test_nothing_is_recorded_where_nothing_is_captured(
    tmp_path: Path, tiny: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that a strategy that shards the weights may train."""
    recorders: list[lightning.Callback] = []
    monkeypatch.setattr(training, "make_capture", lambda *_: recorders.append(lightning.Callback()) or recorders[-1])
    for epochs, expected in (([], 0), ([1], 1)):
        config = tiny(training__epochs=2, capture__epochs=epochs)
        train(config, prepare_experiment(config), tmp_path / str(expected), Console(file=io.StringIO()))
        assert len(recorders) == expected
