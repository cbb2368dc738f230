"""Groups of few people: merged with others where a run or a report is redacted."""

from collections.abc import Sequence
from dataclasses import replace

from lightleak.core.people import Group, People, Point, Sharing

FEWEST_SHOWN = 10
"""People of a group in a redacted run or report: of fewer, its counts would say something of each."""

MOST_NAMED = 3
"""Merged groups that are named; of more, their number is."""


def without_small_groups(people: People) -> People:
    """Return the same for publication, with groups of fewer than `FEWEST_SHOWN` people merged.

    The smallest are merged until together they are enough, so that none follows from the sum of the others. A column
    has no groups where that takes all of them. People who share their row are merged in the order of how many share it;
    where that takes the unique ones in, `People.unique`, `People.sharing` and the attack's success at singling out are
    left out. Groups have no course over the training: it begins with few people. That of all people keeps the points
    that add enough of them.
    """
    groups: list[Group] = []
    for column in dict.fromkeys(one.column for one in people.groups):
        groups += _merged_groups([replace(one, curve=()) for one in people.groups if one.column == column])
    sharing: list[Sharing] = []
    for one in reversed(people.sharing):
        if sharing and sharing[-1].people < FEWEST_SHOWN:
            last = sharing.pop()
            most = last.others if last.most is None else last.most
            one = Sharing(one.others, one.people + last.people, one.exposed + last.exposed, most)
        sharing.append(one)
    is_shown = bool(sharing) and sharing[-1].most is None and sharing[-1].people >= FEWEST_SHOWN
    alone = people.singling_out
    return replace(
        people,
        curve=_thinned(people.curve),
        groups=tuple(groups),
        # Of all people the attack found, those whom it did not single out share their row.
        singling_out=replace(alone, attack=None) if alone and not is_shown else alone,
        sharing=tuple(reversed(sharing)) if is_shown else (),
        unique=people.unique if is_shown else None,
        merged_below=FEWEST_SHOWN,
    )


def _thinned(curve: Sequence[Point]) -> tuple[Point, ...]:
    """Points that each add `FEWEST_SHOWN` people at least; the last one, which counts all people, may add none."""
    kept: list[Point] = []
    for point in curve[:-1]:
        if point.seen - (kept[-1].seen if kept else 0) >= FEWEST_SHOWN:
            kept.append(point)
    if kept and 0 < curve[-1].seen - kept[-1].seen < FEWEST_SHOWN:
        kept.pop()
    return *kept, *curve[-1:]


def _merged_groups(groups: Sequence[Group]) -> list[Group]:
    """Groups of one column, those of too few people as one, last."""
    small: list[Group] = []
    for one in sorted(groups, key=lambda group: group.n):
        if one.n < FEWEST_SHOWN or 0 < sum(group.n for group in small) < FEWEST_SHOWN:
            small.append(one)
    if not small or len(small) == len(groups):
        return [] if small else list(groups)
    n, proven = sum(one.n for one in small), sum(one.proven for one in small)
    recovered = None if any(one.recovered is None for one in small) else sum(one.recovered or 0 for one in small)
    named = ", ".join(one.category for one in small) if len(small) <= MOST_NAMED else f"{len(small)} groups together"
    return [*(one for one in groups if one not in small), Group.of(small[0].column, named, n, proven, recovered, ())]
