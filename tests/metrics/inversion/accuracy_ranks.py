"""One rank of several that count attacked rows together."""

import sys
from datetime import timedelta
from pathlib import Path

import torch
from torch import distributed

from lightleak.metrics.inversion.attack_accuracy import AttackAccuracy


def main(rank: int, ranks: int, folder: Path) -> None:
    torch.set_num_threads(1)
    store = f"file://{folder / 'store'}"
    distributed.init_process_group("gloo", store, timedelta(seconds=120), rank=rank, world_size=ranks)
    accuracy = AttackAccuracy(4)
    for predicted, labels in torch.load(folder / "shares.pt", weights_only=True)[rank]:
        accuracy.update(predicted, labels)
    torch.save(accuracy.compute(), folder / f"rank{rank}.pt")
    distributed.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
