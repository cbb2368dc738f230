"""The YAML file of a dataset becomes its card, downloads, schema and codes."""

from pathlib import Path

import pytest

from lightleak.data.datasets import DATASETS, Download, description
from lightleak.data.datasets.description import describe
from lightleak.data.schema import Column

TEXT = """
title: Made
license: none
citation: nobody
downloads:
- {url: https://example.org/a.zip, file: a.zip, members: [a.csv]}
- {url: https://example.org/b.csv, file: b.csv}
columns:
- {name: age, kind: integer, lower: 0, upper: 120}
- {name: job, codes: {1: none, 2: no}}
- {name: area, categories: [007, no], missing: category}
label: {name: ill, categories: [no, yes]}
sensitive: [job]
"""


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> description.Description:
    (tmp_path / "made_up.yaml").write_text(TEXT)
    monkeypatch.setattr(description, "__file__", str(tmp_path / "description.py"))
    return describe("made-up")


def test_addresses_and_files_are_those_of_the_downloads(made: description.Description) -> None:
    assert made.card.name == "made-up" and made.card.title == "Made"
    assert made.card.files == ("a.csv", "b.csv")
    assert made.card.urls == ("https://example.org/a.zip", "https://example.org/b.csv")
    assert made.downloads[0] == Download("https://example.org/a.zip", "a.zip", ("a.csv",))


def test_columns_are_categorical_unless_they_say_otherwise_and_words_stay_words(made: description.Description) -> None:
    assert made.schema.columns == (
        Column.integer("age", 0, 120),
        Column.categorical("job", ["none", "no"]),
        Column.categorical("area", ["007", "no"], "category"),
    )
    assert made.schema.label == Column.categorical("ill", ["no", "yes"])
    assert made.schema.sensitive == ("job",)
    assert made.codes == {"job": {"1": "none", "2": "no"}}


def test_every_bundled_file_describes_a_dataset() -> None:
    folder = Path(description.__file__).parent
    assert {path.stem for path in folder.glob("*.yaml")} == {name.replace("-", "_") for name in DATASETS}
    assert all(DATASETS.get(name).card == describe(name).card for name in DATASETS)
