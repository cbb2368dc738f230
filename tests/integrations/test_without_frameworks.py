"""Without the frameworks every module imports, and what needs one says which extra brings it."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

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


def test_flowers_environment_differs_only_in_what_flower_holds_back() -> None:
    root = Path(__file__).parents[2]

    def pins(name: str) -> dict[str, str]:
        lines = (root / name).read_text("utf-8").splitlines()
        return dict(line.lower().split("==") for line in lines if line and not line.startswith("#"))

    ours, flowers = pins("constraints.txt"), pins("constraints-flower.txt")
    needed = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]["dependencies"]
    names = [re.split(r"[^A-Za-z0-9_-]", line)[0].lower() for line in needed]
    assert {name for name in names if ours[name] != flowers[name]} == {"packaging", "rich"}
    assert "flwr" in flowers and "flwr" not in ours
