"""Folds keep copies together; every model is trained without its fold."""

import pytest
import torch

from lightleak.attacks.property_inference.property_classifiers import Classifier, assign_folds, votes
from lightleak.attacks.property_inference.stacked_networks import FeatureRows
from lightleak.core.seeds import generator


def test_copies_of_a_row_share_a_fold_and_folds_are_even() -> None:
    ids = torch.cat([torch.arange(100), torch.arange(500, 530).repeat(3), torch.arange(500, 510)])
    has = ids >= 500
    folds = assign_folds(ids, has, 10, seed=0)
    for one in ids.unique():
        assert len(folds[ids == one].unique()) == 1
    assert folds[:100].bincount(minlength=10).tolist() == [10] * 10
    assert folds[100:130].bincount(minlength=10).tolist() == [3] * 10
    assert not torch.equal(folds, assign_folds(ids, has, 10, seed=1))


@pytest.mark.parametrize("classifier", ["network", "svm", "decision_tree"])
def test_a_model_knows_all_rows_but_its_fold(classifier: Classifier) -> None:
    """Each row is its own one-hot vector, so that a model can only know the rows it was shown."""
    n, n_folds = 60, 3
    at = torch.randperm(n, generator=generator(0, "at"))
    has = torch.arange(n) % 2 == 0
    folds = assign_folds(at, has, n_folds, seed=0)
    called = votes(classifier, FeatureRows(torch.eye(n)), at, has, folds, n_folds, seed=0)
    assert called.shape == (n_folds, n) and called.dtype == torch.bool
    for model in range(n_folds):
        shown = folds != model
        assert (called[model, at[shown]] == has[shown]).all()
        if classifier != "network":  # a network's guess at an unknown row follows its random weights
            assert len(called[model, at[~shown]].unique()) == 1


def test_one_model_is_the_first_of_many() -> None:
    rows = FeatureRows(torch.randn(80, 4))
    at, has = torch.arange(40), torch.arange(40) % 2 == 0
    folds = assign_folds(at, has, 4, seed=0)
    one, many = (votes("network", rows, at, has, folds, n_models, seed=3) for n_models in (1, 4))
    assert (one[0] == many[0]).float().mean() > 0.97
