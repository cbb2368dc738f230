"""Codebooks as they are printed: a column's categories in one line of text."""


def domain(text: str, separator: str = ", ") -> tuple[str, ...]:
    """The categories listed in ``text``, in its order.

    >>> domain("Wife, Own-child, Husband")
    ('Wife', 'Own-child', 'Husband')
    """
    return tuple(text.split(separator))
