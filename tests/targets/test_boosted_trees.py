"""Boosted trees in PyTorch against XGBoost's own answers, and what happens with trees that are none."""

import copy
import dataclasses
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import xgboost
from safetensors.torch import load_file, save_file
from torch import Tensor

from lightleak.core.errors import ObservationError, UnsupportedError, UsageError
from lightleak.data.layout import EncodedLayout
from lightleak.targets.boosted_trees import MAX_DEPTH, BoostedTrees, BoostedTreesConfig, check_trees, fit_boosted_trees
from lightleak.targets.spec import NetworkSpec, build_network

ROWS, WIDTH, CLASSES = 400, 6, 3
SMALL = {"rounds": 8, "depth": 4}


@pytest.fixture(scope="module")
def rows() -> Tensor:
    """Numbers, and two columns of zeros and ones."""
    x = torch.randn(ROWS, WIDTH, generator=torch.Generator().manual_seed(0))
    x[:, 4:] = (x[:, 4:] > 0.5).float()
    return x


@pytest.fixture(scope="module")
def labels(rows: Tensor) -> Tensor:
    noise = torch.randn(ROWS, CLASSES, generator=torch.Generator().manual_seed(1))
    return (rows[:, :CLASSES] + rows[:, 4:5] * torch.tensor([1.0, 0.0, -1.0]) + noise / 2).argmax(1)


@pytest.fixture(scope="module")
def fitted(rows: Tensor, labels: Tensor) -> BoostedTrees:
    return fit_boosted_trees(rows, labels, CLASSES, fitting=SMALL)


def xgboost_margins(rows: Tensor, labels: Tensor, n_classes: int, queries: Tensor, **settings: Any) -> Tensor:
    """XGBoost from end to end, through its scikit-learn interface."""
    model = xgboost.XGBClassifier(
        n_estimators=8,
        max_depth=4,
        tree_method="hist",
        objective="multi:softprob",
        num_class=n_classes,
        base_score=0.0,
        n_jobs=1,
        **settings,
    ).fit(rows.numpy(), labels.numpy())
    return torch.from_numpy(model.predict(queries.numpy(), output_margin=True))


def test_gives_xgboosts_margins(fitted: BoostedTrees, rows: Tensor, labels: Tensor) -> None:
    queries = torch.cat([rows, torch.randn(500, WIDTH) * 3, rows.roll(1, 0)])
    expected = xgboost_margins(rows, labels, CLASSES, queries)
    torch.testing.assert_close(fitted(queries), expected, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(fitted(queries.double()), expected.double(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("change", [{"subsample": 0.5, "seed": 7}, {"learning_rate": 0.1}], ids=str)
def test_settings_reach_xgboost(rows: Tensor, labels: Tensor, change: dict[str, Any]) -> None:
    settings = dict(change)
    network = fit_boosted_trees(rows, labels, CLASSES, settings.pop("seed", 0), {**SMALL, **settings})
    expected = xgboost_margins(rows, labels, CLASSES, rows, **{"random_state": change.get("seed", 0)}, **settings)
    torch.testing.assert_close(network(rows), expected, rtol=1e-5, atol=1e-5)


def test_two_classes_and_a_class_without_rows(rows: Tensor, labels: Tensor) -> None:
    two = (labels > 0).long()
    network = fit_boosted_trees(rows, two, 2, fitting=SMALL)
    assert network(rows).shape == (ROWS, 2)
    assert (network(rows).argmax(1) == two).float().mean() > 0.9
    absent = fit_boosted_trees(rows, labels, CLASSES + 1, fitting=SMALL)
    assert not (absent(rows).argmax(1) == CLASSES).any()


def test_a_row_depends_on_itself_alone(fitted: BoostedTrees, rows: Tensor) -> None:
    """Also across the chunks that bound the memory."""
    many = rows.repeat(20, 1)
    torch.testing.assert_close(fitted(many), fitted(rows).repeat(20, 1), rtol=0, atol=0)
    assert fitted(rows[:0]).shape == (0, CLASSES)
    torch.testing.assert_close(fitted(rows.view(4, -1, WIDTH)).view(-1, CLASSES), fitted(rows), rtol=0, atol=0)


def test_numbers_beyond_all_bounds_stay_in_the_trees(fitted: BoostedTrees, rows: Tensor) -> None:
    large = torch.full((1, WIDTH), 1e6)
    for number in (3.4028234663852886e38, float("inf")):
        torch.testing.assert_close(fitted(torch.full((1, WIDTH), number)), fitted(large))


def test_gives_no_gradient_and_says_so(fitted: BoostedTrees, rows: Tensor) -> None:
    assert not BoostedTrees.differentiable
    assert not fitted(rows.clone().requires_grad_()).requires_grad
    assert not list(fitted.parameters())


def test_the_seed_repeats_it(rows: Tensor, labels: Tensor) -> None:
    drawn = {**SMALL, "subsample": 0.5}
    one, again, other = (fit_boosted_trees(rows, labels, CLASSES, seed, drawn).state_dict() for seed in (1, 1, 2))
    assert all(torch.equal(one[name], again[name]) for name in one)
    assert any(one[name].shape != other[name].shape or not torch.equal(one[name], other[name]) for name in one)


def test_validation_rows_end_the_fit_at_the_best_round(rows: Tensor, labels: Tensor) -> None:
    train, held_out = (rows[:200], labels[:200]), (rows[200:], labels[200:])
    long = {"rounds": 60, "depth": 4, "patience": 5}
    stopped = fit_boosted_trees(*train, CLASSES, fitting=long, validation=held_out)
    rounds = len(stopped.root) // CLASSES
    assert 1 <= rounds < 60
    losses = []
    for n in (rounds - 1, rounds, rounds + 1):
        network = fit_boosted_trees(*train, CLASSES, fitting={**long, "rounds": max(n, 1)})
        losses.append(float(torch.nn.functional.cross_entropy(network(held_out[0]), held_out[1])))
    assert losses[1] == min(losses)


def test_is_saved_and_read_without_xgboost(
    fitted: BoostedTrees, rows: Tensor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_file(fitted.state_dict(), tmp_path / "trees.safetensors")
    monkeypatch.setitem(sys.modules, "xgboost", None)
    spec = NetworkSpec("boosted_trees", CLASSES, EncodedLayout.of_numerical(WIDTH), SMALL)
    again = build_network(NetworkSpec.from_dict(spec.to_dict()), seed=0)
    again.load_state_dict(load_file(tmp_path / "trees.safetensors"))
    torch.testing.assert_close(again(rows), fitted(rows), rtol=0, atol=0)
    torch.testing.assert_close(copy.deepcopy(again)(rows), fitted(rows), rtol=0, atol=0)
    called = torch.func.functional_call(build_network(spec), dict(fitted.named_buffers()), (rows,))
    torch.testing.assert_close(called, fitted(rows), rtol=0, atol=0)


def test_buffers_can_travel_with_a_released_model(fitted: BoostedTrees) -> None:
    """`ReleasedModel` refuses buffers that are not finite."""
    assert all(torch.isfinite(buffer).all() for buffer in fitted.buffers() if buffer.is_floating_point())


def damage(trees: dict[str, Tensor], name: str, index: int, value: float) -> dict[str, Tensor]:
    changed = {key: tensor.clone() for key, tensor in trees.items()}
    changed[name].view(-1)[index] = value
    return changed


def test_damaged_trees_are_refused_or_harmless(fitted: BoostedTrees, rows: Tensor) -> None:
    """Any one number changed: either an error that names the trees, or finite logits."""
    draw = torch.Generator().manual_seed(0)
    trees = {name: tensor.clone() for name, tensor in fitted.state_dict().items()}
    network = BoostedTrees(EncodedLayout.of_numerical(WIDTH), CLASSES)
    refused = 0
    for step in range(300):
        name = list(trees)[step % len(trees)]
        index = int(torch.randint(trees[name].numel(), (), generator=draw))
        integer = not trees[name].is_floating_point()
        bits = torch.randint(-(2**31), 2**31, (), generator=draw, dtype=torch.int64).to(torch.int32)
        small = torch.randint(-2, 40, (), generator=draw, dtype=torch.int32)
        value = (small if step % 2 else bits) if integer else bits.view(torch.float32)
        try:
            network.load_state_dict(damage(trees, name, index, value.item()))
        except ObservationError as error:
            assert "boosted trees" in str(error)
            refused += 1
            continue
        assert torch.isfinite(network(rows)).all()
    assert refused > 50


@pytest.mark.parametrize(
    ("name", "index", "value", "said"),
    [
        ("feature", 0, WIDTH, "feature must lie between 0 and 5"),
        ("feature", 0, -1, "feature must lie between 0 and 5"),
        ("root", 1, -1, "root must lie between 0"),
        ("root", 1, 10**6, "root must lie between 0"),
        ("child", 0, 10**6, "children must lie behind it"),
        ("child", 5, 1, "children must lie behind it"),
        ("child", 0, 0, "children must lie behind it"),  # a loop on an inner node
        ("threshold", 0, float("inf"), "must be finite"),
        ("value", 0, float("nan"), "must be finite"),
        ("longest", 0, 3, "longest must be the depth"),
        ("longest", 0, 2**31 - 1, "longest must be the depth"),
    ],
)
def test_says_what_is_wrong(fitted: BoostedTrees, name: str, index: int, value: float, said: str) -> None:
    with pytest.raises(ObservationError, match=said):
        check_trees(damage(fitted.state_dict(), name, index, value), WIDTH, CLASSES)


def test_shapes_and_kinds_are_checked(fitted: BoostedTrees, monkeypatch: pytest.MonkeyPatch) -> None:
    trees = fitted.state_dict()
    with pytest.raises(ObservationError, match=r"feature must be torch\.int32 of 1 dimensions, got torch\.int64"):
        check_trees({**trees, "feature": trees["feature"].long()}, WIDTH, CLASSES)
    with pytest.raises(ObservationError, match=r"longest must be torch\.int32 of 0 dimensions"):
        check_trees({**trees, "longest": trees["longest"].view(1)}, WIDTH, CLASSES)
    with pytest.raises(ObservationError, match="as many features, thresholds"):
        check_trees({**trees, "value": trees["value"][1:]}, WIDTH, CLASSES)
    with pytest.raises(ObservationError, match="24 trees cannot be divided evenly among 5 classes"):
        check_trees(trees, WIDTH, 5)
    monkeypatch.setattr("lightleak.targets.boosted_trees.MAX_NODES", 10)
    with pytest.raises(ObservationError, match="at most 10"):
        check_trees(trees, WIDTH, CLASSES)


def chain(depth: int) -> dict[str, Tensor]:
    """Two nodes a level: a leaf, and an inner one after it whose children come next."""
    nodes = 2 * depth + 1
    child = torch.tensor([i if i % 2 or i == nodes - 1 else i + 1 for i in range(nodes)], dtype=torch.int32)
    never = torch.finfo(torch.float32).max
    return {
        "feature": torch.zeros(nodes, dtype=torch.int32),
        "threshold": torch.where(child == torch.arange(nodes), never, 0.0),
        "child": child,
        "value": torch.zeros(nodes),
        "root": torch.zeros(2, dtype=torch.int32),
        "longest": torch.tensor(depth, dtype=torch.int32),
    }


def test_a_way_that_is_too_long_is_refused() -> None:
    check_trees(chain(MAX_DEPTH), 1, 2)
    with pytest.raises(ObservationError, match=f"at most {MAX_DEPTH}"):
        check_trees(chain(MAX_DEPTH + 1), 1, 2)


def test_a_second_child_beyond_the_last_node_is_refused() -> None:
    trees = chain(3)
    with pytest.raises(ObservationError, match="children must lie behind it"):
        check_trees(damage(trees, "child", 0, len(trees["child"]) - 1), 1, 2)


def test_wrong_use_is_named(fitted: BoostedTrees, rows: Tensor, labels: Tensor) -> None:
    layout = EncodedLayout.of_numerical(WIDTH)
    with pytest.raises(UsageError, match="no trees yet"):
        BoostedTrees(layout, CLASSES)(rows)
    with pytest.raises(UsageError, match=r"takes rows \[..., 6\], got \[400, 5\]"):
        fitted(rows[:, 1:])
    with pytest.raises(UsageError, match=r"as many labels from 0 to 1, got \[400, 6\] and \[400\]"):
        fit_boosted_trees(rows, labels, 2)
    with pytest.raises(UsageError, match="does not take these options"):
        fit_boosted_trees(rows, labels, CLASSES, fitting={"trees": 3})
    with pytest.raises(UsageError, match="does not take these options"):
        build_network(NetworkSpec("boosted_trees", CLASSES, layout, {"trees": 3}))


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ({"rounds": 0}, "rounds must be a whole number"),
        ({"depth": MAX_DEPTH + 1}, "depth must be at most 64, got 65"),
        ({"learning_rate": 0}, "learning_rate must be above 0 and at most 1, got 0"),
        ({"subsample": 1.5}, "subsample must be above 0 and at most 1, got 1.5"),
        ({"patience": True}, "patience must be a whole number"),
    ],
)
def test_settings_are_checked(setting: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        BoostedTreesConfig(**setting)


def test_another_format_of_xgboost_is_noticed(rows: Tensor, labels: Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    import lightleak.targets.boosted_trees as module

    read = module._trees

    def otherwise(booster: Any) -> dict[str, Tensor]:
        trees = read(booster)
        return {**trees, "value": -trees["value"]}

    monkeypatch.setattr(module, "_trees", otherwise)
    with pytest.raises(UnsupportedError, match="this version of XGBoost"):
        fit_boosted_trees(rows, labels, CLASSES, fitting=SMALL)


def test_options_of_the_network_are_the_settings() -> None:
    network = BoostedTrees(EncodedLayout.of_numerical(2), 2, rounds=5)
    assert network.config == dataclasses.replace(BoostedTreesConfig(), rounds=5)


@pytest.mark.gpu
def test_the_gpu_gives_the_same(fitted: BoostedTrees, rows: Tensor) -> None:
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    torch.testing.assert_close(copy.deepcopy(fitted).cuda()(rows.cuda()).cpu(), fitted(rows))
