"""A whole run folder is its owner's alone, and a redacted one holds no value of a row."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml

import lightleak
from lightleak.callbacks.capture_store import Capture, list_captures, redact_captures
from lightleak.cli import main
from lightleak.core.errors import UsageError
from lightleak.core.observations import ClientUpdate
from lightleak.experiments.run import resumed_config, run_audit

N_ROWS = 120
CONFIG: dict[str, Any] = {
    "data": {"table": "mine.csv", "label": "ill"},
    "target": {"options": {"hidden": [3]}},
    "training": {"epochs": 1, "batch_size": 4},
    "capture": {"epochs": [0], "per_epoch": 1},
    "initial": {"batch_sizes": [4], "batches": 2},
    "attacks": {"random": {}, "inverting_gradients": {"steps": 2}},
    "device": "cpu",
}


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> pd.DataFrame:
    """A table of which every number is told from all others; ``config.yaml`` beside it is of it."""
    rng = np.random.default_rng(3)
    dose = (rng.random(N_ROWS) * 1e6).round(3)
    frame = pd.DataFrame({"dose": dose, "sex": rng.choice(["f", "m"], N_ROWS), "ill": ["no", "yes"] * (N_ROWS // 2)})
    frame.to_csv(tmp_path / "mine.csv", index=False)
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(CONFIG))
    monkeypatch.chdir(tmp_path)
    return frame


@pytest.fixture
def open_umask() -> Iterator[None]:
    """A machine where everybody reads and writes what is created without care."""
    before = os.umask(0)
    yield
    assert os.umask(before) == 0, "left changed"


def others_may(folder: Path) -> list[str]:
    """What others than the owner may read, write or enter."""
    return [str(path) for path in (folder, *folder.rglob("*")) if path.stat().st_mode & 0o077]


def test_a_run_folder_is_its_owners_alone(table: pd.DataFrame, open_umask: None) -> None:
    assert main(["audit", "config.yaml", "--output", "run", "--workers", "2"]) == 0
    assert main(["attack", "config.yaml", "--capture", "run/captures", "--output", "again", "--workers", "1"]) == 0
    names = {path.name for path in Path("run").iterdir()}
    assert names >= {
        "captures",
        "checkpoints",
        "reconstructions",
        "results.json",
        "tensorboard",
        "units",
        "report.html",
    }
    assert others_may(Path("run")) == others_may(Path("again")) == []


def test_so_is_one_that_python_made(table: pd.DataFrame, open_umask: None) -> None:
    prepared = lightleak.prepare(table, label="ill")
    found = lightleak.audit_model(prepared, output="run", attacks="random", batch_size=4, batches=1, epochs=1)
    lightleak.attack_updates(found.folder / "captures", "random", output="again")
    captures = [Capture.load(path) for path in list_captures(found.folder / "captures")]
    lightleak.attack_updates(captures, "random", output="memory")
    assert others_may(Path("run")) == others_may(Path("again")) == others_may(Path("memory")) == []


def values_in(folder: Path, numbers: list[float]) -> set[float]:
    """Which numbers stand in any file of a folder, as text or as a float in a row of tensors."""
    contents = [path.read_bytes() for path in folder.rglob("*") if path.is_file()]
    written = {number: (str(number).encode(), np.float64(number).tobytes()) for number in numbers}
    return {n for n, forms in written.items() if any(form in content for form in forms for content in contents)}


def test_a_redacted_run_holds_of_the_numbers_their_bounds_alone(table: pd.DataFrame) -> None:
    numbers = table["dose"].tolist()
    bounds = {min(numbers), max(numbers)}
    assert main(["audit", "config.yaml", "--output", "open", "--workers", "1"]) == 0
    assert main(["audit", "config.yaml", "--output", "closed", "--workers", "1", "--redact", "true"]) == 0
    assert len(values_in(Path("open"), numbers)) > len(bounds)  # they would be found
    assert values_in(Path("closed"), numbers) <= bounds
    (capture,) = list_captures(Path("closed/captures"))
    assert not (capture / "truth").exists()
    assert ClientUpdate.load(capture / "observation").marginals is None
    (kept,) = list_captures(Path("open/captures"))
    assert Capture.load(kept).update.marginals is not None


def test_a_redacted_run_is_resumed_without_work_and_its_captures_can_be_attacked(table: pd.DataFrame) -> None:
    assert main(["audit", "config.yaml", "--output", "run", "--workers", "1", "--redact", "true"]) == 0
    before = json.loads(Path("run/results.json").read_text())
    assert run_audit(resumed_config(Path("run")), Path("run")) == before
    attack = ["attack", "config.yaml", "--capture", "run/captures", "--output", "again"]
    assert main([*attack, "--attacks", "inverting_gradients"]) == 0


def test_updates_from_memory_are_kept_without_marginals(table: pd.DataFrame) -> None:
    prepared = lightleak.prepare(table, label="ill")
    first = lightleak.audit_model(prepared, output="run", attacks="random", batch_size=4, batches=1, epochs=1)
    taken = [Capture.load(path) for path in list_captures(first.folder / "captures")]
    lightleak.attack_updates(taken, "random", output="again", settings={"redact": True})
    kept = list(Path("again/captures").glob("*/*/observation"))
    assert len(kept) == len(taken) > 0 and not list(Path("again").rglob("truth"))
    assert all(ClientUpdate.load(observation).marginals is None for observation in kept)


def test_where_nothing_was_captured_nothing_is_redacted(tmp_path: Path) -> None:
    redact_captures(tmp_path / "captures")
    assert not any(tmp_path.iterdir())


def test_redact_all_leaves_nothing_to_attack_and_is_resumed_without_work(table: pd.DataFrame) -> None:
    run = Path("run")
    assert main(["audit", "config.yaml", "--output", "run", "--workers", "1", "--redact", "all"]) == 0
    assert not any((run / name).exists() for name in ("captures", "checkpoints"))
    assert not [*run.rglob("*.safetensors"), *run.rglob("*.ckpt")]
    numbers = table["dose"].tolist()
    assert values_in(run, numbers) <= {min(numbers), max(numbers)}
    before, page = json.loads((run / "results.json").read_text()), (run / "report.html").stat().st_mtime_ns
    assert {row["source"] for row in before["rows"]} == {"initial", "training"}
    assert run_audit(resumed_config(run), run) == before and (run / "report.html").stat().st_mtime_ns == page
    assert main(["attack", "config.yaml", "--capture", "run", "--output", "again"]) == 2
    assert others_may(run) == []


def test_a_drop_that_was_interrupted_is_finished_by_the_next_command(table: pd.DataFrame) -> None:
    run = Path("run")
    assert main(["audit", "config.yaml", "--output", "run", "--workers", "1", "--redact", "all"]) == 0
    (run / "checkpoints").mkdir()
    (run / "checkpoints" / "last.ckpt").write_text("left")
    run_audit(resumed_config(run), run)
    assert not (run / "checkpoints").exists()


def test_updates_from_memory_may_leave_no_copy(table: pd.DataFrame) -> None:
    prepared = lightleak.prepare(table, label="ill")
    settings = {"capture.per_epoch": 2}
    first = lightleak.audit_model(
        prepared, output="run", attacks="random", batch_size=4, batches=1, epochs=1, settings=settings
    )
    one, other = (Capture.load(path) for path in list_captures(first.folder / "captures"))
    for _ in range(2):
        found = lightleak.attack_updates(one, "random", output="again", settings={"redact": "all"})
        assert len(found.rows) == 1 and not (found.folder / "captures").exists()
    assert list_captures(first.folder / "captures"), "what was attacked elsewhere stays"
    with pytest.raises(UsageError, match="holds a run on other updates"):
        lightleak.attack_updates(other, "random", output="again", settings={"redact": "all"})


@pytest.mark.parametrize("name", ["quickstart", "vertical-survey", "released-model", "defense-frontier"])
def test_every_kind_of_audit_takes_the_same_values(name: str) -> None:
    path = Path(__file__).parents[2] / "configs" / f"{name}.yaml"
    for value in (True, "all", False):
        assert lightleak.load_config(path, {"redact": value}).redact == value
    with pytest.raises(UsageError, match="redact must be true or false or all, got some"):
        lightleak.load_config(path, {"redact": "some"})
