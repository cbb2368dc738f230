"""A fitted CTGAN starts an attack, and an attack's generator is a CTGAN that ctgan saves, loads and samples from."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from ctgan import CTGAN

from lightleak.attacks.model_inversion.ctgan_model import UNSEEN, start_from, transform_of
from lightleak.attacks.model_inversion.fitted_plgmi import FittedPLGMI
from lightleak.attacks.model_inversion.plgmi import PLGMI
from lightleak.attacks.model_inversion.tabular_generator import TabularGenerator
from lightleak.core.errors import DataError, UnsupportedError, UsageError
from lightleak.core.released_model import ReleasedModel
from lightleak.data.schema import TableSchema

SMALL = {"iterations": 20, "batch_size": 20, "latent_dim": 12, "generator_dim": (16, 8), "discriminator_dim": (16,)}
STARTED = {name: value for name, value in SMALL.items() if name not in ("latent_dim", "generator_dim")}
DISCRETE = ["ward", "smoker"]


def fit_ctgan(frame: pd.DataFrame, discrete: list[str]) -> CTGAN:
    model = CTGAN(6, (10, 7), (8,), batch_size=20, pac=1, epochs=2, enable_gpu=False)
    model.set_random_state(0)
    model.fit(frame, discrete)
    return model


@pytest.fixture(scope="module")
def schema(released: ReleasedModel) -> TableSchema:
    return TableSchema.from_dict(released.encoder["schema"])


@pytest.fixture(scope="module")
def plain(released: ReleasedModel) -> CTGAN:
    """A CTGAN of the public rows without a label and without the ward ``c``; its columns are in another order."""
    public = released.public[released.public["ward"] != "c"].head(120)
    return fit_ctgan(public[["smoker", "visits", "ward", "glucose"]], DISCRETE)


@pytest.fixture(scope="module")
def labeled(released: ReleasedModel) -> CTGAN:
    public = released.public.head(120)
    return fit_ctgan(
        public.assign(diagnosis=np.array(["d2", "d0", "d1"])[np.arange(120) % 3]), [*DISCRETE, "diagnosis"]
    )


def started(model: CTGAN, released: ReleasedModel, schema: TableSchema) -> TabularGenerator:
    transform = transform_of(model, released.public, schema)
    player = TabularGenerator(transform.segments, schema.n_classes, model._embedding_dim, model._generator_dim)
    start_from(player, model, schema)
    return player.eval()


def outputs(model: CTGAN, z: torch.Tensor, condition: torch.Tensor) -> dict[str, torch.Tensor]:
    """Outputs of the CTGAN's generator in eval mode, by column."""
    training, generator = model._generator.training, model._generator.eval()
    with torch.no_grad():
        raw = generator(torch.cat([z, condition.expand(len(z), -1).to(z)], 1))
    generator.train(training)
    infos = model._transformer._column_transform_info_list
    parts = raw.split([info.output_dimensions for info in infos], 1)
    return {info.column_name: part for info, part in zip(infos, parts, strict=True)}


def test_without_a_label_every_class_starts_as_the_ctgan_under_its_mean_condition(
    plain: CTGAN, released: ReleasedModel, schema: TableSchema
) -> None:
    player, z = started(plain, released, schema), torch.randn(5, 6)
    np.random.seed(0)
    mean = torch.from_numpy(plain._data_sampler.sample_original_condvec(200_000).mean(0))
    expected = outputs(plain, z, mean)
    with torch.no_grad():
        raws = [player.raw(z, torch.full((5,), label)) for label in range(3)]
    assert torch.equal(raws[0], raws[1]) and torch.equal(raws[0], raws[2])
    columns = player.segments.columns
    for name in ("glucose", "visits"):
        torch.testing.assert_close(raws[0][:, columns[name]], expected[name], rtol=0.02, atol=0.01)
    ward = raws[0][:, columns["ward"]]
    order = [plain._transformer._column_transform_info_list[2].transform.dummies.index(name) for name in ("a", "b")]
    torch.testing.assert_close(ward[:, :2], expected["ward"][:, order], rtol=0.02, atol=0.01)
    assert (ward[:, 2] == UNSEEN).all()
    assert not player.label_logits(raws[0]).any()


def test_conditions_on_the_label_are_kept(labeled: CTGAN, released: ReleasedModel, schema: TableSchema) -> None:
    player, z = started(labeled, released, schema), torch.randn(4, 6)
    order = labeled._transformer._column_transform_info_list[-1].transform.dummies
    for label, name in enumerate(schema.label.categories):
        condition = torch.zeros(labeled._data_sampler.dim_cond_vec())
        condition[-3 + order.index(name)] = 1
        expected = outputs(labeled, z, condition)
        with torch.no_grad():
            raw = player.raw(z, torch.full((4,), label))
        torch.testing.assert_close(raw[:, player.segments.columns["glucose"]], expected["glucose"])
        by_class = expected["diagnosis"][:, [order.index(each) for each in schema.label.categories]]
        torch.testing.assert_close(player.label_logits(raw), by_class)


def test_an_attack_starts_from_a_saved_ctgan(plain: CTGAN, released: ReleasedModel, tmp_path: Path) -> None:
    plain.save(tmp_path / "model.pkl")
    attack = PLGMI(**STARTED, start_from=str(tmp_path / "model.pkl"))
    fitted = attack.fit(released, 1)
    assert attack.options()["start_from"] == str(tmp_path / "model.pkl")
    assert not {"latent_dim", "generator_dim"} & set(attack.options())  # those of the CTGAN are used
    assert "start_from" not in PLGMI().options() and PLGMI().options()["latent_dim"] == 256
    assert (fitted.gan.generator.latent_dim, len(fitted.gan.history)) == (6, 20)
    same = PLGMI(**STARTED, start_from=plain).fit(released, 1)
    assert same.losses == fitted.losses != PLGMI(**SMALL).fit(released, 1).losses
    assert len(fitted.generate(torch.tensor([0, 1, 2]), 0).rows) == 3


def test_an_attacks_generator_is_loaded_and_sampled_by_ctgan(
    released: ReleasedModel, schema: TableSchema, tmp_path: Path
) -> None:
    fitted = PLGMI(**SMALL).fit(released, 1)
    assert isinstance(fitted, FittedPLGMI)
    fitted.to_ctgan().save(tmp_path / "generator.pkl")
    model = CTGAN.load(tmp_path / "generator.pkl")
    model.set_random_state(3)
    rows = model.sample(200)
    assert list(rows.columns) == ["diagnosis", *schema.names] and len(rows) == 200
    assert set(rows["ward"]) <= {"a", "b", "c"} and set(rows["diagnosis"]) <= {"d0", "d1", "d2"}
    assert rows["visits"].dtype == np.int64 and rows["glucose"].between(-20, 40).all()
    # With equal latent vectors and classes it computes what our generator computes.
    z, labels = torch.randn(6, 12), torch.tensor([0, 1, 2, 0, 1, 2])
    with torch.no_grad():
        ours = fitted.gan.generator.raw(z, labels)
        theirs = model._generator(torch.cat([z, torch.nn.functional.one_hot(labels, 3).float()], 1))
    torch.testing.assert_close(theirs.roll(-3, 1), ours)
    decoded = model._transformer.inverse_transform(model._apply_activate(theirs).detach().numpy())
    assert len(decoded) == 6
    assert len(model.sample(30, "diagnosis", "d1")) == 30
    again = PLGMI(**STARTED, start_from=model)
    transform = transform_of(model, released.public, schema)
    player = TabularGenerator(transform.segments, 3, 12, (16, 8))
    start_from(player, model, schema)
    with torch.no_grad():
        torch.testing.assert_close(player.eval().raw(z, labels), ours)
    again.check(released)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"columns": "ward"}, "was not fitted on it"),
        ({"discrete": "visits"}, "must treat it as continuous"),
    ],
)
def test_columns_that_do_not_fit_are_named(released: ReleasedModel, change: dict[str, Any], said: str) -> None:
    frame = released.public.head(60).drop(columns=change.get("columns", []))
    discrete = [name for name in [*DISCRETE, change.get("discrete")] if name in frame]
    with pytest.raises(DataError, match=said):
        PLGMI(**STARTED, start_from=fit_ctgan(frame, discrete)).check(released)


def test_what_cannot_be_started_from_or_saved_is_refused(released: ReleasedModel, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="start_from needs bridge 'exact'"):
        PLGMI(bridge="shared", start_from="model.pkl")
    for given in ({"latent_dim": 256}, {"generator_dim": (16,)}):
        with pytest.raises(UsageError, match=f"plgmi: {next(iter(given))} cannot be set with start_from"):
            PLGMI(**given, start_from="model.pkl")
    with pytest.raises(UsageError, match=r"must be a file written by ctgan\.CTGAN\.save"):
        PLGMI(start_from=str(tmp_path / "none.pkl")).check(released)
    with pytest.raises(UsageError, match=r"must be a fitted ctgan\.CTGAN"):
        PLGMI(start_from=CTGAN(enable_gpu=False)).check(released)
    with pytest.raises(UnsupportedError, match="bridge 'exact'"):
        PLGMI(**SMALL, bridge="shared").fit(released, 1).to_ctgan()
