"""A linear discriminant of the two auxiliary classes in place of a norm (not in the paper).

A norm is one fixed direction-free summary of a vector; where the classes differ in direction it sees little. The
discriminant is fitted on one half of the auxiliary rows and applied to the other, so that no row is scored by a
direction that saw it, and to all records once per half: the share of records with the property is then the same
mixture as before.
"""

import numpy as np

from lightleak.attacks.property_inference.estimation import KindValues

RIDGE = 0.01  # in units of a standardized feature's variance


def discriminant_values(
    with_property: np.ndarray, without: np.ndarray, records: np.ndarray, folds: tuple[np.ndarray, np.ndarray]
) -> KindValues:
    """One number per auxiliary row and two per record, ``records [2 n]``: one from each half's direction.

    Args:
        with_property: ``[a, width]`` results of the auxiliary rows with the property.
        without: ``[b, width]`` those without.
        records: ``[n, width]`` those of all records.
        folds: bool ``[a]`` and ``[b]``, which half a row belongs to.
    """
    expanded = _expand(records)
    mean, deviation = expanded.mean(0), expanded.std(0)
    deviation[deviation <= 1e-6 * deviation.max(initial=0)] = np.inf
    everyone = (expanded - mean) / deviation
    classes = [(_expand(rows) - mean) / deviation for rows in (with_property, without)]
    scored = [np.empty(len(rows)) for rows in classes]
    of_records = []
    for half in (False, True):
        direction = _direction(*(rows[fold == half] for rows, fold in zip(classes, folds, strict=True)))
        for values, rows, fold in zip(scored, classes, folds, strict=True):
            values[fold != half] = rows[fold != half] @ direction
        of_records.append(everyone @ direction)
    return KindValues(scored[0], scored[1], np.concatenate(of_records))


def _expand(results: np.ndarray) -> np.ndarray:
    """Vector, its L1 norm, root of the sizes and which coordinates are active."""
    size = np.abs(results)
    return np.concatenate([results, size.mean(1, keepdims=True), np.sqrt(size), results > 0], axis=1)


def _direction(with_property: np.ndarray, without: np.ndarray) -> np.ndarray:
    """Fisher's direction, of unit spread within the classes."""
    spread = (np.cov(with_property.T) + np.cov(without.T)) / 2
    direction = np.linalg.solve(spread + RIDGE * np.eye(len(spread)), with_property.mean(0) - without.mean(0))
    length = float(np.sqrt(direction @ spread @ direction))
    return direction / length if length > 0 else direction
