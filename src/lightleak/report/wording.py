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
    "inverting_gradients_fedavg": "Inverting Gradients for FedAvg",
    "fedavg_prior": "Dimitrov et al., epoch prior",
    "fedavg_no_prior": "Dimitrov et al., no prior",
    "fedavg_shared": "Dimitrov et al., shared variables",
    "fedavg_epoch": "FedSGD-Epoch",
    "fedavg_fedsgd": "FedSGD, on a FedAvg update",
    "deep_gradient_leakage": "Deep Gradient Leakage",
    "gradinversion": "GradInversion",
    "random": "Guessing",
    "exact": "Exact inversion",
    "exact_joint": "Exact inversion of all rows jointly",
    "exact_fedavg": "Exact inversion for FedAvg",
    "audit_max": "Exact + TabLeak",
    "provfl_b": "ProVFL-B",
    "provfl_b_mixture": "ProVFL-B, mixture",
    "provfl_b_discriminant": "ProVFL-B, discriminant",
    "provfl_m": "ProVFL-M",
    "aia": "AIA",
    "aia_adjusted": "AIA, adjusted count",
    "aia_raw": "AIA on own columns",
    "aia_raw_adjusted": "Own columns alone",
    "sm_pia": "SM-PIA",
    "prior": "Guessing the auxiliary share",
}
_DEFENSES = {"dp_sgd": "DP-SGD"}
_PROTOCOLS = {"fedsgd": "FedSGD", "fedavg": "FedAvg"}
_WHAT_TRAVELS = {
    "fedsgd": "FedSGD: in each step a client sends the gradient of one batch of its rows to the server.",
    "fedavg": "FedAvg: a client trains on its rows for a while and sends the changed weights to the server.",
}
_SOURCES = {
    "initial": "before training, on the network's first, random weights",
    "given": "on the network as it was handed over, with the weights it had",
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


def with_interval(value: Estimate, lowest: float = 0.0) -> str:
    """Words in brackets after a number; empty where there is no interval.

    >>> with_interval(Estimate(0.014, 7, 0.008, 0.02)), with_interval(Estimate(0.014))
    (' (95% interval 0.8 to 2.0)', '')
    """
    return f" (95% interval {interval(value, lowest)})" if value.has_interval else ""


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

    >>> attack_title("tableak"), attack_title("my_attack")
    ('TabLeak', 'my attack')
    """
    return _ATTACKS.get(name, name.replace("_", " "))


def protocol_title(name: str | None) -> str:
    """Short name of a protocol."""
    return _PROTOCOLS.get(name or "", name or "not stated")


def what_travels(name: str | None) -> str:
    """One sentence on what leaves a client."""
    return _WHAT_TRAVELS.get(name or "", f"Protocol {name!r}." if name else "Not stated in the results.")


def local_phrase(setting: Setting) -> str:
    """What a FedAvg client does before it sends anything.

    >>> local_phrase(Setting("a", protocol="fedavg", local_epochs=5, local_batches=1))
    '5 local epochs of 1 batch'
    """
    epochs, batches = setting.local_epochs, setting.local_batches
    if epochs is None or batches is None:
        return "local training that is not stated in full"
    return f"{_counted(epochs, 'local epoch')} of {_counted(batches, 'batch', 'batches')}"


def what_the_server_gets(setting: Setting) -> str:
    """What leaves a client, and how much of it one update is.

    >>> seen = what_the_server_gets(Setting("a", protocol="fedavg", local_epochs=1, local_batches=4, n_clients=3))
    >>> seen.partition("Here: ")[2]
    '1 local epoch of 4 batches; the server sees the mean of 3 clients, not what each has sent.'
    """
    if setting.protocol != "fedavg":
        return what_travels(setting.protocol)
    seen = f"{what_travels('fedavg')} Here: {local_phrase(setting)}"
    if setting.n_clients is None:
        return f"{seen}; how many clients an update averages is not stated."
    if setting.n_clients > 1:
        return f"{seen}; the server sees the mean of {setting.n_clients} clients, not what each has sent."
    return f"{seen}."


def server_knowledge(setting: Setting) -> str:
    """What a server knows of FedAvg's local training besides what each attack assumes; empty under FedSGD."""
    if setting.protocol != "fedavg":
        return ""
    known = "how many rows stand behind an update, and the clients' learning rate"
    if setting.local_epochs is None or setting.local_batches is None:
        said = f"Under FedAvg the server also knows {known}, but not how often and in what batches a client trains."
    else:
        said = f"Under FedAvg the server also knows {known}, local epochs and batch size: it has set them."
    counts = " True labels are known as the number of rows of each class, unless an attack knows those of each batch."
    return said + (counts if setting.labels == "true" else "")


def behind_update(setting: Setting, n_rows: int | None) -> str:
    """The rows that an attack is after.

    >>> behind_update(Setting("a"), 32), behind_update(Setting("a"), 1), behind_update(Setting("a"), None)
    ("a client's batch of 32 rows", "a client's single row", "a client's batch")
    >>> behind_update(Setting("a", protocol="fedavg", n_clients=2), 64)
    'the 64 rows of 2 clients whose updates were averaged'
    """
    if n_rows == 1:
        return "a client's single row"
    if setting.protocol != "fedavg":
        return f"a client's batch of {n_rows} rows" if n_rows else "a client's batch"
    rows = f"the {n_rows} rows" if n_rows else "the rows"
    if (setting.n_clients or 1) > 1:
        return f"{rows} of {setting.n_clients} clients whose updates were averaged"
    return f"{rows} a client trained on" if setting.n_clients == 1 else f"{rows} behind an update"


def of_rows(setting: Setting, n_rows: int | None) -> str:
    """What an attack was measured on, each with so many rows; empty where that is not known.

    >>> of_rows(Setting("a", protocol="fedsgd"), 32), of_rows(Setting("a", protocol="fedavg", n_clients=1), 32)
    ('batches of 32 rows', 'clients of 32 rows')
    """
    if n_rows is None:
        return ""
    kind = "batches" if setting.protocol != "fedavg" else "clients" if setting.n_clients == 1 else "updates"
    return f"{kind} of {n_rows} rows"


def rows_axis(setting: Setting) -> str:
    """What the number of rows counts."""
    return "rows behind the update" if setting.protocol == "fedavg" else "rows in the client's batch"


def time_unit(setting: Setting) -> str:
    """What ``epoch`` counts."""
    return "round" if setting.protocol == "fedavg" else "epoch"


def defense_title(name: str | None, strength: float | None = None) -> str:
    """Name of the defence with its strength; what is absent is said.

    >>> defense_title(None), defense_title("gaussian_noise", 0.01)
    ('none', 'gaussian noise 0.01')
    """
    words = _DEFENSES.get(name or "", (name or "none").replace("_", " "))
    return words if strength is None else f"{words} {strength:g}"


def defense_phrase(setting: Setting) -> str:
    """The defence with its strength, and with the privacy it grants where an accountant has said.

    >>> defense_phrase(Setting("a", defense="dp_sgd", epsilon=2.94, delta=1e-5))
    'DP-SGD (differential privacy for every row, at δ 1e-05: ε 2.94 of the whole training)'
    >>> defense_phrase(Setting("a", defense="dp_sgd", release_epsilon=4.38, delta=1e-5)).partition(": ")[2]
    'ε 4.38 of one update, for a server that knows its batch)'
    """
    title = defense_title(setting.defense, setting.strength)
    granted = []
    if setting.epsilon is not None:
        granted.append(f"ε {setting.epsilon:.3g} of the whole training")
    if setting.release_epsilon is not None:
        granted.append(f"ε {setting.release_epsilon:.3g} of one update, for a server that knows its batch")
    if not granted or setting.delta is None:
        return title
    return f"{title} (differential privacy for every row, at δ {setting.delta:g}: {', '.join(granted)})"


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
        "epoch": "no epoch" if setting.epoch is None else f"{time_unit(setting)} {setting.epoch}",
        "local_epochs": _amount(setting.local_epochs, "local epoch"),
        "local_batches": _amount(setting.local_batches, "local batch", "local batches"),
        "n_clients": "clients not stated" if setting.n_clients is None else _counted(setting.n_clients, "client"),
        "strength": "no strength" if setting.strength is None else f"strength {setting.strength:g}",
        "epsilon": "no ε" if setting.epsilon is None else f"ε {setting.epsilon:.3g}",
        "release_epsilon": "no ε of one update"
        if setting.release_epsilon is None
        else f"ε {setting.release_epsilon:.3g} of one update",
        "delta": "no δ" if setting.delta is None else f"δ {setting.delta:g}",
    }
    wanted = list(names)
    if {"defense", "strength"} <= set(wanted):
        wanted.remove("strength")
        phrases["defense"] = f"defence {defense_title(setting.defense, setting.strength)}"
    return [phrases[name] for name in wanted]


def _amount(number: int | None, one: str, many: str | None = None) -> str:
    return f"no {one}" if number is None else _counted(number, one, many)


def _counted(number: int, one: str, many: str | None = None) -> str:
    return f"{number} {one if number == 1 else many or one + 's'}"


def varying(settings: Iterable[Setting]) -> list[str]:
    """Names of the parts in which the settings differ.

    >>> varying([Setting("a", dataset="adult"), Setting("a", dataset="german")])
    ['dataset']
    """
    known = list(settings)
    names = [field.name for field in fields(Setting)]
    return [name for name in names if len({getattr(setting, name) for setting in known}) > 1]
