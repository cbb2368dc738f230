"""Networks of other libraries: the package that one needs, and the rows that one of numbers and codes takes."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

import torch
from torch import nn

from lightleak.core.errors import UnsupportedError, UsageError
from lightleak.core.optional import install_line
from lightleak.data.input_form import InputForm, InputPart
from lightleak.data.layout import Block, EncodedLayout
from lightleak.targets.client_form import ClientForm
from lightleak.targets.normalization import with_functional_normalization

MODULES = {"pytorch-frame": "torch_frame"}
"""Modules of packages that are not named after them."""


ROWS = 3
"""Rows of the trial batch that checks a new model."""


class FromPackage:
    """A network whose layers come from a package that is not installed with LightLeak.

    Attributes:
        package: its name for pip; None: it is always installed.
        extra: of LightLeak that brings the package; None: it is installed by its own name.
    """

    package: str | None = None
    extra: str | None = None

    @classmethod
    def missing_package(cls) -> str | None:
        """Return the package that the network needs and that is not installed, if any."""
        return cls.package if cls.package is not None and is_missing(cls.package) else None

    @classmethod
    def require_package(cls) -> None:
        """Check that the package is installed.

        Raises:
            UnsupportedError: it is not.
        """
        if (package := cls.missing_package()) is not None:
            line = f"pip install {package}" if cls.extra is None else install_line(cls.extra)
            raise UnsupportedError(f"{cls.__name__} needs {package}: {line}")


def is_missing(package: str) -> bool:
    """Return whether a package is not installed."""
    return find_spec(MODULES.get(package, package.replace("-", "_"))) is None


@contextmanager
def naming_settings(taker: str, settings: Mapping[str, Any]) -> Iterator[None]:
    """Name the settings of a library's model where it fails within the block, by whatever error.

    Args:
        taker: what takes them, of which library.
        settings: as given.

    Raises:
        UsageError: it failed.
    """
    try:
        yield
    except Exception as error:  # libraries assert, divide by zero, or look names up
        said = " ".join(str(error).split()) or type(error).__name__
        raise UsageError(f"{taker} does not take {dict(settings)}: {said}") from error


class NumbersAndCodes(FromPackage, ClientForm):
    """A model that takes numbers ``continuous`` and integer codes ``categorical``, on encoded rows.

    Categorical blocks multiply the model's embeddings, as in ``gandalf``: where the encoding standardizes the blocks,
    that is an affine re-parametrization of the embeddings.

    Args:
        model: of the library.
        layout: encoded input of width d.
    """

    def __init__(self, model: nn.Module, layout: EncodedLayout) -> None:
        parts = (_part("continuous", layout.numerical, False), _part("categorical", layout.categorical, True))
        rows = torch.zeros(ROWS, layout.width)
        rows[:, [block.start for block in layout.categorical]] = 1
        super().__init__(with_functional_normalization(model), InputForm(parts), rows)


def _part(key: str, blocks: tuple[Block, ...], is_coded: bool) -> InputPart:
    return InputPart((key,), blocks, (is_coded,) * len(blocks), is_integer=is_coded)
