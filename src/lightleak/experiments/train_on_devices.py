"""The program of `lightleak.experiments.launch.run_on_devices`: ``python -m``, with a file that holds the task."""

import os
import pickle
import signal
import sys
import threading
from pathlib import Path

from lightleak.core.private_files import private_files
from lightleak.experiments.pack import portable

INTERRUPTED = 130


def main(task: Path) -> int:
    """Do the task; what the first process raises is left in a file."""
    threading.Thread(target=_end_with_the_command, daemon=True).start()
    knowledge, work = pickle.loads(task.read_bytes())
    try:
        knowledge.load()
        function, arguments = pickle.loads(work)
        with private_files():
            function(*arguments)
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception as error:
        if os.environ.get("LOCAL_RANK", "0") == "0":  # Lightning may have deleted the other variables
            task.with_suffix(".error").write_bytes(pickle.dumps(portable(error)))
        return 1
    return 0


def _end_with_the_command() -> None:
    """End all processes of the training when the command that started it is gone: their input ends."""
    while os.read(sys.stdin.fileno(), 1):
        pass
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
