"""Names of vertical federated learning in plain language."""

import re
from collections.abc import Iterable
from dataclasses import fields

from lightleak.report.estimate import Estimate
from lightleak.report.vertical.result import NO_DEFENSE, Setting
from lightleak.report.wording import attack_title, interval

PASSIVE = "passive"
_NUMBER_AT_END = re.compile(r"(?P<family>.*\D)\s+(?P<number>[-+]?\d[\d.]*(?:e[-+]?\d+)?)")

ROLES = {
    "C1": "the company that holds the labels",
    "C2": "a company without the labels",
}
ROLE_DETAILS = {
    "C1": "active party: it holds the labels and the top network, sees what every party sends and which gradients go "
    "back, record by record",
    "C2": "passive party: of each record it sees only the output of its own network",
}
KIND_TITLES = {
    "AO": "own output",
    "AG": "own gradient",
    "VO": "the other's output",
    "VG": "the other's gradient",
}
NORM_TITLES = {"l1": "L1", "l2": "L2", "linf": "L∞"}
DISTANCE_TITLES = {"kl": "KL", "js": "JS", "bc": "BC"}


def attack_name(attack: str, variant: str = "") -> str:
    """The attack as the literature calls it, with its variant; following the protocol goes without saying.

    >>> attack_name("provfl_b", "passive"), attack_name("provfl_m", "LR+MR")
    ('ProVFL-B', 'ProVFL-M, LR+MR')
    """
    return attack_title(attack) + (f", {variant}" if variant and variant != PASSIVE else "")


def role(adversary: str) -> str:
    """Who the adversary is.

    >>> role("C1"), role("C9")
    ('the company that holds the labels', 'the adversary C9')
    """
    return ROLES.get(adversary, f"the adversary {adversary}".strip())


def off_by(fraction: float | None) -> str:
    """An absolute difference of two fractions in percentage points.

    >>> off_by(0.0142), off_by(0.0001), off_by(0.0), off_by(None)
    ('1.4', '<0.1', '0.0', '–')
    """
    if fraction is None:
        return "–"
    return "<0.1" if 0 < fraction < 0.0005 else f"{100 * fraction:.1f}"


def off_by_points(fraction: float) -> str:
    """The same with its unit.

    >>> off_by_points(0.0142), off_by_points(0.01)
    ('1.4 points', '1.0 points')
    """
    return f"{off_by(fraction)} points"


def with_interval(value: Estimate, lowest: float = 0.0) -> str:
    """Words in brackets after a number; empty where there is no interval.

    >>> with_interval(Estimate(0.014, 7, 0.008, 0.02)), with_interval(Estimate(0.014))
    (' (95% interval 0.8 to 2.0)', '')
    """
    return f" (95% interval {interval(value, lowest)})" if value.has_interval else ""


def score(value: Estimate | None) -> str:
    """An AUC with three digits, and its interval.

    >>> score(Estimate(0.9031, 3, 0.9012, 0.905)), score(Estimate(1.0)), score(None)
    ('.903 (.901 to .905)', '1.000', '–')
    """
    if value is None:
        return "–"
    ends = [min(max(end, 0.0), 1.0) for end in (value.low, value.high) if end is not None]
    return _digits(value.mean) + (f" ({_digits(ends[0])} to {_digits(ends[1])})" if len(ends) == 2 else "")


def _digits(value: float) -> str:
    return f"{value:.3f}".removeprefix("0")


def defense_parts(name: str) -> tuple[str, str]:
    """The defence and its strength, where its name ends with a number.

    >>> defense_parts("withdraw ratio 0.5"), defense_parts("none")
    (('withdraw ratio', '0.5'), ('none', ''))
    """
    found = _NUMBER_AT_END.fullmatch(name)
    return (found["family"], found["number"]) if found else (name, "")


def defense_name(name: str) -> str:
    """The defence as a reader knows it.

    >>> defense_name("none"), defense_name("withdraw_ratio 0.5")
    ('no defence', 'withdraw ratio 0.5')
    """
    return "no defence" if name == NO_DEFENSE else name.replace("_", " ")


def setting_words(setting: Setting, names: Iterable[str]) -> list[str]:
    """The named parts of a setting, each as a short phrase.

    >>> setting_words(Setting("adult", epoch=18), ["dataset", "epoch"])
    ['adult', 'epoch 18']
    """
    phrases = {
        "dataset": setting.dataset or "dataset not stated",
        "target": setting.target or "network not stated",
        "epoch": "epoch not stated" if setting.epoch is None else f"epoch {setting.epoch}",
        "defense": defense_name(setting.defense),
    }
    return [phrases[name] for name in names]


def varying(settings: Iterable[Setting]) -> list[str]:
    """Names of the parts in which the settings differ.

    >>> varying([Setting("adult"), Setting("bank")])
    ['dataset']
    """
    known = list(settings)
    return [one.name for one in fields(Setting) if len({getattr(setting, one.name) for setting in known}) > 1]


def listed(names: Iterable[str]) -> str:
    """Names in a sentence.

    >>> listed(["a"]), listed(["a", "b", "c"])
    ('a', 'a, b and c')
    """
    known = list(names)
    return " and ".join([", ".join(known[:-1]), known[-1]] if len(known) > 1 else known)
