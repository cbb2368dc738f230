"""Gradient-boosted trees as a target that gives values and no gradient (thesis Sec. 3.3, 6.7.6).

XGBoost fits them; what is kept is the nodes of the trees as tensors, which PyTorch evaluates on any device. XGBoost's
own files are not stored: its reader crashes the process on damaged ones (it did in 19 of 120 files with a few bytes
changed, version 3.2), and a released model comes from elsewhere.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from lightleak.core.errors import ObservationError, UnsupportedError, UsageError
from lightleak.data.layout import EncodedLayout
from lightleak.targets import options
from lightleak.targets.spec import NETWORKS, NetworkSpec, build_network

MAX_NODES = 2**24
"""Nodes that are read: 256 MiB; 100 rounds of 20 classes at depth 6 have 0.2 million."""
MAX_DEPTH = 64

_NEVER = torch.finfo(torch.float32).max  # threshold of a leaf; a released model holds no infinity
_PER_CHUNK = 2**16  # (row, tree) pairs at once: their state stays in a core's cache
_KINDS = {
    "feature": torch.int32,
    "threshold": torch.float32,
    "child": torch.int32,
    "value": torch.float32,
    "root": torch.int32,
    "longest": torch.int32,
}


@dataclass(frozen=True)
class BoostedTreesConfig:
    """How trees are fitted: the options of the network. Depth and learning rate are XGBoost's own defaults.

    Attributes:
        rounds: boosting rounds, each with one tree per class.
        depth: splits on the longest way through a tree.
        learning_rate: share of each tree that is added.
        subsample: share of the rows that a round sees.
        patience: rounds without a lower validation loss after which fitting ends, where there are validation rows; the
            trees after the best round are dropped.
    """

    rounds: int = 100
    depth: int = 6
    learning_rate: float = 0.3
    subsample: float = 1.0
    patience: int = 10

    def __post_init__(self) -> None:
        """Raise `UsageError` for a value out of range."""
        for name in ("rounds", "depth", "patience"):
            options.count(name, getattr(self, name))
        if self.depth > MAX_DEPTH:
            raise UsageError(f"depth must be at most {MAX_DEPTH}, got {self.depth}")
        for name in ("learning_rate", "subsample"):
            if not 0 < getattr(self, name) <= 1:
                raise UsageError(f"{name} must be above 0 and at most 1, got {getattr(self, name)!r}")


@NETWORKS.register("boosted_trees")
class BoostedTrees(nn.Module):
    """Trees whose leaves add up to logits ``[n, n_classes]``; built without trees, `fit_boosted_trees` makes them.

    A row goes from node ``i`` to ``child[i]`` or, where its ``feature[i]`` is at least ``threshold[i]``, to the node
    after it. A leaf is its own child, with a threshold that nothing reaches. Tree ``t`` contributes to class
    ``t % n_classes``.

    Attributes:
        differentiable: False; the way of a row has no derivative.
        feature: ``[nodes]`` encoded position that a node looks at.
        threshold: ``[nodes]``.
        child: ``[nodes]``.
        value: ``[nodes]`` what a leaf adds to its class.
        root: ``[trees]`` first node of each tree.
        longest: ``[]`` splits on the longest way.
    """

    differentiable = False

    feature: Tensor
    threshold: Tensor
    child: Tensor
    value: Tensor
    root: Tensor
    longest: Tensor

    def __init__(self, layout: EncodedLayout, n_classes: int, **fitting: Any) -> None:
        """Build it without trees.

        Args:
            layout: encoded input of width d.
            n_classes: logits.
            **fitting: settings of `BoostedTreesConfig`.

        Raises:
            UsageError: an option outside its domain.
        """
        super().__init__()
        self.width, self.n_classes = layout.width, options.count("n_classes", n_classes, 2)
        self.config = BoostedTreesConfig(**fitting)
        for name, kind in _KINDS.items():
            self.register_buffer(name, torch.zeros((0,) * _dimensions(name), dtype=kind))

    @torch.no_grad()
    def forward(self, x: Tensor) -> Tensor:
        """``[..., d]`` to logits ``[..., n_classes]``.

        Raises:
            UsageError: there are no trees yet, or rows of another width.
        """
        if not len(self.root):
            raise UsageError("boosted_trees has no trees yet: fit them with fit_boosted_trees, or load them")
        if x.shape[-1] != self.width:
            raise UsageError(f"boosted_trees takes rows [..., {self.width}], got {list(x.shape)}")
        rows = x.float().clamp(max=_NEVER / 2).reshape(-1, self.width)
        parts = rows.split(max(1, _PER_CHUNK // len(self.root)))
        return torch.cat([self._add_leaves(part) for part in parts]).to(x.dtype).view(*x.shape[:-1], self.n_classes)

    def _add_leaves(self, x: Tensor) -> Tensor:
        n = len(x)
        cells = x.reshape(-1)
        row = torch.arange(0, n * self.width, self.width, device=x.device, dtype=torch.int32)
        row = row.repeat_interleave(len(self.root))
        node = self.root.repeat(n)
        for _ in range(int(self.longest)):
            cell = cells.index_select(0, self.feature.index_select(0, node) + row)
            node = self.child.index_select(0, node) + (cell >= self.threshold.index_select(0, node))
        return self.value.index_select(0, node).view(n, len(self.root) // self.n_classes, self.n_classes).sum(1)

    def _load_from_state_dict(self, state_dict: Mapping[str, Any], prefix: str, *args: Any) -> None:
        """Take trees of any number, after a check that no row can leave them."""
        given = {name: state_dict.get(prefix + name) for name in _KINDS}
        if all(isinstance(tensor, Tensor) for tensor in given.values()):
            trees = {name: cast(Tensor, tensor) for name, tensor in given.items()}
            check_trees(trees, self.width, self.n_classes)
            for name, tensor in trees.items():
                setattr(self, name, torch.empty_like(tensor, device=getattr(self, name).device))
        super()._load_from_state_dict(state_dict, prefix, *args)


def check_trees(trees: Mapping[str, Tensor], width: int, n_classes: int) -> None:
    """Check that tensors are trees: every way from a root ends in a leaf, in bounds, after ``longest`` splits at most.

    Raises:
        ObservationError: they are not, or there are too many.
    """
    for name, kind in _KINDS.items():
        if trees[name].dtype != kind or trees[name].ndim != _dimensions(name):
            raise ObservationError(
                f"boosted trees: {name} must be {kind} of {_dimensions(name)} dimensions, "
                f"got {trees[name].dtype} {list(trees[name].shape)}"
            )
    feature, threshold, child, value, root, longest = (trees[name].cpu() for name in _KINDS)
    nodes = len(feature)
    if not nodes == len(threshold) == len(child) == len(value) or nodes > MAX_NODES:
        raise ObservationError(f"boosted trees: as many features, thresholds, children and values, at most {MAX_NODES}")
    if len(root) % n_classes:
        raise ObservationError(f"boosted trees: {len(root)} trees cannot be divided evenly among {n_classes} classes")
    for name, entry, end in (("feature", feature, width), ("root", root, nodes)):
        if len(entry) and not 0 <= int(entry.min()) <= int(entry.max()) < end:
            raise ObservationError(f"boosted trees: {name} must lie between 0 and {end - 1}")
    if not (torch.isfinite(threshold).all() and torch.isfinite(value).all()):
        raise ObservationError("boosted trees: thresholds and values must be finite")
    index = torch.arange(nodes, dtype=torch.int32)
    leaf = (child == index) & (threshold == _NEVER)
    # Children lie behind their parents: no way is endless.
    if not (leaf | ((child > index) & (child < nodes - 1))).all():
        raise ObservationError("boosted trees: a node's children must lie behind it")
    if int(longest) != _longest(child, leaf, root):
        raise ObservationError(f"boosted trees: longest must be the depth of the trees, at most {MAX_DEPTH}")


def _dimensions(name: str) -> int:
    return 0 if name == "longest" else 1


def _longest(child: Tensor, leaf: Tensor, root: Tensor) -> int:
    """Splits on the longest way; -1 beyond `MAX_DEPTH`."""
    reached = torch.zeros(len(child), dtype=torch.bool)
    reached[root.long()] = True
    for depth in range(MAX_DEPTH + 1):
        inner = child[reached & ~leaf].long()
        if not len(inner):
            return depth
        reached = torch.zeros_like(reached)
        reached[inner] = reached[inner + 1] = True
    return -1


def fit_boosted_trees(
    inputs: Tensor,
    labels: Tensor,
    n_classes: int,
    seed: int = 0,
    fitting: Mapping[str, Any] | None = None,
    validation: tuple[Tensor, Tensor] | None = None,
) -> BoostedTrees:
    """Fit trees to encoded rows by XGBoost's histogram method and the softmax objective.

    Args:
        inputs: ``[n, d]``.
        labels: class indices ``[n]``.
        n_classes: classes.
        seed: of the subsample.
        fitting: settings of `BoostedTreesConfig`.
        validation: inputs and labels that end the fit early.

    Raises:
        UnsupportedError: this version of XGBoost stores its trees in an unknown format.
        UsageError: rows and labels that do not fit together, or settings out of range.
    """
    import xgboost  # takes a second

    layout = EncodedLayout.of_numerical(inputs.shape[-1])
    network = cast(BoostedTrees, build_network(NetworkSpec("boosted_trees", n_classes, layout, dict(fitting or {}))))
    config, threads = network.config, torch.get_num_threads()

    def matrix(x: Tensor, y: Tensor, **more: Any) -> Any:
        fits = x.ndim == 2 and x.shape[1] == layout.width and y.shape == x.shape[:1] and len(y) > 0
        if not fits or y.is_floating_point() or y.min() < 0 or y.max() >= n_classes:
            raise UsageError(
                f"boosted_trees is fitted to rows [n, {layout.width}] and as many labels from 0 to {n_classes - 1}, "
                f"got {list(x.shape)} and {list(y.shape)}"
            )
        return xgboost.QuantileDMatrix(x.float().cpu().numpy(), label=y.cpu().numpy(), nthread=threads, **more)

    train = matrix(inputs, labels)
    watched = [(matrix(*validation, ref=train), "validation")] if validation else []
    settings = {
        "objective": "multi:softprob",
        "eval_metric": "mlogloss",
        "num_class": n_classes,
        "base_score": 0.0,  # the logits are then the sum of the leaves, in every version
        "tree_method": "hist",
        "max_depth": config.depth,
        "learning_rate": config.learning_rate,
        "subsample": config.subsample,
        "seed": seed % 2**31,
        "nthread": threads,
    }
    stop = config.patience if watched else None
    booster = xgboost.train(
        settings, train, config.rounds, evals=watched, early_stopping_rounds=stop, verbose_eval=False
    )
    if watched:
        booster = booster[: booster.best_iteration + 1]
    network.load_state_dict(_trees(booster))
    _check_against(booster, network, inputs[:256])
    return network


def _trees(booster: Any) -> dict[str, Tensor]:
    """The nodes of a booster, tree after tree and each tree level by level, so that siblings are neighbors."""
    model = json.loads(booster.save_raw("json"))["learner"]["gradient_booster"]["model"]
    parts: dict[str, list[np.ndarray]] = {name: [] for name in ("feature", "threshold", "child", "value")}
    roots, nodes, depth = [], 0, 0
    for tree in model["trees"]:
        left, right = np.asarray(tree["left_children"]), np.asarray(tree["right_children"])
        levels = [np.zeros(1, dtype=np.int64)]
        while len(inner := levels[-1][left[levels[-1]] >= 0]):
            levels.append(np.stack([left[inner], right[inner]], axis=1).reshape(-1))
        order = np.concatenate(levels)
        position = np.empty(len(left), dtype=np.int64)
        position[order] = np.arange(len(order))
        leaf = left[order] < 0
        condition = np.asarray(tree["split_conditions"], dtype=np.float32)[order]
        parts["feature"].append(np.where(leaf, 0, np.asarray(tree["split_indices"])[order]))
        parts["threshold"].append(np.where(leaf, np.float32(_NEVER), condition))
        parts["child"].append(nodes + np.where(leaf, position[order], position[left[order]]))
        parts["value"].append(np.where(leaf, condition, np.float32(0)))
        roots.append(nodes)
        nodes, depth = nodes + len(order), max(depth, len(levels) - 1)
    tensors = {name: torch.from_numpy(np.concatenate(arrays)) for name, arrays in parts.items()}
    tensors |= {"root": torch.tensor(roots), "longest": torch.tensor(depth)}
    return {name: tensor.to(_KINDS[name]) for name, tensor in tensors.items()}


def _check_against(booster: Any, network: BoostedTrees, rows: Tensor) -> None:
    """Compare with XGBoost's own predictions: its file format is undocumented and may change."""
    expected = torch.from_numpy(booster.inplace_predict(rows.float().cpu().numpy(), predict_type="margin"))
    if not torch.allclose(network(rows.float().cpu()), expected, atol=1e-3, rtol=1e-4):
        raise UnsupportedError("this version of XGBoost writes its trees in an unknown format; 3.2 is supported")
