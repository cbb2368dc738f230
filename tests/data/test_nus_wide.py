"""NUS-WIDE from small made files of the official layout: 634 + 1,000 columns."""

from pathlib import Path
from typing import get_args

import numpy as np
import pandas as pd
import pytest
import torch

from lightleak.core.errors import DataError, UsageError
from lightleak.data.datasets import DATASETS, load_dataset
from lightleak.data.datasets.nus_wide import FEATURES, IMAGE_COLUMNS, TEXT_COLUMNS, Concept
from lightleak.data.encoder import TableEncoder
from lightleak.data.partition import partition_columns
from lightleak.data.property import Property
from lightleak.data.table import Table
from lightleak.data.vertical import party_positions

CONCEPTS = get_args(Concept)
N_ROWS = {"Train": 40, "Test": 15}
Parts = dict[str, dict[str, np.ndarray]]


def write_part(root: Path, part: str, content: dict[str, np.ndarray]) -> None:
    for folder in ("Low_Level_Features", "NUS_WID_Tags", "Groundtruth/TrainTestLabels"):
        (root / folder).mkdir(parents=True, exist_ok=True)
    for name in FEATURES:
        lines = "".join(" ".join(f"{value:.6g}" for value in row) + " \n" for row in content[name])  # ends in a blank
        (root / "Low_Level_Features" / f"{part}_Normalized_{name}.dat").write_text(lines)
    tags = "".join("".join(f"{bit}\t" for bit in row) + "\n" for row in content["tags"])  # ends in a tab
    (root / "NUS_WID_Tags" / f"{part}_Tags1k.dat").write_text(tags)
    for concept in CONCEPTS:
        lines = "".join(f"{bit}\n" for bit in content[concept])
        (root / "Groundtruth/TrainTestLabels" / f"Labels_{concept}_{part}.txt").write_text(lines)


@pytest.fixture
def made(tmp_path: Path) -> tuple[Path, Parts]:
    rng, parts = np.random.default_rng(0), {}
    for part, n_rows in N_ROWS.items():
        parts[part] = {name: rng.normal(size=(n_rows, width)).astype(np.float32) for name, width in FEATURES.items()}
        parts[part]["tags"] = (rng.random((n_rows, 1000)) < 0.02).astype(int)
        parts[part] |= {concept: (rng.random(n_rows) < 0.35).astype(int) for concept in CONCEPTS}
        write_part(tmp_path / "nus-wide", part, parts[part])
    return tmp_path, parts


def expected_rows(content: dict[str, np.ndarray], target: str) -> list[tuple[int, str, int]]:
    """Position, class and property of the images that show exactly one of the other concepts."""
    rows = []
    for i in range(len(content["tags"])):
        shown = [concept for concept in CONCEPTS if concept != target and content[concept][i]]
        if len(shown) == 1:
            rows.append((i, shown[0], content[target][i]))
    return rows


def test_features_are_634_and_tags_1000() -> None:
    assert len(IMAGE_COLUMNS) == sum(FEATURES.values()) == 634
    assert len(TEXT_COLUMNS) == 1000


def test_the_card_names_every_file_of_both_parts() -> None:
    card = DATASETS.get("nus-wide").card
    assert len(set(card.files)) == len(card.files) == 2 * (5 + 1 + 5)
    assert card.title and card.license and card.citation and card.urls


@pytest.mark.parametrize("target", ["grass", "animal", "water"])
def test_rows_with_one_class_are_read_in_order(made: tuple[Path, Parts], target: str) -> None:
    root, parts = made
    table = load_dataset("nus-wide", root, property=target)
    assert table.schema.label.categories == tuple(concept for concept in CONCEPTS if concept != target)
    for frame, content in ((table.train, parts["Train"]), (table.test, parts["Test"])):
        rows = expected_rows(content, target)
        at = [i for i, _, _ in rows]
        assert frame["concept"].tolist() == [concept for _, concept, _ in rows]
        assert Property(target, "1").mask(frame).tolist() == [bool(bit) for _, _, bit in rows]
        assert len(set(frame[target])) == 2
        image = np.hstack([content[name] for name in FEATURES])[at]
        np.testing.assert_allclose(frame[list(IMAGE_COLUMNS)].to_numpy(), image, rtol=1e-5)
        assert frame[list(TEXT_COLUMNS)].to_numpy().tolist() == content["tags"][at].tolist()
        assert (frame[list(TEXT_COLUMNS)].dtypes == np.uint8).all()


def test_the_property_is_no_feature_unless_asked_for(made: tuple[Path, Parts]) -> None:
    plain = load_dataset("nus-wide", made[0])
    held = load_dataset("nus-wide", made[0], property_column=True)
    assert plain.schema.names == (*IMAGE_COLUMNS, *TEXT_COLUMNS)
    assert held.schema.names == (*plain.schema.names, "grass")
    pd.testing.assert_frame_equal(plain.train, held.train)
    with pytest.raises(UsageError, match="no column 'grass'"):
        Property("grass", "1").check(plain.schema)
    Property("grass", "1").check(held.schema)


def test_image_and_text_go_to_two_parties(made: tuple[Path, Parts]) -> None:
    table: Table = load_dataset("nus-wide", made[0])
    encoder = TableEncoder(table.schema, "onehot").fit(table.train)
    parties = partition_columns(table.schema, explicit=[IMAGE_COLUMNS, TEXT_COLUMNS])
    positions, widths = party_positions(encoder.layout, parties)
    assert widths == (634, 1000)
    encoded = encoder.encode(table.train)[:, positions]
    assert encoded.shape == (len(table.train), 1634) and bool(torch.isfinite(encoded).all())
    lower, upper = encoder.encoded_bounds()
    inside = (encoded >= lower[positions] - 1e-4) & (encoded <= upper[positions] + 1e-4)
    assert bool(inside.all())
    for frame in (table.train, table.test):  # bounds cover both parts
        column = table.schema.column("CH_0")
        assert column.lower is not None and column.upper is not None
        assert column.lower <= frame["CH_0"].min() and frame["CH_0"].max() <= column.upper


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("NUS_WID_Tags/Test_Tags1k.dat", "0\t1\n", "must have 1000 numbers per line, got 2"),
        ("NUS_WID_Tags/Test_Tags1k.dat", "0\t" * 999 + "2\n", "must have 15 lines, one per image, got 1"),
        ("NUS_WID_Tags/Test_Tags1k.dat", ("0\t" * 999 + "2\n") * 15, "must hold 0 and 1 only"),
        ("Low_Level_Features/Train_Normalized_EDH.dat", ("0 " * 72 + "inf\n") * 40, "must hold finite numbers only"),
        ("Low_Level_Features/Train_Normalized_EDH.dat", ("0 " * 72 + "word\n") * 40, "cannot be read: ValueError"),
        ("Low_Level_Features/Train_Normalized_EDH.dat", ("0 " * 72 + "1\n") * 39, "must have 40 lines"),
        ("Groundtruth/TrainTestLabels/Labels_animal_Train.txt", "1\n" * 39, "must have 40 lines"),
        ("Groundtruth/TrainTestLabels/Labels_animal_Train.txt", "3\n" * 40, "must hold 0 and 1 only"),
        ("Groundtruth/TrainTestLabels/Labels_animal_Train.txt", "", "cannot be read: it is empty"),
    ],
)
def test_other_files_are_refused(made: tuple[Path, Parts], file: str, content: str, message: str) -> None:
    (made[0] / "nus-wide" / file).write_text(content)
    with pytest.raises(DataError, match=message) as error:
        load_dataset("nus-wide", made[0])
    assert file.rsplit("/", 1)[1] in str(error.value)


def test_a_part_without_a_single_class_is_refused(made: tuple[Path, Parts]) -> None:
    for concept in ("animal", "water"):
        path = made[0] / "nus-wide/Groundtruth/TrainTestLabels" / f"Labels_{concept}_Train.txt"
        path.write_text("1\n" * 40)
    with pytest.raises(DataError, match="no image of the Train part shows exactly one of buildings, animal, water"):
        load_dataset("nus-wide", made[0])


def test_another_concept_is_refused(made: tuple[Path, Parts]) -> None:
    with pytest.raises(UsageError, match="'property' of dataset 'nus-wide' must be one of 'buildings', 'grass'"):
        load_dataset("nus-wide", made[0], property="sky")
    with pytest.raises(DataError, match=r"Labels_grass_Train\.txt.*lightleak data prepare nus-wide"):
        load_dataset("nus-wide", made[0] / "elsewhere")
