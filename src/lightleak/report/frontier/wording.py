"""Names of defences and their strengths in plain language."""

from lightleak.report.estimate import Estimate
from lightleak.report.frontier.comparison import Point
from lightleak.report.frontier.result import Strength
from lightleak.report.wording import interval, points

_CURVES = {"none": "no defence", "dp_sgd": "DP-SGD"}
_MOST_NAMED = 2


def curve_title(label: str) -> str:
    """Name of a curve.

    >>> curve_title("gaussian_noise"), curve_title("none"), curve_title("dp_sgd")
    ('Gaussian noise', 'no defence', 'DP-SGD')
    """
    return _CURVES.get(label) or label[:1].upper() + label[1:].replace("_", " ")


def strength_words(strength: Strength) -> str:
    """The strength with the name of its setting.

    >>> strength_words(Strength("g", "gaussian_noise", 0.01, "scale")), strength_words(Strength("sign", "sign"))
    ('scale 0.01', '')
    """
    if strength.value is None:
        return ""
    return f"{(strength.option or 'strength').replace('_', ' ')} {strength.value:g}"


def short_name(strength: Strength) -> str:
    """The curve and the strength, for a chart or a list.

    >>> short_name(Strength("dp_sgd", "dp_sgd", 0.5, "noise_multiplier")), short_name(Strength())
    ('DP-SGD 0.5', 'no defence')
    """
    title = curve_title(strength.label)
    return title if strength.value is None else f"{title} {strength.value:g}"


def full_name(strength: Strength) -> str:
    """The defence with its strength as a sentence begins with it.

    >>> full_name(Strength("clipping", "clipping", 0.1, "max_norm", "clipping to norm 0.1"))
    'Clipping to norm 0.1'
    >>> full_name(Strength("sign", "sign", words="signs, scaled per tensor"))
    'Sign (signs, scaled per tensor)'
    """
    title, words = curve_title(strength.label), strength.words or short_name(strength)
    if words.lower() == title.lower() or words.lower().startswith((f"{title.lower()} ", f"{title.lower()},")):
        return words[:1].upper() + words[1:]
    return f"{title} ({words})"


def named(rivals: tuple[Point, ...]) -> str:
    """A few points by name, and how many more there are.

    >>> named(tuple(Point(Strength(name), (), {}) for name in ("sign", "clipping", "x")))
    'Sign, Clipping and 1 more'
    """
    known = [short_name(point.strength) for point in rivals]
    more = len(known) - _MOST_NAMED
    if more > 0:
        return f"{', '.join(known[:_MOST_NAMED])} and {more} more"
    return " and ".join(known)


def cost_words(cost: Estimate) -> str:
    """What a defence costs, as the end of a sentence.

    >>> cost_words(Estimate(0.002, 5, 0.001, 0.003)), cost_words(Estimate(-0.001, 5, -0.004, 0.002))
    ('at a cost of 0.2 points of accuracy', 'at no measurable cost in accuracy (−0.1 points; 95% interval −0.4 to 0.2)')
    """
    amount = f"{unsigned(cost.mean)} points"
    if cost.low is None or cost.high is None:
        change = f"at a cost of {amount} of" if cost.mean >= 0 else f"with {unsigned(-cost.mean)} points more"
        return f"{change} accuracy, as far as one training each can tell"
    if cost.low > 0:
        return f"at a cost of {amount} of accuracy"
    if cost.high < 0:
        return f"and accuracy rises by {unsigned(-cost.mean)} points"
    return f"at no measurable cost in accuracy ({amount}; 95% interval {interval(cost, -1)})"


def unsigned(difference: float) -> str:
    """A difference of two fractions in points, with a sign where it is negative.

    >>> unsigned(0.002), unsigned(-0.01), unsigned(-0.0001)
    ('0.2', '−1.0', '0.0')
    """
    return points(difference).removeprefix("+")


def guarantee(epsilon: float | None) -> str:
    """Epsilon of differential privacy.

    >>> guarantee(2.943), guarantee(None)
    ('2.94', '–')
    """
    return "–" if epsilon is None else f"{epsilon:.3g}"
