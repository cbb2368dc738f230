"""The attacks of this package, by name, and what their cards say beyond the code; docs/exact-inversion.md has more."""

from lightleak.attacks.attack import ATTACKS
from lightleak.attacks.gradient_inversion.compose.audit_max import AuditMaxConfig, audit_max
from lightleak.attacks.gradient_inversion.exact.config import ExactConfig
from lightleak.attacks.gradient_inversion.fedavg.exact.attack import ExactFedAvg
from lightleak.attacks.gradient_inversion.fedavg.exact.config import ExactFedAvgConfig
from lightleak.attacks.gradient_inversion.fedavg.exact.first_layer import ExactOrFirstLayer
from lightleak.attacks.gradient_inversion.joint.attack import JointInversion
from lightleak.attacks.gradient_inversion.joint.config import JointConfig
from lightleak.attacks.gradient_inversion.joint.pruned import PrunedConfig, PrunedInversion
from lightleak.attacks.gradient_inversion.joint.signed import SignInversion, SignsConfig
from lightleak.attacks.settings import factory
from lightleak.core.facts import Facts

_CHAIN = "A chain of Linear layers with ReLU between them, two of them hidden at least; cross-entropy."
_ANY_CHAIN = (
    "A chain of Linear layers, one of them hidden at least, with ReLU or one smooth activation between them (GELU, "
    "tanh, SiLU, sigmoid, ELU, softplus, Mish); cross-entropy."
)
_ROW_WISE = (
    "A network that works row by row, whose first linear layer sees the encoded row, or embeddings of its cells "
    "(concatenated or summed), and whose logits are a linear layer's: any activation, residual sums, gates, LayerNorm, "
    "one hidden layer or more; or attention, where layers behind it see one vector per row, as with a CLS token; "
    "cross-entropy. Its layers are found by running the module, not by its name."
)
_AFFINE = "Rows encoded by an affine map: the encoding `quantile` is refused. Tables only, no images."
_ROUNDING = "An update exact to rounding: behind noise it finds and proves nothing."
_EXPLAINED = "Why the tests hold, and what a certificate lets one conclude, is an argument and not a theorem."

_EXACT = Facts(
    "finds single rows by tests against the gradient, and proves them",
    needs=(
        "One FedSGD gradient, or an aggregate of clients with equal numbers of rows.",
        _ROW_WISE,
        "Of clients with dropout only the first linear layer is read, in front of which nothing may be dropped: with "
        "ReLU whole batches are proven, with other activations the rows that no others of its row space can replace; "
        "labels are guessed, and behind embeddings nothing is proven.",
        _AFFINE,
        _ROUNDING,
        "About 8 distinct rows fewer than the narrowest layer has units; beyond that single rows cannot be tested.",
    ),
    deviates=(
        "SPEAR samples directions of a gradient's null space, DAGER enumerates tokens; here rows of a table are "
        "searched cell by cell for distance zero to the spaces of the gradient.",
        "SPEAR needs ReLU and DAGER attention; here the errors of any network follow by backward passes.",
        _EXPLAINED,
    ),
)
_JOINT = Facts(
    "optimizes all rows together beyond the rank limit, and proves the whole",
    needs=(
        "One FedSGD gradient of one client.",
        _ANY_CHAIN,
        _AFFINE,
        "A certificate under noise takes the noise to have one deviation on all elements, which it estimates, unless "
        "the gradient's values show that they were sent as float16, bfloat16 or in 8 bits.",
    ),
    deviates=("It follows no paper; the certificate is of the batch as a whole.", _EXPLAINED),
)
_PRUNED = Facts(
    "knows how an update was pruned: rows are those whose gradient lies in the interval of every element",
    needs=(
        "One FedSGD gradient of one client, pruned by leaving out the smallest elements of every tensor, or any.",
        _ANY_CHAIN,
        _AFFINE,
    ),
    deviates=(
        "It follows no paper. Rows are certified where they explain what was sent and no other cells do; where they do "
        "not, and starts disagree, the best guess is returned.",
    ),
)
_SIGNS = Facts(
    "knows that signs, or noised elements of one size, were sent: rows are those whose gradient has them",
    needs=(
        "One FedSGD gradient of one client, of which every tensor has elements of one size, or zero; or some of its "
        "elements, cut off at a known size, with Laplace noise of a known scale.",
        _ANY_CHAIN,
        _AFFINE,
    ),
    deviates=(
        "It follows no paper. Nothing is certified: signs leave numbers open. Where independent starts disagree, the "
        "best guess is returned, and without a search where noised elements tell too little.",
    ),
)
_FEDAVG = Facts(
    "decomposes the first layer's weight update into rows",
    needs=(
        "A weight delta of local SGD on cross-entropy, without weight decay.",
        _CHAIN,
        "Chains with one smooth activation, of one client without momentum whose learning rate, epochs and batch size "
        "are known: rows are fitted to all layers, and proven after one local step.",
        "Of other networks that work row by row, the first layer's row space is read: rows that no others of it can "
        "replace are proven, labels are guessed. Where the first layer sees embeddings, one local step.",
        _AFFINE,
        "Behind a defense the learning rate and the number of local steps must be known. Clipping is undone by "
        "single rows or by the last bias, noise is measured; where it is large, or rows are equal, nothing is proven.",
    ),
    deviates=("It follows no paper: SPEAR and DAGER read single gradients.", _EXPLAINED),
)
_AUDIT_MAX = Facts(
    "the strongest where no defense is known: exact inversion first, TabLeak on what is not proven",
    needs=(
        "A FedSGD gradient or a weight delta that one of its stages serves; a stage that refuses it is passed over.",
    ),
    deviates=(
        "It follows no paper: it is what an audit should run, as the best of several attacks bounds the risk from "
        "below more closely than any single one.",
        "What is returned is chosen by how well rows explain the update, which needs no truth.",
    ),
    settings=(AuditMaxConfig,),
)


exact = ATTACKS.register("exact", _EXACT)(factory(ExactOrFirstLayer, ExactConfig()))
exact_joint = ATTACKS.register("exact_joint", _JOINT)(factory(JointInversion, JointConfig()))
exact_pruned = ATTACKS.register("exact_pruned", _PRUNED)(factory(PrunedInversion, PrunedConfig()))
exact_signs = ATTACKS.register("exact_signs", _SIGNS)(factory(SignInversion, SignsConfig()))
exact_fedavg = ATTACKS.register("exact_fedavg", _FEDAVG)(factory(ExactFedAvg, ExactFedAvgConfig()))
ATTACKS.register("audit_max", _AUDIT_MAX)(audit_max)
