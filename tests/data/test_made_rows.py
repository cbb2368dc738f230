"""Made rows have the columns of a table whose files cannot be passed on, and say that they are made."""

import numpy as np
import pytest

from lightleak.core.errors import UsageError
from lightleak.data.datasets import load_dataset, made
from lightleak.data.encoder import TableEncoder


def test_health_heritage_has_the_papers_columns() -> None:
    table = load_dataset("health-heritage", made=2000)
    assert table.card.title == "Heritage Health Prize: made rows"
    assert (len(table.train), len(table.test)) == (1600, 400)
    assert TableEncoder(table.schema).fit(table.train).width == 110  # TabLeak, Table 8
    shares = table.train[table.schema.label.name].value_counts(normalize=True)
    assert shares.min() > 0.4
    assert load_dataset("health-heritage", made=2000).train.equals(table.train)


def test_texas_has_bits_with_the_papers_shares() -> None:
    table = load_dataset("texas100", made=500)
    assert table.train.shape == (400, 6170) and table.card.title.endswith("made rows")
    features = table.train.drop(columns="procedure")
    assert features.to_numpy().dtype == np.uint8 and features.to_numpy().max() == 1
    for share in (0.5508, 0.7548):  # ProVFL, Table IV
        assert (features.mean() - share).abs().min() < 0.01
    assert table.train["procedure"].nunique() > 50


def test_rows_do_not_depend_on_how_many_columns_are_added_up_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    table = load_dataset("health-heritage", made=2000)
    monkeypatch.setattr(made, "BLOCK_COLUMNS", 7)
    assert load_dataset("health-heritage", made=2000).train.equals(table.train)


def test_few_rows_are_refused() -> None:
    with pytest.raises(UsageError, match="option 'made' of dataset 'texas100' must be 0 or at least 10 rows, got 3"):
        load_dataset("texas100", made=3)
