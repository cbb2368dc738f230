"""A small mixed layout: two categorical columns between three numerical ones."""

import pytest

from lightleak.data.layout import Block, EncodedLayout


@pytest.fixture
def layout() -> EncodedLayout:
    """Width 8: numerical, 3 categories, numerical, numerical, 2 categories."""
    return EncodedLayout(
        (
            Block("age", 0, 1, False),
            Block("work", 1, 4, True),
            Block("hours", 4, 5, False),
            Block("gain", 5, 6, False),
            Block("sex", 6, 8, True),
        )
    )
