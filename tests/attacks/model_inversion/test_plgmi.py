"""PLG-MI on a small released model: what it returns, what it refuses, what its options do."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from lightleak.attacks.model_inversion import INVERSION_ATTACKS, Workplace
from lightleak.attacks.model_inversion.fitted_plgmi import FittedPLGMI
from lightleak.attacks.model_inversion.gan import EPOCH
from lightleak.attacks.model_inversion.plgmi import PLGMI
from lightleak.attacks.model_inversion.released import rebuild
from lightleak.core.errors import ObservationError, UnsupportedError, UsageError
from lightleak.core.released_model import ReleasedModel

SMALL: dict[str, Any] = {
    "iterations": 150,
    "batch_size": 50,
    "latent_dim": 8,
    "discriminator_steps": 1,
    "generator_dim": [16],
    "discriminator_dim": [16],
    "generator_learning_rate": 0.005,
    "gradient": {"steps": 15},
    "tpe": {"trials": 3},
}


def fitted(released: ReleasedModel, **changed: Any) -> FittedPLGMI:
    return PLGMI(**{**SMALL, **changed}).fit(released, seed=1)


@pytest.fixture(scope="module", params=["exact", "shared"])
def found(request: pytest.FixtureRequest, released: ReleasedModel) -> FittedPLGMI:
    return fitted(released, bridge=request.param)


LABELS = torch.arange(3).repeat_interleave(40)


@pytest.mark.parametrize("search", ["random", "softmax", "gradient"])
def test_rows_fit_the_schema_and_the_loss_is_the_targets_on_them(
    found: FittedPLGMI, released: ReleasedModel, search: str
) -> None:
    samples = found.generate(LABELS, seed=2, search=search)
    target = rebuild(released)
    rows = target.encoder.schema.validate(samples.rows, require_label=False)
    assert len(rows) == 120 and torch.equal(samples.labels, LABELS) and samples.search == search
    logits = target.network(target.encoder.encode(samples.rows))
    torch.testing.assert_close(samples.loss, torch.nn.functional.cross_entropy(logits, LABELS, reduction="none"))


def test_the_target_takes_the_rows_for_their_class(found: FittedPLGMI) -> None:
    samples = found.generate(LABELS, seed=2, search="softmax")
    logits = found.target.logits(found.target.encoder.encode(samples.rows))
    assert float((logits.argmax(1) == LABELS).float().mean()) > 0.7  # a third by guessing


def test_the_target_sees_large_numbers_as_they_are_decoded(released: ReleasedModel) -> None:
    far = 1.7e9  # seconds of today's clock; float32 tells apart what is 128 of them apart
    tensors = {name: value.clone() for name, value in released.encoder_tensors.items()}
    for name in ("shift", "lower", "upper"):
        tensors[name][0] += far
    public = released.public.assign(glucose=released.public["glucose"] + far)
    found = fitted(replace(released, encoder_tensors=tensors, public=public), iterations=5)
    z = found.problem.draw(len(LABELS), torch.Generator().manual_seed(0))
    with torch.no_grad():
        sample = found._generator(z, LABELS)
        seen = found.problem.inputs(z, LABELS)
    decoded = found.target.encoder.encode(found.transform.decode(sample[:, : found.transform.width]))
    at = found.target.encoder.numerical_positions
    torch.testing.assert_close(seen[:, at], decoded[:, at])


def test_the_same_seed_gives_the_same_rows_and_another_others(found: FittedPLGMI) -> None:
    first, second, other = (found.generate(LABELS, seed=seed).rows for seed in (5, 5, 6))
    assert first.equals(second) and not first.equals(other)


def test_the_gradient_search_starts_where_softmax_stands_and_lowers_the_loss(found: FittedPLGMI) -> None:
    start, searched = (found.generate(LABELS, seed=2, search=search) for search in ("softmax", "gradient"))
    assert searched.details["loss_after"] < searched.details["loss_before"]
    assert not start.rows.equals(searched.rows)


def test_the_tpe_search_never_ends_above_its_start(found: FittedPLGMI) -> None:
    samples = found.generate(torch.arange(3), seed=2, search="tpe")
    assert samples.details["loss_after"] <= samples.details["loss_before"]


def test_labels_are_drawn_as_often_as_the_generator_met_them(found: FittedPLGMI) -> None:
    drawn = torch.bincount(found.draw_labels(6000, seed=0), minlength=3) / 6000
    torch.testing.assert_close(drawn, found._share.float(), atol=0.03, rtol=0)  # five standard deviations


def test_an_excluded_class_is_named_and_cannot_be_asked_for(released: ReleasedModel) -> None:
    # No public row is as sure of a class as 0.999999, but of some.
    logits = rebuild(released).logits(rebuild(released).encoder.encode(released.public))
    rarest = int(torch.bincount(logits.argmax(1), minlength=3).argmin())
    needed = int(torch.bincount(logits.argmax(1), minlength=3).min()) + 1
    attack = fitted(released, iterations=20, pseudo_labels={"top_n": 400, "minimum": needed})
    assert list(attack.excluded) == [rarest] and rarest not in attack.classes
    assert attack.generate(torch.tensor(list(attack.classes))).excluded == attack.excluded
    with pytest.raises(UsageError, match=f"got \\[{rarest}\\]"):
        attack.generate(torch.tensor([rarest]))
    assert rarest not in attack.draw_labels(500).unique().tolist()


def test_an_unknown_search_is_refused(found: FittedPLGMI) -> None:
    with pytest.raises(UsageError, match="random, softmax, gradient, tpe"):
        found.generate(LABELS, search="best")


def test_a_black_box_gives_no_gradient(released: ReleasedModel) -> None:
    closed = replace(released, access="black_box")
    with pytest.raises(UnsupportedError, match="plgmi_black_box"):
        PLGMI(**SMALL).fit(closed)
    attack = INVERSION_ATTACKS.get("plgmi_black_box")(**{**SMALL, "iterations": 20}).fit(closed)
    assert "gradient" not in attack.searches and "tpe" in attack.searches
    assert "answers" in attack.generate(torch.arange(3)).threat_model


def test_gan_without_target_is_the_attack_without_its_inversion_loss(released: ReleasedModel) -> None:
    attack = INVERSION_ATTACKS.get("gan_without_target")(**{**SMALL, "iterations": 30})
    assert attack.options()["inversion_weight"] == 0
    assert set(attack.fit(released, seed=1).losses["inversion"]) == {0.0}


def test_the_augmented_search_differs_and_still_lowers_the_loss(released: ReleasedModel) -> None:
    plain, moved = (
        fitted(released, augmentation=settings).generate(LABELS, 3, "gradient")
        for settings in ({}, {"share": 0.2, "noise": 1.0})
    )
    assert not plain.rows.equals(moved.rows)
    assert moved.details["loss_after"] < moved.details["loss_before"]


@pytest.mark.parametrize("option", [{"numbers": "soft"}, {"categories": "straight_through"}])
def test_what_the_target_sees_of_a_sample_changes_the_training(released: ReleasedModel, option: dict[str, Any]) -> None:
    plain, other = fitted(released, iterations=10), fitted(released, iterations=10, **option)
    assert plain.losses["inversion"] != other.losses["inversion"]


def test_a_fit_goes_on_from_its_checkpoint(released: ReleasedModel, tmp_path: Any) -> None:
    whole = fitted(released)

    told: list[float] = []

    def stop(done: float) -> None:
        told.append(done)
        if len(told) > EPOCH:
            raise InterruptedError

    with pytest.raises(InterruptedError):
        PLGMI(**SMALL).fit(released, 1, Workplace(folder=tmp_path, progress=stop))
    again = PLGMI(**SMALL).fit(released, 1, Workplace(folder=tmp_path))
    assert again.losses == whole.losses
    first = torch.load(tmp_path / "last.ckpt", weights_only=True)["callbacks"]
    assert again.seconds > next(state["seconds"] for state in first.values() if "seconds" in state) > 0
    assert again.generate(LABELS, 2).rows.equals(whole.generate(LABELS, 2).rows)


def test_weights_that_do_not_fit_are_refused(released: ReleasedModel) -> None:
    short = {name: value for name, value in released.parameters.items() if name != "linears.0.bias"}
    with pytest.raises(ObservationError, match="do not fit network 'mlp'"):
        PLGMI(**SMALL).check(replace(released, parameters=short))
    narrow = {**released.network, "n_classes": 2}
    with pytest.raises(ObservationError, match="network and encoder of a released model must fit"):
        PLGMI(**SMALL).check(replace(released, network=narrow))


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"bridge": "naive"}, "bridge must be one of exact, shared"),
        ({"numbers": "hard"}, "numbers must be one of straight_through, soft"),
        ({"iteration": 3}, "plgmi: the generator has no setting iteration; settings: iterations"),
        ({"gradient": {"step": 1}}, "gradient.*step"),
        ({"pseudo_labels": {"top_n": 0}}, "top_n"),
        ({"augmentation": {"share": 1}}, "share must be"),
        ({"batch_size": 55, "pac": 10}, "multiple of pac"),
    ],
)
def test_wrong_settings_are_named(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        PLGMI(**{**SMALL, **settings})
