"""The last step of a solved batch: integer columns become whole numbers, the others are fitted again around them."""

from dataclasses import replace

from lightleak.attacks.gradient_inversion.joint.gauss_newton import gauss_newton
from lightleak.attacks.gradient_inversion.joint.problem import JointProblem, JointRows

STEPS = 6
"""Gauss-Newton steps between two columns."""

RISE = 4.0
"""A column stays rounded as long as the distance does not become this many times as large."""


def round_integers(problem: JointProblem, rows: JointRows, floor: float) -> tuple[JointRows, float]:
    """Rows with whole numbers, and their relative distance.

    Columns of few values go first: for them rounding is sure, and the wide ones, whose units hardly show in a float32
    gradient, are then fitted without the others' errors. A column whose rounding lifts the distance stays as it was.

    Args:
        problem: what rows are held against.
        rows: a solved batch.
        floor: relative distance that rounding of float32 leaves anyway.
    """
    space, value = problem.space, problem.value(rows)
    columns = [q for q in range(len(space.free)) if bool(space.integer[q])]
    columns.sort(key=lambda q: float(space.unit[q]))
    left = set(range(len(space.free)))
    for q in columns:
        tried = replace(rows, numbers=space.rounded(rows.numbers, q))
        left.discard(q)
        tried, reached = (
            gauss_newton(problem, tried, STEPS, tuple(sorted(left))) if left else (tried, problem.value(tried))
        )
        if reached <= max(RISE * value, floor):
            rows, value = tried, reached
    return rows, value
