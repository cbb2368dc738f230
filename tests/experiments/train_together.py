"""Run by test_distributed_training.py: ``lightleak audit FOLDER/config.yaml`` on two devices, with a witness.

With ``--die E`` process 1 kills itself in the second step of epoch E; with ``--alone`` it also trains
``FOLDER/alone.yaml`` by itself, into ``FOLDER/alone``. Every process that comes to the end leaves ``FOLDER/ended-PID``.
"""

import io
import os
import sys
from functools import partial
from pathlib import Path

import torch
from rich.console import Console

from lightleak import cli
from lightleak.core.plugins import load_plugins
from lightleak.core.ranks import detect_ranks
from lightleak.experiments.experiment import prepare_experiment
from lightleak.experiments.kinds.updates import kind
from lightleak.experiments.load import load_config
from lightleak.experiments.training import train, trains_together


def main(root: Path, *flags: str) -> None:
    torch.set_num_threads(1)
    load_plugins()
    witness = sys.modules["witness"].Witness(root, int(flags[1]) if "--die" in flags else None)
    kind.train = partial(train, callbacks=(witness,))
    words = ["audit", str(root / "config.yaml"), "--output", str(root / "run"), "--device", "cpu"]
    if code := cli.main([*words, "--trainer.devices", "2"]):
        sys.exit(code)
    assert not torch.distributed.is_initialized(), "nothing is left that could wait for the other"
    (root / f"ended-{os.getpid()}").touch()
    if "--alone" in flags and detect_ranks().rank == 1:
        alone = load_config(root / "alone.yaml")
        assert not trains_together(alone)
        train(alone, prepare_experiment(alone), root / "alone", Console(file=io.StringIO()))


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
