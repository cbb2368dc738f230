"""A split training is recorded as it happens, whatever the memory, and is the same without the recording."""

import gc
from pathlib import Path
from typing import Any

import lightning
import pytest
import torch
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset

from lightleak.callbacks import intermediate_capture, intermediate_records
from lightleak.callbacks.intermediate_capture import IntermediateCapture
from lightleak.core.errors import UsageError
from lightleak.data.vertical import VerticalDataModule, VerticalRows
from lightleak.targets.optimizers import OptimizerConfig
from lightleak.targets.split import Exchange, SplitClassifier, SplitSpec, Transform

pytestmark = pytest.mark.filterwarnings("ignore::lightning.pytorch.utilities.warnings.PossibleUserWarning")
SPEC = SplitSpec((3, 2, 4), bottom_hidden=(5,), output_width=6, top_hidden=(4,))
N_ROWS, BATCH_SIZE, N_EPOCHS = 44, 8, 3
RECORD_BYTES = 4 * 6 * 4  # four kinds of six float32


class Witness(lightning.Callback):
    """Keeps every step's exchange."""

    def __init__(self) -> None:
        self.seen: list[tuple[int, Exchange]] = []

    def on_train_batch_end(self, trainer: Any, pl_module: Any, *_: Any) -> None:
        exchange = pl_module.exchange
        copies = Exchange(*(tensor.clone() for tensor in vars(exchange).values()))
        self.seen.append((trainer.current_epoch, copies))


def rows(seed: int = 0) -> VerticalRows:
    draw = torch.Generator().manual_seed(seed)
    inputs, labels = torch.randn(N_ROWS, 9, generator=draw), torch.randint(2, (N_ROWS,), generator=draw)
    return VerticalRows(inputs, labels, torch.randperm(1000, generator=draw)[:N_ROWS], SPEC.widths)


def train(
    *callbacks: lightning.Callback, module: Any = None, data: Any = None, ckpt_path: Any = None, **settings: Any
) -> Any:
    torch.manual_seed(1)
    model = module or SplitClassifier(SPEC, OptimizerConfig("adam", learning_rate=0.05), seed=0)
    options = {
        "accelerator": "cpu",
        "max_epochs": N_EPOCHS,
        "callbacks": list(callbacks),
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
    }
    trainer = lightning.Trainer(**(options | settings))
    trainer.fit(model, data or VerticalDataModule(rows(), rows(), BATCH_SIZE, shuffle=True), ckpt_path=ckpt_path)
    return model


def expected(seen: list[tuple[int, Exchange]], epoch: int, adversary: int, victim: int) -> tuple[Tensor, dict]:
    """Record by record, in the slow and obvious way; the first of an epoch counts."""
    found: dict[int, dict[str, Tensor]] = {}
    for at, step in seen:
        for row, sample in enumerate(step.ids.tolist()):
            if at == epoch and sample not in found:
                found[sample] = {
                    "AO": step.computed[adversary, row],
                    "AG": step.gradients[adversary, row],
                    "VO": step.outputs[victim, row],
                    "VG": step.gradients[victim, row],
                }
    ids = sorted(found)
    return torch.tensor(ids), {kind: torch.stack([found[i][kind] for i in ids]) for kind in ("AO", "AG", "VO", "VG")}


@pytest.mark.parametrize("adversary", ["C1", "C2"])
@pytest.mark.parametrize(("adversary_party", "victim_party"), [(0, 1), (1, 0), (0, 2), (2, 1)])
def test_records_are_those_of_every_step(adversary: Any, adversary_party: int, victim_party: int) -> None:
    capture, witness = IntermediateCapture(adversary_party, victim_party, adversary, epochs=(0, 2)), Witness()
    train(capture, witness)
    for epoch in (0, 2):
        ids, results = capture.results(epoch)
        true_ids, true_results = expected(witness.seen, epoch, adversary_party, victim_party)
        assert torch.equal(ids, true_ids)
        assert len(ids) == N_ROWS
        assert list(results) == (["AO", "AG", "VO", "VG"] if adversary == "C1" else ["AO"])
        for kind, values in results.items():
            assert torch.equal(values, true_results[kind]), kind


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("kept", [0, 10, N_ROWS + 4])
def test_disk_and_memory_hold_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept: int, shuffle: bool
) -> None:
    # Windows of a few records and chunks of seven, so that both are filled several times.
    monkeypatch.setattr(intermediate_capture, "MIN_WINDOW_ROWS", 20)
    monkeypatch.setattr(intermediate_records, "CHUNK_ROWS", 7)
    in_memory = IntermediateCapture(0, 1, "C1", epochs=(0, 1))
    folder = tmp_path / "made"
    on_disk = IntermediateCapture(0, 1, "C1", epochs=(0, 1), memory_bytes=kept * RECORD_BYTES, folder=folder)
    train(in_memory, on_disk, data=VerticalDataModule(rows(), rows(), BATCH_SIZE, shuffle).train_dataloader())
    for epoch in (0, 1):
        ids, results = on_disk.results(epoch)
        again_ids, again = in_memory.results(epoch)
        assert torch.equal(ids, again_ids)
        assert all(torch.equal(results[kind], again[kind]) for kind in again)
    files = sorted(path.name for path in folder.iterdir())
    on_disk_epochs = (1,) if kept > N_ROWS else (0, 1)  # one epoch of six full batches fits, the second does not
    assert files == sorted(f"epoch-00{e}-all-r0.{kind}" for e in on_disk_epochs for kind in ("AO", "AG", "VO", "VG"))
    assert all(path.stat().st_size == N_ROWS * 6 * 4 for path in folder.iterdir())
    assert all(path.stat().st_mode & 0o077 == 0 for path in [folder, *folder.iterdir()])


def test_what_is_mapped_from_disk_cannot_be_changed_by_an_attack(tmp_path: Path) -> None:
    capture = IntermediateCapture(0, 1, "C2", epochs=(0,), memory_bytes=0, folder=tmp_path)
    train(capture)
    (file,) = tmp_path.iterdir()
    before = file.read_bytes()
    capture.results(0)[1]["AO"].zero_()
    assert file.read_bytes() == before


@pytest.mark.parametrize("folder", [False, True])
def test_a_passive_capture_holds_nothing_else(tmp_path: Path, folder: bool) -> None:
    """The memory behind every tensor of the capture is searched for what the victim sent and for gradients."""
    where: dict[str, Any] = {"memory_bytes": 0, "folder": tmp_path} if folder else {}
    capture, witness = IntermediateCapture(2, 0, "C2", epochs=(0,), **where), Witness()
    train(capture, witness)
    _, truth = expected(witness.seen, 0, 2, 0)
    witness.seen.clear()
    tensors = [thing for thing in reachable(capture) if isinstance(thing, Tensor)]
    assert any(tensor.shape == (N_ROWS, 6) for tensor in tensors)
    for forbidden in ("AG", "VO", "VG"):
        values = set(truth[forbidden].flatten().tolist()) - {0.0}
        for tensor in tensors:
            whole = torch.tensor([], dtype=tensor.dtype).set_(tensor.untyped_storage())
            assert not values & set(whole.double().flatten().tolist())
    on_disk = sorted(path.suffix for path in tmp_path.iterdir())
    assert on_disk == ([".AO"] if folder else [])


def reachable(start: Any) -> list[Any]:
    """What ``start`` holds through attributes and containers."""
    found: dict[int, Any] = {}
    todo = [start]
    while todo:
        thing = todo.pop()
        if id(thing) in found or isinstance(thing, type):
            continue
        found[id(thing)] = thing
        if not isinstance(thing, Tensor):
            todo.extend(vars(thing).values() if hasattr(thing, "__dict__") else gc.get_referents(thing))
    return list(found.values())


@pytest.mark.parametrize("adversary", ["C1", "C2"])
def test_training_is_bit_identical(tmp_path: Path, adversary: Any) -> None:
    plain = train().state_dict()
    captures = [
        IntermediateCapture(0, 1, adversary, epochs=range(N_EPOCHS)),
        IntermediateCapture(1, 2, adversary, epochs=(1,), memory_bytes=0, folder=tmp_path),
    ]
    recorded = train(*captures).state_dict()
    assert all(torch.equal(plain[name], recorded[name]) for name in plain)


def test_a_record_that_comes_twice_is_kept_as_it_came_first() -> None:
    data = rows()
    repeated = torch.cat([torch.arange(20), torch.arange(5), torch.arange(20, 30)])
    parts = TensorDataset(data.inputs[repeated], data.labels[repeated], data.ids[repeated])
    capture, witness = IntermediateCapture(0, 1, "C1", epochs=(1,)), Witness()
    train(capture, witness, data=DataLoader(parts, batch_size=8))
    ids, results = capture.results(1)
    true_ids, truth = expected(witness.seen, 1, 0, 1)
    assert len(ids) == 30
    assert torch.equal(ids, true_ids)
    assert all(torch.equal(results[kind], truth[kind]) for kind in results)


@pytest.mark.parametrize("memory_bytes", [0, 44 * RECORD_BYTES])
def test_batches_that_grow_are_recorded_whole(tmp_path: Path, memory_bytes: int) -> None:
    """Memory is set aside by the first batch, which may be the smallest."""
    data = rows()
    batches = [(data.inputs[i], data.labels[i], data.ids[i]) for i in torch.arange(N_ROWS).split([4, 30, 10])]
    loader: DataLoader[Any] = DataLoader(batches, batch_size=None)  # type: ignore[arg-type]
    folder = None if memory_bytes else tmp_path
    capture, witness = IntermediateCapture(0, 1, "C1", (0,), memory_bytes, folder), Witness()
    train(capture, witness, data=loader, max_epochs=1)
    ids, results = capture.results(0)
    true_ids, truth = expected(witness.seen, 0, 0, 1)
    assert torch.equal(ids, true_ids)
    assert all(torch.equal(results[kind], truth[kind]) for kind in results)
    with pytest.raises(UsageError, match=r"holds 34 records.* allows 43, and a step brings 10 more; give a folder"):
        train(IntermediateCapture(0, 1, "C1", (0,), 43 * RECORD_BYTES), data=loader, max_epochs=1)


@pytest.mark.parametrize("kept", [0, 60])
def test_memory_stays_within_the_budget_and_one_window(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept: int
) -> None:
    monkeypatch.setattr(intermediate_capture, "MIN_WINDOW_ROWS", 10)
    capture = IntermediateCapture(0, 1, "C1", range(N_EPOCHS), kept * RECORD_BYTES, tmp_path)
    most = 0

    class Meter(lightning.Callback):
        def on_train_batch_end(self, *_: Any) -> None:
            nonlocal most
            mapped = {id(records) for records in capture._done.values() if records.on_disk}
            parts = [part for part in (capture._open, *capture._done.values()) if id(part) not in mapped]
            tensors = [x for x in reachable(parts) if isinstance(x, Tensor) and x.is_floating_point()]
            storages = {x.untyped_storage().data_ptr(): x.untyped_storage().nbytes() for x in tensors}
            most = max(most, sum(storages.values()))

    train(capture, Meter())
    assert 0 < most <= (kept + 10) * RECORD_BYTES


def test_a_fit_after_an_interrupted_one_starts_anew() -> None:
    class Interrupt(lightning.Callback):
        def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
            if batch_idx == 3:
                raise RuntimeError("interrupted")

    capture, witness = IntermediateCapture(0, 1, "C1", epochs=(0, 1)), Witness()
    with pytest.raises(RuntimeError, match="interrupted"):
        train(capture, Interrupt())
    train(capture, witness, module=SplitClassifier(SPEC, seed=7))
    for epoch in (0, 1):
        ids, results = capture.results(epoch)
        true_ids, truth = expected(witness.seen, epoch, 0, 1)
        assert torch.equal(ids, true_ids)
        assert all(torch.equal(results[kind], truth[kind]) for kind in results)
    with pytest.raises(RuntimeError, match="interrupted"):
        train(capture, Interrupt())
    with pytest.raises(UsageError, match="epoch 0 was not recorded; recorded: none"):
        capture.results(0)


def test_an_epoch_entered_half_way_is_refused(tmp_path: Path) -> None:
    class Save(lightning.Callback):
        def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
            if (trainer.current_epoch, batch_idx) == (1, 2):
                trainer.save_checkpoint(tmp_path / "half.ckpt")

    data = VerticalDataModule(rows(), rows(), BATCH_SIZE, shuffle=True)
    train(Save(), data=data)
    with pytest.raises(UsageError, match=r"epochs \[0\] cannot be recorded: the run has 1 to 2"):
        train(IntermediateCapture(0, 1, "C1", (0,)), data=data, ckpt_path=tmp_path / "half.ckpt")
    with pytest.raises(UsageError, match="epoch 1 cannot be recorded: it was entered at step 3"):
        train(IntermediateCapture(0, 1, "C1", (1,)), data=data, ckpt_path=tmp_path / "half.ckpt")
    capture = IntermediateCapture(0, 1, "C1", (2,))
    train(capture, data=data, ckpt_path=tmp_path / "half.ckpt")
    assert len(capture.results(2)[0]) == N_ROWS


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"adversary": "C3"}, "adversary must be one of C1, C2, got 'C3'"),
        ({"victim_party": 0}, "must differ, got 0"),
        ({"victim_party": -1}, "counted from 0, got -1"),
        ({"epochs": ()}, "at least one epoch"),
        ({"epochs": (0, -2)}, r"got \[-2, 0\]"),
        ({"memory_bytes": -1}, "memory_bytes must be at least 0, got -1"),
    ],
)
def test_bad_settings_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        IntermediateCapture(**({"adversary_party": 0, "victim_party": 1, "adversary": "C1", "epochs": (0,)} | settings))


class Other(lightning.LightningModule):
    """No split classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(9, 1)

    def training_step(self, batch: Any, _: int) -> Tensor:
        return self.layer(batch[0]).mean()

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), 0.1)


def test_runs_that_cannot_be_recorded_are_refused_before_a_step(tmp_path: Path) -> None:
    witness = Witness()
    with pytest.raises(UsageError, match="records a SplitClassifier, got Other"):
        train(IntermediateCapture(0, 1, "C1", epochs=(0,)), witness, module=Other())
    with pytest.raises(UsageError, match="victim_party must be below 3, the number of parties; got 3"):
        train(IntermediateCapture(0, 3, "C1", epochs=(0,)), witness)
    with pytest.raises(UsageError, match=r"epochs \[3, 5\] cannot be recorded: the run has 0 to 2"):
        train(IntermediateCapture(0, 1, "C1", epochs=(1, 3, 5)), witness)
    with pytest.raises(UsageError, match=r"needs 9,216 bytes and memory_bytes is 9,000; give a folder"):
        train(IntermediateCapture(0, 1, "C1", epochs=(0, 1), memory_bytes=9000), witness)
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match=r"cannot write to .*file/folder"):
        train(IntermediateCapture(0, 1, "C1", (0,), 0, tmp_path / "file" / "folder"), witness)
    assert not witness.seen


def test_an_epoch_that_training_stopped_before_is_an_error() -> None:
    class Stop(lightning.Callback):
        def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
            trainer.should_stop = trainer.current_epoch == 1

    with pytest.raises(UsageError, match=r"epochs \[2\] were not recorded: training ended after 2 epochs"):
        train(IntermediateCapture(0, 1, "C1", epochs=(0, 2)), Stop())
    capture = IntermediateCapture(0, 1, "C1", epochs=(0,))
    train(capture)
    with pytest.raises(UsageError, match="epoch 1 was not recorded; recorded: 0"):
        capture.results(1)


def test_a_full_disk_is_told_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    capture = IntermediateCapture(0, 1, "C1", (0,), 0, tmp_path)
    usage = intermediate_capture.shutil.disk_usage(tmp_path)
    monkeypatch.setattr(intermediate_capture.shutil, "disk_usage", lambda _: usage._replace(free=10))
    with pytest.raises(UsageError, match=f"needs 4,608 bytes in {tmp_path}, and 10 are free"):
        train(capture)
    monkeypatch.undo()

    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(intermediate_records.os, "fdopen", full)
    with pytest.raises(UsageError, match=rf"cannot write {tmp_path}/epoch-000-all-r0.AO: No space left"):
        train(capture)


class Negated(Transform):
    def outputs(self, outputs: torch.Tensor, training: bool) -> torch.Tensor:
        return -outputs


@pytest.mark.parametrize("adversary_party", [0, 2])
def test_a_defense_hides_the_victims_output_and_not_the_adversarys_own(adversary_party: int) -> None:
    capture, witness = IntermediateCapture(adversary_party, 1, "C1", [1]), Witness()
    module = SplitClassifier(SPEC, OptimizerConfig("sgd", learning_rate=0.05), seed=0)
    module.transform = Negated()
    train(capture, witness, module=module)
    ids, results = capture.results(1)
    for epoch, exchange in witness.seen:
        if epoch == 1:
            at = torch.searchsorted(ids, exchange.ids)
            assert torch.equal(results["AO"][at], exchange.computed[adversary_party])
            assert torch.equal(results["VO"][at], exchange.outputs[1])
            assert torch.equal(exchange.outputs, -exchange.computed)
