"""Without the frameworks every module imports, and what needs one says which extra brings it."""

import subprocess
import sys

import pytest

from lightleak.core.errors import UnsupportedError
from lightleak.integrations import nvflare_filter

MODULES = ("flower", "nvflare_filter", "round_recorder", "state_dicts")


def test_importing_loads_no_framework() -> None:
    imports = "; ".join(f"import lightleak.integrations.{name}" for name in MODULES)
    program = f"{imports}; import sys; sys.exit(bool({{'flwr', 'nvflare'}} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_a_missing_framework_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "nvflare.apis.filter", None)
    nvflare_filter._capture_filter.cache_clear()
    with pytest.raises(UnsupportedError, match=r"needs NVFlare \(nvflare\): pip install 'lightleak\[nvflare\]'"):
        _ = nvflare_filter.CaptureFilter
