"""Several processes of one machine at the same work: spawned, listened to, and ended with their parent.

Every process has a pipe of its own. A queue that all of them write to has a lock, and one that is killed while it holds
the lock would silence the others for ever.
"""

import multiprocessing
import os
import pickle
import signal
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Any

from lightleak.core.plugins import load_plugins
from lightleak.core.private_files import private_files

LISTEN_SECONDS = 0.5
"""Longest time without a look at processes that died without a word."""

PATIENCE_SECONDS = 5.0
"""For all processes that were asked to end together; whatever they keep is whole or absent."""

Work = Callable[..., None]
"""Called as ``work(*arguments, tell)``; picklable, as are its arguments and what it tells."""


def run_in_processes(
    work: Work,
    arguments: Sequence[tuple[Any, ...]],
    told: Callable[[int, Any], None],
    ended: Callable[[int, int], None] = lambda number, code: None,
    idle: Callable[[], None] = lambda: None,
) -> list[int]:
    """Run ``work`` in one process for each entry of ``arguments`` and return their exit codes when all have ended.

    Ctrl-C is left to this process. Spawned, not forked: a copy of a process that has worked holds the locks of threads
    it does not have. A process that is killed is not replaced; its exit code is below zero.

    Args:
        work: what each does.
        arguments: of each.
        told: called here with the number of a process and what it told.
        ended: called here with the number of a process that has ended and its exit code.
        idle: called here at least every `LISTEN_SECONDS`.

    Raises:
        Exception: what one of them raised; the others have been ended.
        BaseException: what was raised here, such as KeyboardInterrupt; all have been ended.
    """
    context = multiprocessing.get_context("spawn")
    processes: list[SpawnProcess] = []
    open_pipes: dict[Connection, int] = {}
    try:
        for number, given in enumerate(arguments):
            receiver, sender = context.Pipe(duplex=False)
            process = context.Process(target=_start, args=(work, given, sender))
            process.start()
            sender.close()  # else the pipe would not end with the process
            processes.append(process)
            open_pipes[receiver] = number
        while open_pipes:
            wait(list(open_pipes), LISTEN_SECONDS)
            for pipe, number in list(open_pipes.items()):
                lives = processes[number].is_alive()  # asked first: its last words are read below
                while (message := _read(pipe, processes[number])) is not None:
                    told(number, message[0])
                if not lives:  # a child of it may keep the pipe open
                    del open_pipes[pipe]
                    ended(number, _exit_code(processes[number]))
            idle()
    finally:
        for process in processes:
            process.terminate()
        until = time.monotonic() + PATIENCE_SECONDS
        for process in processes:
            process.join(max(0.0, until - time.monotonic()))
            if process.is_alive():
                process.kill()
        for pipe in open_pipes:
            pipe.close()
    return [_exit_code(process) for process in processes]


def _read(pipe: Connection, process: SpawnProcess) -> tuple[Any] | None:
    """The next message, packed; ``None`` where there is none just now, or never will be.

    Raises:
        Exception: the message is an exception.
    """
    try:
        if not pipe.poll():
            return None
        kind, content = pipe.recv()
    except (EOFError, OSError):  # it has closed the pipe, or was killed within a message
        process.join()
        return None
    if kind == "failed":
        raise content
    return (content,)


def _exit_code(process: SpawnProcess) -> int:
    process.join()
    return process.exitcode or 0


def _start(work: Work, given: tuple[Any, ...], sender: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent decides
    signal.signal(signal.SIGTERM, _end)  # at once: Lightning would end its step, and go on with the next work
    threading.Thread(target=_end_with_the_parent, daemon=True).start()
    try:
        load_plugins()
        with private_files():  # a spawned process inherits the umask only where its parent has set it
            work(*given, lambda message: sender.send(("told", message)))
    except Exception as error:
        sender.send(("failed", _portable(error)))
    sender.close()


def _end(*_: object) -> None:
    os._exit(128 + signal.SIGTERM)


def _end_with_the_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)  # killed: nobody waits for this work, and whoever goes on repeats it


def _portable(error: Exception) -> Exception:
    """The error with its traceback as a note; another one with the same words where it cannot be sent."""
    error.add_note("".join(traceback.format_exception(error)))
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # whatever its class does when it is pickled
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error
