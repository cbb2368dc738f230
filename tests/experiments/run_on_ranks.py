"""Audits by several processes at once, as torchrun or two users start them; read by test_campaign_ranks.py.

The processes are forked from this one, which has done nothing yet but import: starting an interpreter for each of them
would take most of the time of the test. What each leaves beside the run folder: what its audit returned.
"""

import io
import json
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from rich.console import Console

from lightleak.core import processes
from lightleak.experiments import campaign, finish, run
from lightleak.experiments.kinds.updates import kind
from lightleak.experiments.load import parse_config
from lightleak.experiments.unit import run_pack

VICTIM = "victim"
Act = Callable[[Path], None]


def in_ranks(root: Path, name: str, acts: Sequence[Act], launched: bool = True, **changed: Any) -> list[int]:
    """Run an audit in ``root/name/run`` by as many processes as ``acts``; returns their exit codes.

    Args:
        root: where ``config.json`` is.
        name: of the scenario.
        acts: what each process does before.
        launched: whether their environment is torchrun's.
        changed: settings of the config, with ``__`` for the dot.
    """
    changes = {key.replace("__", "."): value for key, value in changed.items()}
    place = root / name
    place.mkdir()
    children = []
    for rank, act in enumerate(acts):
        if child := os.fork():
            children.append(child)
            continue
        code = 1
        try:
            if launched:
                world = {"WORLD_SIZE": str(len(acts)), "LOCAL_WORLD_SIZE": str(len(acts))}
                os.environ.update(world, RANK=str(rank), LOCAL_RANK=str(rank), TORCHELASTIC_RUN_ID="test")
            torch.set_num_threads(1)
            count_writers(place)
            act(place)
            printed = Console(file=io.StringIO(), width=200)
            config = parse_config(json.loads((root / "config.json").read_text()), changes)
            results = run.run_audit(config, place / "run", ["lightleak", "audit"], printed)
            (place / f"returned-{rank}.json").write_text(json.dumps(results))
            (place / f"printed-{rank}.txt").write_text(printed.file.getvalue())
            code = 0
        except BaseException as error:
            (place / f"error-{rank}.txt").write_text(f"{type(error).__name__}: {error}")
        finally:
            os._exit(code)
    return [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]


def count_writers(place: Path) -> None:
    """Leave a file for every time that results are written, and every time that the target is trained."""

    def counted(module: Any, name: str) -> None:
        plain = getattr(module, name)

        def call(*arguments: Any, **named: Any) -> Any:
            (place / f"{name}-{os.getpid()}").touch()
            return plain(*arguments, **named)

        setattr(module, name, call)

    counted(finish, "write_results")
    counted(kind, "train")


def nothing(place: Path) -> None:
    """Run the audit as it is."""


def die_in_a_pack(place: Path) -> None:
    """Be killed at the first sign of progress on the first pack."""

    def victim(pack: Any, folder: Path, device: Any, kept: Any, report: Any) -> None:
        def killed(amount: float) -> None:
            (place / VICTIM).write_text(pack[0].id)
            os.kill(os.getpid(), signal.SIGKILL)

        run_pack(pack, folder, device, kept, killed)

    campaign.run_pack = victim


def after_the_victim(place: Path) -> None:
    """Begin attacks when the victim is dead: else it might find nothing left to do."""
    plain = run.run_packs

    def patient(*arguments: Any, **named: Any) -> Any:
        while not (place / VICTIM).is_file():
            time.sleep(0.02)
        return plain(*arguments, **named)

    run.run_packs = patient


def die_in_training(place: Path) -> None:
    """Be killed instead of training; only this process could be, as the others wait for it."""

    def killed(*_: Any) -> None:
        (place / VICTIM).write_text("training")
        os.kill(os.getpid(), signal.SIGKILL)

    kind.train = killed


def after_the_trainer(place: Path) -> None:
    """Come when the victim has the training."""
    while not (place / VICTIM).is_file():
        time.sleep(0.02)


def fail_after_the_victim(place: Path) -> None:
    """Raise in the first pack, which the victim's death has left to whoever comes."""

    def fails(pack: Any, *_: Any) -> None:
        raise MemoryError("full")

    after_the_victim(place)
    campaign.run_pack = fails


def with_workers(place: Path) -> None:
    """The first of the workers is killed in its first pack; the other begins when it is dead.

    Forked, as all here; test_processes.py spawns some.
    """
    processes.multiprocessing = SimpleNamespace(
        get_context=lambda _: multiprocessing.get_context("fork"), parent_process=multiprocessing.parent_process
    )

    def watched(pack: Any, folder: Path, device: Any, kept: Any, report: Any) -> None:
        def killed(amount: float) -> None:
            report(amount)
            (place / VICTIM).write_text(pack[0].id)
            os.kill(os.getpid(), signal.SIGKILL)

        try:
            (place / "first").touch(exist_ok=False)
        except FileExistsError:
            while not (place / VICTIM).is_file():
                time.sleep(0.02)
            run_pack(pack, folder, device, kept, report)
        else:
            run_pack(pack, folder, device, kept, killed)

    campaign.run_pack = watched


if __name__ == "__main__":
    where = Path(sys.argv[1])
    codes = {
        "one": in_ranks(where, "one", [nothing]),
        "two": in_ranks(where, "two", [nothing] * 2),
        "three": in_ranks(where, "three", [nothing] * 3),
        "killed": in_ranks(where, "killed", [die_in_a_pack, after_the_victim, fail_after_the_victim]),
        "workers": in_ranks(where, "workers", [with_workers], workers=2),
        "users": in_ranks(where, "users", [die_in_training, after_the_trainer], launched=False, training__epochs=1),
    }
    (where / "codes.json").write_text(json.dumps(codes))
