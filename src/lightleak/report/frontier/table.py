"""The table of a defence frontier: a line for each defence and strength."""

from dataclasses import dataclass

from lightleak.report.estimate import Estimate
from lightleak.report.frontier.comparison import Frontier, Point
from lightleak.report.frontier.pareto import Standing, standings
from lightleak.report.frontier.wording import curve_title, guarantee, named, strength_words
from lightleak.report.wording import attack_title


@dataclass(frozen=True)
class Row:
    """One point.

    Attributes:
        title: name of its curve.
        strength: its strength with the name of the setting.
        point: its numbers.
        cost: accuracy lost against no defence.
        epsilon: what the whole training guarantees.
        release_epsilon: what it guarantees for one update whose batch is known to the server.
        attack: the attack that recovers most.
        is_best: whether it is Pareto-best.
        comparison: what the intervals say of that.
    """

    title: str
    strength: str
    point: Point
    cost: Estimate | None
    epsilon: str
    release_epsilon: str
    attack: str
    is_best: bool
    comparison: str


def table_rows(frontier: Frontier) -> tuple[Row, ...]:
    """All points, those that are not measured yet too."""
    known = {id(one.point): one for one in standings(frontier.measured)}
    return tuple(_row(frontier, point, known.get(id(point))) for point in frontier.points)


def _row(frontier: Frontier, point: Point, standing: Standing | None) -> Row:
    return Row(
        title=curve_title(point.strength.label),
        strength=strength_words(point.strength),
        point=point,
        cost=frontier.cost(point),
        epsilon=guarantee(point.epsilon),
        release_epsilon=guarantee(point.release_epsilon),
        attack=attack_title(point.attack) if point.attack else "–",
        is_best=standing is not None and standing.is_best,
        comparison="not measured yet" if standing is None else comparison(standing),
    )


def comparison(standing: Standing) -> str:
    """What the intervals say of a verdict; empty for a best point without a rival.

    >>> from lightleak.report.frontier.result import Strength
    >>> point, rival = (Point(Strength(name, name), (), {}) for name in ("sign", "clipping"))
    >>> comparison(Standing(point, False, (rival,), "beaten"))
    'beaten by Clipping'
    """
    if not standing.rivals:
        return ""
    how = "beaten by" if standing.verdict == "beaten" else "not distinguishable from"
    return f"{how} {named(standing.rivals)}"
