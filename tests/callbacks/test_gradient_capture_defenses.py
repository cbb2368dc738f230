"""What `GradientCapture` calls noised is what a defended client sends: the defense of its raw gradient."""

import itertools
import math
from collections.abc import Callable
from typing import Any

import lightning
import pytest
import torch
from torch import Tensor

from lightleak.callbacks.capture_store import Capture
from lightleak.callbacks.gradient_capture import GradientCapture
from lightleak.core.seeds import generator
from lightleak.data.datamodule import TableDataModule
from lightleak.data.datasets import load_dataset
from lightleak.data.encoder import TableEncoder
from lightleak.defenses.horizontal import DPSGD, TrainingDefense, UpdateDefense, defend_training
from lightleak.defenses.horizontal.noise import GaussianNoise
from lightleak.defenses.horizontal.rounding import Clipping, Quantization
from lightleak.protocols.fedsgd import require_replay
from lightleak.targets import NetworkSpec, build_network
from lightleak.targets.classifier import TabularClassifier
from lightleak.targets.optimizers import OptimizerConfig

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")

SEED, LEARNING_RATE, BATCH_SIZE, STEPS = 5, 0.5, 32, 6

Run = Callable[..., tuple[TabularClassifier, list[Capture], list[Capture]]]


@pytest.fixture(scope="module")
def run() -> Run:
    """Train one epoch of six steps; returns the model and what was captured raw and noised."""
    table = load_dataset("synthetic", n_discrete=2, n_continuous=2, n_rows=240)
    encoder = TableEncoder(table.schema).fit(table.train)

    def run(
        defense: UpdateDefense | TrainingDefense,
        watched: bool = True,
        batch_size: int = BATCH_SIZE,
        **settings: Any,
    ) -> tuple[TabularClassifier, list[Capture], list[Capture]]:
        spec = NetworkSpec("mlp", 2, encoder.layout, {"hidden": [8]})
        model = TabularClassifier(spec, OptimizerConfig("sgd", LEARNING_RATE), seed=0)
        data = TableDataModule(table, encoder, batch_size, validation_fraction=0.0)
        training = defend_training(defense, model, data, SEED)
        raw, noised = (
            GradientCapture(encoder, share_labels=True, keep=True, steps=range(STEPS), at=at)
            for at in ("raw", "noised")
        )
        trainer = lightning.Trainer(
            accelerator="cpu",
            max_epochs=1,
            callbacks=[*training.callbacks, *([raw, noised] if watched else [])],
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            **settings,
        )
        trainer.fit(model, datamodule=training.data)
        assert trainer.optimizers[0].defense == defense
        return model, raw.captured, noised.captured

    return run


def moves(captures: list[Capture]) -> None:
    """Each update is what plain SGD took from the parameters before the next one."""
    for now, after in itertools.pairwise(captures):
        for name, value in now.update.parameters.items():
            expected = value - LEARNING_RATE * now.update.update[name]
            torch.testing.assert_close(after.update.parameters[name], expected, rtol=1e-5, atol=1e-6)


def same_weights(a: TabularClassifier, b: TabularClassifier) -> bool:
    one, other = a.network.state_dict(), b.network.state_dict()
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize("defense", [GaussianNoise(0.1), Clipping(0.05), Quantization(3)])
@pytest.mark.parametrize("accumulate", [1, 2])
def test_noised_is_the_defense_of_raw_with_the_draws_of_the_step(
    run: Run, defense: UpdateDefense, accumulate: int
) -> None:
    model, raw, noised = run(defense, accumulate_grad_batches=accumulate)
    assert len(raw) == len(noised) == STEPS // accumulate
    for before, after in zip(raw, noised, strict=True):
        assert require_replay(before.update, before.truth) == 0.0
        assert after.update.state == "noised"
        assert after.update.facts.optimizer == "sgd"
        assert (before.update.facts.defense, after.update.facts.defense) == ("none", defense.describe())
        sent = defense.apply(before.update.update, generator(SEED, "defense", 0, before.update.facts.step))
        assert all(torch.equal(after.update.update[name], value) for name, value in sent.items())
        assert not torch.equal(after.update.update["linears.0.weight"], before.update.update["linears.0.weight"])
    moves(noised)
    unwatched, _, _ = run(defense, watched=False, accumulate_grad_batches=accumulate)
    assert same_weights(model, unwatched)


def noise_of(raw: list[Capture], noised: list[Capture]) -> Tensor:
    """What opacus added to the sum of the rows' gradients over the expected batch, where it clipped none."""
    parts = []
    for before, after in zip(raw, noised, strict=True):
        # Lightning's gradient is the mean of the rows drawn, opacus divides by the rows expected.
        share = before.update.facts.n_rows / BATCH_SIZE
        parts += [(after.update.update[name] - share * g).flatten() for name, g in before.update.update.items()]
    return torch.cat(parts)


def test_with_opacus_noised_is_the_gradient_with_noise_of_the_promised_scale(run: Run) -> None:
    pytest.importorskip("opacus", reason="the extra dp brings it")
    # No row's gradient is longer than 50 here, so that nothing is clipped.
    multiplier, max_grad_norm = 0.02, 50.0
    model, raw, noised = run(DPSGD(noise_multiplier=multiplier, max_grad_norm=max_grad_norm))
    assert len(raw) == len(noised) == STEPS
    assert len({capture.update.facts.n_rows for capture in raw}) > 1  # Poisson batches
    assert all(require_replay(capture.update, capture.truth) == 0.0 for capture in raw)
    noise, expected = noise_of(raw, noised), multiplier * max_grad_norm / BATCH_SIZE
    # Relative standard error of a deviation from n normal draws: 1 / sqrt(2n).
    assert float(noise.std()) == pytest.approx(expected, rel=4 / math.sqrt(2 * len(noise)))
    assert abs(float(noise.mean())) < 4 * expected / math.sqrt(len(noise))
    moves(noised)
    unwatched, _, _ = run(DPSGD(noise_multiplier=multiplier, max_grad_norm=max_grad_norm), watched=False)
    assert same_weights(model, unwatched)
    # Names are the network's own.
    build_network(NetworkSpec.from_dict(noised[0].update.network)).load_state_dict(dict(noised[0].update.parameters))


def test_with_opacus_but_neither_noise_nor_clipping_noised_is_the_plain_gradient(run: Run) -> None:
    pytest.importorskip("opacus", reason="the extra dp brings it")
    _, raw, noised = run(DPSGD(noise_multiplier=0.0, max_grad_norm=1e6))
    assert float(noise_of(raw, noised).abs().max()) < 1e-6
    moves(noised)


def test_with_opacus_noised_is_what_one_client_sends(run: Run) -> None:
    """Clipping but no noise: the captured gradient equals `client_gradient` of its own batch."""
    pytest.importorskip("opacus", reason="the extra dp brings it")
    defense = DPSGD(noise_multiplier=0.0, max_grad_norm=0.1)
    _, raw, noised = run(defense)
    for before, after in zip(raw, noised, strict=True):
        network = build_network(NetworkSpec.from_dict(before.update.network))
        batch = before.truth.inputs, before.truth.labels
        sent = defense.client_gradient(network, before.update.parameters, {}, *batch, generator(0))
        for name, value in sent.items():
            share = before.update.facts.n_rows / BATCH_SIZE
            torch.testing.assert_close(after.update.update[name], share * value, rtol=1e-4, atol=1e-7)


def test_a_poisson_batch_without_rows_is_left_out_with_a_warning(run: Run) -> None:
    """With one row expected, a batch is empty with probability 1/e: about two of the first six steps."""
    pytest.importorskip("opacus", reason="the extra dp brings it")
    with pytest.warns(UserWarning, match="was not captured: its batch has no rows"):
        _, raw, noised = run(DPSGD(noise_multiplier=0.1), batch_size=1)
    assert len(raw) == len(noised) < STEPS
