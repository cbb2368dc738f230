"""Generator space that is the target's input space."""

from typing import get_args

import numpy as np
import pandas as pd
import pytest
import torch

from lightleak.attacks.model_inversion.shared_transform import SharedTransform
from lightleak.core.errors import DataError
from lightleak.data.encoder import Encoding, TableEncoder
from lightleak.data.schema import Column, TableSchema

SCHEMA = TableSchema(
    (
        Column.integer("age"),
        Column.categorical("color", ["red", "green", "blue"]),
        Column.continuous("income", 0.0, 100.0),
        Column.categorical("sex", ["F", "M"]),
    ),
    label=Column.categorical("ill", ["no", "yes"]),
)
ENCODINGS = get_args(Encoding)


def rows(n: int = 200, oldest: int = 90) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "age": rng.integers(18, oldest, n),
            "color": rng.choice(["red", "green", "blue"], n, p=[0.9, 0.09, 0.01]),
            "income": rng.uniform(1, 60, n),
            "sex": rng.choice(["F", "M"], n),
        }
    )


def shared(encoding: Encoding) -> SharedTransform:
    return SharedTransform(TableEncoder(SCHEMA, encoding).fit(rows()))


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_rows_are_the_encoders_and_come_back(encoding: Encoding) -> None:
    transform, frame = shared(encoding), rows()
    h = transform.encode(frame)
    assert torch.equal(h, transform.encoder.encode(frame))
    back = transform.decode(h)
    for name in ("age", "color", "sex"):
        assert back[name].tolist() == frame[name].tolist()
    np.testing.assert_allclose(back["income"], frame["income"], atol=1e-4)


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_public_numbers_beyond_the_bounds_become_the_bound(encoding: Encoding) -> None:
    transform, frame = shared(encoding), rows().assign(income=200.0)
    frame.loc[0, "age"], frame.loc[1, "age"] = 1, 140
    h = transform.encode(frame)
    low, high = (bound.float() for bound in transform.encoder.encoded_bounds())
    assert (h >= low).all() and (h <= high).all()
    back = transform.decode(h)
    assert back["age"].tolist() == frame["age"].clip(rows()["age"].min(), rows()["age"].max()).tolist()
    np.testing.assert_allclose(back["income"], 100.0, atol=1e-4)


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_the_head_reaches_every_row_and_nothing_else(encoding: Encoding) -> None:
    transform, frame = shared(encoding), rows()
    h = transform.encode(frame)
    low, high = (bound.float() for bound in transform.encoder.encoded_bounds())
    unit = ((h - low) / (high - low)).clamp(0, 1)
    raw = torch.logit(unit)  # infinite at the ends; a softmax takes the logarithm of shares instead
    soft = transform.segments.positions("softmax")
    raw[:, soft] = unit[:, soft].log().clamp_min(-1e4)
    torch.testing.assert_close(transform.segments.activate(raw, tau=1.0), h, rtol=1e-5, atol=1e-5)
    assert torch.equal(transform.segments.activate(raw, tau=1.0)[:, soft], h[:, soft])
    reached = transform.segments.activate(20 * torch.randn(500, transform.width))
    assert (reached >= low).all() and (reached <= high).all()


def test_project_is_the_encoders() -> None:
    transform = shared("onehot")
    h = transform.segments.activate(torch.randn(3, 4, transform.width))
    for ours, theirs in zip(transform.project(h), transform.encoder.project(h), strict=True):
        assert torch.equal(ours, theirs)
    with pytest.raises(DataError, match="width 7, got shape \\(2, 3\\)"):
        transform.project(torch.zeros(2, 3))


def test_an_encoder_without_statistics_is_refused() -> None:
    with pytest.raises(DataError, match="call fit"):
        SharedTransform(TableEncoder(SCHEMA, "onehot"))
