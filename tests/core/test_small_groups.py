"""What a redacted run or report says of groups of few people."""

from dataclasses import replace
from typing import Any

import pytest

from lightleak.core.people import Group, People, Point, Rate, Risk, Sharing
from lightleak.core.small_groups import FEWEST_SHOWN, without_small_groups


def grouped(*sizes: tuple[str, str, int, int], sharing: tuple[Sharing, ...] = ()) -> People:
    """People in groups of (column, category, people, proven), half of them seen after the first step."""
    counts: dict[str, Any] = {"proven": 0, "proven_numbers": 0, "recovered": 0, "not_recovered": 600, "rows": 600}
    counts |= {"has_certificates": True, "claims": 0, "wrong": 0, "unit": "step"}
    groups = (
        Group.of(column, category, n, proven, 0, (Point(1, n // 2, 0, 0), Point(2, n, proven, 0)))
        for column, category, n, proven in sizes
    )
    unique = next((one.people for one in sharing if one.others == 0), None)
    alone = Risk(attack=Rate.of(0.5 * 600, 600))
    return People("exact", 600, **counts, groups=tuple(groups), sharing=sharing, unique=unique, singling_out=alone)


@pytest.mark.parametrize(
    ("sizes", "left"),
    [
        ({"White": 500, "Black": 97, "Other": 3}, {"White": (500, 400), "Other, Black": (100, 79)}),
        ({"a": 580, "b": 9, "c": 8, "d": 3}, {"a": (580, 464), "d, c, b": (20, 15)}),
        ({"a": 588, "b": 5, "c": 4, "d": 2, "e": 1}, {"a": (588, 470), "4 groups together": (12, 8)}),
        ({"a": 300, "b": 290, "c": 10}, {"a": (300, 240), "b": (290, 232), "c": (10, 8)}),
        ({"a": 300, "b": 9}, {}),
        ({"a": 6, "b": 3}, {}),
    ],
)
def test_groups_of_few_people_are_merged_until_nothing_is_said_of_a_few(
    sizes: dict[str, int], left: dict[str, tuple[int, int]]
) -> None:
    kept = ("sex", "F", 310, 300)
    people = without_small_groups(grouped(kept, *(("race", name, n, n * 4 // 5) for name, n in sizes.items())))
    sex, *race = people.groups
    assert (sex.category, sex.n, sex.proven) == ("F", 310, 300)
    assert {one.category: (one.n, one.proven) for one in race} == left
    assert not any(one.curve for one in people.groups)  # a course begins with few people
    assert people.merged_below == FEWEST_SHOWN and without_small_groups(people) == people


@pytest.mark.parametrize(
    ("seen", "left"),
    [
        ((4, 8, 40), (40,)),
        ((8, 16, 24, 32, 40, 43), (16, 32, 43)),
        ((10, 20, 24), (10, 24)),
        ((10, 20, 20, 20), (10, 20, 20)),  # later epochs add nobody: their end alone is kept
        ((4, 8), (8,)),
        ((), ()),
    ],
)
def test_a_course_says_nothing_of_few_people(seen: tuple[int, ...], left: tuple[int, ...]) -> None:
    curve = tuple(Point(i, n, n // 2, 0) for i, n in enumerate(seen, start=1))
    thinned = without_small_groups(replace(grouped(), curve=curve))
    assert tuple(point.seen for point in thinned.curve) == left
    assert thinned.curve[-1:] == curve[-1:] and set(thinned.curve) <= set(curve)
    assert without_small_groups(thinned) == thinned


@pytest.mark.parametrize(
    ("sharing", "left", "unique"),
    [
        ((Sharing(0, 500, 400), Sharing(1, 97, 9), Sharing(2, 2, 2), Sharing(6, 1, 1)), (97 + 3, 6), 500),
        ((Sharing(0, 580, 400), Sharing(1, 20, 9)), (20, None), 580),
        ((Sharing(0, 597, 400), Sharing(1, 3, 3)), None, None),  # the three follow from the others
        ((Sharing(0, 4, 4), Sharing(1, 596, 3)), None, None),
        ((Sharing(0, 600, 9),), None, 600),
    ],
)
def test_how_many_share_a_row_is_not_said_of_a_few(
    sharing: tuple[Sharing, ...], left: tuple[int, int | None] | None, unique: int | None
) -> None:
    people = without_small_groups(grouped(sharing=sharing))
    assert people.unique == unique
    # Whom the attack found and did not single out share their row.
    assert people.singling_out is not None and (people.singling_out.attack is None) == (unique is None)
    assert [(one.people, one.most) for one in people.sharing[1:]] == ([left] if left else [])
    assert without_small_groups(people) == people
