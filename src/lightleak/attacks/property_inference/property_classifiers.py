"""Classifiers of single records, each trained without one fold of the auxiliary rows."""

from typing import Any, Literal

import torch
from torch import Tensor

from lightleak.attacks.property_inference.stacked_networks import FeatureRows, Schedule, initial_networks, train
from lightleak.core.seeds import derive_seed, generator

Classifier = Literal["network", "svm", "decision_tree"]

HIDDEN = (64, 32)
"""Hidden widths of the network (published code: d-64-32-1, ReLU, He's initialization, Adam, 50 epochs)."""


def assign_folds(ids: Tensor, has_property: Tensor, n_folds: int, seed: int) -> Tensor:
    """A fold 0..n_folds-1 for every auxiliary row, LongTensor ``[m]``.

    Rows of one id share a fold, so that no copy of a held-out row is trained on; rows with the property and rows
    without it are dealt out evenly.

    >>> assign_folds(torch.tensor([7, 7, 8, 9]), torch.tensor([True, True, True, False]), 2, seed=0).tolist()
    [0, 0, 1, 0]
    """
    folds = torch.empty_like(ids)
    draw = generator(seed, "folds")
    for group in (has_property, ~has_property):
        distinct, of_row = ids[group].unique(return_inverse=True)
        dealt = torch.randperm(len(distinct), generator=draw).to(ids.device) % n_folds
        folds[group] = dealt[of_row]
    return folds


def votes(
    classifier: Classifier, rows: FeatureRows, at: Tensor, has_property: Tensor, folds: Tensor, n_models: int, seed: int
) -> Tensor:
    """What models 0..n_models-1 call every row, BoolTensor ``[n_models, n]``.

    Args:
        classifier: kind of model.
        rows: ``n`` rows.
        at: LongTensor ``[m]`` positions of the auxiliary rows in ``rows``.
        has_property: BoolTensor ``[m]``.
        folds: LongTensor ``[m]``; model i is trained on the rows of all folds but i.
        n_models: models to train.
        seed: root seed of weights and orders.
    """
    members = [torch.nonzero(folds != held_out).squeeze(1) for held_out in range(n_models)]
    if classifier == "network":
        return _network_votes(rows, at, has_property, members, seed)
    everything = rows.take(torch.arange(len(rows.values), device=at.device)).cpu().numpy()
    called = []
    for index, member in enumerate(members):
        model = _sklearn_model(classifier, derive_seed(seed, classifier, index))
        model.fit(everything[at[member].cpu().numpy()], has_property[member].cpu().numpy())
        called.append(torch.from_numpy(model.predict(everything)))
    return torch.stack(called)


def _network_votes(rows: FeatureRows, at: Tensor, has_property: Tensor, members: list[Tensor], seed: int) -> Tensor:
    # Folds differ by a row or two; networks that train side by side need the same number.
    shortest = min(map(len, members))
    draw = generator(seed, "level")
    level = torch.stack([m[torch.randperm(len(m), generator=draw)[:shortest].to(m.device)] for m in members])
    device = rows.values.device
    networks = initial_networks(len(members), (rows.values.shape[1], *HIDDEN, 1), "kaiming_normal", seed, device)
    train(networks, rows, at[level], has_property[level].long(), Schedule(), seed)
    return networks.outputs(rows, torch.arange(len(rows.values), device=device)).squeeze(2).cpu() > 0


def _sklearn_model(classifier: Classifier, seed: int) -> Any:
    if classifier == "svm":
        from sklearn.svm import SVC

        return SVC()
    from sklearn.tree import DecisionTreeClassifier

    return DecisionTreeClassifier(random_state=seed % 2**32)
