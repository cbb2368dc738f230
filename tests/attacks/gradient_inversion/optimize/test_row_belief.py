"""The prior of rows: where it lets candidates start, and what it adds to a loss."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from lightleak.attacks.gradient_inversion.config import InversionConfig
from lightleak.attacks.gradient_inversion.optimize.priors import LEAST_SHARE, BelievedMatcher, RowBelief
from lightleak.attacks.gradient_inversion.tables.codec import TableCodec
from lightleak.attacks.gradient_inversion.tables.row_prior import RowPrior
from lightleak.core.observations import ClientUpdate
from lightleak.data.encoder import Encoding, TableEncoder
from lightleak.data.relaxation import Relaxation
from lightleak.data.table import Table

MakeUpdate = Callable[..., tuple[ClientUpdate, object]]
CPU, DOUBLE = torch.device("cpu"), torch.float64


class Bowl:
    """A matcher whose loss is the squared distance to nothing; it notes the share it stands at."""

    share = -1.0

    def at(self, share: float) -> "Bowl":
        other = Bowl()
        other.share = share
        return other

    def value_and_grad(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return x.square().sum((-1, -2)), 2 * x


@pytest.fixture
def pairs(make_update: MakeUpdate) -> list[ClientUpdate]:
    """Two updates, the second without marginals."""
    first, second = (make_update(4, seed=seed, hidden=[9, 8])[0] for seed in range(2))
    return [first, replace(second, marginals=None)]


def relaxation(encoder: TableEncoder, **settings: object) -> Relaxation:
    """What an attack with these settings relaxes by."""
    return TableCodec(encoder).relaxation(InversionConfig(initialization="prior", **settings), DOUBLE, CPU)


@pytest.mark.parametrize("encoding", ["standardized", "onehot", "minmax"])
@pytest.mark.parametrize("numerical", ["sigmoid", "clamp", "none"])
def test_a_start_lies_about_the_prior(
    table: Table, pairs: list[ClientUpdate], encoding: Encoding, numerical: str
) -> None:
    encoder = TableEncoder(table.schema, encoding).fit(table.train)
    belief = RowBelief.of(pairs, encoder, CPU, DOUBLE)
    prior = RowPrior.of(pairs[0], encoder)
    noise = torch.randn(2, 1, 2000, encoder.width, dtype=DOUBLE, generator=torch.Generator().manual_seed(0))
    relax = relaxation(encoder, numerical=numerical)
    z = belief.start(noise, relax)
    for block, share in zip(encoder.layout.categorical, prior.shares, strict=True):
        logit = 0.5 * share.clamp_min(LEAST_SHARE).log() + noise[0, ..., block.slice]
        torch.testing.assert_close(z[0, ..., block.slice], logit)  # whatever the encoding's scale
    at = encoder.numerical_positions
    values = (relax(z) * encoder.scale + encoder.shift)[..., at]
    assert (values >= encoder.lower - 1e-9).all() and (values <= encoder.upper + 1e-9).all()
    skewed = encoder.lower > prior.mean - 0.5 * prior.deviation
    near = torch.where(skewed, encoder.lower, prior.mean)
    assert ((values[0, 0].median(0).values - near).abs() < 0.1 * prior.deviation).all()


def test_skewed_numbers_start_at_their_bound(make_update: MakeUpdate, encoder: TableEncoder) -> None:
    update, _ = make_update(4, hidden=[9, 8])
    marginals = {name: [list(values), list(p)] for name, (values, p) in update.marginals.items()}
    column = encoder.schema.numerical[0].name
    low = float(encoder.lower[0])
    marginals[column] = [[low, low + 100 * float(encoder.deviation[0])], [0.99, 0.01]]
    belief = RowBelief.of([replace(update, marginals=marginals)], encoder, CPU, DOUBLE)
    z = belief.start(torch.randn(1, 2, 50, encoder.width, dtype=DOUBLE), relaxation(encoder, numerical="clamp"))
    at = encoder.numerical_positions[0]
    x = relaxation(encoder, numerical="clamp")(z)[..., at]
    distance = (x * encoder.scale[at] + encoder.shift[at] - low) / RowPrior.of(
        replace(update, marginals=marginals), encoder
    ).deviation[0]
    assert (distance >= 0).all() and distance.mean() < 0.1
    assert belief.skewed[..., at].all()


def test_the_penalty_is_the_cross_entropy_and_half_the_squared_deviation(
    encoder: TableEncoder, pairs: list[ClientUpdate]
) -> None:
    belief = RowBelief.of(pairs, encoder, CPU, DOUBLE)
    z = torch.randn(2, 3, 5, encoder.width, dtype=DOUBLE)
    x = encoder.relax(z).requires_grad_()
    value, derivative = belief.penalty(x.detach())
    expected = []
    for u, update in enumerate(pairs):
        prior, raw = RowPrior.of(update, encoder), x[u] * encoder.scale + encoder.shift
        total = 0.5 * ((raw[..., encoder.numerical_positions] - prior.mean) / prior.deviation).square().sum((-1, -2))
        for block, share in zip(encoder.layout.categorical, prior.shares, strict=True):
            total = total - (raw[..., block.slice] * share.clamp_min(LEAST_SHARE).log()).sum((-1, -2))
        expected.append(total)
    torch.testing.assert_close(value, torch.stack(expected).detach())
    torch.testing.assert_close(derivative, torch.autograd.grad(torch.stack(expected).sum(), x)[0])


def test_a_believed_matcher_adds_the_weighted_penalty_and_passes_on_the_share(
    encoder: TableEncoder, pairs: list[ClientUpdate]
) -> None:
    belief = RowBelief.of(pairs, encoder, CPU, DOUBLE)
    x = torch.randn(2, 3, 5, encoder.width, dtype=DOUBLE)
    matcher = BelievedMatcher(Bowl(), belief, 0.3)
    value, derivative = matcher.value_and_grad(x)
    penalty, by_penalty = belief.penalty(x)
    torch.testing.assert_close(value, x.square().sum((-1, -2)) + 0.3 * penalty)
    torch.testing.assert_close(derivative, 2 * x + 0.3 * by_penalty)
    assert matcher.at(0.4).matcher.share == 0.4 and matcher.matcher.share == -1
