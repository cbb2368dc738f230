from dataclasses import replace

import pytest
import torch

from lightleak.core.errors import DataError, UsageError
from lightleak.data.property import Property
from lightleak.experiments.kinds.vertical.config import AuxiliaryConfig, VerticalConfig
from lightleak.experiments.kinds.vertical.world import draw_auxiliary, load_whole, prepare_world

PLAIN = {
    "kind": "vertical",
    "data": {"name": "synthetic", "options": {"n_discrete": 3, "n_continuous": 2, "n_rows": 400}},
    "properties": ["d0=0"],
    "training": {"batch_size": 16},
    "auxiliary": {"size": 40},
}


def changed(**overrides):
    return VerticalConfig.parse(PLAIN, {key.replace("__", "."): value for key, value in overrides.items()})


@pytest.fixture(scope="module")
def wanted():
    _, frame = load_whole(changed().data)
    return Property("d0", str(frame["d0"].mode()[0]))


def test_rows_are_split_once_and_stay_aligned(wanted):
    config = changed()
    table, frame = load_whole(config.data)
    world = prepare_world(config, wanted, seed=3)
    ids = torch.cat([world.train.ids, world.test.ids])
    assert sorted(ids.tolist()) == list(range(len(frame)))
    assert len(world.test.ids) == 80
    labels = frame[table.schema.label.name].astype(str).to_numpy()
    classes = list(table.schema.label.categories)
    assert [classes.index(labels[i]) for i in world.train.ids.tolist()] == world.train.labels.tolist()
    assert (frame["d0"].astype(str) == wanted.value).to_numpy()[world.train.ids].tolist() == world.has_property.tolist()
    assert not torch.equal(world.train.ids, world.train.ids.sort().values)  # the order of training is random


def test_the_seed_draws_the_split_unless_it_is_fixed(wanted):
    first, again, other = (prepare_world(changed(), wanted, seed) for seed in (0, 0, 1))
    assert torch.equal(first.train.ids, again.train.ids)
    assert set(first.test.ids.tolist()) != set(other.test.ids.tolist())
    fixed = changed(data__split_seed=42)
    assert torch.equal(prepare_world(fixed, wanted, 0).train.ids, prepare_world(fixed, wanted, 1).train.ids)


def test_party_columns_are_where_the_widths_say(wanted):
    world = prepare_world(changed(), wanted, seed=0)
    own = world.columns_of(world.arrangement.victim)
    assert own == slice(0, world.train.widths[0])
    # The victim's first block is the property's own feature, one-hot.
    block = world.train.inputs[:, own]
    has = [column for column in block.T if torch.equal(column.bool(), world.has_property)]
    assert len(has) == 1


def test_auxiliary_rows_are_half_and_half_and_known(wanted):
    world = prepare_world(changed(), wanted, seed=0)
    _, auxiliary = draw_auxiliary(world, wanted, AuxiliaryConfig(size=40), seed=0)
    assert auxiliary.prior == 0.5
    position = {int(id): i for i, id in enumerate(world.train.ids)}
    true = [bool(world.has_property[position[int(id)]]) for id in auxiliary.ids]
    assert true == auxiliary.has_property.tolist()
    assert len(set(auxiliary.ids.tolist())) == 40
    assert auxiliary.columns == world.arrangement.columns[world.arrangement.adversary]


def test_mislabeled_rows_are_swapped(wanted):
    world = prepare_world(changed(), wanted, seed=0)
    _, right = draw_auxiliary(world, wanted, AuxiliaryConfig(size=40), seed=0)
    _, wrong = draw_auxiliary(world, wanted, AuxiliaryConfig(size=40, mislabeled=0.1), seed=0)
    assert torch.equal(right.ids, wrong.ids)
    assert int((right.has_property != wrong.has_property).sum()) == 4
    assert wrong.prior == 0.5


def test_a_repeated_row_is_mislabeled_in_all_its_copies(wanted):
    world = prepare_world(changed(), wanted, seed=0)
    _, auxiliary = draw_auxiliary(world, wanted, AuxiliaryConfig(size=320, mislabeled=0.2), seed=0)
    having, lacking = (auxiliary.ids[auxiliary.has_property == known].unique() for known in (True, False))
    assert not torch.isin(having, lacking).any()
    has = world.has_property[world.positions(auxiliary.ids.unique())]
    wrong = has != torch.isin(auxiliary.ids.unique(), having)
    assert int(wrong.sum()) == sum(round(0.2 * int((has == known).sum())) for known in (True, False))


@pytest.mark.parametrize("kind", ["adversary", "rows"])
def test_foreign_rows_leave_the_test_rows(wanted, kind):
    world = prepare_world(changed(), wanted, seed=0)
    settings = AuxiliaryConfig(size=40, misaligned=kind)
    trained, auxiliary = draw_auxiliary(world, wanted, settings, seed=0)
    assert len(trained.test.ids) == len(trained.test_has_property) == len(world.test.ids) - 40
    columns = slice(None) if kind == "rows" else world.columns_of(world.arrangement.adversary)
    foreign = trained.train.inputs[trained.positions(auxiliary.ids)][:, columns]
    left = trained.test.inputs[:, columns]
    assert not (foreign[:, None] == left[None]).all(-1).any()


def test_foreign_rows_leave_some_test_rows(wanted):
    world = prepare_world(changed(), wanted, seed=0)
    two = torch.stack([torch.nonzero(world.test_has_property == known)[0, 0] for known in (True, False)])
    world = replace(world, test=world.test.select(two), test_has_property=world.test_has_property[two])
    with pytest.raises(UsageError, match="takes all 2 test rows"):
        draw_auxiliary(world, wanted, AuxiliaryConfig(size=40, misaligned="rows"), seed=0)


@pytest.mark.parametrize("kind", ["adversary", "rows"])
def test_misaligned_rows_take_the_place_of_others(wanted, kind):
    world = prepare_world(changed(), wanted, seed=0)
    trained, auxiliary = draw_auxiliary(world, wanted, AuxiliaryConfig(size=40, misaligned=kind), seed=0)
    assert torch.equal(trained.train.ids, world.train.ids)
    at = torch.isin(world.train.ids, auxiliary.ids)
    victim, adversary = (trained.columns_of(party) for party in (0, 1))
    before, after = world.train.inputs, trained.train.inputs
    assert torch.equal(before[~at], after[~at])
    assert not torch.equal(before[at][:, adversary], after[at][:, adversary])
    if kind == "adversary":
        assert torch.equal(before[at][:, victim], after[at][:, victim])
        assert torch.equal(world.has_property, trained.has_property)
    else:
        position = {int(id): i for i, id in enumerate(trained.train.ids)}
        own = [bool(trained.has_property[position[int(id)]]) for id in auxiliary.ids]
        assert own == auxiliary.has_property.tolist()


def test_too_few_rows_are_repeated(wanted):
    world = prepare_world(changed(), wanted, seed=0)
    _, auxiliary = draw_auxiliary(world, wanted, AuxiliaryConfig(size=320), seed=0)
    assert len(auxiliary.ids) == 320
    assert len(set(auxiliary.ids.tolist())) < 320


def test_more_auxiliary_than_training_rows_are_refused(wanted):
    world = prepare_world(changed(), wanted, seed=0)
    with pytest.raises(UsageError, match=r"auxiliary.size must be at most 320 \(training rows\), got 322"):
        draw_auxiliary(world, wanted, AuxiliaryConfig(size=322), seed=0)


def test_a_property_nobody_has_is_refused(wanted):
    world = prepare_world(changed(), wanted, seed=0)
    nobody = torch.zeros_like(world.has_property)
    with pytest.raises(DataError, match="absent from these rows, or all have it"):
        draw_auxiliary(type(world)(**{**vars(world), "has_property": nobody}), wanted, AuxiliaryConfig(size=4), seed=0)


def test_a_batch_larger_than_the_training_rows_is_refused(wanted):
    with pytest.raises(UsageError, match="at most 320"):
        prepare_world(changed(training__batch_size=321), wanted, 0)


def test_the_published_order_takes_no_other_parties(wanted):
    with pytest.raises(UsageError, match="published fixes the parties"):
        prepare_world(changed(parties__order="published", parties__number=3), wanted, 0)
