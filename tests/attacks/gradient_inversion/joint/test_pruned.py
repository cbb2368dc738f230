"""Joint inversion of pruned updates: what was sent is exact, what was left out lies between bounds."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from lightleak.attacks.attack import ATTACKS
from lightleak.attacks.gradient_inversion.exact.certify.inexact_proof import fit_under_error
from lightleak.attacks.gradient_inversion.joint import interval_course
from lightleak.attacks.gradient_inversion.joint import pruned as module
from lightleak.attacks.gradient_inversion.joint.attack import JointInversion
from lightleak.attacks.gradient_inversion.joint.config import JointConfig
from lightleak.attacks.gradient_inversion.joint.course import Solution
from lightleak.attacks.gradient_inversion.joint.problem import JointProblem, JointRows
from lightleak.attacks.gradient_inversion.joint.pruned import Pruned, PrunedConfig, PrunedInversion
from lightleak.attacks.gradient_inversion.network.chain import ReLUChain, observed_gradient
from lightleak.attacks.gradient_inversion.tables.row_domain import RowDomain
from lightleak.attacks.gradient_inversion.tables.row_prior import RowPrior
from lightleak.core.errors import ObservationError, UsageError
from lightleak.core.observations import ClientUpdate
from lightleak.core.reconstruction import Reconstruction
from lightleak.core.seeds import generator
from lightleak.data.encoder import TableEncoder
from lightleak.data.schema import Column, TableSchema
from lightleak.defenses.horizontal.sparsification import GradientCompression, RandomPruning

WORK = {"restarts": 3, "steps": 1000, "rounds": 1, "round_steps": 100}
UNAWARE = {"noised_restarts": 1, "noised_steps": 80, "noised_rounds": 0}


def pruned(update: ClientUpdate, defense: GradientCompression | RandomPruning) -> ClientUpdate:
    return replace(update, update=defense.apply(update.update, generator(0, "pruning")), state="noised")


def right(found: Reconstruction, batch: Any) -> float:
    """Mean over true rows of the share of categories that the most similar row found has."""
    codes, _ = batch.encoder.project(found.encoded.double())
    return float((codes == batch.cells[0].unsqueeze(1)).double().mean(-1).amax(1).mean())


def test_more_is_recovered_by_who_knows_what_was_left_out(make_batch: Any) -> None:
    batch = make_batch(n=8, hidden=(30, 30))
    sent = pruned(batch.update, GradientCompression(keep=0.2))
    unaware = JointInversion(JointConfig(**UNAWARE)).run(sent, seed=0)
    aware = PrunedInversion(PrunedConfig(**WORK)).run(sent, seed=0)
    assert right(aware, batch) > max(right(unaware, batch), 0.9)
    assert aware.certificate.certified == 0 and aware.attack == "exact_pruned"


def test_bounds_of_what_was_left_out_hold_and_what_was_sent_stays(make_batch: Any) -> None:
    batch = make_batch(n=6, hidden=(40, 40))
    whole = observed_gradient(batch.update)
    sent = observed_gradient(pruned(batch.update, GradientCompression(keep=0.3)))
    found = Pruned.of(sent, "smallest")
    filled = found.filled(whole)
    assert all(torch.equal(one, true) for one, true in zip(filled, whole, strict=True))
    far = found.filled(tuple(1e3 * torch.ones_like(layer) for layer in whole))
    for layer, one in zip(sent, far, strict=True):
        out = layer == 0
        assert torch.equal(one[~out], layer[~out])
        for part in (slice(None, -1), slice(-1, None)):  # weights and biases are pruned each on their own
            smallest = layer[:, part][~out[:, part]].abs().min()
            assert (one[:, part][out[:, part]] == smallest).all()
    left = sum(float((t - s).square().sum()) for t, s in zip(whole, sent, strict=True))
    assert sum(float(layer.sum()) for layer in found.variance) ** 0.5 == pytest.approx(left**0.5, rel=0.6)


def test_elements_left_out_at_random_may_be_as_large_as_any_sent(make_batch: Any) -> None:
    batch = make_batch(n=4, hidden=(40, 40))
    sent = pruned(batch.update, RandomPruning(probability=0.3))
    found = Pruned.of(observed_gradient(sent), "any")
    far = found.filled(tuple(1e3 * torch.ones_like(layer) for layer in found.sent))
    assert all((one[layer == 0] == 1e3).all() for one, layer in zip(far, found.sent, strict=True))
    aware = PrunedInversion(PrunedConfig(left_out="any", **WORK)).run(sent, seed=0)
    assert right(aware, batch) > 0.9


def test_what_was_cut_off_is_at_least_as_large_and_what_was_not_sent_is_open(make_batch: Any) -> None:
    whole = observed_gradient(make_batch(n=6, hidden=(40, 40)).update)
    cut = [layer.clamp(-1e-3, 1e-3) for layer in whole]
    cut[1][:, -1] = 0  # no biases of the second layer
    found = Pruned.of(tuple(cut), "smallest")
    filled = found.filled(whole)
    assert all(torch.equal(one, true) for one, true in zip(filled, whole, strict=True))
    none = found.filled(tuple(torch.zeros_like(layer) for layer in whole))
    assert all(torch.equal(one, layer) for one, layer in zip(none, cut, strict=True))
    alone = Pruned.of(whole, "smallest")  # the largest element may have been cut off, all others were not
    assert sum(int(each.sum()) for each in alone.open) <= 2


@pytest.mark.parametrize("seed", [0, 1])
def test_what_was_not_sent_follows_and_rows_are_proven_by_what_was(make_batch: Any, cut_off: Any, seed: int) -> None:
    batch = make_batch(n=6, hidden=(40, 40), seed=seed)
    whole, update = observed_gradient(batch.update), cut_off(batch.update)
    sent = Pruned.of(observed_gradient(update), "smallest")
    found = sent.completed(6, batch.encoder)
    missing, before = ((one.sent[1] - whole[1]).abs().max() for one in (found, sent))
    assert found.follows and not found.open[1].any() and float(missing) < 0.01 * float(before)
    rows = PrunedInversion(PrunedConfig(**WORK)).run(update, seed=0)
    assert rows.certificate.certified == 6 and right(rows, batch) == 1
    assert (rows.uncertainty[[c.name for c in batch.encoder.schema.categorical]] == 0).all(axis=None)


@pytest.mark.parametrize("shift", [0.0, 0.3])
def test_rows_that_stand_out_are_proven_whatever_the_others_numbers(
    make_batch: Any, cut_off: Any, monkeypatch: pytest.MonkeyPatch, shift: float
) -> None:
    batch = make_batch(n=6, hidden=(40, 40))
    visible, within, asked = module.rows_that_stand_out, module.solve_within, []

    def all_but_one(*arguments: Any) -> JointRows:
        rows = visible(*arguments)
        return JointRows(rows.codes[:5], rows.numbers[:5], rows.labels[:5])

    def shifted(problem: JointProblem, *arguments: Any) -> Solution:
        found = within(problem, *arguments)
        asked.append((problem.n_rows, arguments[2].restarts))
        return replace(found, rows=replace(found.rows, numbers=found.rows.numbers + shift))

    monkeypatch.setattr(module, "rows_that_stand_out", all_but_one)
    monkeypatch.setattr(module, "solve_within", shifted)
    monkeypatch.setattr(module, "_refit", lambda pruned, problem, rows: (problem, rows))
    rows = PrunedInversion(PrunedConfig(**WORK)).run(cut_off(batch.update), seed=0)
    assert asked == [(1, 4 * WORK["restarts"])] and right(rows, batch) == 1
    assert rows.certificate.certified >= 5


def proven(sent: Pruned, chain: ReLUChain, space: RowDomain, x: torch.Tensor, labels: torch.Tensor) -> list[bool]:
    found = fit_under_error([chain], [sent.sent], space, x, labels, [sent.error_variances])
    return [False] * len(x) if found is None else found.proof.cells.tolist()


def test_rows_are_proven_by_what_was_sent_and_by_nothing_that_is_open(make_batch: Any, cut_off: Any) -> None:
    batch = make_batch(n=6, hidden=(40, 40))
    space, labels = RowDomain.whole(batch.encoder, batch.prior), batch.truth.labels
    sent = Pruned.of(observed_gradient(cut_off(batch.update, high=1.0)), "smallest")
    assert all(proven(sent, batch.chain, space, batch.x, labels))
    is_open = (torch.ones_like(sent.open[0]), *sent.open[1:])
    assert not any(proven(replace(sent, open=is_open), batch.chain, space, batch.x, labels))


def test_a_wrong_row_whose_other_elements_were_left_out_is_not_proven() -> None:
    """What is left out of a column may have one row's sign in all its units, which no independent error has.

    Two rows, whose errors nearly cancel in 100 of 110 units. The network does not distinguish the first two categories
    of the first column, which the rows have one each: without the first row's category, less is left out.
    """
    names = list("abcde")
    columns = (*(Column.categorical(f"c{i}", names) for i in range(4)), Column.continuous("num"))
    schema, rng = TableSchema(columns, Column.categorical("y", ["0", "1"])), np.random.default_rng(0)
    cells = {f"c{i}": rng.choice(names, 400) for i in range(4)}
    frame = pd.DataFrame(cells | {"num": rng.normal(size=400), "y": rng.choice(["0", "1"], 400)})
    encoder = TableEncoder(schema, encoding="onehot").fit(frame)
    rows = pd.DataFrame({"c0": ["b", "a"], "c1": "c", "c2": "d", "c3": "a", "num": [-1.0, 1.0], "y": ["0", "1"]})
    x, labels, draws = encoder.encode(rows).double(), encoder.encode_labels(rows), generator(0, "network")
    first, number = encoder.layout.categorical[0].start, encoder.numerical_positions[0]
    weight = 0.1 * torch.randn(110, x.shape[1], generator=draws, dtype=torch.float64)
    weight[:, first] = weight[:, first + 1]
    weight[100:, number], bias = 5.0, torch.cat([torch.ones(100), torch.full((10,), 0.5)]).double()
    signs = torch.randn(100, generator=draws, dtype=torch.float64).sign()
    small = 0.02 * (1 + 0.02 * torch.rand(100, generator=draws, dtype=torch.float64)) * signs
    last = torch.cat([small, 0.02 * torch.tensor([1.35, -1.4, 5, -5, 6, -6, 7, -7, 8, -8]).double()])
    hidden = (x @ weight.T + bias).relu()
    shift = -(hidden[0] @ last)
    last[-1] += (math.log(0.55 / 0.45) - hidden[1] @ last - shift) / hidden[1, -1]
    halves = torch.tensor([-0.5, 0.5]).double()
    chain = ReLUChain((weight, halves.unsqueeze(1) * last), (bias, halves * shift))
    whole = tuple(layer.float().double() for layer in chain.gradient(x, torch.eye(2).double()[labels], 2))
    cut = 1.001 * float(whole[0][:100, first + 1].abs().max())
    sent = Pruned.of(tuple(layer.masked_fill(layer.abs() < cut, 0.0) for layer in whole), "smallest")
    prior = RowPrior((torch.full((5,), 0.2).double(),) * 4, torch.zeros(1).double(), torch.ones(1).double(), "schema")
    space, wrong = RowDomain.whole(encoder, prior), encoder.encode(rows.assign(c0="a")).double()
    assert not proven(sent, chain, space, wrong, labels)[0]
    independent = tuple(v + 1e-12 for v in sent.variance)
    found = fit_under_error([chain], [sent.sent], space, wrong, labels, [independent])
    assert found is not None and found.proof.cells[0]  # so it would be


def test_a_layer_of_which_nothing_is_sent_is_refused_no_row(make_batch: Any) -> None:
    update = make_batch(n=3).update
    changed = {name: value * (not name.startswith("linears.0")) for name, value in update.update.items()}
    found = PrunedInversion(PrunedConfig(**WORK)).run(replace(update, update=changed, state="noised"), seed=0)
    assert len(found.encoded) == 3 and found.certificate.certified == 0


def test_more_is_recovered_by_who_knows_that_no_biases_are_sent(make_batch: Any) -> None:
    batch = make_batch(n=6, hidden=(30, 30))
    changed = {name: value * (not name.endswith("bias")) for name, value in batch.update.update.items()}
    sent = replace(batch.update, update=changed, state="noised")
    aware = PrunedInversion(PrunedConfig(**WORK)).run(sent, seed=0)
    unaware = JointInversion(JointConfig(noise=1e-3, **UNAWARE)).run(sent, seed=0)
    assert right(aware, batch) > max(right(unaware, batch), 0.9)


def test_bounds_of_other_rows_hold_their_gradient(make_batch: Any) -> None:
    batch = make_batch(n=4, hidden=(30, 30))
    labels = torch.eye(2).double()[batch.truth.labels]
    sent = Pruned.of(observed_gradient(pruned(batch.update, GradientCompression(keep=0.5))), "smallest")
    known = batch.chain.gradient(batch.x[:1].double(), labels[:1], 4)  # a row's part of the mean over four
    low, high = sent.bounds_beside(known, 3 / 4)
    others = batch.chain.gradient(batch.x[1:].double(), labels[1:], 3)
    for own, least, most in zip(others, low, high, strict=True):
        assert bool((own >= least - 1e-6).all() and (own <= most + 1e-6).all())


def test_the_guess_is_returned_where_starts_agree_less_unless_rows_explain_what_was_sent(
    make_batch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = make_batch(n=6, hidden=(30, 30))
    monkeypatch.setattr(interval_course, "is_guess_better", lambda *_: True)
    little = pruned(batch.update, GradientCompression(keep=0.02))
    found = PrunedInversion(PrunedConfig(restarts=2, steps=20, rounds=0)).run(little, seed=0)
    guess = ATTACKS.get("random")().run(little, seed=0)
    assert torch.equal(found.encoded, guess.encoded.to(found.encoded)) and found.certificate.certified == 0
    much = pruned(batch.update, GradientCompression(keep=0.5))
    assert right(PrunedInversion(PrunedConfig(**WORK)).run(much, seed=0), batch) == 1


def test_progress_sums_to_at_most_one(make_batch: Any) -> None:
    batch, done = make_batch(n=3), []
    sent = pruned(batch.update, GradientCompression(keep=0.5))
    attack = PrunedInversion(PrunedConfig(restarts=1, steps=5, sweeps=1, rounds=1, round_steps=5))
    attack.run_many([sent], [0], progress=done.append)
    assert sum(done) == pytest.approx(1)


def test_an_update_that_was_not_pruned_and_unknown_settings_are_refused(make_batch: Any) -> None:
    update = make_batch(n=4).update
    whole = replace(update, update={name: value + 1 for name, value in update.update.items()})
    with pytest.raises(ObservationError, match="no element of zero"):
        ATTACKS.get("exact_pruned")().check(whole)
    with pytest.raises(UsageError, match="restarts"):
        PrunedConfig(restarts=0)
    with pytest.raises(UsageError, match="left_out"):
        ATTACKS.get("exact_pruned")(left_out="largest")
