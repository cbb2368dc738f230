"""Model refinement trains one party on the auxiliary rows, within bounds, and touches nothing else."""

from pathlib import Path
from typing import Any

import lightning
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import Tensor

from lightleak.attacks.property_inference.model_refinement import (
    ModelRefinement,
    ModelRefinementConfig,
    RefinementHead,
    output_loss,
    output_loss_as_coded,
)
from lightleak.core.errors import UsageError
from lightleak.core.seeds import derive_seed
from lightleak.data.vertical import VerticalDataModule, VerticalRows
from lightleak.targets.optimizers import OptimizerConfig
from lightleak.targets.split import SplitClassifier, SplitSpec

pytestmark = pytest.mark.filterwarnings("ignore::lightning.pytorch.utilities.warnings.PossibleUserWarning")
N_ROWS, BATCH_SIZE, PARTY = 40, 8, 1
SPEC = SplitSpec((3, 2), output_width=6)


def data() -> VerticalRows:
    draw = torch.Generator().manual_seed(0)
    labels = torch.randint(2, (N_ROWS,), generator=draw)
    return VerticalRows(torch.randn(N_ROWS, 5, generator=draw), labels, torch.arange(N_ROWS), SPEC.widths)


AUXILIARY = torch.arange(0, N_ROWS, 2)


def refinement(seed: int = 0, party: int = PARTY, **settings: Any) -> ModelRefinement:
    rows = data()
    inputs = rows.party_inputs(party, AUXILIARY)
    return ModelRefinement(ModelRefinementConfig(**settings), party, inputs, inputs[:, 0] > 0, seed)


def fit(
    *callbacks: lightning.Callback, epochs: int = 2, learning_rate: float = 0.05, ckpt_path: Any = None, **settings: Any
) -> SplitClassifier:
    module = SplitClassifier(SPEC, OptimizerConfig("sgd", learning_rate, weight_decay=1e-3), decay=0.5, seed=0)
    trainer = lightning.Trainer(
        accelerator="cpu",
        max_epochs=epochs,
        callbacks=list(callbacks),
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        **({"enable_checkpointing": False} | settings),
    )
    trainer.fit(module, datamodule=VerticalDataModule(data(), data(), BATCH_SIZE), ckpt_path=ckpt_path)
    return module


def weights(module: SplitClassifier) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in module.network.state_dict().items()}


values = st.floats(-1e6, 1e6, width=32)


@settings(max_examples=30)
@given(st.lists(st.lists(values, min_size=3, max_size=3), min_size=1, max_size=8), st.data(), st.floats(0.01, 100))
def test_the_output_loss_is_bounded_and_so_is_its_derivative(
    rows: list[list[float]], draws: st.DataObject, cap: float
) -> None:
    outputs = torch.tensor(rows, dtype=torch.float64, requires_grad=True)
    has = torch.tensor(draws.draw(st.lists(st.booleans(), min_size=len(rows), max_size=len(rows))))
    loss = output_loss(outputs, has, cap)
    assert float(loss) >= -cap * 3
    (gradient,) = torch.autograd.grad(loss, outputs)
    assert float(gradient.abs().max()) <= 1 / len(rows) + 1e-12
    # Row by row, as the text says it: norms with the property are rewarded, up to the cap, the others punished.
    expected = sum(
        -min(float(row.abs().sum()), cap * 3) if known else float(row.abs().sum())
        for row, known in zip(outputs, has.tolist(), strict=True)
    ) / len(rows)
    assert float(loss) == pytest.approx(expected, rel=1e-9, abs=1e-9)


def test_as_coded_has_no_bound() -> None:
    logits = torch.tensor([[3.0, -4.0], [1.0, 2.0]])
    has = torch.tensor([True, False])
    assert float(output_loss_as_coded(logits, has)) == pytest.approx((-3 - 4 + 1 + 2) / 4)
    assert float(output_loss_as_coded(logits * torch.tensor([[1e9], [0.0]]), has)) < -1e9


def test_norms_of_rows_with_the_property_grow_to_the_cap_and_others_shrink() -> None:
    def norms(module: SplitClassifier) -> tuple[float, float]:
        inputs = data().party_inputs(PARTY, AUXILIARY)
        sent = module.network.party_output(PARTY, inputs).abs().mean(1)
        return float(sent[inputs[:, 0] > 0].mean()), float(sent[inputs[:, 0] <= 0].mean())

    gaps = [
        with_it - without for with_it, without in (norms(fit(refinement(strength=s), epochs=6)) for s in (0.0, 1, 4))
    ]
    assert gaps[0] + 0.05 < gaps[1] < gaps[2] - 0.05
    # Steps far too long for their loss: beyond the cap nothing is rewarded, so the norm stays near it.
    assert norms(fit(refinement(strength=30.0, cap=0.5), epochs=12))[0] < 5
    assert not norms(fit(refinement(strength=30.0, cap=1e9), epochs=12))[0] < 5


def test_one_step_is_that_of_autograd_on_the_whole_loss() -> None:
    """The slow reference: one graph through bottom network and head, and plain SGD with weight decay."""
    for objective in ("corrected", "as_coded"):
        callback = refinement(objective=objective, dropout=0.0, strength=2.0)
        callback._batch_size = len(AUXILIARY)
        seen: list[dict[str, Tensor]] = []

        class Before(lightning.Callback):
            def on_train_epoch_end(self, trainer: Any, pl_module: Any, seen: Any = seen) -> None:
                seen.append(weights(pl_module))

        module = fit(Before(), callback, epochs=1)
        fresh = SplitClassifier(SPEC, seed=0).network
        fresh.load_state_dict(seen[0])
        head = RefinementHead(6, ModelRefinementConfig(dropout=0.0), derive_seed(callback.seed, "head"))
        inputs = data().party_inputs(PARTY, AUXILIARY)
        has = inputs[:, 0] > 0
        outputs = fresh.party_output(PARTY, inputs)
        logits = head(outputs)
        extra = output_loss(outputs, has, 0.5) if objective == "corrected" else output_loss_as_coded(logits, has)
        (F.cross_entropy(logits, has.long()) + 2.0 * extra).backward()
        for name, value in module.network.named_parameters():
            before = seen[0][name]
            if name.startswith(f"bottoms.{PARTY}."):
                gradient = fresh.get_parameter(name).grad
                assert gradient is not None
                expected = before - 0.05 * (gradient + 1e-3 * before)
                torch.testing.assert_close(value, expected, rtol=1e-5, atol=1e-7)
                assert not torch.equal(value, before)
            else:
                assert torch.equal(value, before)


def test_the_head_is_the_published_one() -> None:
    head = RefinementHead(16, ModelRefinementConfig(), seed=3)
    assert [(layer.in_features, layer.out_features) for layer in head.linears] == [
        (16, 256),
        (256, 128),
        (128, 64),
        (64, 2),
    ]
    x = torch.randn(5, 16, generator=torch.Generator().manual_seed(0))
    state = torch.get_rng_state()
    reference = torch.nn.Sequential(*(part for layer in head.linears for part in (layer, torch.nn.Tanh())))[:-1]
    assert torch.equal(head(x), reference(x))
    assert torch.equal(RefinementHead(16, ModelRefinementConfig(), seed=3)(x), head(x))
    one, again, other = (head(x, torch.Generator().manual_seed(seed)) for seed in (0, 0, 1))
    assert torch.equal(one, again)
    assert not torch.equal(one, other)
    assert torch.equal(torch.get_rng_state(), state)


def test_dropout_keeps_the_mean_and_spares_the_last_hidden_layer() -> None:
    head = RefinementHead(1, ModelRefinementConfig(hidden=(1, 1, 1), dropout=0.5), seed=0)
    for layer in head.linears:
        layer.weight.data.fill_(1e-3)
        layer.bias.data.zero_()
    head.linears[-1].weight.data.fill_(1e9)
    draw = torch.Generator().manual_seed(0)
    answers = head(torch.ones(4000, 1), draw)[:, 0]
    # Almost linear here: 0, or four times the undropped value when both units are kept at rate 1/2.
    full = float(head(torch.ones(1, 1))[0, 0])
    assert sorted({round(float(a) / full, 3) for a in answers}) == [0.0, 4.0]
    assert float(answers.mean()) / full == pytest.approx(1.0, abs=0.1)


def test_the_same_seed_gives_the_same_training_and_the_global_generator_is_left_alone() -> None:
    state = torch.get_rng_state()
    one, again, other = (weights(fit(refinement(seed))) for seed in (0, 0, 1))
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(one[name], again[name]) for name in one)
    assert not all(torch.equal(one[name], other[name]) for name in one)


def test_every_epoch_takes_all_auxiliary_rows_once_in_another_order(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[Tensor] = []
    monkeypatch.setattr(ModelRefinement, "_step", lambda self, module, inputs, has, draw: taken.append(inputs))
    fit(refinement(), epochs=2)
    assert [len(batch) for batch in taken] == [8, 8, 4, 8, 8, 4]
    first, second = torch.cat(taken[:3]), torch.cat(taken[3:])
    assert not torch.equal(first, second)
    expected = data().party_inputs(PARTY, AUXILIARY)
    for rows in (first, second):
        assert sorted(rows.tolist()) == sorted(expected.tolist())


def test_a_resumed_training_goes_on_as_it_would_have(tmp_path: Path) -> None:
    saved = ModelCheckpoint(tmp_path, filename="{epoch}", save_top_k=-1)
    whole = weights(fit(refinement(), saved, epochs=4, enable_checkpointing=True))
    resumed = weights(fit(refinement(), epochs=4, ckpt_path=tmp_path / "epoch=1.ckpt"))
    assert all(torch.equal(whole[name], resumed[name]) for name in whole)


def test_what_cannot_be_is_refused() -> None:
    for wrong, message in (
        ({"objective": "printed"}, "objective must be one of corrected, as_coded, got 'printed'"),
        ({"strength": -1.0}, "strength must be at least 0, got -1.0"),
        ({"strength": float("nan")}, "strength must be a finite number, got nan"),
        ({"cap": 0.0}, "cap must be above 0, got 0.0"),
        ({"dropout": 1.0}, "dropout must be at least 0 and below 1"),
        ({"learning_rate": 0.0}, "learning_rate must be above 0"),
        ({"hidden": ()}, "hidden must be widths"),
    ):
        with pytest.raises(UsageError, match=message):
            ModelRefinementConfig(**wrong)
    with pytest.raises(UsageError, match=r"got \(4, 2\) and \(3,\)"):
        ModelRefinement(ModelRefinementConfig(), 0, torch.zeros(4, 2), torch.zeros(3).bool(), 0)
    with pytest.raises(UsageError, match="party must be from 0 to 1, got 2"):
        fit(ModelRefinement(ModelRefinementConfig(), 2, torch.zeros(4, 2), torch.zeros(4).bool(), 0))
    with pytest.raises(UsageError, match=r"inputs of party 0 must have shape \[n, 3\], got \(20, 2\)"):
        other = refinement()
        other.party = 0
        fit(other)
