"""Names and values of a study in plain language."""

from collections.abc import Sequence
from typing import Any

from lightleak.report.estimate import Estimate
from lightleak.report.tuning.result import Objective, Parameter
from lightleak.report.wording import interval, percent, points

_FRACTIONS = ("accuracy", "leakage", "match_rate")
_SAMPLERS = {
    "tpe": "TPE: it proposes values like those of the better trials so far",
    "random": "random: every trial is drawn from the space, whatever came before",
    "nsgaii": "NSGA-II: an evolutionary search that keeps and recombines the front",
    "nsga2": "NSGA-II: an evolutionary search that keeps and recombines the front",
    "gp": "Gaussian process: it proposes what a fitted surface expects to be best",
    "cmaes": "CMA-ES: an evolutionary search along directions that did well",
    "grid": "grid: all combinations of listed values",
}
_PRUNERS = {
    "hyperband": "Hyperband: many trials get a little of the budget, the better of them more",
    "median": "median: a trial that is below the median of earlier ones at the same step is stopped",
    "none": "none: every trial runs to its end",
    "nop": "none: every trial runs to its end",
}


def is_fraction(objective: Objective) -> bool:
    """Whether values of an objective are fractions, which read better as percentages; its name says so.

    >>> is_fraction(Objective("cell_accuracy", True, "")), is_fraction(Objective("val/loss", False, ""))
    (True, False)
    """
    return objective.name.endswith(_FRACTIONS)


def objective_title(objective: Objective) -> str:
    """Short name of an objective.

    >>> objective_title(Objective("cell_accuracy", True, "cell accuracy of tableak on validation clients"))
    'Cell accuracy'
    """
    words = objective.name.replace("_", " ").replace("/", " ")
    return words[:1].upper() + words[1:]


def value_of(objective: Objective, value: float | None) -> str:
    """A value of an objective.

    >>> value_of(Objective("leakage", False, ""), -0.012), value_of(Objective("loss", False, ""), 0.34567)
    ('−1.2%', '0.3457')
    """
    if value is None:
        return "–"
    if not is_fraction(objective):
        return number_words(value)
    return f"−{percent(-value)}" if value < 0 else percent(value)


def change_of(objective: Objective, change: float) -> str:
    """A signed difference of two values with its unit.

    >>> change_of(Objective("accuracy", True, ""), 0.02), change_of(Objective("loss", False, ""), -0.5)
    ('+2.0 points', '−0.5')
    """
    if is_fraction(objective):
        return f"{points(change)} points"
    return f"{'+' if change > 0 else ''}{number_words(change)}"


def interval_of(objective: Objective, value: Estimate, is_change: bool = False) -> str:
    """The 95% interval of a value or of a difference; ``–`` where there is none.

    >>> interval_of(Objective("loss", False, ""), Estimate(0.5, 20, 0.4, 0.6))
    '0.4 to 0.6'
    """
    if value.low is None or value.high is None:
        return "–"
    if is_fraction(objective):
        return interval(value, -1 if is_change else 0)
    return f"{number_words(value.low)} to {number_words(value.high)}"


def number_words(value: float) -> str:
    """A number with four digits.

    >>> number_words(-0.062345), number_words(45000), number_words(1e-05)
    ('−0.06234', '45000', '1e-05')
    """
    whole = float(value).is_integer() and abs(value) < 1e7
    return (f"{value:.0f}" if whole else f"{value:.4g}").replace("-", "−", 1 if value < 0 else 0)


def parameter_value(value: Any) -> str:
    """A value as the config writes it, numbers with four digits.

    >>> parameter_value(True), parameter_value(None), parameter_value([100, 100]), parameter_value(0.061234)
    ('true', 'none', '[100, 100]', '0.06123')
    """
    if value is None or isinstance(value, bool):
        return "none" if value is None else str(value).lower()
    if isinstance(value, list):
        return f"[{', '.join(map(parameter_value, value))}]"
    return number_words(value) if isinstance(value, int | float) else str(value)


def short_names(parameters: Sequence[Parameter]) -> dict[str, str]:
    """The shortest end of each dotted key that tells it from the others, and what a name is of.

    >>> short_names([Parameter("attacks.tableak.learning_rate", "float"), Parameter("attacks.tableak.steps", "int")])
    {'attacks.tableak.learning_rate': 'learning rate', 'attacks.tableak.steps': 'steps'}
    >>> list(short_names([Parameter("target.width", "int"), Parameter("attack.width", "int")]).values())
    ['target width', 'attack width']
    >>> list(short_names([Parameter("defense.name", "choice")]).values())
    ['defense name']
    """
    keys = [one.key for one in parameters]
    return {key: _short_name(key, keys) for key in keys}


def _short_name(key: str, keys: Sequence[str]) -> str:
    parts = key.split(".")
    least = 2 if parts[-1] == "name" else 1
    ends = (".".join(parts[-depth:]) for depth in range(least, len(parts) + 1))
    unique = (end for end in ends if sum(f".{other}".endswith(f".{end}") for other in keys) == 1)
    return next(unique, key).replace("_", " ").replace(".", " ")


def shorten(text: str, most: int = 40) -> str:
    """A text cut to so many characters; by default to what fits across a phone.

    >>> shorten("warmup", 5), shorten("warmup")
    ('warm…', 'warmup')
    """
    return text if len(text) <= most else f"{text[: most - 1]}…"


def differs(value: Any, default: Any) -> bool:
    """Whether a value is another one than the default; false where there is no default.

    >>> differs(1, 1.0), differs(0.1, 0.2), differs(True, 1), differs(3, None)
    (False, True, True, False)
    """
    if default is None:
        return False
    return isinstance(value, bool) != isinstance(default, bool) or bool(value != default)


def direction_word(objective: Objective) -> str:
    """What is searched for."""
    return "highest" if objective.maximise else "lowest"


def sampler_words(name: str | None) -> str:
    """What a sampler does.

    >>> sampler_words("mine"), sampler_words(None)
    ('mine', 'not stated')
    """
    return _SAMPLERS.get(_plain(name), name or "not stated")


def pruner_words(name: str | None) -> str:
    """What a pruner does."""
    return _PRUNERS.get(_plain(name), name or "not stated")


def _plain(name: str | None) -> str:
    return (name or "").lower().replace("-", "").replace("_", "")


def counted(number: int, one: str, many: str | None = None) -> str:
    """A number with its noun.

    >>> counted(1, "trial"), counted(2, "trial")
    ('1 trial', '2 trials')
    """
    return f"{number} {one if number == 1 else many or one + 's'}"
