"""Numbers and names in plain language."""

from collections.abc import Iterable
from dataclasses import fields

from lightleak.report.estimate import Estimate
from lightleak.report.result import Setting

_ATTACKS = {
    "tableak": "TabLeak",
    "tableak_no_pooling": "TabLeak without pooling",
    "tableak_no_softmax": "TabLeak without softmax",
    "tableak_fedavg": "TabLeak for FedAvg",
    "inverting_gradients": "Inverting Gradients",
    "deep_gradient_leakage": "Deep Gradient Leakage",
    "gradinversion": "GradInversion",
    "random": "Guessing",
    "provfl_b": "ProVFL-B",
    "provfl_b_mixture": "ProVFL-B, mixture",
    "provfl_m": "ProVFL-M",
    "aia": "AIA",
    "aia_adjusted": "AIA, adjusted count",
    "aia_raw": "AIA on raw features",
    "sm_pia": "SM-PIA",
    "prior": "Guessing the auxiliary share",
}
_PROTOCOLS = {"fedsgd": "FedSGD", "fedavg": "FedAvg"}
_WHAT_TRAVELS = {
    "fedsgd": "FedSGD: in each step a client sends the gradient of one batch of its rows to the server.",
    "fedavg": "FedAvg: a client trains on its rows for a while and sends the changed weights to the server.",
}
_SOURCES = {
    "initial": "before training, on the network's first, random weights",
    "training": "during training, on updates captured as they were sent",
}
SMALLEST_SHOWN = 0.0005
"""Below this fraction one decimal would print 0.0% for something that did happen."""


def percent(fraction: float | None) -> str:
    """A fraction as a percentage with one decimal.

    >>> percent(0.7934), percent(0.0001), percent(0.0), percent(None)
    ('79.3%', '<0.1%', '0.0%', '–')
    """
    if fraction is None:
        return "–"
    return "<0.1%" if 0 < fraction < SMALLEST_SHOWN else f"{100 * fraction:.1f}%"


def points(difference: float | None) -> str:
    """A signed difference of two fractions in percentage points.

    >>> points(0.356), points(-0.02), points(None)
    ('+35.6', '−2.0', '–')
    """
    if difference is None:
        return "–"
    rounded = round(100 * difference, 1)
    return "0.0" if rounded == 0 else f"{'+' if rounded > 0 else '−'}{abs(rounded):.1f}"


def interval(value: Estimate | None, lowest: float = 0.0, highest: float = 1.0) -> str:
    """The 95% interval in percent, held inside what is possible.

    >>> interval(Estimate(0.98, 5, 0.955, 1.005)), interval(Estimate(0.9))
    ('95.5 to 100.0', '–')
    """
    if value is None or value.low is None or value.high is None:
        return "–"
    ends = (round(100 * min(max(end, lowest), highest), 1) + 0.0 for end in (value.low, value.high))  # no -0.0
    return " to ".join(f"{end:.1f}".replace("-", "−") for end in ends)


def duration(seconds: float | None) -> str:
    """Seconds as a person reads them.

    >>> duration(0.004), duration(9.73), duration(150), duration(7260), duration(None)
    ('<0.01 s', '9.73 s', '2 min 30 s', '2 h 1 min', '–')
    """
    if seconds is None:
        return "–"
    if seconds < 60:
        return "<0.01 s" if seconds < 0.005 else f"{seconds:.2f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def attack_title(name: str) -> str:
    """The attack as the literature calls it.

    >>> attack_title("tableak"), attack_title("audit_max")
    ('TabLeak', 'audit max')
    """
    return _ATTACKS.get(name, name.replace("_", " "))


def protocol_title(name: str | None) -> str:
    """Short name of a protocol."""
    return _PROTOCOLS.get(name or "", name or "not stated")


def what_travels(name: str | None) -> str:
    """One sentence on what leaves a client."""
    return _WHAT_TRAVELS.get(name or "", f"Protocol {name!r}." if name else "Not stated in the results.")


def defense_title(name: str | None) -> str:
    """Name of the defence; what is absent is said.

    >>> defense_title(None), defense_title("noise_0.01")
    ('none', 'noise 0.01')
    """
    return (name or "none").replace("_", " ")


def source_phrase(source: str | None) -> str:
    """When the attacked update was sent."""
    return _SOURCES.get(source or "", source or "not stated")


def labels_phrase(labels: str | None) -> str:
    """What the attack knew of the labels."""
    known = {"true": "known to the server", "restored": "restored from the update"}
    return known.get(labels or "", labels or "not stated")


def setting_parts(setting: Setting, names: Iterable[str]) -> list[str]:
    """The named parts of a setting, each as a short phrase.

    >>> setting_parts(Setting("a", dataset="adult", labels="true", epoch=3), ["dataset", "labels", "epoch"])
    ['adult', 'labels known to the server', 'epoch 3']
    """
    phrases = {
        "run": setting.run,
        "dataset": setting.dataset or "dataset not stated",
        "target": setting.target or "network not stated",
        "protocol": protocol_title(setting.protocol),
        "defense": f"defence {defense_title(setting.defense)}",
        "labels": f"labels {labels_phrase(setting.labels)}",
        "source": source_phrase(setting.source),
        "epoch": "no epoch" if setting.epoch is None else f"epoch {setting.epoch}",
    }
    return [phrases[name] for name in names]


def varying(settings: Iterable[Setting]) -> list[str]:
    """Names of the parts in which the settings differ.

    >>> varying([Setting("a", dataset="adult"), Setting("a", dataset="german")])
    ['dataset']
    """
    known = list(settings)
    names = [field.name for field in fields(Setting)]
    return [name for name in names if len({getattr(setting, name) for setting in known}) > 1]
