"""Peak memory of split training on a table of Texas-100's shape: 67,330 rows, 6,169 bits, 100 classes.

    python benchmarks/vertical_memory.py --threads 1

A table with a planted property is made and written in the official layout by a process of its own, so that making it
does not count. Then: files -> loader -> frame of uint8 -> bits -> two parties -> epochs through the Trainer, the four
kinds of intermediate results recorded in the last one -> ProVFL-B with the closed-form estimator. After each stage the
peak of the process so far and the seconds are printed. As float32 the table alone would be 1,585 MiB, as int64 or
float64 3,169.
"""

import argparse
import logging
import multiprocessing
import resource
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import lightning
import numpy as np
import torch

from lightleak.attacks.property_inference import distribution_comparison  # noqa: F401, registers ProVFL-B
from lightleak.attacks.property_inference.attack import PROPERTY_ATTACKS
from lightleak.callbacks.intermediate_capture import IntermediateCapture
from lightleak.core.intermediate_results import AuxiliaryData, IntermediateResults, VerticalFacts
from lightleak.core.seeds import derive_seed, generator, numpy_generator
from lightleak.data.datasets import load_dataset
from lightleak.data.encoder import TableEncoder
from lightleak.data.partition import partition_columns
from lightleak.data.property import Property
from lightleak.data.table import Table
from lightleak.data.vertical import VerticalDataModule, VerticalRows, party_positions
from lightleak.targets.optimizers import OptimizerConfig
from lightleak.targets.split import SplitClassifier, SplitSpec

ROWS, WIDTH, CLASSES = 67_330, 6169, 100
BLOCK_ROWS = 1000
PROPERTY = Property("feature_12", "1")
FRACTION = 0.5508  # of T-u1, ProVFL Table IV
AUXILIARY = 2000  # rows of either kind, ProVFL Sec. VI-A
TELLING = 200  # of the adversary's features are twice as frequent where the property is present


def write_table(folder: Path, n_rows: int, width: int) -> None:
    """Sparse bits whose frequencies depend on the class and, at the adversary, on the property."""
    draw = numpy_generator(0, "texas-shaped")
    rates = draw.beta(0.5, 8, size=(CLASSES, width))
    (folder / "texas100").mkdir()
    with (folder / "texas100" / "feats").open("wb") as feats, (folder / "texas100" / "labels").open("w") as labels:
        for start in range(0, n_rows, BLOCK_ROWS):
            n = min(BLOCK_ROWS, n_rows - start)
            classes, has = draw.integers(0, CLASSES, n), draw.random(n) < FRACTION
            rate = rates[classes]
            rate[has, -TELLING:] *= 2
            text = np.full((n, 2 * width), ord(","), dtype=np.uint8)
            text[:, 0::2] = (draw.random((n, width), dtype=np.float32) < rate) + np.uint8(ord("0"))
            text[:, 2 * int(PROPERTY.column.removeprefix("feature_"))] = has + np.uint8(ord("0"))
            text[:, -1] = ord("\n")
            feats.write(text.tobytes())
            labels.writelines(f"{label + 1}\n" for label in classes)


def peak_mib() -> float:
    """Peak resident memory of this process; macOS counts bytes, Linux KiB."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2**20 if sys.platform == "darwin" else peak / 2**10


@contextmanager
def stage(name: str) -> Iterator[None]:
    start = time.perf_counter()
    yield
    print(f"{name:<34} {peak_mib():8.0f} MiB {time.perf_counter() - start:8.1f} s", flush=True)


def vertical_rows(table: Table) -> tuple[VerticalRows, VerticalRows, np.ndarray]:
    """Both parts dealt to two parties, and which training rows have the property."""
    encoder = TableEncoder(table.schema)
    with stage("two parties of columns"):
        positions, widths = party_positions(encoder.layout, partition_columns(table.schema, ratio=[1, 1]))
    parts = []
    for frame in (table.train, table.test):
        with stage(f"bits of {len(frame)} rows, dealt out"):
            bits = encoder.encode_bits(frame)[:, positions]
            parts.append(VerticalRows(bits, encoder.encode_labels(frame), torch.arange(len(frame)), widths))
    return parts[0], parts[1], PROPERTY.mask(table.train)


def main() -> None:
    """Run every stage and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--width", type=int, default=WIDTH)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    with stage("imports"):
        pass
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        maker = multiprocessing.get_context("spawn").Process(target=write_table, args=(folder, args.rows, args.width))
        maker.start()
        maker.join()
        if maker.exitcode:
            raise SystemExit("the table could not be written")
        with stage("files to frames of uint8"):
            table = load_dataset("texas100", folder)
    train, test, has_property = vertical_rows(table)
    n_classes = table.schema.n_classes
    del table
    data = VerticalDataModule(train, test, args.batch_size)
    model = SplitClassifier(
        SplitSpec(train.widths, n_classes=n_classes), OptimizerConfig("sgd", 0.1), seed=derive_seed(0, "network")
    )
    capture = IntermediateCapture(adversary_party=1, victim_party=0, adversary="C1", epochs=[args.epochs - 1])
    trainer = lightning.Trainer(
        max_epochs=args.epochs,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[capture],
    )
    with stage(f"{args.epochs} epoch(s) with capture"):
        trainer.fit(model, data)
    with stage("test"):
        [scores] = trainer.test(model, data, verbose=False)
    with stage("attack of the active party"):
        seen = observe(capture, train, torch.from_numpy(has_property), n_classes, args)
        estimate = PROPERTY_ATTACKS.get("provfl_b_mixture")().run(seen, seed=0)
    print(
        f"accuracy {scores['test/accuracy']:.3f}; {PROPERTY} estimated at {estimate.fraction:.4f} "
        f"({estimate.low:.4f} to {estimate.high:.4f}), true {has_property.mean():.4f}"
    )


def observe(
    capture: IntermediateCapture, train: VerticalRows, has: torch.Tensor, n_classes: int, args: argparse.Namespace
) -> IntermediateResults:
    """What the active party holds after the last epoch, with 2,000 auxiliary rows of either kind."""
    draw = generator(0, "auxiliary")
    parts = [
        at[torch.randperm(len(at), generator=draw)[:AUXILIARY]]
        for at in (has.nonzero().flatten(), (~has).nonzero().flatten())
    ]
    ids = torch.cat(parts)
    names = [f"feature_{i}" for i in range(args.width)]
    victim, adversary = tuple(names[: train.widths[0]]), tuple(names[train.widths[0] :])
    facts = VerticalFacts(2, 1, 0, adversary, victim, args.epochs - 1, args.batch_size, n_classes)
    known, results = capture.results(args.epochs - 1)
    return IntermediateResults("C1", known, results, AuxiliaryData(str(PROPERTY), ids, has[ids], adversary), facts)


if __name__ == "__main__":
    main()
