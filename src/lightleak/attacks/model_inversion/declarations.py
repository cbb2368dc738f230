"""PLG-MI's entries in the registry: the attack, its control, and the black-box attack."""

from functools import partial
from typing import Any

from lightleak.attacks.model_inversion.attack import INVERSION_ATTACKS, SEES
from lightleak.attacks.model_inversion.augmentation import AugmentationConfig
from lightleak.attacks.model_inversion.gan_config import GANConfig
from lightleak.attacks.model_inversion.latent_search import GradientSearchConfig
from lightleak.attacks.model_inversion.plgmi import PLGMI
from lightleak.attacks.model_inversion.pseudo_labels import PseudoLabelConfig
from lightleak.attacks.model_inversion.tpe_search import TPESearchConfig
from lightleak.core.errors import UsageError
from lightleak.core.facts import Facts

NEEDS = (
    "Public rows that the model takes for the private classes; a class of fewer than `pseudo_labels.minimum` is "
    "excluded.",
)
_PUBLISHED = (
    "Generator and critic are ctgan's own; the transform is ours, faster, and equal to ctgan's on the same modes.",
    "The thesis sets no least number of public rows per class; two of its hundred classes had none "
    "(`pseudo_labels.minimum`).",
    "The gradient search returns the best vector on its way; the thesis returns the last (`gradient.keep_best: "
    "false`).",
    "The thesis names augmentations in its search and does not say which; both of ours are off (`augmentation`).",
)


def _settings(gan: GANConfig) -> tuple[object, ...]:
    return (
        PLGMI.__init__,
        gan,
        ("pseudo_labels", PseudoLabelConfig),
        ("gradient", GradientSearchConfig),
        ("tpe", TPESearchConfig),
        ("augmentation", AugmentationConfig),
    )


def _without_inversion(name: str, **settings: Any) -> PLGMI:
    """The same generator, trained on the pseudo-labeled rows without the target's gradient."""
    if settings.get("inversion_weight"):
        raise UsageError(
            f"{name} has no inversion loss: inversion_weight must be 0, got {settings['inversion_weight']}"
        )
    return PLGMI(name, **{**settings, "inversion_weight": 0.0})


plgmi = INVERSION_ATTACKS.register(
    "plgmi",
    Facts(
        "trains a conditional generator led by the released model's gradient",
        SEES,
        (*NEEDS, "A model that gives gradients, as networks do and trees do not."),
        (
            "Defaults of the generator were chosen on public rows alone; those of Table 5.4 are kept in "
            "`configs/thesis-setting2.yaml`. The weight of the inversion loss is the thesis's, 1; on Diabetes-130 it "
            "drove rows away from anything but the target (`inversion_weight`).",
            *_PUBLISHED,
        ),
        settings=_settings(GANConfig()),
    ),
)(partial(PLGMI, "plgmi"))
"""The attack of the thesis."""

INVERSION_ATTACKS.register(
    "gan_without_target",
    Facts(
        "the same generator trained without the model's gradient, a control",
        SEES,
        NEEDS,
        ("Not an attack of the thesis but its control: what public rows alone give.", *_PUBLISHED),
        settings=_settings(GANConfig(inversion_weight=0.0)),
    ),
)(partial(_without_inversion, "gan_without_target"))

# What can be done with a model's answers alone, for trees as well (Sec. 6.7.6); search with ``tpe``.
INVERSION_ATTACKS.register(
    "plgmi_black_box",
    Facts(
        "PLG-MI with the model's answers alone, trees included",
        SEES.replace("whose weights and gradients are open to them, ", "or may ask it for its answers alone, "),
        NEEDS,
        ("The generator is trained without the model's gradient; the search asks the model (`tpe`).", *_PUBLISHED),
        settings=_settings(GANConfig(inversion_weight=0.0)),
    ),
)(partial(_without_inversion, "plgmi_black_box"))
