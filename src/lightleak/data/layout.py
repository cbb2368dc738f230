"""Where each column of a table lies in its encoded vector. Networks and attacks read this, never index arithmetic."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any


@dataclass(frozen=True)
class Block:
    """Encoded positions ``start:stop`` of one column; a numerical column has one, a categorical one per category."""

    name: str
    start: int
    stop: int
    categorical: bool

    @property
    def width(self) -> int:
        """Number of encoded positions."""
        return self.stop - self.start

    @property
    def slice(self) -> slice:
        """The positions as a slice."""
        return slice(self.start, self.stop)


def runs(blocks: Iterable[Block]) -> list[slice]:
    """The fewest slices that cover ``blocks``: neighbors are read at once.

    >>> runs([Block("a", 0, 1, False), Block("b", 1, 2, False), Block("c", 5, 6, False)])
    [slice(0, 2, None), slice(5, 6, None)]
    """
    found: list[slice] = []
    for block in blocks:
        if found and found[-1].stop == block.start:
            found[-1] = slice(found[-1].start, block.stop)
        else:
            found.append(block.slice)
    return found


@dataclass(frozen=True)
class EncodedLayout:
    """All blocks, in the order of the schema's columns."""

    blocks: tuple[Block, ...]

    @property
    def width(self) -> int:
        """Encoded features d."""
        return self.blocks[-1].stop if self.blocks else 0

    @cached_property
    def categorical(self) -> tuple[Block, ...]:
        """Blocks of categorical columns."""
        return tuple(block for block in self.blocks if block.categorical)

    @cached_property
    def numerical(self) -> tuple[Block, ...]:
        """Blocks of numerical columns."""
        return tuple(block for block in self.blocks if not block.categorical)

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready form."""
        return {"blocks": [[b.name, b.start, b.stop, b.categorical] for b in self.blocks]}

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> "EncodedLayout":
        """Inverse of `to_dict`.

        Raises:
            ValueError: blocks that do not lie side by side from 0, or of other types.
        """
        blocks, start = tuple(Block(*entry) for entry in state["blocks"]), 0
        for block in blocks:
            if not isinstance(block.name, str) or not isinstance(block.categorical, bool):
                raise ValueError(f"a block is [name, start, stop, categorical], got {list(vars(block).values())}")
            fits = type(block.start) is int and type(block.stop) is int and block.start == start < block.stop
            if not fits or (not block.categorical and block.width != 1):
                got = f"{block.start!r}:{block.stop!r}"
                raise ValueError(f"block {block.name!r} must begin at {start}, a number have one position; got {got}")
            start = block.stop
        return cls(blocks)

    @classmethod
    def of_numerical(cls, width: int) -> "EncodedLayout":
        """A layout of ``width`` numerical columns, for tensors that have no table behind them.

        >>> EncodedLayout.of_numerical(3).width
        3
        """
        return cls(tuple(Block(f"x{i}", i, i + 1, False) for i in range(width)))
