"""opacus, imported when it is used: it is an optional package."""

import logging
import warnings
from types import ModuleType

from lightleak.core.errors import UnsupportedError
from lightleak.core.optional import install_line


def import_opacus() -> ModuleType:
    """Import opacus with the modules that are used, and leave logging as it was: its import sets up the root logger.

    Raises:
        UnsupportedError: it is not installed.
    """
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import opacus.accountants.utils
            import opacus.validators
    except ImportError as error:
        raise UnsupportedError(f"dp_sgd needs opacus ({error}): {install_line('dp')}") from error
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
    return opacus
