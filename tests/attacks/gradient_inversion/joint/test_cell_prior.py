"""Priors of cells."""

from typing import Any

import numpy as np
import pandas as pd
import torch

from lightleak.attacks.gradient_inversion.joint.cell_prior import SUPPORT, CellPrior, ties_of_marginals
from lightleak.attacks.gradient_inversion.tables.row_domain import RowDomain
from lightleak.data.marginals import Marginals


def test_penalties_add_up_over_cells(make_batch: Any) -> None:
    batch = make_batch()
    space = RowDomain.whole(batch.encoder, batch.prior)
    prior = CellPrior.of(space, Marginals.from_dict(batch.update.marginals))
    codes, numbers = space.coordinates(batch.cells)
    expected = 0.0
    for k, share in enumerate(space.prior.shares):
        expected -= float((share / share.sum())[codes[0, k]].log())
    for q, (values, penalties) in enumerate(zip(prior.values, prior.numbers, strict=True)):
        expected += float(penalties[(values - numbers[0, q]).abs().argmin()])
    torch.testing.assert_close(float(prior.penalties(codes, numbers)[0]), expected, atol=1e-3, rtol=0)


def test_values_are_few_ascending_and_their_shares_sum_to_one(make_batch: Any) -> None:
    batch = make_batch()
    space = RowDomain.whole(batch.encoder, batch.prior)
    for marginals in (Marginals.from_dict(batch.update.marginals), None):
        prior = CellPrior.of(space, marginals)
        for values, penalties in zip(prior.values, prior.numbers, strict=True):
            assert len(values) <= SUPPORT and bool((values.diff() >= 0).all())
            torch.testing.assert_close(float((-penalties).exp().sum()), 1.0)


def test_a_value_that_most_rows_have_is_kept_as_it_is(make_batch: Any) -> None:
    batch = make_batch()
    space = RowDomain.whole(batch.encoder, batch.prior)
    prior = CellPrior.of(space, Marginals.from_dict(batch.update.marginals))
    fee = [batch.encoder.schema.numerical[j].name for j in space.free].index("fee")
    commonest = int(prior.numbers[fee].argmin())
    assert float(prior.numbers[fee][commonest]) < 0.3
    torch.testing.assert_close(prior.values[fee][commonest], space.lower[fee])


def test_a_tie_shows_in_equal_shares_and_nowhere_else(make_batch: Any) -> None:
    batch = make_batch()
    schema = batch.encoder.schema
    grade = [column.name for column in schema.categorical].index("grade")
    points = [column.name for column in schema.numerical].index("points")
    codes = np.repeat(np.arange(4), [10, 20, 30, 40])
    frame = pd.DataFrame(batch.encoder.decode(batch.truth.inputs).sample(100, replace=True, random_state=0))
    frame["grade"] = np.take(schema.column("grade").categories, codes)
    frame["points"] = np.asarray([4, 9, 10, 30])[codes]
    found = ties_of_marginals(batch.encoder, Marginals.of(schema, frame))
    assert list(found) == [points]
    assert found[points].column == grade
    assert found[points].values.tolist() == [4, 9, 10, 30]
    frame["points"] = np.roll(frame["points"], 5) + (np.arange(100) == 0)
    assert ties_of_marginals(batch.encoder, Marginals.of(schema, frame)) == {}
