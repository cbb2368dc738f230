"""Numbers, percentages, intervals and names as every report shows them."""

import math
from collections.abc import Callable, Iterable
from functools import wraps
from typing import Concatenate, ParamSpec

from lightleak.report.attacks import shipped
from lightleak.report.intervals import ROUNDING, Estimate

P = ParamSpec("P")

DASH = "–"
"""What was not measured."""

LESS, MORE, UNSURE, EQUAL = "▼", "▲", "○", "="
"""Signs of a change, so that color carries no meaning."""

SMALLEST_SHOWN = 0.0005
"""Below this fraction one decimal would print 0.0% for something that did happen."""

LEAST_SHOWN = 1e-4
"""Percent: an end of an interval nearer than this to 0 or 100 is shown as such."""

TARGET_WITHIN = 0.02
"""Share by which the epsilon that is granted may stay below the one that was set."""

SMALLEST_LOSS = 0.005
"""Two decimals would show a loss below it as 0.00."""

_DEFENSES = {
    "dp_sgd": "DP-SGD",
    "clipped": "clipping by the trainer",
    "nvflare_percentile": "NVFlare PercentilePrivacy",
    "nvflare_svt": "NVFlare SVTPrivacy",
    "nvflare_exclude": "NVFlare ExcludeVars",
    "flower_clipping": "Flower clipping",
    "flower_local_dp": "Flower local DP",
}
_STRENGTHS = {
    "gaussian_noise": "noise of standard deviation {:g}",
    "laplacian_noise": "Laplacian noise of scale {:g}",
    "clipping": "clipping to norm {:g}",
    "dp_sgd": "DP-SGD, strength {:g}",
    "flower_clipping": "Flower's clipping to norm {:g}",
    "flower_local_dp": "Flower's local DP, epsilon {:g}",
}


def mean_of(value: float | Estimate | None) -> float | None:
    """The number itself, or the mean of an estimate."""
    return value.mean if isinstance(value, Estimate) else value


def of_a_number(words: Callable[Concatenate[float, P], str]) -> Callable[Concatenate[float | Estimate | None, P], str]:
    """Let a function that words a number take an estimate, whose mean counts, and None, which becomes a dash."""

    @wraps(words)
    def said(value: float | Estimate | None, /, *args: P.args, **kwargs: P.kwargs) -> str:
        number = mean_of(value)
        return DASH if number is None else words(number, *args, **kwargs)

    return said


@of_a_number
def percent(fraction: float) -> str:
    """A fraction as a percentage with one decimal.

    >>> percent(0.7934), percent(0.0001), percent(0.9999), percent(0.0), percent(None)
    ('79.3%', '<0.1%', '>99.9%', '0.0%', '–')
    """
    return _near_an_end(fraction, "<0.1%", ">99.9%") or f"{100 * fraction:.1f}%"


def _near_an_end(share: float, none: str, whole: str) -> str:
    """What stands for a share that would be rounded to none or all; empty for every other."""
    if 0 < share < SMALLEST_SHOWN:
        return none
    return whole if 1 - SMALLEST_SHOWN < share < 1 - ROUNDING else ""


@of_a_number
def points(difference: float) -> str:
    """A signed difference of two fractions in percentage points.

    >>> points(0.356), points(-0.02), points(None)
    ('+35.6', '−2.0', '–')
    """
    return signed(100 * difference, 1)


def signed(value: float, decimals: int = 2) -> str:
    """A signed number; one that rounds to zero has no sign.

    >>> signed(-0.034), signed(0.001), signed(0.0114, 3)
    ('−0.03', '0.00', '+0.011')
    """
    rounded = round(value, decimals)
    sign = "" if rounded == 0 else "+" if rounded > 0 else "−"
    return f"{sign}{abs(rounded):.{decimals}f}"


@of_a_number
def unsigned_points(difference: float) -> str:
    """The absolute value of a difference in percentage points.

    >>> unsigned_points(0.0142), unsigned_points(0.0001), unsigned_points(0.0), unsigned_points(None)
    ('1.4', '<0.1', '0.0', '–')
    """
    return percent(abs(difference)).removesuffix("%")


def interval(value: Estimate | None, lowest: float = 0.0, highest: float = 1.0) -> str:
    """The 95% interval in percent, clipped to what is possible; a dash without one.

    >>> interval(Estimate(0.98, 5, 0.955, 1.005)), interval(Estimate(0.9)), interval(Estimate(0.0, 9, 0.0, 0.0000472))
    ('95.5 to 100.0', '–', '0.0 to 0.0047')
    >>> interval(Estimate(0.99905, 81412, 0.99882, 0.99924)), interval(Estimate(0.5, 2, 0.5, 0.5))
    ('99.88 to 99.92', '50.0 to 50.0')
    """
    if value is None or value.low is None or value.high is None:
        return DASH
    low, high = (100 * min(max(end, lowest), highest) for end in (value.low, value.high))
    if high - low > LEAST_SHOWN and _end(low) == _end(high):
        decimals = -math.floor(math.log10(high - low))
        return f"{low:.{decimals}f} to {high:.{decimals}f}".replace("-", "−")
    return f"{_end(low)} to {_end(high)}"


def _end(end: float) -> str:
    """An end of an interval in percent: one decimal, or as many as tell it from 0 or 100 where it is near them."""
    nearest = round(end, 1) + 0.0  # no -0.0
    decimals = 1
    if nearest in (0.0, 100.0) and abs(end - nearest) > LEAST_SHOWN:
        decimals = 1 - math.floor(math.log10(abs(end - nearest)))
    return f"{nearest if decimals == 1 else end:.{decimals}f}".replace("-", "−")


def in_brackets(value: Estimate | None, lowest: float = 0.0, words: str = "") -> str:
    """The interval in brackets, with a space before it; empty without one.

    >>> in_brackets(Estimate(0.014, 7, 0.008, 0.02), words="95% interval"), in_brackets(Estimate(0.014))
    (' (95% interval 0.8 to 2.0)', '')
    """
    if value is None or not value.has_interval:
        return ""
    return f" ({joined(words, interval(value, lowest), by=' ')})"


def with_interval(value: Estimate | None, said: Callable[[Estimate | None], str] = percent) -> str:
    """A share, or a difference in `points`, with its interval in brackets.

    >>> with_interval(Estimate(0.5, 8, 0.25, 0.8)), with_interval(Estimate(-0.2, 8, -0.3, -0.1), points)
    ('50.0% (25.0 to 80.0)', '−20.0 (−30.0 to −10.0)')
    """
    return said(value) + in_brackets(value, lowest(said))


def lowest(said: Callable[[Estimate | None], str]) -> float:
    """The least value of what is said: a difference may be negative."""
    return -1.0 if said is points else 0.0


@of_a_number
def of_hundred(share: float) -> str:
    """A share as a count of a hundred.

    >>> of_hundred(0.125), of_hundred(0.0001), of_hundred(0.9999), of_hundred(1.0), of_hundred(None)
    ('12.5', 'under 0.1', 'over 99.9', '100', '–')
    """
    return _near_an_end(share, "under 0.1", "over 99.9") or f"{100 * share:.1f}".removesuffix(".0")


def interval_words(value: Estimate, lowest: float = 0.0) -> str:
    """The interval with its name.

    >>> interval_words(Estimate(0.5, 8, 0.25, 0.8)), interval_words(Estimate(0.5))
    ('95% interval 25.0 to 80.0', 'no interval')
    """
    return f"95% interval {interval(value, lowest)}" if value.has_interval else "no interval"


def change_words(value: Estimate) -> str:
    """A difference of two shares in a sentence.

    >>> change_words(Estimate(-0.2, 8, -0.3, -0.1)), change_words(Estimate(0.2))
    ('change −20.0, 95% interval −30.0 to −10.0', 'change +20.0, no interval')
    """
    return f"change {points(value)}, {interval_words(value, -1.0)}"


def sign_of(difference: Estimate) -> str:
    """Which way something measurably went.

    >>> sign_of(Estimate(-0.2, 8, -0.3, -0.1)), sign_of(Estimate(0.2)), sign_of(Estimate(0.2, 8, 0.1, 0.3))
    ('▼', '○', '▲')
    """
    return LESS if difference.is_below else MORE if difference.is_above else UNSURE


@of_a_number
def area(value: float) -> str:
    """An area under the ROC curve.

    >>> area(0.9031), area(None)
    ('0.903', '–')
    """
    return f"{value:.3f}"


@of_a_number
def duration(seconds: float) -> str:
    """Seconds as a person reads them.

    >>> duration(0.004), duration(9.73), duration(150), duration(7260), duration(None)
    ('<0.01 s', '9.73 s', '2 min 30 s', '2 h 1 min', '–')
    """
    if seconds < 60:
        return "<0.01 s" if seconds < 0.005 else f"{seconds:.2f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


@of_a_number
def count(number: float) -> str:
    """A whole number with separators of thousands.

    >>> count(50039.0), count(12), count(None)
    ('50,039', '12', '–')
    """
    return f"{round(number):,}"


@of_a_number
def nats(loss: float) -> str:
    """A loss in nats; two digits of one that two decimals would show as 0.

    >>> nats(6.841), nats(0.02), nats(0.0000123), nats(None)
    ('6.84', '0.02', '1.2e−05', '–')
    """
    return (f"{loss:.2f}" if loss == 0 or abs(loss) >= SMALLEST_LOSS else f"{loss:.1e}").replace("-", "−")


@of_a_number
def distance(apart: float, digits: int = 3) -> str:
    """A Gower distance, between 0 and 1.

    >>> distance(0.0721), distance(0.0001), distance(0.0001, 4), distance(0.0), distance(None)
    ('.072', '<.001', '.0001', '.000', '–')
    """
    if 0 < apart < 0.5 * 10**-digits:
        return f"<{10**-digits:.{digits}f}".replace("0", "", 1)
    return f"{apart:.{digits}f}".removeprefix("0")


def plus_minus(value: Estimate | None, deviation: float | None, digits: int = 1, scale: float = 100) -> str:
    """Mean and sample standard deviation.

    >>> plus_minus(Estimate(0.854, 5), 0.0353), plus_minus(Estimate(6.84), None, 2, 1)
    ('85.4 ± 3.5', '6.84')
    """
    if value is None:
        return DASH
    mean = f"{scale * value.mean:.{digits}f}"
    return (mean if deviation is None else f"{mean} ± {scale * deviation:.{digits}f}").replace("-", "−")


def counted(n: int, one: str, many: str | None = None) -> str:
    """A number of things.

    >>> counted(1, "message"), counted(3, "message"), counted(2, "batch", "batches")
    ('1 message', '3 messages', '2 batches')
    """
    return f"{n:,} {one if n == 1 else many or one + 's'}"


def listed(names: Iterable[str]) -> str:
    """Names in a sentence.

    >>> listed(["a"]), listed(["a", "b", "c"])
    ('a', 'a, b and c')
    """
    known = list(names)
    return " and ".join([", ".join(known[:-1]), known[-1]] if len(known) > 1 else known)


def joined(*parts: str, by: str = ", ") -> str:
    """The parts that are not empty.

    >>> joined("a", "", "b"), joined("a", "b", by=" · ")
    ('a, b', 'a · b')
    """
    return by.join(part for part in parts if part)


def capital(text: str) -> str:
    """The text as the start of a sentence.

    >>> capital("withdraw C1")
    'Withdraw C1'
    """
    return text[:1].upper() + text[1:]


def attack_title(name: str) -> str:
    """The attack as the literature calls it.

    >>> attack_title("tableak"), attack_title("my_attack")
    ('TabLeak', 'my attack')
    """
    return str(shipped()["titles"].get(name, name.replace("_", " ")))


def defense_title(name: str | None, strength: float | None = None, epsilon: float | None = None) -> str:
    """Name of the defense with its strength.

    Args:
        name: as registered.
        strength: the number that varies it.
        epsilon: what DP-SGD grants for the whole training: its strength may be another number.

    >>> defense_title(None), defense_title("gaussian_noise", 0.01), defense_title("sign")
    ('none', 'noise of standard deviation 0.01', 'sign')
    >>> [defense_title("dp_sgd", strength, epsilon) for strength, epsilon in ((1.0, 0.992), (1.1, 3.14), (3.1, 3.14))]
    ['DP-SGD, epsilon 1', 'DP-SGD, epsilon 3.14', 'DP-SGD, epsilon 3.14']
    """
    words = _DEFENSES.get(name or "", (name or "none").replace("_", " "))
    if strength is None:
        return words
    if name == "dp_sgd" and epsilon is not None:
        is_target = epsilon <= strength <= (1 + TARGET_WITHIN) * epsilon
        return f"{words}, epsilon {strength if is_target else epsilon:.3g}"
    return _STRENGTHS.get(name or "", f"{words} {{:g}}").format(strength)
