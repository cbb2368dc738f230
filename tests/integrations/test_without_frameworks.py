"""Without the frameworks every module imports, and what needs one says which extra brings it."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from lightleak.core.errors import UnsupportedError
from lightleak.integrations import nvflare_filter

MODULES = ("flower", "nvflare_filter", "round_recorder", "state_dicts")


def test_importing_loads_no_framework(tmp_path: Path, run_forked: Callable[..., str]) -> None:
    script = tmp_path / "imports.py"
    imports = "; ".join(f"import lightleak.integrations.{name}" for name in MODULES)
    script.write_text(f"import sys; {imports}; print({{'flwr', 'nvflare'}} & set(sys.modules))")
    assert run_forked(script=script).splitlines()[-1] == "set()"


def test_a_missing_framework_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "nvflare.apis.filter", None)
    nvflare_filter._capture_filter.cache_clear()
    with pytest.raises(UnsupportedError, match=r"needs NVFlare \(nvflare\): pip install .*\.\[nvflare\]"):
        _ = nvflare_filter.CaptureFilter
