"""The parts of opacus that are used, imported when they are: it is an optional package."""

import logging
import warnings
from types import ModuleType
from typing import NamedTuple

from lightleak.core.errors import UnsupportedError


class OpacusParts(NamedTuple):
    """Modules of opacus."""

    accountants: ModuleType
    accountant_utils: ModuleType
    grad_sample: ModuleType
    optimizers: ModuleType
    validators: ModuleType


def opacus_parts() -> OpacusParts:
    """Import opacus, and leave logging as it was: its import sets up the root logger.

    Raises:
        UnsupportedError: it is not installed.
    """
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from opacus import accountants, grad_sample, optimizers, validators
            from opacus.accountants import utils
    except ImportError as error:
        raise UnsupportedError(f"dp_sgd needs opacus ({error}): pip install 'lightleak[dp]'") from error
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
    return OpacusParts(accountants, utils, grad_sample, optimizers, validators)
