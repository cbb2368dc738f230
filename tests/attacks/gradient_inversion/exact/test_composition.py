"""Stages one after the other: what is proven is peeled, the best explanation is chosen without the truth."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd
import pytest
import torch
from torch import Tensor

from lightleak.attacks.attack import ATTACKS, UpdateAttack
from lightleak.attacks.gradient_inversion.attack import GradientInversion
from lightleak.attacks.gradient_inversion.config import InversionConfig
from lightleak.attacks.gradient_inversion.exact.audit_max import AuditMaxConfig, ComposedAttack, audit_max
from lightleak.attacks.gradient_inversion.exact.unexplained import misfit, unexplained_share
from lightleak.core.certificate import Certificate, Feasibility
from lightleak.core.errors import ObservationError, UnsupportedError, UsageError
from lightleak.core.observations import ClientUpdate, GroundTruth
from lightleak.core.reconstruction import Reconstruction
from lightleak.core.threat_model import ThreatModel
from lightleak.data.encoder import TableEncoder
from lightleak.protocols.fedavg import client_update
from lightleak.protocols.local_training import LocalTraining
from lightleak.targets.spec import NetworkSpec, build_network

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
        certificate = None if status is None else Certificate(0.5, tuple(status), (1,) * len(x), PLANNED)
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
    nearly[0] = wrong(truth.inputs)[0]  # one row wrong: above `EXPLAINED`, and better than all wrong

    def answer(good: bool) -> Callable[[ClientUpdate], Any]:
        return lambda _: (nearly if good else wrong(truth.inputs), truth.labels, None)

    found = composed(*(StandIn(f"stage {i}", answer(i == better)) for i in range(3))).run(update)
    assert torch.equal(found.encoded, nearly)
    assert found.certificate is not None and found.certificate.certified == 0
    assert found.certificate.residual == found.loss == unexplained_share(update, found) > 1e-2


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
    update, truth = make_update(n=3, network="resnet", share_labels=False)
    refusing = StandIn("first", never, UnsupportedError("first is for other networks"))
    attack = composed(refusing, StandIn("second", rest_of(truth, [], right=False)))
    attack.check(update)
    found = attack.run(update)
    assert found.certificate is not None
    assert found.certificate.feasibility.expected == "approximate"
    assert "plain linear layers" in found.certificate.feasibility.reason
    assert found.threat_model.marginals is False  # of the stages that ran
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


def test_tableak_masks_absent_categories_where_it_can(make_update: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    others = {name: lambda n=name: StandIn(n, never, UnsupportedError(n)) for name in ("exact_joint", "exact_fedavg")}
    monkeypatch.setattr(ATTACKS, "_entries", {name: ATTACKS.get(name) for name in ATTACKS} | others)
    few = {"restarts": 1, "steps": 2}
    attack = audit_max(tableak=few)
    masked, plain = attack.stages["gradient"][-2:]
    assert (masked.name, masked.options()["mask_absent"]) == ("tableak", True)
    assert (plain.name, plain.options()["mask_absent"]) == ("tableak", False)
    assert attack.options()["tableak"] == masked.options()
    for settings in ({"mask_absent": False}, {"categorical": "none"}):
        assert len(audit_max(tableak=few | settings).stages["gradient"]) == 3
    update, _ = make_update(n=3, network="resnet", share_labels=False)
    found = attack.run(update)
    assert found.certificate is not None and found.certificate.certified == 0 and found.loss > 0


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


@pytest.mark.parametrize("network", ["mlp", "resnet", "cnn"])
def test_the_truth_leaves_nothing_unexplained_on_any_network(make_update: Any, network: str) -> None:
    update, truth = make_update(n=6, network=network)
    for judge in (unexplained_share, misfit):
        assert judge(update, reconstruction(truth, update)) < 1e-5
        assert judge(update, reconstruction(replace(truth, inputs=wrong(truth.inputs)), update)) > 1e-2
        relabelled = replace(truth, labels=1 - truth.labels)
        assert judge(update, reconstruction(relabelled, update)) > 1e-2


def test_misfit_is_whitened_for_chains_alone(make_update: Any) -> None:
    for network, same in (("mlp", False), ("resnet", True)):
        update, truth = make_update(n=4, network=network)
        other = reconstruction(replace(truth, inputs=wrong(truth.inputs)), update)
        assert (misfit(update, other) == unexplained_share(update, other)) is same
    # Nothing but update and reconstruction decides it.
    update, truth = make_update(n=4, hidden=[9, 8])
    other = reconstruction(replace(truth, inputs=wrong(truth.inputs)), update)
    assert misfit(update, other, 1) == misfit(update, other, 2)
    doubled = replace(update, update={name: 2 * value for name, value in update.update.items()})
    assert misfit(doubled, reconstruction(truth, update)) == pytest.approx(0.25, rel=1e-4)


def fedavg_update(table: Any, encoder: TableEncoder, training: LocalTraining, n: int = 8) -> Any:
    spec = NetworkSpec("mlp", 2, encoder.layout, {"hidden": [9, 8]})
    inputs, labels = encoder.encode(table.train)[:n], encoder.encode_labels(table.train)[:n]
    network = build_network(spec, seed=1)
    return client_update(network, spec, encoder, inputs, labels, training, share_labels="none", seed=3)


@pytest.mark.parametrize(("epochs", "size"), [(1, 8), (1, 4), (3, 3)])
def test_the_truth_explains_a_weight_update_better_than_others(
    table: Any, encoder: TableEncoder, epochs: int, size: int
) -> None:
    training = LocalTraining(epochs, size, 0.05, momentum=0.5 if size == 8 else 0.0, weight_decay=0.01)
    update, truth = fedavg_update(table, encoder, training)
    right = unexplained_share(update, reconstruction(truth, update))
    other = reconstruction(replace(truth, inputs=wrong(truth.inputs)), update)
    assert right < 0.5 * unexplained_share(update, other)
    assert right < 1e-4 or size < 8  # the order of a single batch changes nothing
    untold = replace(update, facts=replace(update.facts, epochs=None, local_steps=training.steps(8), batch_size=None))
    assert unexplained_share(untold, reconstruction(truth, untold)) < 0.5 * unexplained_share(untold, other)


def test_every_stage_sees_a_weight_update_whole(table: Any, encoder: TableEncoder) -> None:
    update, truth = fedavg_update(table, encoder, LocalTraining(2, 4, 0.05))
    second = StandIn("second", rest_of(truth, [], right=True))
    found = composed(StandIn("first", knows(truth, [0, 1, 2])), second, kind="delta").run(update)
    assert second.seen == [update]
    assert torch.equal(found.encoded, truth.inputs)
    assert found.certificate is not None and found.certificate.feasibility == PLANNED


def test_wrong_settings_are_refused_by_name() -> None:
    with pytest.raises(UsageError, match="audit_max has no setting steps; settings: labels, exact"):
        audit_max(steps=3)
    with pytest.raises(UsageError, match="labels must be one of true, restored, got 'geng'"):
        AuditMaxConfig(labels="geng")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="tableak must be a mapping of settings, got 3"):
        AuditMaxConfig(tableak=3)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="exact: exact has no setting stepz"):
        AuditMaxConfig(exact={"stepz": 3}).stages("gradient")


def test_a_gpu_budget_reaches_the_stages_that_have_one(make_update: Any) -> None:
    stages = StandIn("first", never), GradientInversion("tableak", "none", InversionConfig(memory_mb=3, labels="geng"))
    on_card = composed(*stages).on_card(torch.device("cpu"))
    assert on_card.stages["gradient"][0] is stages[0]
    composed(*stages).check_device(torch.device("cpu"))
    tf32 = composed(stages[0], GradientInversion("tableak", "none", InversionConfig(precision="tf32", labels="geng")))
    with pytest.raises(UnsupportedError):
        tf32.check_device(torch.device("cpu"))
