"""The composed attack: its settings, its stages, and what a refusal of all of them says."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from lightleak.attacks.attack import ATTACKS, UpdateAttack
from lightleak.attacks.gradient_inversion.compose.audit_max import (
    RESTORED_BY,
    STAGES,
    AuditMaxConfig,
    ComposedAttack,
    audit_max,
)
from lightleak.attacks.gradient_inversion.config import InversionConfig
from lightleak.attacks.gradient_inversion.optimize.attack import GradientInversion
from lightleak.core.errors import UnsupportedError, UsageError
from lightleak.core.observations import ClientUpdate
from lightleak.core.reconstruction import Reconstruction
from lightleak.core.threat_model import ThreatModel


class Refusing(UpdateAttack):
    """A stage that serves no update."""

    citation, threat_model = "none", ThreatModel("restored")

    def __init__(self, name: str) -> None:
        self.name = name

    def check(self, update: ClientUpdate) -> None:
        raise UnsupportedError(self.name)

    def options(self) -> dict[str, Any]:
        return {}

    def run_many(self, updates: Any, seeds: Any, device: Any = "cpu", progress: Any = None) -> list[Reconstruction]:
        raise AssertionError("this stage refuses everything")


def composed(*stages: UpdateAttack) -> ComposedAttack:
    return ComposedAttack("composed", "none", {"gradient": stages}, {"labels": "restored"})


def test_wrong_settings_are_refused_by_name() -> None:
    with pytest.raises(UsageError, match="audit_max has no setting steps; settings: labels, exact"):
        audit_max(steps=3)
    with pytest.raises(UsageError, match="labels must be one of true, restored, got 'geng'"):
        AuditMaxConfig(labels="geng")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="tableak must be a mapping of settings, got 3"):
        AuditMaxConfig(tableak=3)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="exact: exact has no setting stepz"):
        AuditMaxConfig(exact={"stepz": 3}).stages("gradient")


@pytest.mark.parametrize("kind", ["gradient", "delta"])
@pytest.mark.parametrize("labels", ["true", "restored"])
def test_stages_stand_in_their_order_and_know_the_labels_they_are_told(kind: Any, labels: Any) -> None:
    stages = audit_max(labels=labels).stages[kind]
    if (kind, labels) == ("gradient", "restored"):
        assert stages.pop().options()["labels"] == "bias"  # for networks without a hidden layer
    assert tuple(dict.fromkeys(stage.name for stage in stages)) == STAGES[kind]
    for stage in stages:
        if stage.name in RESTORED_BY:
            assert stage.options()["labels"] == ("true" if labels == "true" else RESTORED_BY[stage.name])
        else:
            assert "labels" not in stage.options()


def test_a_network_without_a_hidden_layer_is_served_by_its_bias(make_update: Any) -> None:
    update, truth = make_update(n=4, network="linear", share_labels=False)
    found = audit_max(tableak={"restarts": 1, "steps": 3}).run(update)
    assert torch.equal(found.labels.sort().values, truth.labels.sort().values)
    with pytest.raises(UnsupportedError, match="labels='geng' needs a hidden layer"):
        audit_max(tableak={"labels": "geng"}).run(update)


def test_settings_of_a_stage_reach_it_alone_and_cannot_be_changed_from_outside() -> None:
    usual, attack = audit_max(), audit_max(exact={"patience": 2}, tableak={"steps": 7})
    changed = {name for name, value in attack.options().items() if value != usual.options()[name]}
    assert changed == {"exact", "tableak"}
    assert attack.stages["gradient"][0].options()["patience"] == attack.options()["exact"]["patience"] == 2
    attack.options()["exact"]["patience"] = 9
    assert attack.options()["exact"]["patience"] == 2


def test_tableak_masks_absent_categories_where_it_can(make_update: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    others = {name: lambda n=name: Refusing(n) for name in ("exact_joint", "exact_fedavg")}
    monkeypatch.setattr(ATTACKS, "_entries", {name: ATTACKS.get(name) for name in ATTACKS} | others)
    few = {"restarts": 1, "steps": 2}
    attack = audit_max(tableak=few)
    masked, plain, _ = attack.stages["gradient"][-3:]
    assert (masked.name, masked.options()["mask_absent"]) == ("tableak", True)
    assert (plain.name, plain.options()["mask_absent"]) == ("tableak", False)
    assert attack.options()["tableak"] == masked.options()
    for settings in ({"mask_absent": False}, {"categorical": "none"}):
        unmasked = audit_max(tableak=few | settings).stages["gradient"]
        assert not any(stage.options().get("mask_absent") for stage in unmasked)
    update, _ = make_update(n=3, network="resnet", share_labels=False)
    found = attack.run(update)
    assert found.certificate is not None and found.certificate.certified == 0 and found.loss > 0


def test_a_gpu_budget_reaches_the_stages_that_have_one() -> None:
    stages = Refusing("first"), GradientInversion("tableak", "none", InversionConfig(memory_mb=3, labels="geng"))
    on_card = composed(*stages).on_card(torch.device("cpu"))
    assert on_card.stages["gradient"][0] is stages[0]
    composed(*stages).check_device(torch.device("cpu"))
    tf32 = composed(stages[0], GradientInversion("tableak", "none", InversionConfig(precision="tf32", labels="geng")))
    with pytest.raises(UnsupportedError):
        tf32.check_device(torch.device("cpu"))


def test_where_all_stages_refuse_the_last_one_says_why(make_update: Any) -> None:
    update, _ = make_update(n=3, share_labels=False)
    with pytest.raises(UnsupportedError, match="the last"):
        composed(Refusing("the first"), Refusing("the last")).check(update)
    with pytest.raises(UnsupportedError, match="no stage for an update of kind 'delta'"):
        composed(Refusing("the first")).run(replace(update, kind="delta"))


def test_a_reconstruction_depends_on_update_and_seed_alone(make_batch: Any) -> None:
    batch = make_batch(6, (40, 40), seed=2)
    one, other = (audit_max().run(batch.update, 3) for _ in range(2))
    assert one.certificate == other.certificate and one.certificate is not None and one.certificate.complete
    assert one.rows.equals(other.rows) and torch.equal(one.labels, other.labels)
