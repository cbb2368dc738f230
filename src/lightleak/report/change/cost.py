"""What a change of settings cost, in words for the first page."""

from lightleak.report.change.utility import Cost, Utility
from lightleak.report.estimate import Estimate
from lightleak.report.headline import Tile
from lightleak.report.plain import interval_of, of_hundred, range_of
from lightleak.report.wording import points

NOT_LEARNT = "the model has learnt no more than the commonest outcome yet"
UNCHANGED = points(0.0)


def quality(utility: Utility | None, cost: Cost | None) -> str:
    """How good a model is; empty where it is unknown.

    Beside it stands what always answering the commonest outcome gets, or, of a model that is compared, the change.
    """
    if utility is None:
        return ""
    accuracy = utility.accuracy
    told = f"the model judges {of_hundred(accuracy)} of 100 new records rightly"
    told += f" ({range_of(accuracy)})" if accuracy.has_interval else ""
    if cost is None and utility.majority is not None:
        told += f", always answering the commonest outcome {of_hundred(Estimate(utility.majority))}"
    if cost is not None:
        told += f"; change {points(cost.accuracy.mean)}"
        told += f" ({range_of(cost.accuracy, -1.0)})" if cost.accuracy.has_interval else ""
    return told


def price(utility: Utility | None, cost: Cost | None) -> str:
    """What a change of settings cost the model, in one sentence."""
    if cost is None or utility is None:
        return "What it costs is not known: not both runs trained a model."
    if not cost.can_be_judged:
        return f"What the defence costs cannot be judged: {NOT_LEARNT} (train longer)."
    value, is_unchanged = cost.accuracy, points(cost.accuracy.mean) == UNCHANGED
    told = "; how sure that is cannot be told, as the run does not say how many records were judged"
    if value.low is not None and value.high is not None:
        may_be_chance = value.low <= 0 <= value.high and not is_unchanged
        told = f" (95% interval {range_of(value, -1.0)}{', which may be chance' if may_be_chance else ''})"
    direction = "loses" if value.mean < 0 else "gains"
    change = "unchanged" if is_unchanged else f"it {direction} {points(abs(value.mean)).lstrip('+')} points"
    return f"The model then judges {of_hundred(utility.accuracy)} of 100 new records rightly: {change}{told}."


def price_tile(cost: Cost) -> Tile:
    """The same as a large number."""
    if not cost.can_be_judged:
        return Tile("–", "price in accuracy: cannot be judged", NOT_LEARNT)
    value = cost.accuracy
    return Tile(points(value.mean), f"points of accuracy, {_in_a_word(value)}", interval_of(value, -1.0))


def _in_a_word(cost: Estimate) -> str:
    if points(cost.mean) == UNCHANGED:
        return "unchanged"
    if cost.low is None or cost.high is None:
        return "the price"
    return "the price" if cost.high < 0 else "a gain" if cost.low > 0 else "which may be chance"
