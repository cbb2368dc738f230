"""What holds for every transform of an update, and how wrong settings are refused."""

import json
from typing import Any

import pytest
import torch
from torch import Tensor

from lightleak.core.errors import UsageError
from lightleak.core.seeds import generator
from lightleak.defenses.horizontal import TRAINING_DEFENSES, UPDATE_DEFENSES, UpdateDefense

NAMES = (
    "clipping",
    "flower_clipping",
    "flower_local_dp",
    "gaussian_noise",
    "gradient_compression",
    "laplacian_noise",
    "none",
    "nvflare_exclude",
    "nvflare_percentile",
    "nvflare_svt",
    "quantization",
    "random_pruning",
    "sign",
    "transport",
)
BY_TENSOR = {"gaussian_noise", "laplacian_noise", "quantization", "random_pruning"}
"""Those whose draws for a tensor do not depend on the other tensors."""
RANDOM = BY_TENSOR | {"flower_local_dp", "nvflare_svt"}
HARMLESS: dict[str, dict[str, Any]] = {
    "clipping": {"max_norm": 1e6},
    "gaussian_noise": {"scale": 0.0},
    "gradient_compression": {"keep": 1.0},
    "laplacian_noise": {"scale": 0.0},
    "flower_clipping": {"clipping_norm": 1e6},
    "none": {},
    "nvflare_exclude": {"exclude": "nothing is called so"},
    "nvflare_percentile": {"percentile": 0, "gamma": 1e6},
    "random_pruning": {"probability": 0.0},
}


def make(name: str, **options: Any) -> UpdateDefense:
    return UPDATE_DEFENSES.get(name)(**options)


def same(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def test_the_registries_hold_the_defenses() -> None:
    assert UPDATE_DEFENSES.names() == NAMES
    assert TRAINING_DEFENSES.names() == ("dp_sgd",)


@pytest.mark.parametrize("name", NAMES)
def test_options_make_the_same_defense_again(name: str) -> None:
    defense = make(name)
    options = json.loads(json.dumps(defense.options()))
    assert make(name, **options) == defense
    assert defense.name == name
    assert defense.describe()
    assert defense.citation or name == "none"
    assert defense.strength is None or defense.strength in options.values()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_names_shapes_and_types_stay_and_the_given_gradient_too(
    name: str, dtype: torch.dtype, gradient: dict[str, Tensor]
) -> None:
    given = {key: value.to(dtype) for key, value in gradient.items()}
    before = {key: value.clone() for key, value in given.items()}
    sent = make(name).apply(given, generator(0))
    assert same(given, before)
    assert list(sent) == list(given)
    for key, value in sent.items():
        assert (value.shape, value.dtype, value.device) == (given[key].shape, dtype, given[key].device)
        assert torch.isfinite(value).all()


@pytest.mark.parametrize("name", NAMES)
def test_the_result_depends_on_gradient_and_generator_alone(name: str, gradient: dict[str, Tensor]) -> None:
    defense = make(name)
    first, again, other = (defense.apply(gradient, generator(seed)) for seed in (0, 0, 1))
    torch.manual_seed(123)
    assert same(first, again)
    assert same(first, defense.apply(gradient, generator(0)))
    assert same(first, other) != (name in RANDOM)


@pytest.mark.parametrize("name", NAMES)
def test_the_generator_moves_on(name: str, gradient: dict[str, Tensor]) -> None:
    """Two updates defended one after the other draw different numbers."""
    draws, defense = generator(0), make(name)
    assert same(defense.apply(gradient, draws), defense.apply(gradient, draws)) != (name in RANDOM)


@pytest.mark.parametrize("name", NAMES)
def test_the_order_of_tensors_is_of_no_effect(name: str, gradient: dict[str, Tensor]) -> None:
    backwards = dict(reversed(gradient.items()))
    first, other = make(name).apply(gradient, generator(0)), make(name).apply(backwards, generator(0))
    for key in gradient:
        # The norm of clipping is a float32 sum in the order of the tensors.
        torch.testing.assert_close(first[key], other[key], rtol=1e-6 if name == "clipping" else 0, atol=0)


@pytest.mark.parametrize("name", sorted(BY_TENSOR))
def test_noise_of_a_tensor_does_not_depend_on_the_others(name: str, gradient: dict[str, Tensor]) -> None:
    alone = make(name).apply({"weight": gradient["weight"]}, generator(0))
    assert torch.equal(alone["weight"], make(name).apply(gradient, generator(0))["weight"])
    twins = make(name).apply({"a": gradient["weight"], "b": gradient["weight"]}, generator(0))
    assert not torch.equal(twins["a"], twins["b"])


@pytest.mark.parametrize("name", sorted(HARMLESS))
def test_zero_strength_is_the_identity(name: str, gradient: dict[str, Tensor]) -> None:
    assert same(make(name, **HARMLESS[name]).apply(gradient, generator(0)), gradient)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("gaussian_noise", {"scale": -1.0}, "gaussian_noise: scale must be at least 0, got -1.0"),
        ("gaussian_noise", {"scale": float("inf")}, "got inf"),
        ("gaussian_noise", {"scale": "much"}, "got 'much'"),
        ("gaussian_noise", {"scale": True}, "got True"),
        ("laplacian_noise", {"scale": float("nan")}, "laplacian_noise: scale"),
        ("random_pruning", {"probability": 1.5}, "random_pruning: probability .* at least 0 and at most 1, got 1.5"),
        ("clipping", {"max_norm": 0.0}, "clipping: max_norm must be above 0, got 0.0"),
        ("clipping", {"max_norm": float("inf")}, "got inf"),
        ("quantization", {"bits": 1}, "quantization: bits must be at least 2 and at most 16, got 1"),
        ("quantization", {"bits": 17}, "got 17"),
        ("quantization", {"bits": 2.5}, "got 2.5"),
        ("gradient_compression", {"keep": 0.0}, "gradient_compression: keep .* above 0 and at most 1, got 0.0"),
        ("gradient_compression", {"keep": 1.01}, "got 1.01"),
        ("transport", {"format": "float8"}, "transport: format must be one of float16, bfloat16, int8, got 'float8'"),
        ("nvflare_percentile", {"percentile": 101}, "nvflare_percentile: percentile .* at most 100, got 101"),
        ("nvflare_svt", {"gamma": 0}, "nvflare_svt: gamma must be above 0, got 0"),
        ("nvflare_exclude", {"exclude": ""}, "nvflare_exclude: exclude must be a regular expression"),
        ("flower_local_dp", {"delta": 1}, "flower_local_dp: delta .* above 0 and below 1, got 1"),
    ],
)
def test_what_cannot_be_is_refused_by_name(name: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        make(name, **options)


def test_a_misspelt_name_is_told() -> None:
    with pytest.raises(UsageError, match=r"unknown defense 'gausian_noise' .did you mean 'gaussian_noise'"):
        UPDATE_DEFENSES.get("gausian_noise")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("name", NAMES)
def test_a_gpu_gets_the_same_numbers(name: str, gradient: dict[str, Tensor]) -> None:
    if (extra := {"nvflare": "nvflare", "flower": "flwr"}.get(name.partition("_")[0])) is not None:
        pytest.importorskip(extra, reason=f"{extra} is not installed")
    sent = make(name).apply({key: value.cuda() for key, value in gradient.items()}, generator(0))
    for key, value in make(name).apply(gradient, generator(0)).items():
        assert sent[key].device.type == "cuda"
        torch.testing.assert_close(sent[key].cpu(), value)
