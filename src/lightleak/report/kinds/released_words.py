"""Names of what attacks on released models differ in: searches, bridges, networks, settings."""

from collections.abc import Iterable

from lightleak.core.results import ReleasedRow
from lightleak.report.format import attack_title, joined
from lightleak.report.kinds.released_entries import NOT_STATED, Entry

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


def title_of(one: ReleasedRow | Entry) -> str:
    """The attack as a reader knows it, or what the config calls it where that says more.

    >>> title_of(Entry("plgmi", "plgmi")), title_of(Entry("plgmi", "PLG-MI, alpha 0"))
    ('PLG-MI', 'PLG-MI, alpha 0')
    """
    return one.label if one.label and one.label != one.attack else attack_title(one.attack)


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
    family, _, rest = (name or NOT_STATED).partition("-")
    return joined(_MODELS[family], rest, by=" ") if family in _MODELS else name or NOT_STATED


def setting_words(row: ReleasedRow, names: Iterable[str]) -> list[str]:
    """The named parts of a setting, each as a short phrase.

    >>> setting_words(ReleasedRow(attack="", dataset="diabetes130", target="mlp-100", setting="2"), ["target"])
    ['target MLP 100']
    """
    phrases = {
        "dataset": row.dataset or "dataset not stated",
        "target": f"target {model_name(row.target)}",
        "evaluation": f"judged by {model_name(row.evaluation)}",
        "setting": "setting not stated" if row.setting is None else f"setting {row.setting}",
    }
    return [phrases[name] for name in names]


def bridge_name(bridge: str | None) -> str:
    """The bridge in words."""
    return _BRIDGES.get(bridge or "", bridge or "bridge not stated")
