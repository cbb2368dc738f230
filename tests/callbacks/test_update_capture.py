"""Update capture only observes, and what it records is what the server of a federation received."""

import dataclasses
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lightning
import pytest
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from torch.utils.data import TensorDataset

from lightleak.callbacks.capture_store import Capture, list_captures
from lightleak.callbacks.gradient_capture import GradientCapture
from lightleak.callbacks.update_capture import UpdateCapture
from lightleak.core.errors import DataError, UsageError
from lightleak.core.ground_truth import GroundTruth
from lightleak.data.encoder import TableEncoder
from lightleak.data.marginals import Marginals
from lightleak.defenses.horizontal.noise import GaussianNoise
from lightleak.protocols.client_training import LocalTraining
from lightleak.protocols.federated_data import FederatedData
from lightleak.protocols.federation import FederatedAveraging
from lightleak.protocols.records import RecordedAggregate, RecordedClient
from lightleak.protocols.replay import require_replay
from lightleak.targets import NetworkSpec
from lightleak.targets.classifier import TabularClassifier

N_CLIENTS, N_SAMPLED = 6, 4
PARTITION = [list(range(client, 42, N_CLIENTS)) for client in range(N_CLIENTS)]
"""42 rows: seven for each client, whose second batch has three."""
HARD = {"hidden": [6], "dropout": 0.3, "norm": "batch"}
LOCAL = LocalTraining(epochs=2, batch_size=4, learning_rate=0.1, momentum=0.5)

Fit = Callable[..., FederatedAveraging]
pytestmark = [
    pytest.mark.filterwarnings("ignore::lightning.pytorch.utilities.warnings.PossibleUserWarning"),
    pytest.mark.filterwarnings("ignore:.*treespec, LeafSpec.*"),
    pytest.mark.filterwarnings("ignore:Checkpoint directory .* exists and is not empty"),
]


def capture(encoder: TableEncoder, **settings: Any) -> UpdateCapture:
    return UpdateCapture(encoder, **({"share_labels": "batches", "keep": True, "rounds": (0, 2)} | settings))


@pytest.fixture(scope="session")
def fit(encoder: TableEncoder, rows: TensorDataset) -> Fit:
    def fit(
        callbacks: lightning.Callback | list[lightning.Callback] | None = None,
        ckpt_path: Any = None,
        trainer: dict[str, Any] | None = None,
        **settings: Any,
    ) -> FederatedAveraging:
        spec = NetworkSpec("mlp", 2, encoder.layout, HARD)
        module = FederatedAveraging(spec, **({"training": LOCAL, "seed": 3} | settings))
        data = FederatedData(rows, PARTITION, clients_per_round=N_SAMPLED, seed=1, validation=rows)
        quiet = dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False)
        options = {"accelerator": "cpu", "max_epochs": 3, "callbacks": callbacks} | quiet | (trainer or {})
        lightning.Trainer(**options).fit(module, datamodule=data, ckpt_path=ckpt_path)
        return module

    return fit


def weights(module: torch.nn.Module) -> list[bytes]:
    return [value.numpy().tobytes() for value in module.state_dict().values()]


@pytest.mark.parametrize("settings", [{}, {"group_size": 2}, {"defense": GaussianNoise(0.1), "defend": "steps"}])
def test_training_is_bit_identical_with_and_without_capture(
    encoder: TableEncoder, fit: Fit, tmp_path: Path, settings: dict[str, Any]
) -> None:
    watched = [capture(encoder, aggregate=True, per_round=9, root=tmp_path)]
    if "group_size" not in settings:
        watched.append(capture(encoder, per_round=9))
    state = torch.get_rng_state()
    assert weights(fit(watched, **settings)) == weights(fit(None, **settings))
    assert torch.equal(torch.get_rng_state(), state)
    assert all(callback.captured for callback in watched)


def test_captures_are_what_the_clients_sent(encoder: TableEncoder, fit: Fit, rows: TensorDataset) -> None:
    callback = capture(encoder, per_round=3)
    fit(callback)
    assert [c.update.facts.epoch for c in callback.captured] == [0, 0, 0, 2, 2, 2]
    for taken in callback.captured:
        update, truth = taken.update, taken.truth
        assert isinstance(truth, RecordedClient)
        assert require_replay(update, truth) == 0.0
        assert torch.equal(truth.inputs, rows.tensors[0][PARTITION[taken.rank]])
        assert torch.equal(update.batch_labels[0], truth.labels[truth.order])
        assert (update.kind, update.state, update.facts.n_clients, update.facts.n_rows) == ("delta", "raw", 1, 7)
        assert (update.facts.epochs, update.facts.batch_size, update.facts.local_steps) == (2, 4, 4)
        assert TableEncoder.from_state(update.encoder, update.encoder_tensors).layout == encoder.layout
    one, other = (callback.captured[i].update for i in (0, 1))
    assert all(torch.equal(one.parameters[name], other.parameters[name]) for name in one.parameters)
    later = callback.captured[3].update
    assert not torch.equal(one.parameters["linears.0.weight"], later.parameters["linears.0.weight"])


def test_updates_move_the_server(encoder: TableEncoder, fit: Fit) -> None:
    """The aggregate of round 0 is the difference between the clean weights of rounds 1 and 0."""
    single = capture(encoder, rounds=(0, 1), per_round=N_SAMPLED)
    together = capture(encoder, rounds=(0, 1), aggregate=True)
    fit([single, together])
    first, second = (c.update for c in together.captured)
    for name, value in second.parameters.items():
        torch.testing.assert_close(value, first.parameters[name] + first.update[name])
        mean = sum(c.update.update[name] for c in single.captured[:N_SAMPLED]) / N_SAMPLED
        torch.testing.assert_close(first.update[name], mean)


def test_an_aggregate_states_its_clients(encoder: TableEncoder, fit: Fit) -> None:
    callback = capture(encoder, aggregate=True)
    fit(callback)
    assert [c.update.facts.epoch for c in callback.captured] == [0, 2]
    for taken in callback.captured:
        facts = taken.update.facts
        assert (facts.n_clients, facts.client_rows, facts.n_rows) == (4, (7, 7, 7, 7), 28)
        assert isinstance(taken.truth, RecordedAggregate)
        assert taken.truth.inputs.shape == (28, encoder.width)
        assert torch.equal(taken.update.labels.sort().values, taken.truth.labels.sort().values)
        assert taken.update.batch_labels.shape == (4, 2, 7)
        assert require_replay(taken.update, taken.truth) == 0.0


def test_secure_aggregates_are_captured_group_by_group(encoder: TableEncoder, fit: Fit) -> None:
    callback = capture(encoder, aggregate=True, per_round=5)
    fit(callback, group_size=2)
    assert [c.name for c in callback.captured] == [f"e{r:03d}-s{r:06d}-r{group}" for r in (0, 2) for group in (0, 1)]
    assert {c.update.facts.n_clients for c in callback.captured} == {2}
    assert all(require_replay(c.update, c.truth) == 0.0 for c in callback.captured)


def test_only_what_is_shared_is_sent(encoder: TableEncoder, fit: Fit) -> None:
    frame = encoder.decode(torch.zeros(4, encoder.width))
    marginals = Marginals.of(encoder.schema, frame)
    least = capture(encoder, share_labels="none", share_buffers=False)
    most = capture(encoder, share_labels="counts", marginals=marginals)
    fit([least, most])
    update = least.captured[0].update
    assert update.labels is None
    assert update.batch_labels is None
    assert update.marginals is None
    assert not update.buffers
    assert least.captured[0].truth.buffers
    update = most.captured[0].update
    assert torch.equal(update.labels, most.captured[0].truth.labels.sort().values)
    assert update.batch_labels is None
    assert update.buffers
    assert Marginals.from_dict(update.marginals) == marginals


def test_chosen_clients_are_captured_wherever_they_take_part(encoder: TableEncoder, fit: Fit) -> None:
    everyone, chosen = (capture(encoder, rounds=range(3), **more) for more in ({"per_round": 9}, {"clients": (1, 4)}))
    fit([everyone, chosen])
    expected = [c.name for c in everyone.captured if c.rank in (1, 4)]
    assert [c.name for c in chosen.captured] == expected
    assert 0 < len(expected) < 6


def test_a_defended_update_says_so(encoder: TableEncoder, fit: Fit) -> None:
    callback = capture(encoder)
    fit(callback, defense=GaussianNoise(0.1))
    update = callback.captured[0].update
    assert (update.state, update.facts.defense) == ("noised", "Gaussian noise of scale 0.1")
    assert torch.tensor(require_replay(update, callback.captured[0].truth)).isnan()


@pytest.mark.parametrize("aggregate", [False, True])
def test_captures_on_disk_are_private_and_come_back(
    encoder: TableEncoder, fit: Fit, tmp_path: Path, aggregate: bool
) -> None:
    callback = capture(encoder, root=tmp_path / "captures", aggregate=aggregate)
    before = os.umask(0)
    try:
        fit(callback)
    finally:
        os.umask(before)
    folders = list_captures(tmp_path / "captures")
    assert [folder.name for folder in folders] == [c.name for c in callback.captured]
    for path in (tmp_path / "captures").rglob("*"):
        assert path.stat().st_mode & 0o777 == (0o700 if path.is_dir() else 0o600), path
    for folder, taken in zip(folders, callback.captured, strict=True):
        loaded = Capture.load(folder)
        assert type(loaded.truth) is type(taken.truth)
        assert loaded.rank == taken.rank
        assert loaded.update.facts == taken.update.facts
        assert torch.equal(loaded.update.batch_labels, taken.update.batch_labels)
        assert require_replay(loaded.update, loaded.truth) == 0.0
        assert torch.equal(GroundTruth.load(folder / "truth").inputs, taken.truth.inputs)
        private = taken.truth.inputs[:3].numpy().tobytes()
        assert not any(private in path.read_bytes() for path in (folder / "observation").iterdir())


def test_no_more_than_max_captures(encoder: TableEncoder, fit: Fit) -> None:
    callback = capture(encoder, rounds=range(3), per_round=2, max_captures=3)
    for _ in range(2):  # the limit is of each
        with pytest.warns(UserWarning, match="max_captures=3 reached: no capture from round 1 on"):
            fit(callback)
        assert len(callback.captured) == 3


def test_a_resumed_run_keeps_count(encoder: TableEncoder, fit: Fit, tmp_path: Path) -> None:
    whole = capture(encoder, rounds=range(3), max_captures=2)
    keep = ModelCheckpoint(tmp_path, "{epoch}", save_top_k=-1, save_on_train_epoch_end=True)
    with pytest.warns(UserWarning, match="max_captures=2"):
        fit([whole, keep], trainer={"enable_checkpointing": True})
    resumed = capture(encoder, rounds=range(3), max_captures=2)
    again = ModelCheckpoint(tmp_path, "{epoch}", save_top_k=-1, save_on_train_epoch_end=True)
    with pytest.warns(UserWarning, match="max_captures=2"):
        fit([resumed, again], tmp_path / "epoch=0.ckpt", trainer={"enable_checkpointing": True})
    assert [c.name for c in resumed.captured] == [c.name for c in whole.captured][1:]
    one, other = resumed.captured[0].update, whole.captured[1].update
    assert all(torch.equal(one.update[name], value) for name, value in other.update.items())


def test_a_folder_with_captures_is_refused_unless_resumed(encoder: TableEncoder, fit: Fit, tmp_path: Path) -> None:
    root, keep = tmp_path / "captures", ModelCheckpoint(tmp_path, save_last=True)
    first = capture(encoder, root=root)
    fit([first, keep], trainer={"enable_checkpointing": True, "max_epochs": 1})
    for callback in (first, capture(encoder, root=root)):
        with pytest.raises(UsageError, match=r"captures' has 1 of an earlier training \(e000-s000000-r\d to .*: cho"):
            fit(callback, seed=4)
    other = capture(encoder, root=root, share_labels="none")  # of which the checkpoint knows nothing
    with pytest.raises(UsageError, match="has 1 of an earlier training"):
        fit(other, tmp_path / "last.ckpt")
    assert len(list_captures(root)) == 1
    fit(capture(encoder, root=root), tmp_path / "last.ckpt")
    assert len(list_captures(root)) == 2
    fit(capture(encoder, root=root, overwrite=True))
    assert len(list_captures(root)) == 2


def test_a_further_fit_of_the_same_trainer_keeps_its_folder(
    encoder: TableEncoder, fit: Fit, rows: TensorDataset, tmp_path: Path
) -> None:
    trainers: list[lightning.Trainer] = []

    class Noting(lightning.Callback):
        def on_train_start(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> None:
            trainers.append(trainer)

    module = fit([capture(encoder, root=tmp_path / "captures"), Noting()], trainer={"max_epochs": 1})
    (trainer,) = trainers
    trainer.fit_loop.max_epochs = 3
    trainer.fit(module, datamodule=trainer.datamodule)
    assert [folder.name[:4] for folder in list_captures(tmp_path / "captures")] == ["e000", "e002"]


def test_a_client_that_diverges_is_left_out(encoder: TableEncoder, fit: Fit) -> None:
    callback = capture(encoder, rounds=(0,))
    with pytest.warns(UserWarning, match=r"an update of round 0 was not captured: .* must be finite"):
        fit(callback, training=dataclasses.replace(LOCAL, learning_rate=1e38))
    assert not callback.captured


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"keep": False}, "captures would be lost"),
        ({"rounds": ()}, "give rounds"),
        ({"rounds": (-1,)}, "rounds are counted from 0, got -1"),
        ({"clients": (-2,)}, "clients are counted from 0, got -2"),
        ({"per_round": 0}, "per_round must be at least 1"),
        ({"max_captures": 0}, "max_captures must be at least 1"),
        ({"share_labels": "all"}, "share_labels must be one of none, counts, batches"),
        ({"aggregate": True, "clients": (3,)}, r"got clients \[3\] with aggregate=True"),
    ],
)
def test_settings_that_cannot_work_are_refused(encoder: TableEncoder, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        capture(encoder, **settings)


def test_an_encoder_that_is_not_fitted_is_refused(encoder: TableEncoder) -> None:
    with pytest.raises(DataError, match="fit"):
        capture(TableEncoder(encoder.schema))


def test_federations_it_cannot_serve_are_refused(encoder: TableEncoder, fit: Fit) -> None:
    with pytest.raises(UsageError, match=r"behind secure aggregation in groups of 2 .* use aggregate=True"):
        fit(capture(encoder), group_size=2)
    with pytest.raises(UsageError, match=r"clients must be numbers below 6, got \[6\]"):
        fit(capture(encoder, clients=(0, 6)))


def test_each_capture_names_the_other_kind_of_training(
    encoder: TableEncoder, fit: Fit, train: Callable[..., TabularClassifier]
) -> None:
    with pytest.raises(UsageError, match="needs a FederatedAveraging, got TabularClassifier; see GradientCapture"):
        train(capture(encoder))
    with pytest.raises(UsageError, match="optimizes by hand"):
        fit(GradientCapture(encoder, share_labels=False, keep=True, epochs=(0,)))
