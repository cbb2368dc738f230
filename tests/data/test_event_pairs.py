"""Distinct pairs of a unit and an item, read from a large file in chunks."""

import tracemalloc
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from lightleak.core.errors import DataError
from lightleak.data import event_pairs
from lightleak.data.event_pairs import EventPairs, read_event_pairs

UNITS = pd.Index([300, 100, 200, 400])


def write_events(path: Path, n: int, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "note": ['a "quoted", note\nof two lines'] * n,
            "stay": rng.choice([100, 200, 300, 999, np.nan], n),
            "item": rng.choice(["aspirin", "heparin ", "7", "insulin, regular", None], n),
            "flag": rng.choice(["abnormal", None], n),
        }
    )
    frame.to_csv(path, index=False)
    return frame


def pairs_of(found: EventPairs) -> set[tuple[int, str]]:
    return {(UNITS[unit], found.names[item]) for unit, item in zip(found.units, found.items, strict=True)}


@pytest.mark.parametrize("chunk", [1, 7, 10_000])
@pytest.mark.parametrize("packed", [".csv", ".csv.gz"])
@pytest.mark.parametrize("only", [None, ("flag", "abnormal")])
def test_each_pair_is_found_once_whatever_the_chunks(tmp_path, monkeypatch, chunk, packed, only) -> None:
    frame = write_events(tmp_path / f"events{packed}", 60)
    monkeypatch.setattr(event_pairs, "CHUNK_ROWS", chunk)
    found = read_event_pairs(tmp_path / f"events{packed}", UNITS, "stay", "item", only)
    kept = frame if only is None else frame[frame["flag"] == "abnormal"]
    expected = {
        (int(stay), item.strip())
        for stay, item in zip(kept["stay"], kept["item"], strict=True)
        if item is not None and stay in (100, 200, 300)
    }
    assert pairs_of(found) == expected and len(found.units) == len(expected)
    assert found.items_per_unit.tolist() == [sum(u == unit for u, _ in expected) for unit in UNITS]


def test_the_most_frequent_items_are_those_of_most_units() -> None:
    # a: units 0 and 1; b: all; c: 2; d: 0 and 3
    found = EventPairs(np.array([0, 1, 0, 1, 2, 3, 2, 0, 3]), np.array([0, 0, 1, 1, 1, 1, 2, 3, 3]), tuple("abcd"), 4)
    every = {"a": [1, 1, 0, 0], "b": [1, 1, 1, 1], "c": [0, 0, 1, 0], "d": [1, 0, 0, 1]}
    for k, names in ((None, "abcd"), (9, "abcd"), (2, "ab"), (1, "b"), (0, "")):
        assert {name: bits.tolist() for name, bits in found.most_frequent(k).items()} == {n: every[n] for n in names}


def test_numbers_are_the_same_items_in_every_chunk(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(event_pairs, "CHUNK_ROWS", 2)
    path = tmp_path / "labs.csv"
    path.write_text("stay,item\n100,51221\n100,51222\n100,51221\n100,\n200,51221\n200,x\n")
    found = read_event_pairs(path, UNITS, "stay", "item")
    assert pairs_of(found) == {(100, "51221"), (100, "51222"), (200, "51221"), (200, "x")}


def test_memory_holds_a_chunk_and_not_the_file(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(event_pairs, "CHUNK_ROWS", 2000)

    def peak(n: int) -> int:
        path = tmp_path / f"{n}.csv"
        write_events(path, n)
        tracemalloc.start()
        read_event_pairs(path, UNITS, "stay", "item")
        _, highest = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return highest

    assert peak(100_000) < 1.3 * peak(20_000)  # a parser's blocks of 256 KiB are in both


def test_a_missing_column_is_named(tmp_path) -> None:
    write_events(tmp_path / "events.csv", 3)
    with pytest.raises(DataError, match=r"events.csv cannot be read: .*\['drug'\]"):
        read_event_pairs(tmp_path / "events.csv", UNITS, "stay", "drug")
