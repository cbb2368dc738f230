"""What a config names: whose rows the statistics that the server knows are counted on."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from lightleak.core.errors import ObservationError
from lightleak.data.assembly import cut_table
from lightleak.data.encoder import TableEncoder
from lightleak.data.schema import Column, TableSchema
from lightleak.data.table import DatasetCard
from lightleak.experiments.clients import FreshClients
from lightleak.experiments.config import DataConfig
from lightleak.experiments.experiment import fitted_encoder, load_source, prepare_experiment
from lightleak.experiments.kinds.updates.plan import load_capture, load_own_capture

CARD = DatasetCard("made", "Made", (), (), "none", "none")


@pytest.mark.parametrize(("source", "attacked"), [("train", True), ("all", True), ("test", False)])
def test_the_observation_says_whether_attacked_rows_were_counted(tiny: Any, source: str, attacked: bool) -> None:
    experiment = prepare_experiment(tiny(data__statistics=source))
    update, _ = FreshClients(experiment.population, experiment.spec, 0, share_labels=True).observe(4, 0)
    encoder = TableEncoder.from_state(update.encoder, update.encoder_tensors)
    assert encoder.includes_attacked is attacked


def test_statistics_and_bounds_of_test_rows_know_nothing_of_the_training_rows(tiny: Any) -> None:
    config = tiny(data__statistics="test")
    encoder, table = prepare_experiment(config).encoder, load_source(config.data, config.seed)
    names = [column.name for column in table.schema.numerical]
    assert set(names) <= set(table.seen_bounds)
    assert all(column.lower is None and column.upper is None for column in encoder.schema.numerical)
    assert encoder.lower.tolist() == table.test[names].min().tolist()
    assert encoder.upper.tolist() == table.test[names].max().tolist()
    alone = TableEncoder(encoder.schema).fit(table.test)
    assert torch.equal(alone.shift, encoder.shift) and torch.equal(alone.scale, encoder.scale)
    whole = prepare_experiment(tiny()).encoder
    assert (whole.lower <= encoder.lower).all() and (whole.upper >= encoder.upper).all()
    assert not torch.equal(whole.shift, encoder.shift)
    encoder.encode(table.train)  # also of rows beyond these bounds


def test_declared_bounds_are_kept() -> None:
    columns = (Column.integer("age", 0, 120), Column.integer("dose"))
    schema = TableSchema(columns, Column.categorical("ill", ["0", "1"]))
    rows = pd.DataFrame({"age": [20, 30, 40, 50], "dose": [1, 9, 4, 5], "ill": ["0", "1", "0", "1"]})
    table = cut_table(CARD, schema, rows, np.asarray([0, 1]), np.asarray([2, 3]))
    assert table.seen_bounds == ("dose",)
    encoder = fitted_encoder(DataConfig(name="made", statistics="test"), table)
    assert (encoder.lower.tolist(), encoder.upper.tolist()) == ([0, 4], [120, 5])


def test_rows_of_a_training_may_lie_beyond_the_bounds_that_the_server_assumes(
    tmp_path: Path, save_captures: Callable[..., list[Path]]
) -> None:
    (folder,) = save_captures(tmp_path, sizes=(60,), data__statistics="test")
    _, truth = load_own_capture(folder)
    assert truth is not None and len(truth.inputs) == 60
    with pytest.raises(ObservationError, match=r"of 60 rows hold numbers in column '\w+' beyond the bounds"):
        load_capture(folder)
