"""What holds for every defense, and how one is added, named and refused."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import lightning
import pytest
import torch
from torch import Tensor

from lightleak.core.errors import UsageError
from lightleak.core.seeds import generator
from lightleak.data.vertical import VerticalDataModule, VerticalRows
from lightleak.defenses.draws import laplace
from lightleak.defenses.vertical import VERTICAL_DEFENSES, VerticalDefense, make_defense
from lightleak.targets.split import SplitClassifier, SplitSpec, Transform

NAMES = ("laplace", "none", "ppdl", "r3elu", "shuffle", "withdraw")
ACTS_ON_ROWS = {"shuffle", "withdraw"}


@pytest.fixture
def halved() -> Iterator[str]:
    """A defense made in one place: gradients come back halved."""

    class Halve(Transform):
        def gradients(self, gradients: Tensor, outputs: Tensor) -> Tensor:
            return gradients / 2

    @dataclass(frozen=True)
    class HalveDefense(VerticalDefense):
        name = "halve"
        citation = ""

        @property
        def strength(self) -> float:
            return 0.5

        def transform(self, seed: int) -> Transform:
            return Halve()

        def describe(self) -> str:
            return "halved gradients"

    VERTICAL_DEFENSES.register("halve")(HalveDefense)
    yield "halve"
    del VERTICAL_DEFENSES._entries["halve"]


@pytest.mark.parametrize("name", ["laplace", "ppdl", "r3elu"])
def test_processes_draw_apart_and_one_alone_as_ever(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A transform is made before its process knows its rank."""
    values = torch.linspace(-1, 1, 64).view(2, 4, 8)
    made = [make_defense(name).transform(0) for _ in range(3)]
    sent = [[made[0].outputs(values, True), made[0].outputs(values, False), made[0].gradients(values, values)]]
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    for rank, one in enumerate(made[1:]):
        monkeypatch.setattr(torch.distributed, "get_rank", lambda rank=rank: rank)
        sent.append([one.outputs(values, True), one.outputs(values, False), one.gradients(values, values)])
    alone, first, second = sent
    assert all(map(torch.equal, alone, first))
    drawn = slice(None) if name == "r3elu" else slice(2, None)
    assert not any(map(torch.equal, first[drawn], second[drawn]))


def test_one_process_draws_the_stream_of_its_seed() -> None:
    zeros = torch.zeros(2, 4, 8)
    expected = laplace(zeros.shape, 0.5, zeros, generator(3, "defense", "laplace"))
    assert torch.equal(make_defense("laplace", {"scale": 0.5}).transform(3).gradients(zeros, zeros), expected)


def train(rows: VerticalRows, transform: Transform | None, epochs: int = 1) -> SplitClassifier:
    """Train on small numbers for an epoch, all in the order of the rows."""
    shrunk = VerticalRows(rows.inputs / 40, rows.labels, rows.ids, rows.widths)
    module = SplitClassifier(SplitSpec(rows.widths, output_width=4), seed=0)
    if transform is not None:
        module.transform = transform
    trainer = lightning.Trainer(
        max_epochs=epochs,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        accelerator="cpu",
    )
    trainer.fit(module, VerticalDataModule(shrunk, shrunk, batch_size=8).train_dataloader())
    return module


def weights(module: SplitClassifier) -> Tensor:
    """All weights in one vector."""
    return torch.cat([parameter.detach().flatten() for parameter in module.parameters()])


def test_registry_holds_the_paper_defenses() -> None:
    assert VERTICAL_DEFENSES.names() == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_options_make_the_same_defense_again(name: str) -> None:
    defense = make_defense(name)
    options = json.loads(json.dumps(defense.options()))
    assert make_defense(name, options) == defense
    assert defense.describe()
    assert defense.strength is None or defense.strength in options.values()


@pytest.mark.parametrize("name", NAMES)
def test_preparing_leaves_the_given_rows_alone_and_follows_the_seed(
    name: str, rows: VerticalRows, has_property: Tensor
) -> None:
    before = rows.inputs.clone()
    first, again, other = (make_defense(name).prepare(rows, has_property, 1, seed) for seed in (3, 3, 4))
    assert torch.equal(rows.inputs, before)
    assert torch.equal(first.rows.inputs, again.rows.inputs) and torch.equal(first.source, again.source)
    assert torch.equal(first.rows.ids, rows.ids[first.source])
    assert torch.equal(first.rows.labels, rows.labels[first.source])
    assert torch.equal(first.has_property, has_property[first.source])
    differs = not torch.equal(first.rows.inputs, other.rows.inputs)
    assert differs == (name in ACTS_ON_ROWS)
    if name not in ACTS_ON_ROWS:
        assert first.rows is rows


@pytest.mark.parametrize("name", NAMES)
def test_every_defense_trains_and_repeats(name: str, rows: VerticalRows) -> None:
    runs = [weights(train(rows, make_defense(name).transform(seed))) for seed in (0, 0, 1)]
    undefended = weights(train(rows, None))
    assert torch.equal(runs[0], runs[1])
    acts = name in {"laplace", "ppdl", "r3elu"}
    assert torch.equal(runs[0], runs[2]) != acts
    assert torch.equal(runs[0], undefended) != acts


@pytest.mark.parametrize("name", ["laplace", "ppdl"])
def test_the_active_party_sees_gradients_before_the_defense(name: str, rows: VerticalRows) -> None:
    one_batch = VerticalRows(rows.inputs[:8], rows.labels[:8], rows.ids[:8], rows.widths)
    defended, plain = train(one_batch, make_defense(name).transform(0)), train(one_batch, None)
    assert defended.exchange is not None and plain.exchange is not None
    assert torch.equal(defended.exchange.gradients, plain.exchange.gradients)
    assert not torch.equal(weights(defended), weights(plain))


def test_a_new_defense_is_one_class(halved: str, rows: VerticalRows) -> None:
    defense = make_defense("weak", {"defense": halved})
    assert defense.describe() == "halved gradients"
    assert not torch.equal(weights(train(rows, defense.transform(0))), weights(train(rows, None)))


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("laplce", {}, "did you mean 'laplace'"),
        ("laplace", {"sigma": 1.0}, "'laplace' has no setting sigma; settings: scale"),
        ("none", {"scale": 1.0}, "settings: none"),
        ("laplace", {"scale": 0.0}, "laplace: scale must be above 0, got 0.0"),
        ("laplace", {"scale": float("nan")}, "got nan"),
        ("laplace", {"scale": float("inf")}, "got inf"),
        ("laplace", {"scale": "much"}, "got 'much'"),
        ("laplace", {"scale": True}, "got True"),
        ("ppdl", {"ratio": 1.5}, "ppdl: ratio must be above 0 and at most 1, got 1.5"),
        ("ppdl", {"epsilon": -1}, "ppdl: epsilon"),
        ("ppdl", {"bound": 0}, "ppdl: bound"),
        ("ppdl", {"as_published": 1}, "ppdl: as_published must be true or false, got 1"),
        ("r3elu", {"epsilon": 0}, "r3elu: epsilon"),
        ("r3elu", {"gradient_bound": 0}, "r3elu: gradient_bound"),
        ("r3elu", {"per": "batch"}, "r3elu: per must be one of record, value, got 'batch'"),
        ("r3elu", {"kept": 0}, "r3elu: kept must be at least 1, got 0"),
        ("r3elu", {"kept": 2.5}, "got 2.5"),
        ("r3elu", {"at_test": None}, "r3elu: at_test must be true or false"),
        ("shuffle", {"ratio": -0.1}, "shuffle: ratio"),
        ("shuffle", {"ratio": 1.1}, "at most 1, got 1.1"),
        ("withdraw", {"ratio": 1.0}, "withdraw: ratio must be above 0 and below 1, got 1.0"),
        ("withdraw", {"as_published": "no"}, "withdraw: as_published must be true or false, got 'no'"),
    ],
)
def test_what_cannot_be_is_refused_by_name(name: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as error:
        make_defense(name, options)
    assert message in str(error.value)


@pytest.mark.parametrize("name", NAMES)
def test_wrong_rows_are_refused(name: str, rows: VerticalRows, has_property: Tensor) -> None:
    defense = make_defense(name)
    with pytest.raises(UsageError, match=r"victim_party must be at least 0 and below 3 \(parties\), got 3"):
        defense.prepare(rows, has_property, 3, 0)
    with pytest.raises(UsageError, match=r"bool tensor of shape \[40\], got torch.int64"):
        defense.prepare(rows, has_property.long(), 0, 0)
    with pytest.raises(UsageError, match=r"of shape \(39,\)"):
        defense.prepare(rows, has_property[1:], 0, 0)
