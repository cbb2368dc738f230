"""The published attacks of this family, each a configuration of the engine (TabLeak Sec. 4, its published settings)."""

from collections.abc import Callable
from typing import Any

from lightleak.attacks.attack import ATTACKS
from lightleak.attacks.gradient_inversion.attack import GradientInversion
from lightleak.attacks.gradient_inversion.config import InversionConfig

TABLEAK = "Vero et al., TabLeak: Tabular Data Leakage in Federated Learning, ICML 2023"

_DECLARATIONS: dict[str, tuple[str, InversionConfig]] = {
    "tableak": (TABLEAK, InversionConfig()),
    "tableak_no_pooling": (TABLEAK, InversionConfig(restarts=1, pooling="none")),
    "tableak_no_softmax": (TABLEAK, InversionConfig(categorical="none")),
    "inverting_gradients": (
        "Geiping et al., Inverting Gradients - How easy is it to break privacy in federated learning?, NeurIPS 2020",
        InversionConfig(restarts=1, pooling="none", categorical="none", numerical="none"),
    ),
    "deep_gradient_leakage": (
        "Zhu et al., Deep Leakage from Gradients, NeurIPS 2019",
        InversionConfig(restarts=1, pooling="none", categorical="none", numerical="none", objective="squared_error"),
    ),
    # The weights are the middle of the grid TabLeak searches (1 to 1e-5, best kept).
    "gradinversion": (
        "Yin et al., See through Gradients: Image Batch Recovery via GradInversion, CVPR 2021",
        InversionConfig(
            restarts=1, pooling="none", categorical="none", numerical="none", l2_prior=1e-4, batch_norm_prior=1e-3
        ),
    ),
}


def _factory(name: str, citation: str, defaults: InversionConfig) -> Callable[..., GradientInversion]:
    def make(**options: Any) -> GradientInversion:
        return GradientInversion(name, citation, defaults.with_options(**options))

    return make


for _name, (_citation, _config) in _DECLARATIONS.items():
    ATTACKS.register(_name)(_factory(_name, _citation, _config))
