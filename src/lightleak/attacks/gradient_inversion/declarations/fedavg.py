"""The published attacks on FedAvg updates, each a configuration (FedAvg paper Sec. 5.1; TabLeak App. B)."""

from lightleak.attacks.gradient_inversion.declarations.gradients import TABLEAK, register_engine_attacks
from lightleak.attacks.gradient_inversion.fedavg.simulate.attack import FedAvgInversion
from lightleak.attacks.gradient_inversion.fedavg.simulate.config import FedAvgConfig
from lightleak.core.facts import Facts

FEDAVG = "Dimitrov et al., Data Leakage in Federated Averaging, TMLR 2022"
GEIPING = "Geiping et al., Inverting Gradients - How easy is it to break privacy in federated learning?, NeurIPS 2020"

# lambda_inv depends on dataset, epochs and batches: reproductions choose it per cell on a validation client. 0.1 is the
# middle of TabLeak's list.
_PRIOR = 0.1
# What the FedAvg paper compares: one candidate, Adam on the gradient itself, no relaxation. App. B.2's weights belong
# to the distance that its code minimizes; reproductions set both per dataset.
_OURS = FedAvgConfig(
    restarts=1,
    steps=200,
    learning_rate=0.1,
    sign=False,
    initialization="normal",
    categorical="none",
    numerical="none",
    pooling="none",
)

_NEEDS = (
    "A weight delta of local SGD on cross-entropy; one FedSGD gradient is refused.",
    "The client's rows, learning rate, and its epochs and batch size or the number of its steps.",
    "Of an aggregate, how many clients it sums, each with equally many rows.",
    "How many rows each class has, shared or restored (`labels: interpolated`).",
)
_PRIOR_CHOICE = (
    "The weight of the epoch prior is the middle of the paper's list for every setting; the paper, and `lightleak "
    "reproduce`, choose it per setting on a validation client (`epoch_prior`)."
)
_DISTANCE = (
    "Updates are compared by the cosine distance of the text; the code of the FedAvg paper sums squared errors of "
    "layers, each weighted by 1/e of the one before it (`published_objective: true`)."
)
_BOUNDS = "Numbers are put back inside their bounds when rows are decoded, which the published FedAvg code does not do."

_DECLARATIONS: dict[str, tuple[str, str, FedAvgConfig, Facts]] = {
    "tableak_fedavg": (
        "TabLeak for FedAvg",
        TABLEAK,
        FedAvgConfig(epoch_prior=_PRIOR),
        Facts(
            "TabLeak on the simulated local training of a client",
            needs=_NEEDS,
            deviates=(
                _PRIOR_CHOICE,
                "Candidates start uniformly in [0, 1]; its published code starts in [-1, 1] (`initialization: "
                "symmetric`).",
            ),
        ),
    ),
    "inverting_gradients_fedavg": (
        "Inverting Gradients for FedAvg",
        GEIPING,
        FedAvgConfig(restarts=1, pooling="none", categorical="none", numerical="none", epoch_prior=_PRIOR),
        Facts(
            "Inverting Gradients on the simulated local training",
            needs=_NEEDS,
            deviates=(_PRIOR_CHOICE, _BOUNDS),
        ),
    ),
    "fedavg_prior": (
        "Dimitrov et al., epoch prior",
        FEDAVG,
        _OURS.with_options(epoch_prior=_PRIOR),
        Facts(
            "simulates every local step; epochs must hold the same rows",
            needs=_NEEDS,
            deviates=(_DISTANCE, _PRIOR_CHOICE, _BOUNDS),
        ),
    ),
    "fedavg_no_prior": (
        "Dimitrov et al., no prior",
        FEDAVG,
        _OURS,
        Facts("simulates every local step, without the epoch prior", needs=_NEEDS, deviates=(_DISTANCE, _BOUNDS)),
    ),
    "fedavg_shared": (
        "Dimitrov et al., shared variables",
        GEIPING,
        _OURS.with_options(simulation="shared"),
        Facts("simulates every local step, one variable per row", needs=_NEEDS, deviates=(_DISTANCE, _BOUNDS)),
    ),
    "fedavg_epoch": (
        "FedSGD-Epoch",
        FEDAVG,
        _OURS.with_options(simulation="epoch"),
        Facts("simulates one step per local epoch", needs=_NEEDS, deviates=(_DISTANCE, _BOUNDS)),
    ),
    "fedavg_fedsgd": (
        "FedSGD, on a FedAvg update",
        "Geng et al., Towards General Deep Leakage in Federated Learning, 2021",
        _OURS.with_options(simulation="fedsgd"),
        Facts("takes the weight update for one gradient", needs=_NEEDS, deviates=(_DISTANCE, _BOUNDS)),
    ),
}


register_engine_attacks(FedAvgInversion, _DECLARATIONS)
