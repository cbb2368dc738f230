"""The filter passes everything on as it is, and records what the server sent and received."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from lightleak.callbacks.capture_store import list_captures
from lightleak.core.errors import ObservationError
from lightleak.core.observations import ClientUpdate
from lightleak.core.seeds import generator
from lightleak.defenses.horizontal.shipped import NVFlareExclude, NVFlarePercentile, NVFlareSVT
from lightleak.integrations import nvflare_filter

pytest.importorskip("nvflare", reason="NVFlare (nvflare) is not installed")


class Job:
    """A job as the server's runner drives its filters: a context per exchange, sticky properties kept by the job."""

    def __init__(self, *filters: Any) -> None:
        from nvflare.apis.fl_context import FLContextManager

        self.out, self.back = (filters * 2)[:2]
        self.manager = FLContextManager(identity_name="server", job_id="job")

    def context(self, client: str, direction: str) -> Any:
        from nvflare.apis.fl_constant import FLContextKey
        from nvflare.apis.fl_context import FLContextManager

        context = self.manager.new_context()
        context.set_peer_context(FLContextManager(identity_name=client).new_context())
        context.set_prop(FLContextKey.FILTER_DIRECTION, direction, private=True, sticky=False)
        return context

    def send(self, client: str, model: Any, round_number: int) -> Any:
        shareable = model if not hasattr(model, "to_shareable") else model.to_shareable()
        shareable.set_header("current_round", round_number)
        return self.out.process(shareable, self.context(client, "out"))

    def receive(self, client: str, model: Any) -> Any:
        return self.back.process(model.to_shareable(), self.context(client, "in"))


def weights(state: dict[str, torch.Tensor], kind: str = "WEIGHTS", **meta: Any) -> Any:
    from nvflare.apis.dxo import DXO

    return DXO(kind, data={name: value.numpy() for name, value in state.items()}, meta=meta)


def make(made: Any, tmp_path: Path, view: dict[str, Any] | None = None, **settings: Any) -> Any:
    made.view(**(view or {})).save(tmp_path / "view")
    options = {"view": str(tmp_path / "view"), "root": str(tmp_path / "captures"), "rounds": [0]} | settings
    return nvflare_filter.CaptureFilter(**options)


def same(root: Path, expected: list[ClientUpdate]) -> None:
    found = [ClientUpdate.load(path / "observation") for path in list_captures(root)]
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        assert one.facts == other.facts and one.kind == other.kind
        for group in ("parameters", "update", "buffers"):
            assert all(torch.equal(getattr(one, group)[name], value) for name, value in getattr(other, group).items())


@pytest.mark.parametrize("instances", [1, 2])
@pytest.mark.parametrize("kind", ["WEIGHTS", "WEIGHT_DIFF"])
def test_captures_are_our_own(federation: Any, tmp_path: Path, kind: str, instances: int) -> None:
    made = federation(hidden=[4], norm="batch")
    view = {"sends": "weights" if kind == "WEIGHTS" else "delta"}
    job = Job(*(make(made, tmp_path, view) for _ in range(instances)))
    before = made.network().state_dict()
    for client in range(3):
        job.send(f"site-{client}", weights(before), 0)
    for client in (2, 0, 1):
        back = made.trained(client, before) if kind == "WEIGHTS" else dict(made.own(client)[0].update)
        job.receive(f"site-{client}", weights(back, kind, n_rows=6))
    same(tmp_path / "captures", [made.own(client)[0] for client in range(3)])


def test_models_of_the_client_api_are_captured(federation: Any, tmp_path: Path) -> None:
    from nvflare.app_common.abstract.fl_model import FLModel
    from nvflare.app_common.utils.fl_model_utils import FLModelUtils

    made = federation(hidden=[4])
    job = Job(make(made, tmp_path, rows_key="rows", clients=["hospital b", "hospital a"]))
    before = made.network().state_dict()
    job.send("hospital a", FLModelUtils.to_shareable(FLModel(params=dict(before), current_round=0)), 0)
    job.send("hospital c", weights(before), 0)
    job.receive("hospital a", weights(made.trained(1, before), rows=6))
    job.receive("hospital c", weights(made.trained(2, before), rows=6))
    same(tmp_path / "captures", [made.own(1)[0]])
    assert [path.name for path in list_captures(tmp_path / "captures")] == ["e000-s000000-r1"]


def test_what_passes_is_not_changed(federation: Any, tmp_path: Path) -> None:
    from nvflare.apis.dxo import from_shareable
    from nvflare.apis.shareable import make_reply

    made = federation(hidden=[4])
    job = Job(make(made, tmp_path))
    before = made.network().state_dict()
    shareable = weights(before).to_shareable()
    assert job.send("site-1", shareable, 0) is shareable
    passed = from_shareable(shareable)
    assert all((passed.data[name] == value.numpy()).all() for name, value in before.items())
    failed = make_reply("EXECUTION_EXCEPTION")
    assert job.back.process(failed, job.context("site-1", "in")) is failed
    job.receive("site-1", weights({}, "METRICS", loss=1.0))
    assert not (tmp_path / "captures").exists()


@pytest.mark.parametrize(
    ("client", "settings", "kind", "meta", "message"),
    [
        ("site-9", {}, "WEIGHTS", {"n_rows": 6}, "what it was sent is not known"),
        ("site-1", {}, "WEIGHT_DIFF", {"n_rows": 6}, "it sends WEIGHT_DIFF, the view says 'weights'"),
        ("site-1", {}, "WEIGHTS", {}, "n_rows must be at least 1, got 0"),
        ("site-1", {}, "WEIGHTS", {"n_rows": float("nan")}, "n_rows must be a whole number, got nan"),
        ("site-1", {}, "WEIGHTS", {"n_rows": 6.7}, "n_rows must be a whole number, got 6.7"),
        ("clinic", {}, "WEIGHTS", {"n_rows": 6}, "its name 'clinic' ends in no number"),
    ],
)
def test_what_cannot_be_recorded_is_left_out_with_a_warning(
    federation: Any, tmp_path: Path, client: str, settings: Any, kind: str, meta: Any, message: str
) -> None:
    made = federation(hidden=[4])
    job = Job(make(made, tmp_path, **settings))
    before = made.network().state_dict()
    for name in ("site-1", "clinic"):
        job.send(name, weights(before), 0)
    with pytest.warns(UserWarning, match=message):
        job.receive(client, weights(before, kind, **meta))
    assert not (tmp_path / "captures").exists()


def test_rows_may_be_told_by_name(federation: Any, tmp_path: Path) -> None:
    made = federation(hidden=[4])
    job = Job(make(made, tmp_path, n_rows={"site-1": 6}))
    before = made.network().state_dict()
    job.send("site-1", weights(before), 0)
    job.receive("site-1", weights(made.trained(1, before)))
    same(tmp_path / "captures", [made.own(1)[0]])


def test_nvflare_builds_it_from_a_jobs_configuration(federation: Any, tmp_path: Path) -> None:
    from nvflare.apis.filter import Filter
    from nvflare.fuel.utils.class_utils import instantiate_class

    made = federation(hidden=[4])
    made.view().save(tmp_path / "view")
    settings = {"view": str(tmp_path / "view"), "root": str(tmp_path / "captures"), "rounds": [0]}
    built = instantiate_class("lightleak.integrations.nvflare_filter.CaptureFilter", settings)
    assert isinstance(built, Filter) and type(built).__name__ == "CaptureFilter"


def test_a_view_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ObservationError, match="no server view at"):
        nvflare_filter.CaptureFilter(view=str(tmp_path), root=str(tmp_path), rounds=[0])


def test_the_module_has_nothing_else() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Other'"):
        _ = nvflare_filter.Other


MODEL = """
from torch import nn

class Net(nn.Module):
    def __init__(self, width=1):
        super().__init__()
        self.width = width
        self.linears = nn.ModuleList([nn.Linear(width, 4), nn.Linear(4, 2)])
"""

CLIENT = """
import nvflare.client as flare

flare.init()
while flare.is_running():
    received = flare.receive()
    moved = {name: value + 1 for name, value in received.params.items()}
    flare.send(flare.FLModel(params=moved, meta={"n_rows": 6}))
"""

JOB = """
import sys
from pathlib import Path

if __name__ == "__main__":
    from model import Net
    from nvflare.app_common.workflows.fedavg import FedAvg
    from nvflare.app_opt.pt.job_config.base_fed_job import BaseFedJob
    from nvflare.job_config.defs import FilterType
    from nvflare.job_config.script_runner import ScriptRunner

    from lightleak.integrations.nvflare_filter import CaptureFilter

    here = Path.cwd()
    job = BaseFedJob(name="job", initial_model=Net(width=int(sys.argv[1])))
    job.to_server(FedAvg(num_clients=2, num_rounds=2))
    for chain in (FilterType.TASK_DATA, FilterType.TASK_RESULT):
        watching = CaptureFilter(view=str(here / "view"), root=str(here / "captures"), rounds=[0, 1])
        job.to_server(watching, filter_type=chain, tasks=["train"])
    for i in (1, 2):
        job.to(ScriptRunner(script="client.py", launch_external_process=False), f"site-{i}")
    job.simulator_run("workspace")
"""


@pytest.mark.slow
def test_a_simulated_job_of_two_rounds(federation: Any, tmp_path: Path) -> None:
    """NVFlare's own simulator: a server and two clients in processes of their own."""
    made = federation(hidden=[4])
    made.view().save(tmp_path / "view")
    for name, text in (("model.py", MODEL), ("client.py", CLIENT), ("job.py", JOB)):
        (tmp_path / name).write_text(text)
    width = str(made.encoder.layout.width)
    subprocess.run([sys.executable, "job.py", width], cwd=tmp_path, capture_output=True, timeout=240, check=False)
    found = list_captures(tmp_path / "captures")
    assert [path.name for path in found] == [f"e00{n}-s00000{n}-r{i}" for n in (0, 1) for i in (1, 2)]
    first, second = (ClientUpdate.load(found[i] / "observation") for i in (0, 2))
    for name, value in first.update.items():
        torch.testing.assert_close(value, torch.ones_like(value), rtol=0.0, atol=1e-6)
        torch.testing.assert_close(second.parameters[name], first.parameters[name] + 1, rtol=0.0, atol=1e-6)


@pytest.mark.slow
def test_defenses_send_what_filters_send_in_a_run_of_nvflare(tmp_path: Path) -> None:
    """NVFlare's own simulator runs server, clients and filters in processes of their own."""
    draws = generator(0, "change")
    change = {"a.bias": torch.randn(9, generator=draws), "a.weight": torch.randn(9, 23, generator=draws)}
    np.savez(tmp_path / "change.npz", **{name: value.numpy() for name, value in change.items()})
    seed = int(torch.randint(2**32 - 1, (), generator=generator(1)))
    command = f"import nvflare_job; nvflare_job.run({str(tmp_path)!r}, {seed})"
    done = subprocess.run(
        [sys.executable, "-c", command], cwd=Path(__file__).parent, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    defenses = {
        "site-1": NVFlarePercentile(percentile=50, gamma=0.5),
        "site-2": NVFlareExclude("bias"),
        "site-3": NVFlareSVT(fraction=0.3, gamma=0.5),
    }
    for client, defense in defenses.items():
        expected = defense.apply({name: -value for name, value in change.items()}, generator(1))
        with np.load(tmp_path / f"{client}.npz") as sent:
            for name, value in expected.items():
                found = torch.as_tensor(sent[name]) if name in sent else torch.zeros_like(value)
                torch.testing.assert_close(found, -value, rtol=0.0, atol=1e-7)
                assert not torch.equal(found, change[name]) or (client, name) == ("site-2", "a.weight")
