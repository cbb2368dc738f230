"""Names and numbers of model inversion in plain language."""

from collections.abc import Iterable, Sequence
from dataclasses import fields

from lightleak.report.estimate import Estimate
from lightleak.report.released.comparison import Scenario
from lightleak.report.released.group import Group
from lightleak.report.released.result import Setting
from lightleak.report.wording import attack_title

_ATTACKS = {
    "plgmi": "PLG-MI",
    "plgmi_black_box": "PLG-MI, black box",
    "public_pseudo_labelled": "Public rows sorted by the model",
    "gan_without_target": "Generator without the model's loss",
    "public_random": "Public rows at random",
}
DETAILS = {
    "plgmi": "A generator learns to make rows that look like the public ones and that the released model takes for the "
    "class asked for.",
    "plgmi_black_box": "The same generator where only the model's answers can be had: the search alone asks the model.",
    "gan_without_target": "The same generator, taught on public rows alone: the released model only says which class a "
    "public row is most like.",
    "public_pseudo_labelled": "Nothing is made up: public rows of which the released model is surest that they belong "
    "to the class.",
    "public_random": "Nothing is made up and the model is not asked: any public rows.",
}
SEARCHES = {
    "gradient": "gradient search",
    "tpe": "Bayesian search (TPE)",
    "random_best": "best of as many random\u00a0z",
    "random": "random\u00a0z",
    "softmax": "random\u00a0z, likeliest categories",
}
"""Latent searches in the order of thesis Table 5.6; the last is where the searches start from."""

_BRIDGES = {"exact": "exact bridge", "shared": "shared transform"}
_MODELS = {"gandalf": "GANDALF", "boosted_trees": "boosted trees (XGBoost)", "mlp": "MLP"}


def attack_name(attack: str, label: str | None = None) -> str:
    """The attack as a reader knows it, or what the config calls it where that says more.

    >>> attack_name("plgmi"), attack_name("plgmi", "plgmi"), attack_name("plgmi", "PLG-MI, alpha 0")
    ('PLG-MI', 'PLG-MI', 'PLG-MI, alpha 0')
    """
    return label if label and label != attack else _ATTACKS.get(attack, attack_title(attack))


def search_name(search: str | None) -> str:
    """The latent search in words.

    >>> search_name("tpe"), search_name(None)
    ('Bayesian search (TPE)', 'search not stated')
    """
    return SEARCHES.get(search or "", search or "search not stated")


def model_name(name: str | None) -> str:
    """A network as the literature writes it.

    >>> model_name("mlp-2048-1024"), model_name("gandalf"), model_name(None)
    ('MLP 2048-1024', 'GANDALF', 'not stated')
    """
    family, dash, rest = (name or "not stated").partition("-")
    return _MODELS[family] + (f" {rest}" if dash else "") if family in _MODELS else name or "not stated"


def group_titles(scenario: Scenario, searches: bool = True) -> dict[Group, str]:
    """Title of each group, with its search and bridge where those of one label differ in them."""
    found = {}
    for group in scenario.groups:
        same = [other for other in scenario.groups if (other.attack, other.label) == (group.attack, group.label)]
        words = [attack_name(group.attack, group.label)]
        words += [search_name(group.search)] if searches and len({other.search for other in same}) > 1 else []
        words += [bridge_name(group.bridge)] if len({other.bridge for other in same}) > 1 else []
        found[group] = " · ".join([*words, group.detail] if group.detail else words)
    return found


def bridge_name(bridge: str | None) -> str:
    """How the generator's output reaches the target."""
    return _BRIDGES.get(bridge or "", bridge or "bridge not stated")


def scenario_titles(scenarios: Sequence[Scenario]) -> dict[Setting, str]:
    """What each scenario is called: the parts in which they differ; empty where there is one."""
    names = [
        one.name for one in fields(Setting) if len({getattr(scenario.setting, one.name) for scenario in scenarios}) > 1
    ]
    return {scenario.setting: " · ".join(setting_words(scenario.setting, names)) for scenario in scenarios}


def setting_words(setting: Setting, names: Iterable[str]) -> list[str]:
    """The named parts of a setting, each as a short phrase.

    >>> setting_words(Setting("diabetes130", "mlp-100", setting="2"), ["dataset", "target", "setting"])
    ['diabetes130', 'target MLP 100', 'setting 2']
    """
    phrases = {
        "dataset": setting.dataset or "dataset not stated",
        "target": f"target {model_name(setting.target)}",
        "evaluation": f"judged by {model_name(setting.evaluation)}",
        "setting": "setting not stated" if setting.setting is None else f"setting {setting.setting}",
    }
    return [phrases[name] for name in names]


SHOWN_LOSS = 0.005
"""Losses below it would show as 0.00."""


def nats(value: float | None) -> str:
    """A loss in nats; two digits of one that two decimals would show as 0.

    >>> nats(6.841), nats(0.02), nats(0.0000123), nats(None)
    ('6.84', '0.02', '1.2e−05', '–')
    """
    if value is None:
        return "–"
    return (f"{value:.2f}" if value == 0 or abs(value) >= SHOWN_LOSS else f"{value:.1e}").replace("-", "−")


def distance(value: float | None, digits: int = 3) -> str:
    """A Gower distance, between 0 and 1.

    >>> distance(0.0721), distance(0.0001), distance(0.0001, 4), distance(0.0), distance(None)
    ('.072', '<.001', '.0001', '.000', '–')
    """
    if value is None:
        return "–"
    if 0 < value < 0.5 * 10**-digits:
        return f"<{10**-digits:.{digits}f}".replace("0", "", 1)
    return f"{value:.{digits}f}".removeprefix("0")


def count(value: float | None) -> str:
    """A whole number with its thousands apart.

    >>> count(50039.0), count(12), count(None)
    ('50,039', '12', '–')
    """
    return "–" if value is None else f"{round(value):,}"


def plus_minus(value: Estimate | None, deviation: float | None, digits: int = 1, scale: float = 100) -> str:
    """Mean and sample standard deviation, as the thesis prints them.

    >>> plus_minus(Estimate(0.854, 5), 0.0353), plus_minus(Estimate(6.84), None, 2, 1)
    ('85.4 ± 3.5', '6.84')
    """
    if value is None:
        return "–"
    mean = f"{scale * value.mean:.{digits}f}"
    return (mean if deviation is None else f"{mean} ± {scale * deviation:.{digits}f}").replace("-", "−")
