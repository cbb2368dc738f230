"""What one FedAvg client sends: Algorithm 1 of Dimitrov et al. 2022, and no more than is shared."""

import copy
import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from lightleak.core.errors import ObservationError, UsageError
from lightleak.core.observations import ClientUpdate
from lightleak.data.encoder import TableEncoder
from lightleak.data.layout import EncodedLayout
from lightleak.data.marginals import Marginals
from lightleak.defenses.horizontal.defense import NoDefense, UpdateDefense
from lightleak.defenses.horizontal.noise import GaussianNoise
from lightleak.protocols import fedsgd
from lightleak.protocols.client_training import LocalTraining, run_client
from lightleak.protocols.fedavg import client_update, replay, require_replay
from lightleak.targets import NETWORKS, NetworkSpec, build_network
from lightleak.targets.spec import is_differentiable

Rows = tuple[Tensor, Tensor]
Client = Callable[..., Any]
HARD = {"norm": "batch", "dropout": 0.3}


@dataclasses.dataclass(frozen=True)
class Shrinking(UpdateDefense):
    """Multiplies by a factor, so that what it does can be followed exactly."""

    name: ClassVar[str] = "shrinking"
    citation: ClassVar[str] = ""
    factor: float = 0.5

    def apply(self, gradient: Mapping[str, Tensor], draws: torch.Generator) -> dict[str, Tensor]:
        return {name: g * self.factor for name, g in gradient.items()}

    @property
    def strength(self) -> float:
        return self.factor

    def describe(self) -> str:
        return f"times {self.factor}"


def same(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


DROPPING = {"danet", "ft_transformer", "tabm", "realmlp_like", "deeptab_mlp"}
DROPPING |= {"frame_mlp", "frame_resnet", "frame_ft_transformer"}
"""Networks whose dropout draws anew in every forward in train mode."""


@pytest.mark.parametrize(
    ("name", "training_mode"),
    [
        (name, training_mode)
        for name in sorted({*filter(is_differentiable, NETWORKS.names())} - {"image_cnn"})
        for training_mode in (True, False)
        if not (training_mode and name in DROPPING)
    ],
)
def test_one_epoch_of_one_batch_is_fedsgd(
    encoder: TableEncoder, rows: Rows, client: Client, name: str, training_mode: bool
) -> None:
    """-delta / learning rate is the gradient, up to the rounding of the weights (about 1e-8 of weights below 1)."""
    training = LocalTraining(epochs=1, batch_size=20, learning_rate=0.5)
    update, truth = client(range(20), training, name=name, training_mode=training_mode)
    spec = NetworkSpec(name, 2, encoder.layout)
    batch = truth.inputs, truth.labels
    gradient, _ = fedsgd.client_update(
        build_network(spec, seed=1), spec, encoder, *batch, share_labels=True, training_mode=training_mode
    )
    for parameter, value in gradient.update.items():
        torch.testing.assert_close(update.update[parameter] / -0.5, value, rtol=1e-4, atol=1e-6)
    assert truth.loss == pytest.approx(
        torch.nn.functional.cross_entropy(build_network(spec, seed=1).train(training_mode)(batch[0]), batch[1]).item()
    )
    assert require_replay(update, truth) == 0.0


@settings(max_examples=30)
@given(
    epochs=st.integers(1, 3),
    batch_size=st.integers(2, 12),
    momentum=st.sampled_from([0.0, 0.9]),
    weight_decay=st.sampled_from([0.0, 0.1]),
    reshuffle=st.booleans(),
    training_mode=st.booleans(),
    options=st.sampled_from([{}, HARD, {"norm": "layer", "dropout": 0.5}]),
    seed=st.integers(0, 2**40),
)
def test_local_training_is_that_of_torch_to_the_bit(
    encoder: TableEncoder,
    rows: Rows,
    plain_sgd: Callable[..., torch.nn.Module],
    epochs: int,
    batch_size: int,
    momentum: float,
    weight_decay: float,
    reshuffle: bool,
    training_mode: bool,
    options: dict[str, Any],
    seed: int,
) -> None:
    n = 11 if batch_size not in (2, 5, 10) else 12  # a batch of one row has no variance
    spec = NetworkSpec("mlp", 2, encoder.layout, {"hidden": [6, 6], **options})
    network = build_network(spec, seed=1)
    before = {name: value.detach() for name, value in network.named_parameters()}
    training = LocalTraining(epochs, batch_size, 0.1, momentum, weight_decay, reshuffle)
    batch = rows[0][:n], rows[1][:n]
    buffers = dict(network.named_buffers())
    run = run_client(network, before, buffers, *batch, training, seed=seed, training_mode=training_mode)
    after = plain_sgd(network.train(training_mode), *batch, training, run.order, run.dropout)
    assert same(run.trained.delta, {name: value.detach() - before[name] for name, value in after.named_parameters()})
    assert same(run.trained.buffers, dict(after.named_buffers()))
    moved = any(not torch.equal(run.trained.buffers[name], value) for name, value in buffers.items())
    assert moved == (training_mode and bool(buffers))


@given(n=st.integers(1, 9), epochs=st.integers(1, 4), reshuffle=st.booleans(), seed=st.integers(0, 99))
def test_every_epoch_takes_every_row_once(
    encoder: TableEncoder, rows: Rows, n: int, epochs: int, reshuffle: bool, seed: int
) -> None:
    spec = NetworkSpec("linear", 2, encoder.layout)
    training = LocalTraining(epochs, 2, 0.1, reshuffle=reshuffle)
    batch = rows[0][:n], rows[1][:n]
    settings = {"share_labels": "batches", "seed": seed}
    update, truth = client_update(build_network(spec, seed=1), spec, encoder, *batch, training, **settings)
    assert torch.equal(truth.order.sort(dim=1).values, torch.arange(n).expand(epochs, n))
    assert torch.equal(update.batch_labels, batch[1][truth.order].unsqueeze(0))
    assert update.facts.local_steps == epochs * ((n + 1) // 2)
    if not reshuffle:
        assert torch.equal(truth.order, truth.order[:1].expand_as(truth.order))


def test_epochs_are_reshuffled_or_not(client: Client) -> None:
    fixed, new = (client(training=LocalTraining(3, 4, 0.1, reshuffle=again))[1].order for again in (False, True))
    assert torch.equal(fixed[0], new[0])
    assert len({tuple(epoch.tolist()) for epoch in new}) == 3
    assert not torch.equal(new[0], torch.arange(11))


@settings(max_examples=15)
@given(permutation=st.permutations(range(11)))
def test_the_rows_may_be_stored_in_any_order(client: Client, permutation: list[int]) -> None:
    update, truth = client(norm="batch", dropout=0.4)
    stored, position = torch.tensor(permutation), torch.tensor(permutation).argsort()
    moved = dataclasses.replace(
        truth, inputs=truth.inputs[stored], labels=truth.labels[stored], order=position[truth.order]
    )
    assert replay(update, moved) == 0.0


def test_everything_random_follows_the_seed_alone(client: Client) -> None:
    before = torch.get_rng_state()
    first, truth = client(seed=3, dropout=0.5)
    assert torch.equal(torch.get_rng_state(), before)
    torch.rand(5)
    again, _ = client(seed=3, dropout=0.5)
    assert same(first.update, again.update)
    other, elsewhere = client(seed=4, dropout=0.5)
    assert not torch.equal(truth.order, elsewhere.order)
    assert not same(first.update, other.update)
    # Dropout also differs from step to step and between seeds where the batches are the same.
    whole = LocalTraining(1, 11, 0.1)
    one, two = (client(training=whole, seed=seed, dropout=0.5)[0] for seed in (3, 4))
    largest = max(float((one.update[name] - two.update[name]).abs().max()) for name in one.update)
    assert largest > 1e-4  # the order within one batch alone makes 1e-8


def test_client_keeps_its_network(encoder: TableEncoder, rows: Rows) -> None:
    spec = NetworkSpec("mlp", 2, encoder.layout, HARD)
    network = build_network(spec, seed=1).eval()
    next(m for m in network.modules() if isinstance(m, torch.nn.BatchNorm1d)).train()
    modes = [module.training for module in network.modules()]
    before = copy.deepcopy(network.state_dict())
    settings = {"share_labels": "counts", "seed": 0}
    update, truth = client_update(network, spec, encoder, *rows, LocalTraining(2, 8, 0.1), **settings)
    assert same(before, network.state_dict())
    assert [module.training for module in network.modules()] == modes
    assert all(parameter.grad is None for parameter in network.parameters())
    # Nor does what was sent follow the network when it trains on.
    with torch.no_grad():
        for value in (*network.parameters(), *network.buffers()):
            value.zero_()
    assert same(update.parameters, {name: before[name] for name in update.parameters})
    assert same(update.buffers, {name: before[name] for name in update.buffers})
    assert same(truth.buffers, update.buffers)


def test_only_what_is_shared_is_sent(encoder: TableEncoder, rows: Rows, client: Client, frame: Any) -> None:
    least, truth = client(range(20), share_labels="none", share_buffers=False, norm="batch")
    assert least.labels is None
    assert least.batch_labels is None
    assert least.marginals is None
    assert not least.buffers
    assert truth.buffers
    counts, _ = client(range(20), share_labels="counts")
    assert counts.batch_labels is None
    assert torch.equal(counts.labels, rows[1][:20].sort().values)
    assert not torch.equal(counts.labels, truth.labels)
    batches, truth = client(range(20), share_labels="batches")
    assert torch.equal(batches.labels, counts.labels)
    assert torch.equal(batches.batch_labels[0], truth.labels[truth.order])
    spec, marginals = NetworkSpec("linear", 2, encoder.layout), Marginals.of(encoder.schema, frame)
    most, _ = client_update(
        build_network(spec, seed=1),
        spec,
        encoder,
        *rows,
        LocalTraining(),
        share_labels="none",
        marginals=marginals,
        seed=0,
    )
    assert Marginals.from_dict(most.marginals) == marginals


def test_the_order_of_shared_label_counts_tells_nothing(client: Client) -> None:
    one, other = (client(chosen, share_labels="counts")[0].labels for chosen in (range(20), range(19, -1, -1)))
    assert torch.equal(one, other)


def test_facts_are_those_of_the_training(client: Client) -> None:
    update, _ = client(range(18), LocalTraining(3, 4, 0.25, 0.9, 0.01), epoch=7)
    facts = update.facts
    assert (update.kind, update.state, facts.defense) == ("delta", "raw", "none")
    assert (facts.n_rows, facts.n_clients, facts.epochs, facts.batch_size, facts.local_steps) == (18, 1, 3, 4, 15)
    assert (facts.learning_rate, facts.momentum, facts.weight_decay, facts.epoch) == (0.25, 0.9, 0.01, 7)


def test_encoder_may_be_anything_that_tells_its_state(rows: Rows) -> None:
    class Scale:
        def to_state(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
            return {"kind": "images", "shape": [1, 1, 5]}, {}

    spec = NetworkSpec("linear", 2, EncodedLayout.of_numerical(5))
    update, truth = client_update(
        build_network(spec, seed=1), spec, Scale(), *rows, LocalTraining(), share_labels="none", seed=0
    )
    assert update.encoder == {"kind": "images", "shape": [1, 1, 5]}
    assert not update.encoder_tensors
    assert require_replay(update, truth) == 0.0


def test_update_survives_its_journey(client: Client, tmp_path: Any) -> None:
    update, truth = client(norm="batch", dropout=0.4)
    update.save(tmp_path)
    loaded = ClientUpdate.load(tmp_path)
    assert torch.equal(loaded.batch_labels, update.batch_labels)
    assert loaded.facts == update.facts
    assert require_replay(loaded, truth) == 0.0


def test_a_defended_update_is_defended_in_the_scale_of_a_gradient(client: Client) -> None:
    training = LocalTraining(2, 4, 0.1, momentum=0.5)
    raw, _ = client(training=training)
    noised, _ = client(training=training, defense=GaussianNoise(0.3))
    assert (noised.state, noised.facts.defense) == ("noised", "Gaussian noise of scale 0.3")
    # 2 epochs of 3 steps at rate 0.1.
    noise = torch.cat([(noised.update[n] - raw.update[n]).flatten() / (0.1 * 6) for n in raw.update])
    assert len(noise) > 10_000
    assert noise.std() == pytest.approx(0.3, rel=0.03)  # four standard errors of 10,000 draws
    half, _ = client(training=training, defense=Shrinking(0.5))
    for name, value in raw.update.items():
        torch.testing.assert_close(half.update[name], value / 2)


def test_defended_steps_train_on_with_what_they_sent(client: Client) -> None:
    """Half of every gradient is half the learning rate; half of the finished update is not, as the steps differ."""
    rate = LocalTraining(2, 4, 1.0)
    steps, truth = client(training=rate, defense=Shrinking(0.5), defend="steps", dropout=0.2)
    slow, _ = client(training=dataclasses.replace(rate, learning_rate=0.5), dropout=0.2)
    assert same(steps.update, slow.update)
    update, _ = client(training=rate, defense=Shrinking(0.5), dropout=0.2)
    assert not torch.allclose(update.update["linears.0.weight"], slow.update["linears.0.weight"], rtol=1e-3)
    assert steps.state == "noised"
    assert torch.tensor(require_replay(steps, truth)).isnan()


def test_noise_of_every_step_is_new(client: Client) -> None:
    """Six steps of fresh noise move a weight by rate * scale * sqrt(6), of the same noise by rate * scale * 6."""
    training = LocalTraining(2, 4, 1e-4)
    update, _ = client(training=training, defense=GaussianNoise(1.0), defend="steps")
    # 10,000 entries; the true gradient of these weights is about 0.01.
    assert update.update["linears.1.weight"].std() == pytest.approx(1e-4 * 6**0.5, rel=0.03)


def test_a_defense_that_does_nothing_leaves_a_raw_update(client: Client) -> None:
    raw, _ = client()
    plain, truth = client(defense=NoDefense())
    assert same(raw.update, plain.update)
    assert (plain.state, plain.facts.defense) == ("raw", "none")
    assert require_replay(plain, truth) == 0.0


def test_local_batches_of_one_row_are_refused_where_they_have_no_variance(client: Client) -> None:
    with pytest.raises(UsageError, match="batch_size 4 leaves a local batch of one row of 21"):
        client(range(21), norm="batch")
    with pytest.raises(UsageError, match="batch_size 1 leaves a local batch of one row of 4"):
        client(range(4), LocalTraining(1, 1), norm="batch")
    client(range(21), norm="batch", training_mode=False)
    client(range(21), norm="layer")
    client([0], LocalTraining(2, 32))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"share_labels": True}, "share_labels must be one of none, counts, batches, got True"),
        ({"defend": "rows"}, "defend must be one of update, steps, got 'rows'"),
        ({"defense": "gaussian_noise"}, "defense must be a defense of what clients send or None, got str"),
    ],
)
def test_wrong_settings_are_refused(client: Client, change: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        client(**change)


@pytest.mark.parametrize(
    ("inputs", "labels", "message"),
    [
        (torch.zeros(2, 4), torch.zeros(2, dtype=torch.long), r"encoded rows \[n, 5\]"),
        (torch.zeros(0, 5), torch.zeros(0, dtype=torch.long), "n >= 1"),
        (torch.zeros(2, 5), torch.tensor([0, 2]), "from 0 to 1, got 0 to 2"),
    ],
)
def test_rows_the_network_cannot_take_are_refused(
    encoder: TableEncoder, inputs: Tensor, labels: Tensor, message: str
) -> None:
    spec = NetworkSpec("mlp", 2, encoder.layout)
    with pytest.raises(UsageError, match=message):
        client_update(
            build_network(spec, seed=1), spec, encoder, inputs, labels, LocalTraining(), share_labels="none", seed=0
        )


def test_training_that_diverges_is_no_update(client: Client) -> None:
    with pytest.raises(ObservationError, match="must be finite"):
        client(training=LocalTraining(10, 4, 1e30))
