"""What every metric says of a list of batches; as a script, one rank of several that share the batches out."""

import json
import os
import sys
from datetime import timedelta
from pathlib import Path

import torch
from torch import distributed
from torchmetrics import Metric

from lightleak.metrics import METRICS, LabelCountError, LeakageOverBaseline, MatchedBatch


def compute(batches: list[dict[str, torch.Tensor]]) -> dict[str, float]:
    metrics: dict[str, Metric] = {name: METRICS.get(name)() for name in METRICS}
    for fields in batches:
        batch = MatchedBatch(**fields)
        flipped = MatchedBatch(**{**fields, "hits": ~fields["hits"]})
        for metric in metrics.values():
            if isinstance(metric, LeakageOverBaseline):
                metric.update(batch, flipped)
            elif isinstance(metric, LabelCountError):
                metric.update(fields["order"] % 3, fields["order"] % 2)
            else:
                metric.update(batch)
    return {name: metric.compute().item() for name, metric in metrics.items()}


def main(rank: int, ranks: int, folder: Path) -> None:
    torch.set_num_threads(1)
    store = f"file://{folder / 'store'}"
    distributed.init_process_group("gloo", store, timedelta(seconds=120), rank=rank, world_size=ranks)
    shares = torch.load(folder / "shares.pt", weights_only=True)
    values = [compute(of_rank[rank]) for of_rank in shares]
    (folder / f"rank{rank}.json").write_text(json.dumps(values))
    distributed.destroy_process_group()


if __name__ == "__main__":
    main(int(os.environ["LOCAL_RANK"]), int(os.environ["WORLD_SIZE"]), Path(sys.argv[1]))
