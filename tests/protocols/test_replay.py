"""A record is held against its batch: the true one passes, a false one is refused with the figure."""

import dataclasses
import logging
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from lightleak.core.errors import ObservationError, UsageError
from lightleak.core.ground_truth import GroundTruth
from lightleak.core.observations import ClientUpdate
from lightleak.data.encoder import TableEncoder
from lightleak.protocols.fedsgd import client_update, replay, require_replay
from lightleak.protocols.local_pass import generator_set_to, local_pass
from lightleak.protocols.records import RecordedBatch
from lightleak.protocols.replay import deviation, recomputed_gradient
from lightleak.targets import NetworkSpec, build_network

Rows = tuple[Tensor, Tensor]
Pair = tuple[ClientUpdate, RecordedBatch]
Make = Callable[..., Pair]


@pytest.fixture(scope="session")
def make(encoder: TableEncoder, rows: Rows) -> Make:
    def make(name: str = "mlp", training_mode: bool = True, share_buffers: bool = True, **options: object) -> Pair:
        spec = NetworkSpec(name, 2, encoder.layout, options)
        return client_update(
            build_network(spec, seed=1),
            spec,
            encoder,
            *rows,
            share_labels=True,
            share_buffers=share_buffers,
            training_mode=training_mode,
        )

    return make


def scaled(update: ClientUpdate, factor: float, state: str = "raw") -> ClientUpdate:
    return dataclasses.replace(update, update={k: v * factor for k, v in update.update.items()}, state=state)


@pytest.mark.parametrize("training_mode", [True, False])
def test_a_true_record_replays_to_the_bit(make: Make, training_mode: bool) -> None:
    assert replay(*make(norm="batch", training_mode=training_mode)) == 0.0


def test_a_wrong_row_a_wrong_label_and_wrong_weights_are_noticed(make: Make) -> None:
    update, truth = make()
    inputs, labels = truth.inputs.clone(), truth.labels.clone()
    inputs[3] = inputs[4]
    with pytest.raises(ObservationError, match=r"does not reproduce the raw gradient of step 0: largest deviation"):
        require_replay(update, dataclasses.replace(truth, inputs=inputs))
    labels[3] = 1 - labels[3]
    unlabeled = dataclasses.replace(update, labels=None)
    assert replay(unlabeled, dataclasses.replace(truth, labels=labels)) > 1e-3
    with pytest.raises(ObservationError, match="labels that the update shares"):
        replay(update, dataclasses.replace(truth, labels=labels))
    moved = {name: value + 0.01 for name, value in update.parameters.items()}
    assert replay(dataclasses.replace(update, parameters=moved), truth) > 1e-3
    assert replay(scaled(update, 0.5), truth) == pytest.approx(0.5)


def test_order_of_the_rows_does_not_matter(make: Make) -> None:
    update, truth = make()
    order = torch.randperm(len(truth.labels))
    shuffled = dataclasses.replace(truth, inputs=truth.inputs[order], labels=truth.labels[order])
    assert require_replay(update, shuffled) < 1e-5


def test_tolerance_is_the_callers(make: Make) -> None:
    update, truth = make()
    off = scaled(update, 1.001)
    with pytest.raises(ObservationError, match="at most 1e-04 is allowed"):
        require_replay(off, truth)
    assert require_replay(off, truth, tolerance=0.01) == pytest.approx(0.001, rel=0.01)


@given(factor=st.floats(1e-3, 1.0))
def test_a_gradient_clipped_by_norm_keeps_its_direction(make: Make, factor: float) -> None:
    update, truth = make()
    assert require_replay(scaled(update, factor, "clipped"), truth) < 1e-5


@given(share=st.floats(0.01, 1.0))
def test_a_gradient_clipped_by_value_is_clamped(make: Make, share: float) -> None:
    update, truth = make()
    bound = share * max(float(g.abs().max()) for g in update.update.values())
    clamped = {name: g.clamp(-bound, bound) for name, g in update.update.items()}
    assert require_replay(dataclasses.replace(update, update=clamped, state="clipped"), truth) < 1e-5


def test_clipping_never_enlarges_nor_turns(make: Make) -> None:
    update, truth = make()
    assert replay(scaled(update, 2.0, "clipped"), truth) == pytest.approx(0.5, rel=1e-3)
    assert replay(scaled(update, -0.5, "clipped"), truth) > 1.0
    turned = {name: g + 0.1 * g.abs().max() * torch.randn_like(g) for name, g in update.update.items()}
    with pytest.raises(ObservationError, match="the clipped gradient"):
        require_replay(dataclasses.replace(update, update=turned, state="clipped"), truth)


def test_a_noised_gradient_is_not_checked_and_it_is_said(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    update, truth = make()
    noised = scaled(update, 3.0, "noised")
    with caplog.at_level(logging.WARNING):
        assert torch.tensor(require_replay(noised, truth)).isnan()
    assert "was not checked" in caplog.text


def test_dropout_replays_from_the_recorded_generator(make: Make) -> None:
    update, truth = make(dropout=0.5)
    torch.rand(7)
    state = torch.get_rng_state()
    assert replay(update, truth) == 0.0
    assert torch.equal(torch.get_rng_state(), state), "replay must leave the global generator as it was"
    other = dataclasses.replace(truth, generator_states=torch.get_rng_state().unsqueeze(0))
    assert replay(update, other) > 1e-2


def releases_of(first: ClientUpdate, truth: RecordedBatch) -> ClientUpdate:
    """Two gradients of the same rows, an SGD step apart."""
    moved = {name: value - 0.1 * first.update[name] for name, value in first.parameters.items()}
    second = dataclasses.replace(first, parameters=moved)
    return ClientUpdate.of_releases([first, dataclasses.replace(second, update=recomputed_gradient(second, truth))])


def test_every_release_of_the_rows_is_replayed(make: Make) -> None:
    update, truth = make()
    both = releases_of(update, truth)
    assert require_replay(both, truth) == 0.0
    wrong = {name: value + 1e6 for name, value in both.further_updates.items()}
    with pytest.raises(ObservationError, match="does not reproduce"):
        require_replay(dataclasses.replace(both, further_updates=wrong), truth)


def test_releases_under_dropout_are_refused(make: Make) -> None:
    both = releases_of(*(made := make(dropout=0.5)))
    with pytest.raises(ObservationError, match="generator of each of the 2 releases"):
        replay(both, made[1])


def test_dropout_without_its_generator_is_refused(make: Make) -> None:
    update, truth = make(dropout=0.5)
    with pytest.raises(ObservationError, match="needs 1 generator states, one per micro-batch; recorded: none"):
        replay(update, GroundTruth(truth.inputs, truth.labels))
    damaged = dataclasses.replace(truth, generator_states=truth.generator_states[:, :100])
    with pytest.raises(ObservationError, match="generator state is damaged"):
        replay(update, damaged)


def test_dropout_in_eval_mode_needs_no_generator(make: Make) -> None:
    update, truth = make(dropout=0.5, training_mode=False)
    assert replay(update, GroundTruth(truth.inputs, truth.labels)) == 0.0


def test_buffers_come_from_the_truth_where_they_are_not_shared(make: Make) -> None:
    update, truth = make(norm="batch", training_mode=False, share_buffers=False)
    moved = {n: b + 1 if b.is_floating_point() else b for n, b in truth.buffers.items()}
    assert replay(update, truth) == 0.0
    assert replay(update, dataclasses.replace(truth, buffers=moved)) > 1e-2


def test_micro_batches_are_normalized_one_by_one(make: Make) -> None:
    """The mean of the gradients of the parts, which under BatchNorm is not the gradient of the whole."""
    update, truth = make(norm="batch")
    facts = dataclasses.replace(update.facts, batch_size=16)
    in_parts = dataclasses.replace(update, facts=facts)
    assert replay(in_parts, truth) > 1e-2
    network = build_network(NetworkSpec.from_dict(update.network), seed=1)
    for inputs, labels in zip(truth.inputs.split(16), truth.labels.split(16), strict=True):
        (torch.nn.functional.cross_entropy(network(inputs), labels) / 3).backward()
    mean = {name: parameter.grad for name, parameter in network.named_parameters()}
    assert replay(dataclasses.replace(in_parts, update=mean), truth) == 0.0


@pytest.mark.parametrize(
    ("facts", "kind", "message"),
    [
        ({}, "delta", "needs the record of its clients.* got RecordedBatch"),
        ({"epochs": 2}, "gradient", "of 2 epochs"),
        ({"n_clients": 4}, "gradient", "4 clients"),
        ({"n_rows": 5}, "gradient", "speaks of 5 rows, the recorded batch has 48 rows"),
    ],
)
def test_what_replay_has_no_meaning_for_is_refused(make: Make, facts: dict[str, int], kind: str, message: str) -> None:
    update, truth = make()
    changed = dataclasses.replace(update.facts, **facts)
    with pytest.raises(ObservationError, match=message):
        replay(dataclasses.replace(update, facts=changed, kind=kind, labels=None), truth)


def test_records_that_do_not_fit_their_network_are_refused(make: Make) -> None:
    update, truth = make()
    with pytest.raises(UsageError, match="encoded rows"):
        replay(update, dataclasses.replace(truth, inputs=truth.inputs[:, 1:]))
    bent = {n: v[:-1] if n == "linears.0.bias" else v for n, v in update.parameters.items()}
    gradient = {n: v[:-1] if n == "linears.0.bias" else v for n, v in update.update.items()}
    with pytest.raises(ObservationError, match=r"\['linears.0.bias'\] do not fit the network 'mlp'"):
        replay(dataclasses.replace(update, parameters=bent, update=gradient), truth)


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without CUDA")
def test_a_record_from_a_device_that_is_not_here(make: Make) -> None:
    update, truth = make()
    network = build_network(NetworkSpec.from_dict(update.network))
    half = local_pass(network, update.parameters, {}, truth.inputs, truth.labels, autocast="bfloat16").gradient
    update = dataclasses.replace(update, update=half)
    elsewhere = dataclasses.replace(truth, device="cuda", autocast="bfloat16")
    # bfloat16 keeps 8 bits: a few units of its last place pass, more do not.
    assert require_replay(scaled(update, 1.01), elsewhere) == pytest.approx(0.01, rel=0.01)
    with pytest.raises(ObservationError, match="at most 3e-02 is allowed"):
        require_replay(scaled(update, 1.1), elsewhere)
    with pytest.raises(ObservationError, match="at most 1e-04 is allowed"):
        require_replay(scaled(update, 1.01), dataclasses.replace(elsewhere, device="cpu"))
    update, truth = make(dropout=0.5)
    with pytest.raises(ObservationError, match="the generator of 'cuda', which is not here"):
        replay(update, dataclasses.replace(truth, device="cuda"))


@given(
    a=st.lists(st.floats(-10, 10), min_size=3, max_size=3),
    b=st.lists(st.floats(-10, 10), min_size=3, max_size=3),
)
def test_deviation_is_symmetric_and_zero_only_for_equals(a: list[float], b: list[float]) -> None:
    one, other = torch.tensor(a, dtype=torch.float64), torch.tensor(b, dtype=torch.float64)
    assert deviation(one, other) == deviation(other, one)
    assert (deviation(one, other) == 0) == torch.equal(one, other)
    assert deviation(torch.zeros(3), torch.zeros(3)) == 0.0


def test_recorded_batch_comes_back(make: Make, tmp_path: Path) -> None:
    _, truth = make(norm="batch", dropout=0.2)
    truth = dataclasses.replace(truth, autocast="float16", loss_scale=65536.0)
    truth.save(tmp_path)
    loaded = RecordedBatch.load(tmp_path)
    for field in dataclasses.fields(RecordedBatch):
        one, other = getattr(loaded, field.name), getattr(truth, field.name)
        if field.name == "buffers":
            assert one.keys() == other.keys()
            assert all(torch.equal(one[name], other[name]) for name in one)
        else:
            assert torch.equal(one, other) if isinstance(one, Tensor) else one == other
    assert torch.equal(GroundTruth.load(tmp_path).inputs, truth.inputs)


def test_damaged_records_of_a_forward_are_refused(make: Make, tmp_path: Path) -> None:
    _, truth = make()
    truth.save(tmp_path)
    path = tmp_path / "forward.safetensors"
    whole = path.read_bytes()
    for damaged in (b"", whole[:20], whole.replace(b'"none"', b'"nine"')):
        path.write_bytes(damaged)
        with pytest.raises(ObservationError, match="is not the record of a forward"):
            RecordedBatch.load(tmp_path)
    path.unlink()
    with pytest.raises(ObservationError, match="no record of a forward"):
        RecordedBatch.load(tmp_path)


def test_generator_is_lent_and_given_back() -> None:
    start = torch.get_rng_state()
    first = torch.rand(3)
    after = torch.get_rng_state()
    # A view that begins inside its storage, as one row of several recorded states is.
    with generator_set_to(torch.stack([after, start])[1], torch.device("cpu")):
        assert torch.equal(torch.rand(3), first)
    assert torch.equal(torch.get_rng_state(), after)
