"""Nothing is collected while a command imports PyTorch; a process that already has PyTorch is left alone."""

import gc
import json
import subprocess
import sys

from lightleak.core.imports import uncollected_imports

PROGRAM = """
import gc, json
from lightleak.core.imports import uncollected_imports
before = gc.get_freeze_count()
try:
    with uncollected_imports():
        during = gc.isenabled()
        import torch
        raise ImportError
except ImportError:
    pass
frozen = gc.get_freeze_count()
with uncollected_imports():
    pass
print(json.dumps([before, during, frozen > 10_000, gc.isenabled(), gc.get_freeze_count() == frozen]))
"""


def test_the_first_import_of_pytorch_is_kept_from_the_collector() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == [0, False, True, True, True]


def test_a_process_that_has_pytorch_is_left_alone() -> None:
    import torch  # noqa: F401

    before = gc.get_freeze_count()
    with uncollected_imports():
        assert gc.isenabled()
    assert gc.get_freeze_count() == before
