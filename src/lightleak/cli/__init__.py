"""The command ``lightleak``. Exit codes: 0 done, 2 wrong use, 1 failed while running, 130 Ctrl-C, 143 SIGTERM."""

import errno
import logging
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from io import TextIOWrapper
from pathlib import Path

from lightleak.cli.arguments import BARE_FLAGS, check_words, split_arguments, unknown_word
from lightleak.cli.exit_codes import DONE, FAILED, INTERRUPTED, TERMINATED, WRONG_USE
from lightleak.cli.parser import build_parser
from lightleak.core.console import SteadyConsole
from lightleak.core.errors import UsageError
from lightleak.core.plugins import load_plugins
from lightleak.core.private_files import private_files
from lightleak.core.ranks import detect_ranks
from lightleak.core.shell import shell_word
from lightleak.core.termination import Termination, interrupted_by_sigterm


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; every error is one message, without a traceback."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without a character shows a question mark
    console = SteadyConsole() if detect_ranks().leads else SteadyConsole(quiet=True, force_interactive=False)
    with interrupted_by_sigterm() as termination:
        return _run(arguments, console, termination)


def _run(arguments: list[str], console: SteadyConsole, termination: Termination) -> int:
    folder, command = None, ""
    try:
        check_words(arguments)
        load_plugins()
        own, settings = split_arguments(arguments)
        parsed, unknown = build_parser().parse_known_args(own)
        rest = [*settings, *unknown]
        if odd := [word for word in rest if word in BARE_FLAGS] if parsed.takes_settings else rest:
            raise UsageError(unknown_word(odd[0], arguments, parsed))
        folder = parsed.output_folder(parsed) if hasattr(parsed, "output_folder") else None
        command = parsed.command
        if folder is not None and command != "audit" and not detect_ranks().leads:
            return DONE  # a launcher's first process does the work
        with private_files() if folder is not None else nullcontext():
            more = () if folder is None else (rest, folder, ["lightleak", *arguments])
            code = parsed.run(parsed, *more, console)
        return DONE if code is None else int(code)
    except UsageError as error:
        _complain(str(error))
        return WRONG_USE
    except KeyboardInterrupt:
        _complain(f"{'terminated' if termination.came else 'interrupted'}{_resume_hint(command, folder)}")
        return TERMINATED if termination.came else INTERRUPTED
    except Exception as error:  # whatever it is: one message, and a folder that can be resumed
        if isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG:
            _complain(f"{error.filename}: a file or folder name must have at most 255 bytes, a path at most 4095")
            return WRONG_USE
        logging.getLogger(__name__).debug("failed", exc_info=True)
        _complain(f"{type(error).__name__}: {error}{_resume_hint(command, folder)}")
        return FAILED


def _complain(message: str) -> None:
    SteadyConsole(stderr=True).print(f"lightleak: {message}", markup=False, highlight=False, soft_wrap=True)


def _resume_hint(command: str, folder: Path | None) -> str:
    if folder is None or not folder.is_dir():
        return ""
    resumable = command == "audit" and (folder / "config.yaml").is_file()
    again = f"lightleak audit --resume {shell_word(folder)}" if resumable else "the same command"
    return f". Finished work is kept in {folder}; resume with: {again}"
