"""Capture only observes, and what it records is what training did."""

import copy
import itertools
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lightning
import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from lightning.pytorch.callbacks import GradientAccumulationScheduler, ModelCheckpoint
from lightning.pytorch.plugins import MixedPrecision
from torch import Tensor
from torch.utils.data import TensorDataset

from lightleak.callbacks.capture_store import Capture, list_captures
from lightleak.callbacks.gradient_capture import GradientCapture
from lightleak.core.errors import UsageError
from lightleak.data.datamodule import BatchSampler, batch_loader
from lightleak.data.encoder import TableEncoder
from lightleak.data.marginals import Marginals
from lightleak.protocols.fedsgd import client_update, replay, require_replay
from lightleak.targets import NetworkSpec, build_network
from lightleak.targets.classifier import TabularClassifier
from lightleak.targets.normalization import BatchNorm1d
from lightleak.targets.optimizers import OptimizerConfig

Train = Callable[..., Any]
pytestmark = pytest.mark.filterwarnings("ignore::lightning.pytorch.utilities.warnings.PossibleUserWarning")

HARD = {"dropout": 0.3, "norm": "batch"}
LEARNING_RATE = 0.5
SGD = OptimizerConfig("sgd", learning_rate=LEARNING_RATE)


def capture(encoder: TableEncoder, **settings: Any) -> GradientCapture:
    return GradientCapture(encoder, **({"share_labels": True, "keep": True, "epochs": (0, 1)} | settings))


def same_weights(a: torch.nn.Module, b: torch.nn.Module) -> bool:
    one, other = a.state_dict(), b.state_dict()
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def half_precision(init_scale: float = 2.0**16) -> MixedPrecision:
    """fp16 with a loss scale on the CPU, where Lightning would fall back to bf16."""
    return MixedPrecision("16-mixed", "cpu", torch.amp.GradScaler("cpu", init_scale=init_scale))


PRECISIONS: dict[str, Callable[[], dict[str, Any]]] = {
    "32": dict,
    "bf16-mixed": lambda: {"precision": "bf16-mixed"},
    "16-mixed": lambda: {"plugins": half_precision()},
    "64-true": lambda: {"precision": "64-true"},
    "bf16-true": lambda: {"precision": "bf16-true"},
}
CLIPPING: dict[str, dict[str, Any]] = {
    "none": {},
    "norm": {"gradient_clip_val": 0.05},
    "value": {"gradient_clip_val": 0.01, "gradient_clip_algorithm": "value"},
}


# Each example trains twice; a failing one is reported as found, as shrinking it would take minutes.
@settings(max_examples=30, phases=(Phase.explicit, Phase.reuse, Phase.generate))
@given(
    precision=st.sampled_from(sorted(PRECISIONS)),
    clipping=st.sampled_from(sorted(CLIPPING)),
    clipped=st.booleans(),
    accumulate=st.sampled_from([1, 2, 3]),
    options=st.sampled_from([{}, HARD, {"norm": "layer", "dropout": 0.5}]),
)
def test_training_is_bit_identical_and_every_capture_replays(
    encoder: TableEncoder,
    train: Train,
    precision: str,
    clipping: str,
    clipped: bool,
    accumulate: int,
    options: dict[str, Any],
) -> None:
    at = "clipped" if clipped and clipping != "none" else "raw"

    def run(callback: GradientCapture | None) -> TabularClassifier:
        more = PRECISIONS[precision]() | CLIPPING[clipping]
        return train(callback, options, accumulate_grad_batches=accumulate, **more)

    callback = capture(encoder, per_epoch=2, at=at, share_statistics=accumulate == 1)
    assert same_weights(run(callback), run(None))
    expected = {1: [0, 1, 6, 7], 2: [0, 1, 3, 4], 3: [0, 2]}[accumulate]
    assert [c.update.facts.step for c in callback.captured] == expected
    for taken in callback.captured:
        assert taken.update.state == at
        assert taken.update.facts.n_rows == 8 * accumulate
        assert taken.update.facts.batch_size == 8
        # Scaling rounds once more, in the gradient's own type; everything else is the same to the bit.
        rounding = 0.0 if at == "raw" or clipping == "value" else 0.01 if precision == "bf16-true" else 1e-6
        assert require_replay(taken.update, taken.truth) <= rounding


class Witness(lightning.Callback):
    """Keeps ``.grad`` as the optimizer is about to get it, before any clipping."""

    def __init__(self) -> None:
        self.grads: list[dict[str, Tensor]] = []

    def on_before_optimizer_step(self, trainer: Any, pl_module: Any, optimizer: Any) -> None:
        self.grads.append({name: p.grad.clone() for name, p in pl_module.network.named_parameters()})


@pytest.mark.parametrize("precision", ["32", "16-mixed", "bf16-mixed"])
@pytest.mark.parametrize("accumulate", [1, 2])
def test_raw_is_what_autograd_left_in_grad(
    encoder: TableEncoder, train: Train, precision: str, accumulate: int
) -> None:
    callback, witness = capture(encoder, epochs=(), steps=(0, 1)), Witness()
    train([callback, witness], HARD, accumulate_grad_batches=accumulate, max_epochs=1, **PRECISIONS[precision]())
    assert len(callback.captured) == 2
    for taken, grad in zip(callback.captured, witness.grads, strict=False):
        assert all(torch.equal(taken.update.update[name], value) for name, value in grad.items())


def applied(captures: list[Capture]) -> None:
    """Each update is what plain SGD took from the parameters before the next one."""
    for now, after in itertools.pairwise(captures):
        for name, value in now.update.parameters.items():
            expected = value - LEARNING_RATE * now.update.update[name]
            torch.testing.assert_close(after.update.parameters[name], expected, rtol=1e-5, atol=1e-6)


def test_raw_and_clipped_are_before_and_after_the_clipping(encoder: TableEncoder, train: Train) -> None:
    raw, clipped = (capture(encoder, epochs=(), steps=range(4), at=at) for at in ("raw", "clipped"))
    train([raw, clipped], optimizer=SGD, gradient_clip_val=0.05)
    applied(clipped.captured)
    for before, after in zip(raw.captured, clipped.captured, strict=True):
        one, other = (torch.cat([g.flatten() for g in c.update.update.values()]) for c in (before, after))
        assert one.norm() > 0.06
        assert other.norm() == pytest.approx(0.05, rel=1e-4)
        torch.testing.assert_close(one / one.norm(), other / other.norm())


class NesterovClassifier(TabularClassifier):
    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9, nesterov=True, foreach=True)


@pytest.mark.parametrize("precision", ["32", "16-mixed"])
def test_clipped_is_read_before_the_optimizer_writes_into_the_gradient(
    encoder: TableEncoder, train: Train, precision: str
) -> None:
    callback = capture(encoder, epochs=(), steps=range(4), at="clipped")
    more = {"gradient_clip_val": 0.05} | PRECISIONS[precision]()
    model = train(callback, module=NesterovClassifier, **more)
    assert len(callback.captured) == 4
    for taken in callback.captured:
        assert torch.cat([g.flatten() for g in taken.update.update.values()]).norm() == pytest.approx(0.05, rel=1e-3)
        assert require_replay(taken.update, taken.truth) <= 1e-6
    more = {"gradient_clip_val": 0.05} | PRECISIONS[precision]()
    assert same_weights(model, train(None, module=NesterovClassifier, **more))


class NoisyOptimizer(torch.optim.Optimizer):
    """Clips and noises inside its step and then calls the optimizer it wraps, as opacus' DPOptimizer does."""

    def __init__(self, original_optimizer: torch.optim.Optimizer) -> None:
        self.original_optimizer = original_optimizer
        super().__init__(original_optimizer.param_groups, {})

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        loss = None if closure is None else torch.enable_grad()(closure)()
        for group in self.original_optimizer.param_groups:
            torch.nn.utils.clip_grad_norm_(group["params"], 0.1)
            for parameter in group["params"]:
                parameter.grad += 0.01 * torch.randn_like(parameter.grad)
        self.original_optimizer.step()
        return loss


class NoisyClassifier(TabularClassifier):
    def configure_optimizers(self) -> torch.optim.Optimizer:
        return NoisyOptimizer(super().configure_optimizers())


def test_noised_is_what_a_wrapping_optimizer_applies(encoder: TableEncoder, train: Train) -> None:
    raw, noised = (capture(encoder, epochs=(), steps=range(4), at=at) for at in ("raw", "noised"))
    model = train([raw, noised], module=NoisyClassifier, optimizer=SGD)
    assert len(noised.captured) == 4
    applied(noised.captured)
    for before, after in zip(raw.captured, noised.captured, strict=True):
        assert require_replay(before.update, before.truth) == 0.0
        assert after.update.state == "noised"
        assert after.update.facts.optimizer == "sgd"
        assert torch.tensor(replay(after.update, after.truth)).isnan()
        assert torch.equal(before.truth.inputs, after.truth.inputs)
    assert same_weights(model, train(None, module=NoisyClassifier, optimizer=SGD))


def test_update_describes_itself(encoder: TableEncoder, train: Train) -> None:
    callback = capture(encoder, epochs=(1,))
    train(callback, HARD)
    (taken,) = callback.captured
    facts = taken.update.facts
    assert (facts.epoch, facts.step, facts.n_rows, facts.batch_size, facts.n_clients) == (1, 6, 8, 8, 1)
    assert (facts.optimizer, facts.learning_rate, facts.loss) == ("adam", 0.01, "cross_entropy")
    network = build_network(NetworkSpec.from_dict(taken.update.network))
    network.load_state_dict({**taken.update.parameters, **taken.update.buffers})
    rebuilt = TableEncoder.from_state(taken.update.encoder, taken.update.encoder_tensors)
    assert rebuilt.layout == encoder.layout
    assert taken.update.training_mode


def test_update_is_that_of_the_protocol(encoder: TableEncoder, train: Train) -> None:
    """Capture and `client_update` agree on everything for the same batch."""
    callback = capture(encoder, epochs=(1,), share_statistics=True)
    train(callback, HARD)
    (taken,) = callback.captured
    spec = NetworkSpec.from_dict(taken.update.network)
    network = build_network(spec)
    network.load_state_dict({**taken.update.parameters, **taken.update.buffers})
    torch.set_rng_state(taken.truth.generator_states[0].clone())
    sent, truth = client_update(
        network, spec, encoder, taken.truth.inputs, taken.truth.labels, share_labels=True, share_statistics=True
    )
    for group in ("parameters", "update", "buffers", "batch_statistics", "encoder_tensors"):
        one, other = getattr(taken.update, group), getattr(sent, group)
        assert one.keys() == other.keys()
        assert all(torch.equal(one[name], other[name]) for name in one)
    assert torch.equal(taken.update.labels, sent.labels)
    assert taken.truth.loss == pytest.approx(truth.loss, abs=1e-7)


def test_only_what_is_shared_is_sent(encoder: TableEncoder, train: Train) -> None:
    marginals = Marginals({"age": (1.0,)}, {"age": (1.0,)})
    least = capture(encoder, epochs=(0,), share_labels=False, share_buffers=False)
    most = capture(encoder, epochs=(0,), share_statistics=True, marginals=marginals)
    train([least, most], HARD)
    update = least.captured[0].update
    assert update.labels is None
    assert update.marginals is None
    assert not update.buffers
    assert not update.batch_statistics
    assert require_replay(update, least.captured[0].truth) == 0.0
    update = most.captured[0].update
    assert torch.equal(update.labels, most.captured[0].truth.labels)
    assert Marginals.from_dict(update.marginals) == marginals
    assert sorted(update.batch_statistics) == ["norms.0.mean", "norms.0.var", "norms.1.mean", "norms.1.var"]


def test_accumulated_steps_of_a_schedule_share_no_statistics(encoder: TableEncoder, train: Train) -> None:
    callback = capture(encoder, share_statistics=True)
    train([callback, GradientAccumulationScheduler({0: 1, 1: 2})], HARD)
    assert [(c.update.facts.n_rows, bool(c.update.batch_statistics)) for c in callback.captured] == [
        (8, True),
        (16, False),
    ]


def test_truth_is_the_union_of_the_micro_batches(encoder: TableEncoder, train: Train, rows: TensorDataset) -> None:
    callback = capture(encoder, epochs=(), steps=(0, 1), share_labels=False)
    train(callback, accumulate_grad_batches=3, max_epochs=1)
    assert [len(c.truth.labels) for c in callback.captured] == [24, 20]
    seen = torch.cat([torch.cat([c.truth.inputs, c.truth.labels[:, None]], 1) for c in callback.captured])
    given_rows = torch.cat([rows.tensors[0], rows.tensors[1][:, None]], 1)
    assert torch.equal(torch.unique(seen, dim=0), torch.unique(given_rows, dim=0))
    # Lightning divides each micro-batch's mean by their number, whatever the size of the last.
    for taken in callback.captured:
        parts = zip(taken.truth.inputs.split(8), taken.truth.labels.split(8), strict=True)
        network = build_network(NetworkSpec.from_dict(taken.update.network))
        network.load_state_dict(dict(taken.update.parameters))
        losses = [torch.nn.functional.cross_entropy(network(x), y).item() for x, y in parts]
        assert taken.truth.loss == pytest.approx(sum(losses) / len(losses), rel=1e-5)
        assert require_replay(taken.update, taken.truth) == 0.0


def test_steps_chosen_by_number_may_be_small_those_of_an_epoch_not(encoder: TableEncoder, train: Train) -> None:
    by_epoch, by_number = capture(encoder, epochs=(1,), per_epoch=99), capture(encoder, epochs=(), steps=(5, 11))
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*was not captured")
        train([by_epoch, by_number])
    assert [c.update.facts.step for c in by_epoch.captured] == [6, 7, 8, 9, 10]
    assert [(c.update.facts.step, c.update.facts.n_rows) for c in by_number.captured] == [(5, 4), (11, 4)]


class WholeBatches(lightning.LightningDataModule):
    """Batches that their sampler makes, as those of LightLeak's data modules: five of 8 rows and one of 4."""

    def __init__(self, rows: TensorDataset) -> None:
        super().__init__()
        self.rows, self.sampler = rows, BatchSampler(len(rows), 8, shuffle=True, seed=1)

    def train_dataloader(self) -> Any:
        return batch_loader(self.rows, self.sampler)

    def rows_of(self, epoch: int, index: int) -> Tensor:
        return list(self.sampler.batches(epoch))[index]


def test_a_smaller_last_batch_of_a_sampler_is_no_full_step(
    encoder: TableEncoder, train: Train, rows: TensorDataset
) -> None:
    callback = capture(encoder, epochs=(0,), per_epoch=99)
    train(callback, data=WholeBatches(rows), max_epochs=1)
    assert [c.update.facts.step for c in callback.captured] == [0, 1, 2, 3, 4]


def test_a_chosen_step_without_all_its_micro_batches_is_left_out_with_a_warning(
    encoder: TableEncoder, train: Train
) -> None:
    callback = capture(encoder, epochs=(), steps=(0, 1))
    with pytest.warns(UserWarning, match="step 1 was not captured: it has 2 of 4 micro-batches"):
        train(callback, accumulate_grad_batches=4, max_epochs=1)
    assert [c.update.facts.step for c in callback.captured] == [0]


def test_memory_is_bounded(encoder: TableEncoder, train: Train) -> None:
    callback = capture(encoder, epochs=range(10), per_epoch=99, max_captures=3)
    with pytest.warns(UserWarning, match="max_captures=3 reached: no capture from step 3 on"):
        train(callback)
    assert len(callback.captured) == 3


def test_a_network_in_eval_mode_is_captured_as_such(encoder: TableEncoder, train: Train) -> None:
    callback = capture(encoder, epochs=(0,))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        train(callback, HARD, module=lambda *args, **kwargs: TabularClassifier(*args, **kwargs).eval())
    (taken,) = callback.captured
    assert not taken.update.training_mode
    assert require_replay(taken.update, taken.truth) == 0.0


def test_validation_between_micro_batches_leaves_no_trace(encoder: TableEncoder, rows: TensorDataset) -> None:
    def fit(*callbacks: lightning.Callback) -> TabularClassifier:
        torch.manual_seed(1)
        model = TabularClassifier(NetworkSpec("mlp", 2, encoder.layout, HARD), seed=0)
        loader = torch.utils.data.DataLoader(rows, batch_size=8)
        trainer = lightning.Trainer(
            accelerator="cpu",
            max_epochs=1,
            callbacks=list(callbacks),
            accumulate_grad_batches=2,
            val_check_interval=1,
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        trainer.fit(model, loader, loader)
        return model

    callback = capture(encoder, epochs=(0,), per_epoch=2)
    assert same_weights(fit(callback), fit())
    assert [require_replay(c.update, c.truth) for c in callback.captured] == [0.0, 0.0]
    assert torch.equal(callback.captured[0].truth.inputs, rows.tensors[0][:16])


@pytest.mark.parametrize(("at", "reason"), [("raw", "must be finite"), ("clipped", "the optimizer made no step")])
def test_an_overflowed_gradient_is_left_out_and_training_goes_on(
    encoder: TableEncoder, train: Train, at: str, reason: str
) -> None:
    callback = capture(encoder, epochs=(0,), at=at)
    with pytest.warns(UserWarning, match=f"step 0 was not captured: .*{reason}"):
        train(callback, plugins=half_precision(2.0**60), gradient_clip_val=1.0, max_epochs=1, limit_train_batches=1)
    assert not callback.captured


class TwiceClassifier(TabularClassifier):
    """Runs its network a second time, which draws other dropout masks."""

    def training_step(self, batch: Any, batch_index: int) -> Tensor:
        return super().training_step(batch, batch_index) + 0.5 * super().training_step(batch, batch_index)


def test_a_second_forward_is_found_out_by_replay(encoder: TableEncoder, train: Train) -> None:
    callback = capture(encoder, epochs=(0,))
    model = train(callback, HARD, module=TwiceClassifier)
    (taken,) = callback.captured
    assert replay(taken.update, taken.truth) > 1e-2
    assert same_weights(model, train(None, HARD, module=TwiceClassifier))


class BypassingClassifier(TabularClassifier):
    """Computes its loss without the network's own forward."""

    def training_step(self, batch: Any, batch_index: int) -> Tensor:
        return self.network.linears[0](batch[0]).square().mean()


def test_a_step_without_the_networks_forward_is_left_out(encoder: TableEncoder, train: Train) -> None:
    callback = capture(encoder, epochs=(), steps=(0,))
    with pytest.warns(UserWarning, match="step 0 was not captured: its training step did not run the network"):
        train(callback, module=BypassingClassifier)
    assert not callback.captured


class SkippingClassifier(TabularClassifier):
    """Has no loss for the first batch of an epoch."""

    def training_step(self, batch: Any, batch_index: int) -> Tensor | None:
        return None if batch_index == 0 else super().training_step(batch, batch_index)


def test_a_training_step_without_loss_is_left_out(encoder: TableEncoder, train: Train) -> None:
    callback = capture(encoder, epochs=(0,))
    model = train(callback, module=SkippingClassifier)
    assert all(require_replay(c.update, c.truth) == 0.0 for c in callback.captured)
    assert len(callback.captured) == 1
    assert same_weights(model, train(None, module=SkippingClassifier))


def hooks_of(model: TabularClassifier) -> int:
    parameters = sum(len(p._backward_hooks or ()) for p in model.parameters())
    modules = sum(len(m._forward_pre_hooks) + len(m._forward_hooks) for m in model.modules())
    optimizer = model.optimizers().optimizer
    return parameters + modules + len(optimizer._optimizer_step_post_hooks) + len(optimizer._optimizer_step_pre_hooks)


def test_no_hook_outlives_the_training(encoder: TableEncoder, train: Train) -> None:
    model = train(capture(encoder, share_statistics=True, at="clipped"), HARD, gradient_clip_val=1.0)
    assert hooks_of(model) == 0


class Interrupted(TabularClassifier):
    def training_step(self, batch: Any, batch_index: int) -> Tensor:
        if self.global_step == 3:
            Interrupted.last = self
            self(batch[0])
            raise ValueError("stop")
        return super().training_step(batch, batch_index)


def test_no_hook_outlives_an_interruption(encoder: TableEncoder, train: Train) -> None:
    callback = capture(encoder, epochs=(), steps=range(9), at="clipped", share_statistics=True)
    with pytest.raises(ValueError, match="stop"):
        train(callback, HARD, module=Interrupted, gradient_clip_val=1.0)
    assert len(callback.captured) == 3
    assert hooks_of(Interrupted.last) == 0


def test_captures_are_written_as_they_are_held(encoder: TableEncoder, train: Train, tmp_path: Path) -> None:
    callback = capture(encoder, root=tmp_path / "captures", per_epoch=2)
    train(callback, HARD, accumulate_grad_batches=2)
    folders = list_captures(tmp_path / "captures")
    assert [folder.name for folder in folders] == [c.name for c in callback.captured]
    assert folders[0].name == "e000-s000000-r0"
    for folder, taken in zip(folders, callback.captured, strict=True):
        loaded = Capture.load(folder)
        assert all(torch.equal(loaded.update.update[n], v) for n, v in taken.update.update.items())
        assert require_replay(loaded.update, loaded.truth) == 0.0


def test_a_folder_with_captures_is_refused_unless_resumed(encoder: TableEncoder, train: Train, tmp_path: Path) -> None:
    root, keep = tmp_path / "captures", ModelCheckpoint(tmp_path, save_last=True)
    train([capture(encoder, root=root), keep], enable_checkpointing=True, max_epochs=1)
    with pytest.raises(UsageError, match=r"captures' has 1 of an earlier training \(e000-s000000-r0 .*: choose an"):
        train(capture(encoder, root=root))
    with pytest.raises(UsageError, match="has 1 of an earlier training"):  # a checkpoint of a training with others
        train(capture(encoder, root=root, per_epoch=2), ckpt_path=str(tmp_path / "last.ckpt"))
    assert len(list_captures(root)) == 1
    train(capture(encoder, root=root), ckpt_path=str(tmp_path / "last.ckpt"))
    assert len(list_captures(root)) == 2
    train(capture(encoder, root=root, overwrite=True))
    assert len(list_captures(root)) == 2


def test_nothing_is_kept_in_memory_unless_asked(encoder: TableEncoder, train: Train, tmp_path: Path) -> None:
    callback = capture(encoder, root=tmp_path, keep=False)
    train(callback)
    assert not callback.captured
    assert len(list_captures(tmp_path)) == 2


def test_a_resumed_run_counts_on(encoder: TableEncoder, train: Train, tmp_path: Path) -> None:
    def callbacks() -> list[lightning.Callback]:
        return [
            capture(encoder, epochs=range(9), per_epoch=2, max_captures=3),
            capture(encoder, epochs=(), steps=(7,)),  # a second one has a state of its own
            ModelCheckpoint(dirpath=tmp_path, save_last=True),
        ]

    train(callbacks(), enable_checkpointing=True, max_epochs=1)
    resumed = callbacks()
    train(resumed, enable_checkpointing=True, max_epochs=2, ckpt_path=str(tmp_path / "last.ckpt"))
    assert [c.update.facts.step for c in resumed[0].captured] == [6]
    assert [c.update.facts.step for c in resumed[1].captured] == [7]


def test_a_run_resumed_within_an_epoch_does_not_name_its_rows(
    encoder: TableEncoder, train: Train, rows: TensorDataset, tmp_path: Path
) -> None:
    keep = ModelCheckpoint(tmp_path, "{step}", every_n_train_steps=2, save_top_k=-1)
    whole, resumed = (capture(encoder, per_epoch=None) for _ in range(2))
    train([whole, keep], enable_checkpointing=True, data=WholeBatches(rows))
    train(resumed, data=WholeBatches(rows), ckpt_path=str(tmp_path / "step=2.ckpt"))
    assert [c.update.facts.step for c in resumed.captured] == list(range(2, 12))
    assert [c.update.facts.step for c in resumed.captured if c.truth.ids is None] == [2, 3, 4, 5]
    for taken in (*whole.captured, *resumed.captured[4:]):
        assert torch.equal(taken.truth.inputs, rows.tensors[0][taken.truth.ids])


def test_one_capture_serves_two_trainings(encoder: TableEncoder, train: Train) -> None:
    callback = capture(encoder, epochs=(0,), per_epoch=2, max_captures=1)
    for _ in range(2):
        with pytest.warns(UserWarning, match="max_captures=1 reached: no capture from step 1 on"):
            train(callback, max_epochs=1)
        assert [c.update.facts.step for c in callback.captured] == [0]


def test_a_parameter_used_twice_has_one_gradient(encoder: TableEncoder, train: Train) -> None:
    """Tied weights: the hook sees the sum over all uses."""

    class Tied(TabularClassifier):
        def forward(self, inputs: Tensor) -> Tensor:
            return self.network(inputs) + self.network.linears[-1].bias

    callback, witness = capture(encoder, epochs=(0,)), Witness()
    train([callback, witness], module=Tied)
    (taken,) = callback.captured
    assert all(torch.equal(taken.update.update[name], value) for name, value in witness.grads[0].items())
    # ... and such a module is not what its specification says, which replay finds out.
    assert replay(taken.update, taken.truth) > 1e-2


def test_callback_can_be_copied(encoder: TableEncoder) -> None:
    assert copy.deepcopy(capture(encoder)).at == "raw"


def test_batch_norm_is_ours(encoder: TableEncoder) -> None:
    """The sweep above means little for BatchNorm unless its options build one."""
    network = build_network(NetworkSpec("mlp", 2, encoder.layout, HARD))
    assert any(isinstance(layer, BatchNorm1d) for layer in network.modules())
