"""A job of NVFlare's simulator: a server that asks each client once, and clients that send what a file holds."""

from pathlib import Path
from typing import Any

import numpy as np
from nvflare import FedJob, FilterType
from nvflare.apis.dxo import DXO, DataKind, from_shareable
from nvflare.apis.executor import Executor
from nvflare.apis.impl.controller import Controller, Task
from nvflare.apis.shareable import Shareable
from nvflare.app_common.filters.exclude_vars import ExcludeVars
from nvflare.app_common.filters.percentile_privacy import PercentilePrivacy
from nvflare.app_common.filters.svt_privacy import SVTPrivacy

FILTERS: dict[str, Any] = {
    "site-1": PercentilePrivacy(percentile=50, gamma=0.5),
    "site-2": ExcludeVars(["a.bias"]),  # a job that is written in Python cannot carry an expression
    "site-3": SVTPrivacy(fraction=0.3, gamma=0.5),
}


class AskOnce(Controller):
    """Stores what arrives of each client in ``folder``."""

    def __init__(self, folder: str) -> None:
        super().__init__()
        self.folder = folder

    def start_controller(self, fl_ctx: Any) -> None:
        """Nothing to prepare."""

    def stop_controller(self, fl_ctx: Any) -> None:
        """Nothing to clean."""

    def control_flow(self, abort_signal: Any, fl_ctx: Any) -> None:
        task = Task("train", Shareable(), result_received_cb=self.store)
        self.broadcast_and_wait(task, fl_ctx, min_responses=len(FILTERS), abort_signal=abort_signal)

    def store(self, client_task: Any, fl_ctx: Any) -> None:
        np.savez(Path(self.folder, client_task.client.name), **from_shareable(client_task.result).data)

    def process_result_of_unknown_task(self, *_: Any, **__: Any) -> None:
        """There is no other task."""


class Send(Executor):
    """Sends the change of weights in ``path``; what filters draw afterwards is drawn from ``seed``."""

    def __init__(self, path: str, seed: int) -> None:
        super().__init__()
        self.path, self.seed = path, seed

    def execute(self, task_name: str, shareable: Any, fl_ctx: Any, abort_signal: Any) -> Any:
        np.random.seed(self.seed)
        with np.load(self.path) as parts:
            return DXO(DataKind.WEIGHT_DIFF, data=dict(parts)).to_shareable()


def run(folder: str, seed: int) -> None:
    """Send ``change.npz`` of the folder through every filter; what the server receives is one file for each client."""
    job = FedJob(name="filters", min_clients=len(FILTERS))
    job.to_server(AskOnce(folder))
    for client, made in FILTERS.items():
        job.to(Send(str(Path(folder, "change.npz")), seed), client, tasks=["train"])
        job.to(made, client, filter_type=FilterType.TASK_RESULT, tasks=["train"])
    job.simulator_run(str(Path(folder, "workspace")), threads=1)
