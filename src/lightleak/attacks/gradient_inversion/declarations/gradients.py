"""The published attacks of this family, each a configuration of the engine (TabLeak Sec. 4, its published settings)."""

from collections.abc import Callable, Mapping
from functools import partial

from lightleak.attacks.attack import ATTACKS, UpdateAttack
from lightleak.attacks.gradient_inversion.config import EngineConfig, InversionConfig
from lightleak.attacks.gradient_inversion.optimize.attack import GradientInversion
from lightleak.attacks.settings import factory
from lightleak.core.facts import Facts

TABLEAK = "Vero et al., TabLeak: Tabular Data Leakage in Federated Learning, ICML 2023"

NEEDS = (
    "One FedSGD gradient of cross-entropy; a weight delta or an aggregate of clients is refused.",
    "A network that PyTorch can differentiate twice; the options for masks, whitening, ties and absent categories "
    "serve plain ReLU networks alone.",
    "Labels that the client shared, or a last Linear layer from which `labels: geng` or `labels: bias` restores them.",
)
_START = (
    "Candidates start uniformly in [0, 1], as in TabLeak's Algorithm 1; its published code starts in [-1, 1] "
    "(`initialization: symmetric`)."
)
_SAME_ENGINE = (
    "Gradients of ReLU networks are computed in closed form; given the same network, labels and start, the "
    "iterates and those of the published code agree to rounding until signs of gradients near zero flip."
)
_TABLEAK_DEVIATES = (
    _START,
    "Entropy is that of the projected restarts, as in Sec. 3.2; the published code takes the pooled soft distribution "
    "(`entropy: soft`).",
    _SAME_ENGINE,
)

_DECLARATIONS: dict[str, tuple[str, str, InversionConfig, Facts]] = {
    "tableak": (
        "TabLeak",
        TABLEAK,
        InversionConfig(),
        Facts("optimizes rows through a softmax, and pools 30 restarts", needs=NEEDS, deviates=_TABLEAK_DEVIATES),
    ),
    "tableak_no_pooling": (
        "TabLeak without pooling",
        TABLEAK,
        InversionConfig(restarts=1, pooling="none"),
        Facts("TabLeak with one restart and no pooling, its ablation", needs=NEEDS, deviates=_TABLEAK_DEVIATES),
    ),
    "tableak_no_softmax": (
        "TabLeak without softmax",
        TABLEAK,
        InversionConfig(categorical="none"),
        Facts("TabLeak without the softmax over categories, its ablation", needs=NEEDS, deviates=_TABLEAK_DEVIATES),
    ),
    "inverting_gradients": (
        "Inverting Gradients",
        "Geiping et al., Inverting Gradients - How easy is it to break privacy in federated learning?, NeurIPS 2020",
        InversionConfig(restarts=1, pooling="none", categorical="none", numerical="none"),
        Facts(
            "matches the direction of the gradient, cells moved freely",
            needs=NEEDS,
            deviates=(
                "Without the total variation of the paper, which is for images: the attack on tables that TabLeak "
                "compares with, in its settings.",
                _START,
                _SAME_ENGINE,
            ),
        ),
    ),
    "deep_gradient_leakage": (
        "Deep Gradient Leakage",
        "Zhu et al., Deep Leakage from Gradients, NeurIPS 2019",
        InversionConfig(restarts=1, pooling="none", categorical="none", numerical="none", objective="squared_error"),
        Facts(
            "matches the gradient by squared distance, cells moved freely",
            needs=NEEDS,
            deviates=(
                "The paper optimizes labels along with the rows by L-BFGS. Here, as in TabLeak's comparison, labels "
                "are given or restored beforehand, and Adam steps along the gradient's sign (`sign: false` takes the "
                "gradient itself).",
                _START,
                _SAME_ENGINE,
            ),
        ),
    ),
    # The weights are the middle of the grid TabLeak searches (1 to 1e-5, best kept).
    "gradinversion": (
        "GradInversion",
        "Yin et al., See through Gradients: Image Batch Recovery via GradInversion, CVPR 2021",
        InversionConfig(
            restarts=1, pooling="none", categorical="none", numerical="none", l2_prior=1e-4, batch_norm_prior=1e-3
        ),
        Facts(
            "adds penalties on norm and on BatchNorm statistics",
            needs=(
                *NEEDS,
                "Of a network with BatchNorm, the statistics of the client's own batch; without BatchNorm this penalty "
                "is nothing.",
            ),
            deviates=(
                "The image priors of the paper (total variation, agreement of several seeds after registration) have "
                "no meaning for a row of a table and are left out, as in TabLeak's comparison.",
                "The paper compares gradients by squared error; here, as in TabLeak's comparison (Section 4), by the "
                "cosine.",
                "TabLeak tries the weights of the priors on a grid and reports the best of each setting; here they are "
                "fixed (`l2_prior` 1e-4, `batch_norm_prior` 1e-3), to be tuned by `lightleak tune`.",
            ),
        ),
    ),
}


def register_engine_attacks(
    make: Callable[..., UpdateAttack], declarations: Mapping[str, tuple[str, str, EngineConfig, Facts]]
) -> None:
    """Register attacks that are settings of one engine.

    Args:
        make: from name, citation, settings and title to the attack.
        declarations: title, citation, settings and facts by name.
    """
    for name, (title, citation, defaults, facts) in declarations.items():
        ATTACKS.register(name, facts)(factory(partial(make, name, citation, title=title), defaults))


register_engine_attacks(GradientInversion, _DECLARATIONS)
