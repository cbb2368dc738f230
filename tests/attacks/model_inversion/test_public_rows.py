"""The baselines show public rows and nothing else."""

import pandas as pd
import pytest
import torch

from lightleak.attacks.model_inversion import INVERSION_ATTACKS
from lightleak.attacks.model_inversion.released import rebuild
from lightleak.core.errors import UsageError
from lightleak.core.released_model import ReleasedModel

LABELS = torch.arange(3).repeat_interleave(200)


def keys(frame: pd.DataFrame) -> list[tuple[object, ...]]:
    return [tuple(row) for row in frame.itertuples(index=False)]


@pytest.mark.parametrize("name", ["public_pseudo_labeled", "public_random"])
def test_every_row_is_a_public_row(released: ReleasedModel, name: str) -> None:
    samples = INVERSION_ATTACKS.get(name)().fit(released).generate(LABELS, seed=1)
    assert set(keys(samples.rows)) <= set(keys(released.public))


def test_pseudo_labelled_rows_are_the_surest_of_their_class(released: ReleasedModel) -> None:
    attack = INVERSION_ATTACKS.get("public_pseudo_labeled")(top_n=10).fit(released)
    samples, target = attack.generate(LABELS, seed=1), rebuild(released)
    public = target.logits(target.encoder.encode(released.public)).softmax(1)
    for label in range(3):
        mine = public[:, label][public.argmax(1) == label].sort(descending=True).values[:10]
        shown = (-samples.loss[label == LABELS]).exp()
        torch.testing.assert_close(shown.min(), mine.min(), rtol=1e-4, atol=1e-6)
        torch.testing.assert_close(shown.max(), mine.max(), rtol=1e-4, atol=1e-6)


def test_random_rows_know_nothing_of_the_class(released: ReleasedModel) -> None:
    samples, target = INVERSION_ATTACKS.get("public_random")().fit(released).generate(LABELS, seed=1), rebuild(released)
    named = target.logits(target.encoder.encode(samples.rows)).argmax(1)
    assert float((named == LABELS).float().mean()) == pytest.approx(1 / 3, abs=0.1)  # 600 rows: five deviations


def test_settings_are_those_of_pseudo_labels() -> None:
    assert INVERSION_ATTACKS.get("public_random")(top_n=5, minimum=2).options()["top_n"] == 5
    with pytest.raises(UsageError, match=r"public_random.*iterations"):
        INVERSION_ATTACKS.get("public_random")(iterations=5)
