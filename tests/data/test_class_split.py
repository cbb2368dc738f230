"""Private and public rows by class: groups, strata, shares."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from lightleak.core.errors import DataError, UsageError
from lightleak.data.class_split import ClassSplit, deal_out, split_by_class
from lightleak.data.task_config import TaskConfig

PARTS = ("private_train", "private_validation", "private_test", "private_judge", "public")


def random_table(seed: int, n_rows: int, n_groups: int, n_classes: int = 6) -> tuple[np.ndarray, np.ndarray]:
    """Labels with skewed frequencies, and groups; a group leans to a class of its own."""
    rng = np.random.default_rng(seed)
    groups = rng.integers(0, n_groups, n_rows)
    chance = 0.6 ** np.arange(n_classes)
    own = rng.choice(n_classes, n_groups, p=chance / chance.sum())
    labels = np.where(rng.random(n_rows) < 0.7, own[groups], rng.choice(n_classes, n_rows, p=chance / chance.sum()))
    return labels, groups


def rows_of(split: ClassSplit) -> dict[str, np.ndarray]:
    return {name: getattr(split, name) for name in (*PARTS, "dropped")}


@given(
    st.integers(0, 50),
    st.integers(60, 400),
    st.integers(20, 400),
    st.sampled_from(["class", "in_distribution"]),
    st.integers(2, 4),
)
def test_no_group_has_rows_in_two_parts_and_every_row_has_one_place(seed, n_rows, n_groups, rule, k) -> None:
    labels, groups = random_table(seed, n_rows, n_groups)
    config = TaskConfig(private_classes=k, split=rule, test_fraction=0.2)
    try:
        split = split_by_class(labels, groups, config, seed)
    except (DataError, UsageError):
        assume(False)
    parts = rows_of(split)
    assert np.array_equal(np.sort(np.concatenate(list(parts.values()))), np.arange(n_rows))
    sides = [set(groups[parts[name]]) for name in PARTS]
    assert sum(map(len, sides)) == len(set.union(*sides))
    private = np.isin(labels, split.classes)
    for name in PARTS[:-1]:
        assert private[parts[name]].all()
        assert set(labels[parts[name]]) == set(split.classes)
    # What the public side holds, said the slow way.
    if rule == "class":
        held = set(groups[private])
        expected = [i for i in range(n_rows) if groups[i] not in held]
        assert parts["public"].tolist() == expected
        assert parts["dropped"].tolist() == [i for i in range(n_rows) if groups[i] in held and not private[i]]
    else:
        assert private[parts["public"]].all()
        assert parts["dropped"].tolist() == np.flatnonzero(~private).tolist()
    assert split.facts["rows"] == {name: len(rows) for name, rows in parts.items()}
    assert split.facts["groups"] == {name: len(set(groups[rows].tolist())) for name, rows in parts.items()}


def test_private_classes_are_the_most_frequent_and_ties_go_by_the_order_of_the_classes() -> None:
    labels = np.repeat([0, 1, 2, 3, 4], [20, 40, 40, 5, 40])
    split = split_by_class(labels, np.arange(len(labels)), TaskConfig(private_classes=2), seed=0)
    assert split.classes.tolist() == [1, 2]
    assert set(labels[split.public]) == {0, 3, 4}
    assert split.facts["public_classes"] == 3
    rows_of = np.random.default_rng(0).integers(4, 7, 200)
    many = np.repeat(np.arange(200), rows_of)
    config = TaskConfig(private_classes=30, split="in_distribution", public_fraction=0.1)
    in_order = sorted(range(200), key=lambda index: (-rows_of[index], index))
    assert split_by_class(many, np.arange(len(many)), config, seed=0).classes.tolist() == in_order[:30]


@pytest.mark.parametrize("seed", range(3))
def test_without_groups_every_class_has_its_shares_to_a_row(seed) -> None:
    labels = np.random.default_rng(seed).permutation(np.repeat([0, 1, 2, 3], [1000, 300, 37, 20]))
    config = TaskConfig(private_classes=3)
    split = split_by_class(labels, np.arange(len(labels)), config, seed)
    for share, name in zip(config.private_shares, PARTS, strict=False):
        expected = np.array([1000, 300, 37]) * share
        assert np.abs(np.array(split.facts["rows_per_class"][name]) - expected).max() <= 1
    assert len(split.dropped) == 0


def test_with_groups_the_shares_hold_up_to_the_groups() -> None:
    labels, groups = random_table(1, 20_000, 14_000)
    config = TaskConfig(private_classes=4, split="in_distribution", public_fraction=0.4)
    split = split_by_class(labels, groups, config, seed=0)
    counts = {name: np.bincount(labels[getattr(split, name)], minlength=6)[split.classes] for name in PARTS}
    total = sum(counts.values())
    shares = [*(share * 0.6 for share in config.private_shares), 0.4]
    for share, name in zip(shares, PARTS, strict=True):
        # A class of n rows whose groups of 2 rows fall by chance would deviate by 2 sqrt(share (1 - share) / n).
        assert np.abs(counts[name] / total - share).max() < 2 * np.sqrt(share * (1 - share) / total.min())


def test_the_seed_decides_and_the_order_of_rows_does_not() -> None:
    labels, groups = random_table(2, 3000, 2000)
    names = np.array([f"p{group}" for group in groups], dtype=object)
    config = TaskConfig(private_classes=3)
    split = split_by_class(labels, names, config, seed=0)
    shuffled = np.random.default_rng(0).permutation(len(labels))
    again = split_by_class(labels[shuffled], names[shuffled], config, seed=0)
    for name, rows in rows_of(split).items():
        assert np.array_equal(rows, np.sort(shuffled[getattr(again, name)]))
    other = split_by_class(labels, names, config, seed=1)
    assert not np.array_equal(split.private_test, other.private_test)
    assert np.array_equal(split.public, other.public)  # by class alone
    in_distribution = replace(config, split="in_distribution")
    publics = [split_by_class(labels, names, in_distribution, seed).public for seed in (0, 1)]
    assert not np.array_equal(*publics)


@given(st.lists(st.integers(1, 9), min_size=4, max_size=60), st.integers(1, 4), st.integers(0, 5))
def test_every_part_gets_a_unit_of_every_stratum_and_about_its_share(weights, n_strata, seed) -> None:
    rng = np.random.default_rng(seed)
    weight = np.repeat(weights, n_strata)
    stratum = np.tile(np.arange(n_strata), len(weights))
    shares = rng.dirichlet(np.ones(4))
    parts = deal_out(stratum, weight, rng.permutation(len(weight)), shares)
    for s in range(n_strata):
        of_stratum = np.bincount(parts[stratum == s], weights=weight[stratum == s], minlength=4)
        assert (of_stratum > 0).all()
        # A cut misses its place by half a unit, and each of the four parts may be owed a unit of another.
        off = np.abs(np.cumsum(of_stratum) - np.cumsum(shares) * of_stratum.sum())
        assert off.max() <= max(weights) * (0.5 + 3)


def test_too_few_classes_rows_or_groups_are_refused() -> None:
    labels = np.repeat([0, 1, 2], [50, 40, 30])
    each = np.arange(len(labels))
    with pytest.raises(UsageError, match=r"task.private_classes must be at most 2 .* public side\), got 3"):
        split_by_class(labels, each, TaskConfig(private_classes=3), 0)
    with pytest.raises(UsageError, match="must be at most 3 "):
        split_by_class(labels, each, TaskConfig(private_classes=4, split="in_distribution"), 0)
    with pytest.raises(DataError, match="no public row"):
        split_by_class(labels, each % 20, TaskConfig(private_classes=2), 0)
    of_two = np.where(labels == 1, 200 + each % 2, each)
    with pytest.raises(DataError, match="no private_test row of the private class number 2, which has 40 rows"):
        split_by_class(labels, of_two, TaskConfig(private_classes=2), 0)
