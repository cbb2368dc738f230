"""Both matchers equal plain autograd, candidate by candidate, and each other."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from lightleak.attacks.gradient_inversion.network.activation import Activation
from lightleak.attacks.gradient_inversion.network.client import client_network
from lightleak.attacks.gradient_inversion.optimize.matcher import NetworkMatcher
from lightleak.attacks.gradient_inversion.optimize.matrix_products import MatrixProducts
from lightleak.attacks.gradient_inversion.optimize.mlp_matcher import MLPMatcher, _ExplicitLayer, _GramLayer, _layer
from lightleak.attacks.gradient_inversion.optimize.objective import OBJECTIVES
from lightleak.core.observations import ClientUpdate
from lightleak.data.layout import EncodedLayout
from lightleak.targets.functional import functional_call, twice_differentiable, without_dropout
from lightleak.targets.normalization import frozen_statistics
from lightleak.targets.spec import NETWORKS, NetworkSpec, build_network, is_differentiable

WIDTH = 15
Named = dict[str, Tensor]


class Problem:
    """Several updates of one network at double precision, and candidate batches."""

    def __init__(self, network: nn.Module, n: int, classes: int, updates: int = 2, restarts: int = 3) -> None:
        draw = torch.Generator().manual_seed(n)

        def random(*shape: int) -> Tensor:
            return torch.randn(*shape, generator=draw, dtype=torch.float64)

        self.network = network.double()
        self.parameters = {name: p.detach() + 0.1 * random(updates, *p.shape) for name, p in network.named_parameters()}
        self.buffers = {
            name: torch.stack([b + b.is_floating_point() * (u + 1) for u in range(updates)])
            for name, b in network.named_buffers()
        }
        self.targets = {name: 0.1 * random(*p.shape) for name, p in self.parameters.items()}
        self.labels = torch.randint(classes, (updates, n), generator=draw)
        self.x = random(updates, restarts, n, WIDTH)

    def of(self, update: int) -> tuple[Named, Named, list[Tensor]]:
        """Parameters, buffers and targets of one update."""
        parameters, buffers = ({k: v[update].clone() for k, v in g.items()} for g in (self.parameters, self.buffers))
        return parameters, buffers, [self.targets[name][update] for name in parameters]

    def gradients(self, update: int, x: Tensor) -> list[Tensor]:
        """Parameter gradients of a batch, differentiable by it."""
        parameters, buffers, _ = self.of(update)
        leaves = {name: p.requires_grad_() for name, p in parameters.items()}
        with frozen_statistics(self.network):
            logits = functional_call(self.network, (leaves, buffers), (x,))
        loss = cross_entropy(logits, self.labels[update])
        return list(torch.autograd.grad(loss, list(leaves.values()), create_graph=True, materialize_grads=True))

    def loss(self, objective: str, update: int, x: Tensor) -> Tensor:
        """The objective of one candidate, from its definition."""
        gradients, (_, _, targets) = self.gradients(update, x), self.of(update)
        pairs = list(zip(gradients, targets, strict=True))
        if objective == "squared_error":
            return torch.stack([(g - t).square().mean() for g, t in pairs]).sum()
        g, t = (torch.cat([tensor.flatten() for tensor in tensors]) for tensors in zip(*pairs, strict=True))
        if objective == "relative_error":
            return (g - t).square().sum() / t.square().sum()
        return 1 - g @ t / (g.norm() * t.norm())

    def slow(self, objective: str) -> tuple[Tensor, Tensor]:
        """Loss and derivative by a double loop and autograd."""
        updates, restarts, *_ = self.x.shape
        values, derivatives = torch.empty(updates, restarts, dtype=torch.float64), torch.empty_like(self.x)
        for u in range(updates):
            for r in range(restarts):
                x = self.x[u, r].clone().requires_grad_()
                loss = self.loss(objective, u, x)
                values[u, r], derivatives[u, r] = loss.detach(), torch.autograd.grad(loss, x)[0]
        return values, derivatives

    def by_network(self, objective: str) -> NetworkMatcher:
        """The general matcher."""
        tensors = self.parameters, self.buffers, self.targets
        return NetworkMatcher(self.network, *tensors, self.labels, OBJECTIVES[objective])

    def by_products(self, objective: str) -> MLPMatcher:
        """The closed form."""
        weights, biases = ([n for n in self.parameters if n.endswith(end)] for end in ("weight", "bias"))
        groups = [[g[n] for n in names] for g in (self.parameters, self.targets) for names in (weights, biases)]
        return MLPMatcher(*groups, self.labels, OBJECTIVES[objective])


def assert_equal(got: tuple[Tensor, Tensor], expected: tuple[Tensor, Tensor]) -> None:
    """Loss and derivative agree to float64 rounding."""
    torch.testing.assert_close(got[0], expected[0], rtol=1e-9, atol=1e-11)
    torch.testing.assert_close(got[1], expected[1], rtol=1e-7, atol=1e-10 * float(expected[1].abs().max()))


def mlp(hidden: tuple[int, ...], classes: int) -> nn.Module:
    """A ReLU network of these widths."""
    return build_network(NetworkSpec("mlp", classes, EncodedLayout.of_numerical(WIDTH), {"hidden": hidden}), seed=1)


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("classes", [2, 4])
@pytest.mark.parametrize("n", [1, 6, 12])
@pytest.mark.parametrize("hidden", [(), (20,), (20, 17), (14, 18, 16)], ids=str)
def test_the_closed_form_equals_torch_func_and_a_plain_loop(
    hidden: tuple[int, ...], n: int, classes: int, objective: str
) -> None:
    problem = Problem(mlp(hidden, classes), n, classes)
    expected = problem.slow(objective)
    before = problem.x.clone()
    for matcher in (problem.by_products(objective), problem.by_network(objective)):
        first = matcher.value_and_grad(problem.x)
        assert_equal(first, expected)
        assert torch.equal(problem.x, before)
        again = matcher.value_and_grad(problem.x)  # nothing in the matcher was written into
        assert torch.equal(again[0], first[0]) and torch.equal(again[1], first[1])


@pytest.mark.parametrize("function", [nn.GELU(), nn.Tanh(), nn.SiLU()], ids=str)
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_the_closed_form_holds_for_smooth_activations(function: nn.Module, objective: str) -> None:
    network = nn.Sequential(nn.Linear(WIDTH, 20), function, nn.Linear(20, 17), function, nn.Linear(17, 3)).double()
    problem = Problem(network, 6, 3)
    matcher = problem.by_products(objective)
    matcher.activation = Activation(function)
    assert_equal(matcher.value_and_grad(problem.x), problem.slow(objective))


def test_these_batches_lie_on_both_sides_of_the_switch() -> None:
    for n, kind in ((1, _GramLayer), (6, _GramLayer), (12, _ExplicitLayer)):
        factors = torch.randn(1, 2 * n, WIDTH), torch.randn(1, 2 * n, 20), torch.randn(1, 20, WIDTH)
        layer = _layer(*factors, n, MatrixProducts())
        assert isinstance(layer, kind)


@pytest.mark.parametrize("n", [1, 5, 30])
def test_both_forms_of_a_layer_give_the_same(n: int) -> None:
    updates, restarts = 2, 3
    hidden, error = (torch.randn(updates, restarts * n, w, dtype=torch.float64) for w in (7, 5))
    target = torch.randn(updates, 5, 7, dtype=torch.float64)
    gram, explicit = (kind(hidden, error, target, n, MatrixProducts()) for kind in (_GramLayer, _ExplicitLayer))
    torch.testing.assert_close(gram.inner, explicit.inner)
    torch.testing.assert_close(gram.norm, explicit.norm)
    by_target, by_gradient = (torch.randn(updates, restarts, dtype=torch.float64) for _ in range(2))
    for one, other in zip(*(form.derivatives(by_target, by_gradient) for form in (gram, explicit)), strict=True):
        torch.testing.assert_close(one, other)


def test_in_single_precision_the_closed_form_stays_close() -> None:
    problem = Problem(mlp((40, 30), 2), 8, 2)
    expected = problem.by_network("cosine").value_and_grad(problem.x)
    matcher = problem.by_products("cosine")
    single = MLPMatcher(
        [w.float() for w in matcher.weights],
        [b.squeeze(1).float() for b in matcher.biases],
        [t.float() for t in matcher.weight_targets],
        [t.squeeze(1).float() for t in matcher.bias_targets],
        problem.labels,
        OBJECTIVES["cosine"],
    )
    value, derivative = single.value_and_grad(problem.x.float())
    torch.testing.assert_close(value, expected[0].float(), rtol=0, atol=1e-5)
    torch.testing.assert_close(derivative, expected[1].float(), rtol=0, atol=1e-4 * float(expected[1].abs().max()))


SMALL = {
    "linear": {},
    "mlp": {"hidden": [6, 5], "activation": "tanh", "norm": "layer"},
    "resnet": {"hidden": [6, 5]},
    "resnet_preact": {"width": 6},
    "cnn": {"channels": 3, "hidden": [6]},
    "image_cnn": {"shape": [1, 3, 5], "channels": [2, 3], "hidden": 4},
    "gandalf": {"stages": 2},
    "category_embedding": {"layers": "6-5"},
    "ft_transformer": {
        "input_embed_dim": 8,
        "num_heads": 2,
        "num_attn_blocks": 1,
        **dict.fromkeys(("attn_dropout", "add_norm_dropout", "ff_dropout"), 0.0),
    },
    "autoint": {"embedding_dim": 8, "attn_embed_dim": 4, "num_heads": 2, "num_attn_blocks": 1},
    "danet": {"n_layers": 2, "abstlay_dim_1": 4, "k": 2, "dropout_rate": 0.0},
    "tabnet": {"n_d": 4, "n_a": 4, "n_steps": 2},
    "tabm": {"k": 3, "n_blocks": 2, "d_block": 6, "dropout": 0.0},
    "deeptab_mlp": {"layer_sizes": [6, 5], "dropout": 0.0},
    "frame_mlp": {"channels": 6, "num_layers": 2, "dropout_prob": 0.0},
    "frame_resnet": {"channels": 6, "num_layers": 1, "dropout_prob": 0.0},
    "frame_ft_transformer": {"channels": 8, "num_layers": 1},
    "realmlp_like": {"width": 6, "dropout": 0.0},
}


def small_network(name: str, training: bool) -> nn.Module:
    """A registered network with small layers."""
    layout = EncodedLayout.from_dict(
        {"blocks": [["a", 0, 1, False], ["b", 1, 7, True], ["c", 7, 14, True], ["d", 14, 15, False]]}
    )
    network = build_network(NetworkSpec(name, 3, layout, SMALL[name]), seed=0).train(training)
    return without_dropout(network)  # that of pytorch-frame's FT-Transformer is no option of it


def test_every_registered_network_is_covered() -> None:
    assert set(SMALL) == set(filter(is_differentiable, NETWORKS.names()))


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("name", SMALL)
def test_every_network_equals_a_plain_loop(name: str, training: bool) -> None:
    problem = Problem(small_network(name, training), n=4, classes=3)
    held = {key: value.clone() for key, value in problem.network.state_dict().items()}
    shared = {key: value.clone() for key, value in problem.buffers.items()}
    for objective in OBJECTIVES:
        with twice_differentiable():  # the loop's attention
            expected = problem.slow(objective)
        assert_equal(problem.by_network(objective).value_and_grad(problem.x), expected)
    assert all(torch.equal(value, held[key]) for key, value in problem.network.state_dict().items())
    assert all(torch.equal(value, shared[key]) for key, value in problem.buffers.items())


@pytest.mark.parametrize("name", ["mlp", "resnet", "cnn"])
def test_derivative_equals_finite_differences(name: str) -> None:
    problem = Problem(small_network(name, True), n=3, classes=3, updates=1, restarts=1)
    matcher, step = problem.by_network("cosine"), 1e-6
    _, derivative = matcher.value_and_grad(problem.x)
    direction = torch.randn_like(problem.x)
    up, down = (matcher.value_and_grad(problem.x + sign * step * direction)[0] for sign in (1, -1))
    torch.testing.assert_close((up - down).sum() / (2 * step), (derivative * direction).sum(), rtol=1e-4, atol=1e-8)


def test_the_closed_form_equals_finite_differences() -> None:
    problem = Problem(mlp((20, 17), 2), n=4, classes=2, updates=1, restarts=1)
    matcher, step = problem.by_products("cosine"), 1e-6
    _, derivative = matcher.value_and_grad(problem.x)
    direction = torch.randn_like(problem.x)
    up, down = (matcher.value_and_grad(problem.x + sign * step * direction)[0] for sign in (1, -1))
    torch.testing.assert_close((up - down).sum() / (2 * step), (derivative * direction).sum(), rtol=1e-4, atol=1e-8)


@pytest.mark.parametrize("network", ["mlp", "resnet"])
def test_the_true_batch_has_no_loss_and_no_slope(
    network: str, make_update: Callable[..., tuple[ClientUpdate, object]], stack: Callable[..., Named]
) -> None:
    pairs = [make_update(6, network, seed, hidden=[9, 8], dtype=torch.float64) for seed in range(2)]
    updates = [update for update, _ in pairs]
    matcher = NetworkMatcher(
        client_network(updates[0]).double(),
        stack(updates, "parameters"),
        stack(updates, "buffers"),
        stack(updates, "update"),
        torch.stack([truth.labels for _, truth in pairs]),
        OBJECTIVES["squared_error"],
    )
    truth = torch.stack([truth.inputs for _, truth in pairs]).double().unsqueeze(1)
    value, derivative = matcher.value_and_grad(truth)
    assert value.abs().max() < 1e-12 and derivative.abs().max() < 1e-9


class Tempered(nn.Module):
    """A network with a parameter of no dimension."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, 3)
        self.temperature = nn.Parameter(torch.tensor(2.0))

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x) * self.temperature


def test_parameters_without_dimensions_are_matched_too() -> None:
    problem = Problem(Tempered(), n=4, classes=3)
    for objective in OBJECTIVES:
        assert_equal(problem.by_network(objective).value_and_grad(problem.x), problem.slow(objective))
