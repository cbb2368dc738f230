"""Texas-100 from files of its official shape: 6,169 sparse bits and 100 classes, kept at a byte per cell."""

import gzip
import tracemalloc
from pathlib import Path

import lightning
import numpy as np
import pandas as pd
import pytest
import torch

from lightleak.core.errors import DataError
from lightleak.data.datasets import load_dataset, texas100
from lightleak.data.encoder import TableEncoder
from lightleak.data.partition import partition_columns
from lightleak.data.property import Property
from lightleak.data.vertical import VerticalDataModule, VerticalRows, party_positions
from lightleak.targets.optimizers import OptimizerConfig
from lightleak.targets.split import SplitClassifier, SplitSpec

WIDTH = 6169


def write_texas(folder: Path, bits: np.ndarray, labels: np.ndarray, end: bytes = b"\n", packed: bool = False) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    text = b"\n".join(b",".join(b"%d" % bit for bit in row) for row in bits.tolist()) + end
    if packed:
        (folder / "feats.gz").write_bytes(gzip.compress(text))
    else:
        (folder / "feats").write_bytes(text)
    (folder / "labels").write_text("".join(f"{label}\n" for label in labels))


def sparse_rows(n_rows: int, width: int = WIDTH) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return (rng.random((n_rows, width)) < 0.05).astype(np.uint8), rng.integers(1, 101, n_rows)


def rows_of(
    frame: pd.DataFrame, encoder: TableEncoder, positions: torch.Tensor, widths: tuple[int, ...]
) -> VerticalRows:
    bits, labels = encoder.encode_bits(frame), encoder.encode_labels(frame)
    return VerticalRows(bits[:, positions], labels, torch.arange(len(frame)), widths)


def test_from_the_files_to_a_trained_split_network(tmp_path: Path) -> None:
    bits, labels = sparse_rows(60)
    bits[:, 12] = np.arange(60) % 3 == 0
    write_texas(tmp_path / "texas100", bits, labels)
    table = load_dataset("texas100", tmp_path)
    assert len(table.schema.columns) == WIDTH and table.schema.n_classes == 100
    assert Property("feature_12", "1").mask(table.train).sum() == table.train["feature_12"].sum() > 0
    encoder = TableEncoder(table.schema, "minmax")
    positions, widths = party_positions(encoder.layout, partition_columns(table.schema, ratio=[1, 1]))
    train, test = (rows_of(frame, encoder, positions, widths) for frame in (table.train, table.test))
    assert train.inputs.dtype == torch.uint8 and sum(widths) == WIDTH and abs(widths[0] - widths[1]) == 1
    whole = {(*row, int(label) - 1) for row, label in zip(bits.tolist(), labels, strict=True)}
    read = [
        (*row, label)
        for part in (train, test)
        for row, label in zip(part.inputs.tolist(), part.labels.tolist(), strict=True)
    ]
    assert set(read) == whole and len(read) == 60

    model = SplitClassifier(SplitSpec(widths, n_classes=100), OptimizerConfig("sgd", 0.1), seed=0)
    before = [parameter.clone() for parameter in model.parameters()]
    trainer = lightning.Trainer(
        max_epochs=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        accelerator="cpu",
    )
    trainer.fit(model, VerticalDataModule(train, test, batch_size=16))
    after = list(model.parameters())
    assert all(parameter.isfinite().all() for parameter in after)
    assert any(not torch.equal(old, new) for old, new in zip(before, after, strict=True))


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("end", [b"\n", b""])
@pytest.mark.parametrize("block", [1, 3, 5, 8])  # 10 lines: one each, a rest of one, none, a rest of two
def test_files_are_read_in_blocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int, end: bytes, packed: bool
) -> None:
    monkeypatch.setattr(texas100, "BLOCK_LINES", block)
    bits, labels = sparse_rows(10, 7)
    write_texas(tmp_path, bits, labels, end, packed)
    assert texas100._read_bits(tmp_path / ("feats.gz" if packed else "feats")).tolist() == bits.tolist()


@pytest.mark.parametrize(
    ("late", "message"),
    [
        (b"0,1,1,0\n", "all equally long"),
        (b"0,1,2\n", "and nothing else"),
        (b"0,1;1\n", "and nothing else"),
        (b"0,1,1\n\n", "all equally long"),
        (b"0,1,1 ", "and nothing else"),
        (b"0,1,", "all equally long"),
    ],
)
def test_a_broken_line_in_a_later_block_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, late: bytes, message: str
) -> None:
    monkeypatch.setattr(texas100, "BLOCK_LINES", 2)
    path = tmp_path / "feats"
    path.write_bytes(b"0,0,1\n" * 5 + late)
    with pytest.raises(DataError, match=message):
        texas100._read_bits(path)


def test_loading_needs_a_few_bytes_per_cell(tmp_path: Path) -> None:
    bits, labels = sparse_rows(8000, 500)
    text = np.full((8000, 1000), ord(","), np.uint8)
    text[:, 0::2], text[:, -1] = bits + ord("0"), ord("\n")
    (tmp_path / "texas100").mkdir()
    (tmp_path / "texas100" / "feats").write_bytes(text.tobytes())
    (tmp_path / "texas100" / "labels").write_text("".join(f"{label}\n" for label in labels))
    tracemalloc.start()
    table = load_dataset("texas100", tmp_path)
    held, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    cells = bits.size
    assert len(table.train) == 6400
    assert held < 1.5 * cells  # one byte each, labels and column names beside them
    assert peak < 3 * cells  # the whole table and its two parts; the text alone would be two more
