"""Regressors from a population's features to its fraction (ProVFL Algorithm 1, line 9; Table XIII)."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from lightleak.core.registry import Registry

Predict = Callable[[np.ndarray], np.ndarray]
"""Features ``[n, f]`` of populations -> fractions ``[n]``, not clipped."""
Regressor = Callable[[np.ndarray, np.ndarray, int], Predict]
"""``(features [R, f], fractions [R], seed) -> predict``."""

REGRESSORS: Registry[Regressor] = Registry("regressor")
"""The regressors; the estimator ``mixture`` needs none."""

XGBOOST_ROUNDS = 100
XGBOOST_SETTINGS = {"objective": "reg:squarederror", "eta": 0.1, "max_depth": 6}


def _xgboost(features: np.ndarray, fractions: np.ndarray, seed: int, settings: dict[str, Any]) -> Predict:
    import xgboost

    threads = torch.get_num_threads()
    data = xgboost.DMatrix(features, label=fractions, nthread=threads)
    settings = {**XGBOOST_SETTINGS, "seed": seed % 2**31, "nthread": threads, **settings}
    trees = xgboost.train(settings, data, XGBOOST_ROUNDS)

    def predict(rows: np.ndarray) -> np.ndarray:
        return np.asarray(trees.predict(xgboost.DMatrix(rows, nthread=threads)), dtype=float)

    return predict


@REGRESSORS.register("xgboost")
def fit_xgboost(features: np.ndarray, fractions: np.ndarray, seed: int) -> Predict:
    """The paper's 100 rounds, step 0.1, depth 6, squared error; splits are sought among 32 values of a feature.

    Two hundred populations have no use for XGBoost's 256, which take twice the time at equal errors.
    """
    return _xgboost(features, fractions, seed, {"max_bin": 32})


@REGRESSORS.register("xgboost_published")
def fit_published_xgboost(features: np.ndarray, fractions: np.ndarray, seed: int) -> Predict:
    """XGBoost with nothing set beyond what the published code sets."""
    return _xgboost(features, fractions, seed, {})


@REGRESSORS.register("decision_tree")
def fit_decision_tree(features: np.ndarray, fractions: np.ndarray, seed: int) -> Predict:
    """A regression tree, scikit-learn's defaults."""
    from sklearn.tree import DecisionTreeRegressor

    return _predictor(DecisionTreeRegressor(random_state=seed % 2**32).fit(features, fractions))


@REGRESSORS.register("linear")
def fit_linear(features: np.ndarray, fractions: np.ndarray, seed: int) -> Predict:
    """Ordinary least squares."""
    from sklearn.linear_model import LinearRegression

    return _predictor(LinearRegression().fit(features, fractions))


@REGRESSORS.register("svr")
def fit_svr(features: np.ndarray, fractions: np.ndarray, seed: int) -> Predict:
    """Support vector regression, scikit-learn's defaults; norms are not scaled, so small ones carry little weight."""
    from sklearn.svm import SVR

    return _predictor(SVR().fit(features, fractions))


def _predictor(fitted: Any) -> Predict:
    def predict(rows: np.ndarray) -> np.ndarray:
        return np.asarray(fitted.predict(rows), dtype=float)

    return predict
