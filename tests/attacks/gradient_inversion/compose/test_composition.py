"""Stages one after the other: what is proven is peeled, the best explanation is chosen without the truth."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest
import torch
from torch import Tensor

from lightleak.attacks.attack import UpdateAttack
from lightleak.attacks.gradient_inversion.compose import composition
from lightleak.attacks.gradient_inversion.compose.audit_max import ComposedAttack
from lightleak.attacks.gradient_inversion.compose.unexplained import unexplained_share
from lightleak.attacks.random_baseline import RandomBaseline, RandomConfig
from lightleak.core.certificate import Certificate, Feasibility
from lightleak.core.errors import ObservationError, UnsupportedError, UsageError
from lightleak.core.ground_truth import GroundTruth
from lightleak.core.observations import ClientUpdate
from lightleak.core.reconstruction import Reconstruction
from lightleak.core.threat_model import ThreatModel
from lightleak.data.encoder import TableEncoder
from lightleak.protocols.client_training import LocalTraining

PLANNED = Feasibility((4, 4), (9, 9), (9, 9), 0.0, "exact", "planned")


class StandIn(UpdateAttack):
    """Says of every update what it was told to; a test that owns the truth makes it a good or a bad attack."""

    citation = "none"

    def __init__(
        self,
        name: str,
        answer: Callable[[ClientUpdate], tuple[Tensor, Tensor, Sequence[str] | None]],
        refuses: UsageError | None = None,
    ) -> None:
        self.name, self.answer, self.refuses = name, answer, refuses
        self.threat_model = ThreatModel(labels="restored", marginals=name == "first")
        self.seen: list[ClientUpdate] = []
        self.seeds: list[int] = []

    def check(self, update: ClientUpdate) -> None:
        if self.refuses is not None:
            raise self.refuses

    def options(self) -> dict[str, Any]:
        return {}

    def run_many(self, updates: Any, seeds: Any, device: Any = "cpu", progress: Any = None) -> list[Reconstruction]:
        self.seen += updates
        self.seeds += seeds
        if progress is not None:
            for _ in updates:
                progress(1.0)
        return [self._one(update) for update in updates]

    def _one(self, update: ClientUpdate) -> Reconstruction:
        encoder = TableEncoder.from_state(update.encoder, update.encoder_tensors)
        x, labels, status = self.answer(update)
        assert len(x) == update.facts.n_rows
        rows = encoder.decode(x)
        nothing = pd.DataFrame(float("nan"), index=range(len(x)), columns=list(rows.columns))
        certificate = (
            None
            if status is None
            else Certificate(0.5, tuple(status), tuple(s == "certified" for s in status), (1,) * len(x), PLANNED)
        )
        return Reconstruction(self.name, self.threat_model, rows, labels, x, nothing, 0.1, 2.0, certificate=certificate)


def wrong(x: Tensor) -> Tensor:
    """Rows of other people: every row one further and negated, so that no cell need be right."""
    return -x.roll(1, 0)


def knows(truth: GroundTruth, certified: Sequence[int]) -> Callable[[ClientUpdate], tuple[Tensor, Tensor, list[str]]]:
    """Certifies some of the true rows and makes the others up."""

    def answer(_: ClientUpdate) -> tuple[Tensor, Tensor, list[str]]:
        x = wrong(truth.inputs)
        x[list(certified)] = truth.inputs[list(certified)]
        return x, truth.labels.clone(), ["certified" if i in certified else "missing" for i in range(len(x))]

    return answer


def rest_of(truth: GroundTruth, known: Sequence[int], right: bool) -> Callable[[ClientUpdate], tuple[Any, Any, None]]:
    """The rows beside the known ones, right or made up, without any certificate."""
    left = [i for i in range(len(truth.labels)) if i not in known]
    return lambda _: (truth.inputs[left] if right else wrong(truth.inputs)[left], truth.labels[left], None)


def never(_: ClientUpdate) -> Any:
    raise AssertionError("this stage has nothing left to do")


def composed(*stages: UpdateAttack, kind: Any = "gradient") -> ComposedAttack:
    return ComposedAttack("composed", "none", {kind: stages}, {"labels": "restored"})


def test_a_complete_certificate_ends_the_work(make_update: Any) -> None:
    update, truth = make_update(n=5, hidden=[9, 8], share_labels=False)
    first = StandIn("first", knows(truth, range(5)))
    found = composed(first, StandIn("second", never)).run(update)
    assert found.certificate is not None and found.certificate.complete
    assert found.certificate.feasibility == PLANNED and found.certificate.residual < 1e-6 == found.loss * 0 + 1e-6
    assert (found.attack, found.seconds >= 2) == ("composed", True)
    assert found.threat_model == first.threat_model


def test_claims_of_all_rows_that_do_not_explain_the_gradient_are_all_given_up(make_update: Any) -> None:
    update, truth = make_update(n=5, hidden=[9, 8], share_labels=False)

    def one_wrong(_: ClientUpdate) -> tuple[Tensor, Tensor, list[str]]:
        x = truth.inputs.clone()
        x[4] = wrong(truth.inputs)[4]
        return x, truth.labels.clone(), ["certified"] * 5

    second = StandIn("second", rest_of(truth, [], right=False))
    found = composed(StandIn("first", one_wrong), second).run(update)
    assert found.certificate is not None and found.certificate.certified == found.certificate.certified_digits == 0
    assert len(second.seen[0].update) and second.seen[0].facts.n_rows == 5  # nothing was taken out for it


@pytest.mark.parametrize("known", [[], [2], [0, 3, 4]])
def test_the_next_stage_sees_the_gradient_of_the_rest_alone(make_update: Any, known: list[int]) -> None:
    update, truth = make_update(n=5, hidden=[9, 8], share_labels=False)
    second = StandIn("second", rest_of(truth, known, right=True))
    found = composed(StandIn("first", knows(truth, known)), second, StandIn("third", never)).run(update)
    (seen,) = second.seen
    left = [i for i in range(5) if i not in known]
    alone = GroundTruth(truth.inputs[left], truth.labels[left])
    assert seen.facts.n_rows == len(left)
    assert unexplained_share(seen, reconstruction(alone, seen)) < 1e-6
    assert found.certificate is not None
    assert found.certificate.status == ("certified",) * len(known) + ("likely",) * len(left)
    # Rows stand in another order than the truth's; as a table they are the same.
    encoder = TableEncoder.from_state(update.encoder, update.encoder_tensors)
    assert sorted(encoder.encode(found.rows).tolist()) == sorted(truth.inputs.tolist())
    assert torch.equal(found.labels.sort().values, truth.labels.sort().values)
    assert found.seconds >= 4 and len(found.encoded) == len(found.uncertainty) == 5


def reconstruction(truth: GroundTruth, update: ClientUpdate) -> Reconstruction:
    return StandIn("any", lambda _: (truth.inputs, truth.labels, None))._one(update)


@pytest.mark.parametrize("better", [0, 1, 2])
def test_the_best_explanation_wins_wherever_it_stands(make_update: Any, better: int) -> None:
    update, truth = make_update(n=4, hidden=[9, 8], share_labels=False)
    nearly = truth.inputs.clone()
    nearly[0] = wrong(truth.inputs)[0]  # one row wrong: above `TAKEN_BELOW`, and better than all wrong

    def answer(good: bool) -> Callable[[ClientUpdate], Any]:
        return lambda _: (nearly if good else wrong(truth.inputs), truth.labels, None)

    found = composed(*(StandIn(f"stage {i}", answer(i == better)) for i in range(3))).run(update)
    assert torch.equal(found.encoded, nearly)
    assert found.certificate is not None and found.certificate.certified == 0
    assert found.certificate.residual == found.loss == unexplained_share(update, found) > 1e-2


def wild(encoder: TableEncoder) -> Callable[[ClientUpdate], tuple[Tensor, Tensor, None]]:
    """Rows with every number at its bound: a linear network's gradient says nothing against such, and others do."""
    codes, values = encoder.project(encoder.upper.new_zeros(4, encoder.layout.width))
    rows = encoder.assemble(codes, values.new_zeros(values.shape) + encoder.upper)
    return lambda _: (rows, torch.zeros(4, dtype=torch.long), None)


@pytest.mark.parametrize("knows_marginals", [True, False])
def test_rows_that_explain_less_than_a_guess_are_not_returned(
    make_update: Any, encoder: TableEncoder, knows_marginals: bool
) -> None:
    update, _ = make_update(n=4, network="linear", share_labels=False)
    stage = StandIn("first" if knows_marginals else "other", wild(encoder))
    found = composed(stage).run(update, seed=3)
    known = update if knows_marginals else replace(update, marginals=None)
    guess = RandomBaseline(RandomConfig()).run(known, seed=3)
    assert found.rows.equals(guess.rows) and (found.attack, found.seconds >= 2) == ("composed", True)
    assert torch.equal(found.labels, torch.zeros(4, dtype=torch.long))
    assert found.certificate is not None and found.certificate.status == ("missing",) * 4
    returned = stage._one(update)
    assert found.loss == unexplained_share(update, found) <= unexplained_share(update, returned)
    assert found.threat_model.update and found.threat_model.marginals == knows_marginals
    assert found.settings == returned.settings


def test_the_threat_model_includes_marginals_where_a_guess_was_compared(make_update: Any) -> None:
    update, truth = make_update(n=4, hidden=[9, 8], share_labels=False)
    nearly = truth.inputs.clone()
    nearly[0] = wrong(truth.inputs)[0]
    stages = StandIn("second", lambda _: (nearly, truth.labels, None)), StandIn("first", never, UnsupportedError("no"))
    found = composed(*stages).run(update)
    assert torch.equal(found.encoded, nearly) and found.threat_model.marginals


def test_a_proven_row_is_kept_although_a_guess_explains_more(make_update: Any, encoder: TableEncoder) -> None:
    update, truth = make_update(n=4, hidden=[9, 8], share_labels=False)
    rows = wild(encoder)(update)[0]
    rows[2] = truth.inputs[2]
    status = ["missing", "missing", "certified", "missing"]
    found = composed(StandIn("first", lambda _: (rows, truth.labels, status))).run(update)
    guess = replace(RandomBaseline(RandomConfig()).run(update), labels=truth.labels)
    assert unexplained_share(update, guess) < found.loss
    assert found.certificate is not None and found.certificate.certified == 1
    assert torch.equal(found.encoded[2], truth.inputs[2])


@pytest.mark.parametrize("better", [0, 1])
def test_a_guess_is_returned_only_where_it_explains_more_than_all_stages(
    make_update: Any, encoder: TableEncoder, better: int
) -> None:
    update, truth = make_update(n=4, hidden=[9, 8], share_labels=False)
    nearly = truth.inputs.clone()
    nearly[0] = wrong(truth.inputs)[0]
    rows = [nearly, wild(encoder)(update)[0]]
    stages = [StandIn(f"stage {i}", lambda _, i=i: (rows[i ^ better], truth.labels, None)) for i in (0, 1)]
    # Were the choice between stages to fall on the worse one, the guess would still not be better than both.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(composition, "misfit", lambda update, found, seed: -unexplained_share(update, found, seed))
        found = composed(*stages).run(update)
    assert torch.equal(found.encoded, rows[1])


def test_without_a_baseline_that_serves_it_the_rows_found_are_returned(make_update: Any, encoder: TableEncoder) -> None:
    update, _ = make_update(n=4, network="linear", share_labels=False)
    damaged = replace(update, marginals={"columns": []})
    with pytest.raises(UsageError):
        RandomBaseline(RandomConfig()).check(damaged)
    found = composed(StandIn("first", wild(encoder))).run(damaged)
    assert torch.equal(found.encoded, wild(encoder)(update)[0])


def test_of_shared_labels_the_rest_has_those_that_are_left(make_update: Any) -> None:
    update, truth = make_update(n=5, hidden=[9, 8], share_labels=True)
    known = [1, 2]
    second = StandIn("second", rest_of(truth, known, right=True))
    composed(StandIn("first", knows(truth, known)), second).run(update)
    left = second.seen[0].labels
    assert left is not None
    assert left.tolist() == sorted(truth.labels[[0, 3, 4]].tolist())


def test_certain_rows_that_contradict_the_shared_labels_are_doubted(make_update: Any) -> None:
    update, truth = make_update(n=4, hidden=[9, 8], share_labels=True)
    flipped = replace(truth, labels=1 - truth.labels) if len(set(truth.labels.tolist())) == 1 else None
    other = flipped or replace(truth, labels=torch.full_like(truth.labels, int(truth.labels.mode().values)))
    second = StandIn("second", rest_of(truth, [], right=True))
    found = composed(StandIn("first", knows(other, range(4))), second).run(update)
    assert second.seen[0].facts.n_rows == 4  # nothing was peeled
    assert found.certificate is not None and found.certificate.certified == 0
    assert found.certificate.residual < 1e-6


def test_a_stage_that_refuses_is_passed_over_and_says_why(make_update: Any) -> None:
    update, truth = make_update(n=3, network="resnet", share_labels=False, share={"share_statistics": False})
    refusing = StandIn("first", never, UnsupportedError("first is for other networks"))
    attack = composed(refusing, StandIn("second", rest_of(truth, [], right=True)))
    attack.check(update)
    found = attack.run(update)
    assert found.certificate is not None
    assert found.certificate.feasibility.expected == "approximate"
    assert "by BatchNorm" in found.certificate.feasibility.reason
    assert found.threat_model.marginals is False  # of the stages that ran; no guess was compared
    last = StandIn("last", never, ObservationError("nor is last"))
    with pytest.raises(ObservationError, match="nor is last"):
        composed(refusing, last).check(update)
    with pytest.raises(UnsupportedError, match="no stage for an update of kind 'delta'"):
        composed(refusing).check(replace(update, kind="delta"))


def test_stages_of_one_name_are_alternatives(make_update: Any) -> None:
    update, truth = make_update(n=3, hidden=[9, 8], share_labels=False)
    worse = rest_of(truth, [], right=False)
    refusing = StandIn("same", never, UnsupportedError("not here"))
    first, second = StandIn("same", worse), StandIn("same", never)
    composed(refusing, first, second).run(update)
    assert len(first.seen) == 1 and not second.seen


def test_updates_do_not_disturb_each_other_and_progress_adds_up(make_update: Any) -> None:
    made = [make_update(n=n, hidden=[9, 8], seed=n, share_labels=False) for n in (3, 4, 5)]
    known = {3: [0, 1, 2], 4: [1], 5: []}
    truths = {update.facts.n_rows: truth for update, truth in made}

    def attack() -> ComposedAttack:
        def first(update: ClientUpdate) -> Any:
            return knows(truths[update.facts.n_rows], known[update.facts.n_rows])(update)

        def second(update: ClientUpdate) -> Any:
            return wrong(truths[5].inputs)[: update.facts.n_rows], truths[5].labels[: update.facts.n_rows], None

        return composed(StandIn("first", first), StandIn("second", second))

    told: list[float] = []
    together = attack().run_many([u for u, _ in made], [7, 8, 9], progress=told.append)
    assert sum(told) == pytest.approx(3)
    for (update, _), seed, one in zip(made, (7, 8, 9), together, strict=True):
        alone = attack().run(update, seed)
        pd.testing.assert_frame_equal(alone.rows, one.rows)
        assert torch.equal(alone.labels, one.labels) and alone.certificate == one.certificate


def test_equal_rows_are_counted(make_update: Any) -> None:
    update, truth = make_update(n=3, hidden=[9, 8], share_labels=False)
    x = truth.inputs[[0, 1, 0]]
    found = composed(StandIn("first", lambda _: (x, truth.labels, None))).run(update)
    assert found.certificate is not None and found.certificate.multiplicity == (2, 1, 2)


def test_every_stage_sees_a_weight_update_whole(weight_update: Any) -> None:
    update, truth = weight_update(LocalTraining(2, 4, 0.05))
    second = StandIn("second", rest_of(truth, [], right=True))
    found = composed(StandIn("first", knows(truth, [0, 1, 2])), second, kind="delta").run(update)
    assert second.seen == [update]
    assert torch.equal(found.encoded, truth.inputs)
    assert found.certificate is not None and found.certificate.feasibility == PLANNED


def test_a_certified_row_is_counted_among_certified_rows() -> None:
    """A likely row that happens to be equal says nothing of how often it occurs."""
    rows = pd.DataFrame({"age": [30, 30, 41, 41], "sex": ["F", "F", "M", "M"]})
    found = SimpleNamespace(found=SimpleNamespace(rows=rows), status=("certified", "likely", "certified", "certified"))
    assert composition._how_often(found) == (1, 2, 2, 2)
