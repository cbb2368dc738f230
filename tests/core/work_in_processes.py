"""Several ways in which processes work and end; test_processes.py runs this and reads what it prints."""

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

from lightleak.core.processes import run_in_processes

Tell = Callable[[Any], None]


class Odd(Exception):
    """Cannot be sent: it is made of two arguments and keeps one."""

    def __init__(self, first: str, second: str) -> None:
        super().__init__(first + second)


def count(to: int, tell: Tell) -> None:
    for i in range(to):
        tell(i)


def tell_umask(_: str, tell: Tell) -> None:
    tell(oct(os.umask(0)))


def end(kind: str, tell: Tell) -> None:
    tell(os.getpid())
    if kind == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    elif kind == "fails":
        raise ValueError("this one")
    elif kind == "odd":
        raise Odd("this ", "one")
    elif kind == "sleeps":
        time.sleep(600)
    elif kind == "keeps the pipe":  # in a child that lives on
        if os.fork() == 0:
            time.sleep(2)
        os._exit(3)


def run(kinds: list[str], stop: bool = False) -> dict[str, Any]:
    pids: dict[int, int] = {}
    ended: dict[int, int] = {}

    def idle() -> None:
        if stop and len(pids) == len(kinds):
            raise KeyboardInterrupt

    try:
        codes: Any = run_in_processes(end, [(kind,) for kind in kinds], pids.__setitem__, ended.__setitem__, idle)
    except BaseException as error:
        codes = f"{type(error).__name__}: {error}"
    alive = [pid for pid in pids.values() if os.path.exists(f"/proc/{pid}")]
    return {"codes": codes, "ended": ended, "told": sorted(pids), "alive": alive}


def counted() -> dict[str, Any]:
    told: dict[int, list[int]] = {0: [], 1: []}
    codes = run_in_processes(count, [(3,), (50,)], lambda number, message: told[number].append(message))
    return {"codes": codes, "told": told}


def umask() -> dict[str, Any]:
    os.umask(0o022)
    told: list[str] = []
    run_in_processes(tell_umask, [("",)], lambda _, message: told.append(message))
    return {"there": told, "here": oct(os.umask(0o022))}


if __name__ == "__main__":
    if sys.argv[1:] == ["sleep"]:
        run_in_processes(end, [("sleeps",)] * 2, lambda number, pid: print(pid, flush=True))
    results = {
        "counted": counted(),
        "umask": umask(),
        "killed": run(["killed", "ends"]),
        "fails": run(["sleeps", "fails"]),
        "odd": run(["odd"]),
        "stopped": run(["sleeps", "sleeps"], stop=True),
        "keeps the pipe": run(["keeps the pipe", "ends"]),
    }
    print(json.dumps(results))
