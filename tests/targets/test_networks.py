"""Every registered network: rebuilt from its specification, seeded, and differentiable the way attacks need it."""

import copy
import json
import random
from collections.abc import Iterator

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import grad, stack_module_state, vmap

from lightleak.core.errors import UsageError
from lightleak.data.layout import EncodedLayout
from lightleak.targets.functional import functional_call, gradients, twice_differentiable
from lightleak.targets.normalization import frozen_statistics
from lightleak.targets.spec import NETWORKS, NetworkSpec, build_network, is_differentiable

CLASSES, ROWS, CANDIDATES = 3, 5, 3
CASES = [
    ("linear", {}),
    ("mlp", {"hidden": [6, 5]}),
    ("mlp", {"hidden": [6, 5], "activation": "gelu", "norm": "layer"}),
    ("mlp", {"hidden": [6], "activation": "tanh", "norm": "batch"}),
    ("mlp", {"hidden": [6], "activation": "sigmoid"}),
    ("mlp", {"hidden": [6], "activation": "leaky_relu"}),
    ("mlp", {"hidden": [6], "activation": "elu"}),
    ("resnet", {"hidden": [6, 5]}),
    ("resnet_preact", {"width": 6}),
    ("resnet_preact", {"width": 6, "n_blocks": 1, "norm": "layer"}),
    ("cnn", {"channels": 3, "hidden": [6]}),
    ("image_cnn", {"shape": [1, 2, 4], "channels": [2, 3], "hidden": 4}),
    ("image_cnn", {"shape": [2, 2, 2], "channels": [2, 3], "hidden": 4, "initialization": "flax"}),
    ("gandalf", {"stages": 2}),
    ("gandalf", {"stages": 1, "normalize_numerical": False, "learnable_sparsity": False}),
    ("category_embedding", {"layers": "6-5"}),
    (
        "ft_transformer",
        {"input_embed_dim": 8, "num_heads": 2, "num_attn_blocks": 1}
        | dict.fromkeys(("attn_dropout", "add_norm_dropout", "ff_dropout"), 0.0),
    ),
    ("autoint", {"embedding_dim": 8, "attn_embed_dim": 4, "num_heads": 2, "num_attn_blocks": 1}),
    ("danet", {"n_layers": 2, "abstlay_dim_1": 4, "k": 2, "dropout_rate": 0.0}),
    ("tabnet", {"n_d": 4, "n_a": 4, "n_steps": 2}),
    ("tabm", {"k": 3, "n_blocks": 2, "d_block": 6, "dropout": 0.0}),
    ("deeptab_mlp", {"layer_sizes": [6, 5], "dropout": 0.0}),
    ("frame_mlp", {"channels": 6, "num_layers": 2, "dropout_prob": 0.0}),
    ("frame_resnet", {"channels": 6, "num_layers": 1, "dropout_prob": 0.0}),
    ("frame_ft_transformer", {"channels": 8, "num_layers": 1}),
    ("realmlp_like", {"width": 6, "dropout": 0.0}),
]


def identifier(case: tuple[str, dict[str, object]]) -> str:
    """``name-option-option`` of a case."""
    return "-".join([case[0], *(f"{key}={value}" for key, value in case[1].items())])


@pytest.fixture(params=CASES, ids=identifier)
def spec(request: pytest.FixtureRequest, layout: EncodedLayout) -> NetworkSpec:
    """Each network with small layers."""
    name, options = request.param
    return NetworkSpec(name, CLASSES, layout, options)


def built_without_dropout(spec: NetworkSpec, seed: int) -> nn.Module:
    """The network; dropout of pytorch-frame's FT-Transformer is no option of it."""
    network = build_network(spec, seed)
    for module in network.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
        elif isinstance(module, nn.MultiheadAttention):
            module.dropout = 0.0
    return network


@pytest.fixture(autouse=True)
def attention_in_the_mode_of_attacks() -> Iterator[None]:
    """Attention as attacks compute it."""
    with twice_differentiable():
        yield


@pytest.fixture(params=["train", "eval"])
def network(request: pytest.FixtureRequest, spec: NetworkSpec) -> nn.Module:
    """The network in float64, with running statistics that differ from their initial values."""
    built = built_without_dropout(spec, 0).double()
    for _ in range(3):
        built(torch.randn(16, spec.layout.width, dtype=torch.float64) * 2 + 1)
    return built.train(request.param == "train")


@pytest.fixture
def labels() -> Tensor:
    """One label per row."""
    return torch.arange(ROWS) % CLASSES


def candidates(spec: NetworkSpec) -> Tensor:
    """``[CANDIDATES, ROWS, d]``."""
    return torch.randn(CANDIDATES, ROWS, spec.layout.width, dtype=torch.float64)


def state(network: nn.Module) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Detached parameters and buffers."""
    parameters = {name: value.detach() for name, value in network.named_parameters()}
    return parameters, dict(network.named_buffers())


def plain_gradient(network: nn.Module, inputs: Tensor, labels: Tensor, create_graph: bool = False) -> dict[str, Tensor]:
    """The reference: backward through the module itself, one batch at a time."""
    with frozen_statistics(network):
        loss = F.cross_entropy(network(inputs), labels)
    trained = {name: value for name, value in network.named_parameters() if value.requires_grad}
    return dict(zip(trained, torch.autograd.grad(loss, list(trained.values()), create_graph=create_graph), strict=True))


def squared_norm(gradient: dict[str, Tensor], names: set[str]) -> Tensor:
    """``||gradient||^2`` over ``names``."""
    return sum((gradient[name].square().sum() for name in sorted(names)), torch.zeros((), dtype=torch.float64))


def trained_names(network: nn.Module) -> set[str]:
    """Parameters that training moves."""
    return {name for name, value in network.named_parameters() if value.requires_grad}


def test_every_registered_network_has_a_case() -> None:
    assert {name for name, _ in CASES} == set(filter(is_differentiable, NETWORKS.names()))


def test_rebuilds_from_its_specification_as_json(spec: NetworkSpec) -> None:
    again = NetworkSpec.from_dict(json.loads(json.dumps(spec.to_dict())))
    assert again.layout == spec.layout
    network, rebuilt = built_without_dropout(spec, 1), built_without_dropout(again, 1)
    inputs = torch.randn(ROWS, spec.layout.width)
    torch.testing.assert_close(rebuilt(inputs), network(inputs), rtol=0, atol=0)


def test_the_seed_alone_decides_the_weights(spec: NetworkSpec) -> None:
    torch.manual_seed(11)
    first = build_network(spec, seed=5).state_dict()
    torch.manual_seed(12)
    random.seed(12)  # pytorch-tabular draws its masks from Python's generator
    second, other = build_network(spec, seed=5).state_dict(), build_network(spec, seed=6).state_dict()
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert any(not torch.equal(first[name], other[name]) for name in first)


def test_building_leaves_the_global_generators_alone(spec: NetworkSpec) -> None:
    torch.manual_seed(3)
    random.seed(3)
    expected = torch.rand(1), random.random()
    torch.manual_seed(3)
    random.seed(3)
    build_network(spec, seed=0)
    assert (torch.rand(1), random.random()) == expected


def test_logits_have_one_column_per_class(network: nn.Module, spec: NetworkSpec) -> None:
    assert network(candidates(spec)[0]).shape == (ROWS, CLASSES)


def test_every_trained_parameter_reaches_the_loss(network: nn.Module, spec: NetworkSpec, labels: Tensor) -> None:
    plain_gradient(network, candidates(spec)[0], labels)  # autograd.grad raises where one does not


def test_functional_call_equals_the_module(network: nn.Module, spec: NetworkSpec) -> None:
    inputs = candidates(spec)[0]
    with frozen_statistics(network):
        torch.testing.assert_close(functional_call(network, state(network), (inputs,)), network(inputs))


def test_gradients_equal_the_plain_backward(network: nn.Module, spec: NetworkSpec, labels: Tensor) -> None:
    inputs = candidates(spec)[0]
    before = copy.deepcopy(network.state_dict())
    parameters, buffers = state(network)
    gradient = gradients(network, parameters, buffers, inputs, labels)
    for name, expected in plain_gradient(network, inputs, labels).items():
        torch.testing.assert_close(gradient[name], expected, msg=lambda text, name=name: f"{name}: {text}")
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())


def test_vmap_over_candidate_batches_equals_the_loop(network: nn.Module, spec: NetworkSpec, labels: Tensor) -> None:
    batches = candidates(spec)
    parameters, buffers = state(network)
    mapped = vmap(lambda inputs: gradients(network, parameters, buffers, inputs, labels))(batches)
    for index, inputs in enumerate(batches):
        for name, expected in plain_gradient(network, inputs, labels).items():
            torch.testing.assert_close(mapped[name][index], expected)


def test_vmap_over_stacked_parameters_equals_the_loop(spec: NetworkSpec, network: nn.Module, labels: Tensor) -> None:
    batches = candidates(spec)
    clients = [built_without_dropout(spec, index).double().train(network.training) for index in range(CANDIDATES)]
    parameters, buffers = stack_module_state(clients)

    def one(values: dict[str, Tensor], own: dict[str, Tensor], inputs: Tensor) -> dict[str, Tensor]:
        return gradients(network, values, own, inputs, labels)

    mapped = vmap(one)(parameters, buffers, batches)
    for index, client in enumerate(clients):
        for name, expected in plain_gradient(client, batches[index], labels).items():
            torch.testing.assert_close(mapped[name][index], expected)


def test_input_gradient_of_the_gradient_norm(network: nn.Module, spec: NetworkSpec, labels: Tensor) -> None:
    """Double backward against finite differences along a random direction."""
    parameters, buffers = state(network)
    names = trained_names(network)

    def norm(inputs: Tensor) -> Tensor:
        return squared_norm(gradients(network, parameters, buffers, inputs, labels), names)

    inputs = candidates(spec)[0].requires_grad_()
    assert torch.autograd.gradcheck(norm, (inputs,), eps=1e-6, atol=1e-5, rtol=1e-4, fast_mode=True)


@pytest.mark.parametrize("outer", ["autograd", "func"])
def test_input_gradients_of_mapped_norms_equal_the_loop(
    network: nn.Module, spec: NetworkSpec, labels: Tensor, outer: str
) -> None:
    """Differentiating a vmap of gradients from outside is where PyTorch's fused normalizations go wrong."""
    batches = candidates(spec)
    parameters, buffers = state(network)
    names = trained_names(network)

    def norms(inputs: Tensor) -> Tensor:
        mapped = vmap(lambda batch: gradients(network, parameters, buffers, batch, labels))(inputs)
        return squared_norm(mapped, names)

    if outer == "autograd":
        leaves = batches.clone().requires_grad_()
        (got,) = torch.autograd.grad(norms(leaves), leaves)
    else:
        got = grad(norms)(batches)
    for index, inputs in enumerate(batches):
        leaf = inputs.clone().requires_grad_()
        gradient = plain_gradient(network, leaf, labels, create_graph=True)
        (expected,) = torch.autograd.grad(squared_norm(gradient, names), leaf)
        torch.testing.assert_close(got[index], expected)


def test_unrolled_local_steps_differentiate(spec: NetworkSpec, network: nn.Module, labels: Tensor) -> None:
    """Two local SGD steps per candidate, differentiated through, as attacks on FedAvg do."""
    parameters, buffers = state(network)
    names = trained_names(network)

    def moved(inputs: Tensor) -> Tensor:
        values = parameters
        for _ in range(2):
            step = gradients(network, values, buffers, inputs, labels)
            values = {name: value - 0.1 * step[name] for name, value in values.items()}
        return squared_norm({name: values[name] - parameters[name] for name in names}, names)

    batches = candidates(spec)
    got = vmap(grad(moved))(batches)
    direction = torch.randn_like(batches[0])
    h = 1e-7 if spec.name == "tabnet" else 1e-6  # its curvature is large: the difference's error is h^2 of it
    for index, inputs in enumerate(batches):
        difference = (moved(inputs + h * direction) - moved(inputs - h * direction)) / (2 * h)
        torch.testing.assert_close((got[index] * direction).sum(), difference, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("mlp", {"hidden": "100"}, "hidden must be a sequence of widths"),
        ("mlp", {"hidden": [10, 0]}, r"hidden\[1\] must be a whole number of at least 1, got 0"),
        ("mlp", {"activation": "relu6"}, "activation must be one of relu, gelu, .*, got 'relu6'"),
        ("mlp", {"dropout": 1.0}, "dropout must be at least 0 and below 1, got 1.0"),
        ("mlp", {"norm": "group"}, "norm must be one of none, batch, layer, got 'group'"),
        ("mlp", {"depth": 3}, "network 'mlp' does not take these options: .*depth"),
        ("resnet", {"hidden": [True]}, r"hidden\[0\] must be a whole number"),
        ("resnet_preact", {"norm": "none"}, "norm must be one of batch, layer, got 'none'"),
        ("resnet_preact", {"n_blocks": 0}, "n_blocks must be a whole number of at least 1, got 0"),
        ("resnet_preact", {"hidden_factor": "x"}, "hidden_factor must be a finite number, got 'x'"),
        ("resnet_preact", {"hidden_factor": float("nan")}, "hidden_factor must be a finite number, got nan"),
        ("resnet_preact", {"hidden_factor": True}, "hidden_factor must be a finite number, got True"),
        ("resnet_preact", {"hidden_factor": 0}, "hidden_factor must be above 0, got 0"),
        ("gandalf", {"normalize_numerical": "off "}, "normalize_numerical must be true or false, got 'off '"),
        ("gandalf", {"normalize_numerical": []}, r"normalize_numerical must be true or false, got \[\]"),
        ("gandalf", {"learnable_sparsity": "maybe"}, "learnable_sparsity must be true or false, got 'maybe'"),
        ("mlp", {"activation": []}, r"activation must be one of .*, got \[\]"),
        ("cnn", {"kernel_size": 9}, r"kernel_size must be at most 8 \(encoded width\), got 9"),
        ("image_cnn", {}, r"shape must be \[channels, height, width\] of 8 pixels \(encoded width\), got \[\]"),
        ("image_cnn", {"shape": [1, 3, 3]}, r"of 8 pixels \(encoded width\), got \[1, 3, 3\]"),
        ("image_cnn", {"shape": [8, 1, 1]}, r"that two poolings can halve, got \[8, 1, 1\]"),
        ("image_cnn", {"shape": [2, 2, 2], "second_kernel": 3}, "that two poolings can halve"),
        ("image_cnn", {"shape": [2, 2, 2], "second_kernel": 2}, "second_kernel must be 1 or 3, got 2"),
        ("image_cnn", {"shape": [2, 2, 2], "initialization": "keras"}, "initialization must be one of torch, flax"),
        ("image_cnn", {"shape": [2, 2, 2], "channels": [4]}, r"channels must be two, one per convolution, got \[4\]"),
    ],
)
def test_wrong_options_are_named(layout: EncodedLayout, name: str, options: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        build_network(NetworkSpec(name, CLASSES, layout, options))


def test_one_class_is_refused(layout: EncodedLayout) -> None:
    with pytest.raises(UsageError, match="n_classes must be a whole number of at least 2, got 1"):
        build_network(NetworkSpec("linear", 1, layout))


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("mlp", {"hidden": [32], "dropout": 0.5}),
        ("resnet_preact", {"width": 32, "hidden_dropout": 0.5}),
        ("resnet_preact", {"width": 32, "residual_dropout": 0.5}),
    ],
)
def test_dropout_acts_in_train_mode_only_and_differs_between_candidates(
    layout: EncodedLayout, name: str, options: dict[str, object]
) -> None:
    network = build_network(NetworkSpec(name, CLASSES, layout, options), seed=0)
    same = torch.randn(1, ROWS, layout.width).expand(2, -1, -1)
    parameters, buffers = state(network)

    def mapped() -> Tensor:
        call = vmap(lambda inputs: functional_call(network, (parameters, buffers), (inputs,)), randomness="different")
        return call(same)

    assert not torch.equal(*mapped())
    network.eval()
    assert torch.equal(*mapped())


def test_resnet_appends_block_features_to_their_input(layout: EncodedLayout) -> None:
    network = build_network(NetworkSpec("resnet", CLASSES, layout, {"hidden": [4]}), seed=0).eval()
    inputs = torch.randn(ROWS, layout.width)
    features = network.blocks[0](inputs)
    torch.testing.assert_close(features[:, 4:], inputs)
    torch.testing.assert_close(features[:, :4], network.blocks[0].linear(inputs).div((1 + 1e-5) ** 0.5).relu())


def test_preactivation_resnet_is_the_identity_around_silent_blocks(layout: EncodedLayout) -> None:
    network = build_network(NetworkSpec("resnet_preact", CLASSES, layout, {"width": 6}), seed=0)
    for block in network.blocks:
        nn.init.zeros_(block.contract.weight)
        nn.init.zeros_(block.contract.bias)
    inputs = torch.randn(ROWS, layout.width)
    stream = network.input(inputs)
    torch.testing.assert_close(network(inputs), network.output(network.norm(stream).relu()))


def test_cnn_equals_sliding_dot_products(layout: EncodedLayout) -> None:
    network = build_network(NetworkSpec("cnn", CLASSES, layout, {"channels": 2, "hidden": []}), seed=0).eval()
    inputs = torch.randn(ROWS, layout.width)
    kernel = network.convolution.weight[:, 0]
    windows = torch.stack([inputs[:, i : i + 3] @ kernel.T for i in range(layout.width - 2)], dim=2)
    features = windows.div((1 + 1e-5) ** 0.5).relu().reshape(ROWS, -1)
    torch.testing.assert_close(network(inputs), network.head.linears[0](features))
