"""Inputs that somebody else encoded: rows go through the encoder unchanged and come back in words."""

import pytest
import torch

from lightleak.core.errors import DataError, UsageError
from lightleak.data.described_inputs import describe_inputs
from lightleak.data.encoder import TableEncoder


def inputs(n: int = 50) -> torch.Tensor:
    numbers = torch.randn(n, 2)
    sex = torch.nn.functional.one_hot(torch.arange(n) % 2, 2).float()
    ward = torch.nn.functional.one_hot(torch.arange(n) % 3, 3).float()
    standardized = (ward - ward.mean(0)) / ward.std(0)
    return torch.cat([numbers[:, :1], sex, numbers[:, 1:], standardized], -1)


NAMES = ["age", "f", "m", "weight", "A", "B", "C"]
ONE_HOT = {"ward": ["A", "B", "C"], "sex": ["f", "m"]}


def test_rows_come_through_as_they_are() -> None:
    rows = inputs()
    encoder = describe_inputs(rows, names=NAMES, one_hot=ONE_HOT)
    assert encoder.schema.names == ("age", "sex", "weight", "ward")
    table = encoder.decode(rows)
    assert table["sex"].tolist() == ["f", "m"] * 25 and table["ward"].tolist()[:4] == ["A", "B", "C", "A"]
    assert torch.allclose(encoder.encode(table), rows, atol=1e-6)
    facts, tensors = encoder.to_state()
    assert TableEncoder.from_state(facts, tensors).schema == encoder.schema
    relaxed = encoder.relax(torch.randn(4, 7))
    assert (relaxed[:, 0] >= rows[:, 0].min() - 1e-6).all() and (relaxed[:, 0] <= rows[:, 0].max() + 1e-6).all()


def test_describing_a_loader_leaves_its_generators_as_they_are() -> None:
    rows = torch.utils.data.TensorDataset(torch.randn(12, 2), torch.arange(12) % 2)
    own = torch.Generator().manual_seed(3)
    sampler = torch.utils.data.RandomSampler(rows, generator=torch.Generator().manual_seed(4))
    for loader in (
        torch.utils.data.DataLoader(rows, batch_size=4, shuffle=True, generator=own),
        torch.utils.data.DataLoader(rows, batch_size=4, sampler=sampler, generator=own),
        torch.utils.data.DataLoader(rows, batch_sampler=torch.utils.data.BatchSampler(sampler, 4, False)),
    ):
        states = [one.get_state() for one in (own, sampler.generator)]
        describe_inputs(loader)
        for one, state in zip((own, sampler.generator), states, strict=True):
            assert torch.equal(one.get_state(), state)


def test_without_words_every_position_is_a_number() -> None:
    rows = torch.randn(20, 3)
    encoder = describe_inputs(rows, n_classes=4)
    assert encoder.schema.names == ("x0", "x1", "x2") and encoder.schema.n_classes == 4
    assert torch.allclose(encoder.encode(encoder.decode(rows)), rows, atol=1e-6)


def test_numbers_on_one_side_of_zero_come_through_and_nothing_says_that_their_mean_is_zero() -> None:
    rows = 5 + torch.rand(20, 2)
    encoder = describe_inputs(rows)
    assert encoder.encoding == "minmax"
    assert torch.allclose(encoder.encode(encoder.decode(rows)), rows, atol=1e-6)


def batch() -> dict[str, torch.Tensor]:
    codes = torch.tensor([[0, 2], [1, 0], [0, 1], [1, 2]])
    return {"number": torch.tensor([0.5, 1.5, -2.0, 3.0]), "codes": codes, "y": torch.tensor([[2], [0], [1], [1]])}


def test_integer_codes_become_one_hot_blocks_and_come_back() -> None:
    encoder = describe_inputs(batch(), codes={"codes_0": ["f", "m"], "codes_1": 4})
    assert encoder.schema.names == ("number", "codes_0", "codes_1") and encoder.schema.n_classes == 3
    assert [block.width for block in encoder.layout.blocks] == [1, 2, 4]
    assert encoder.form is not None
    rows, labels = encoder.form.read(batch())
    assert labels.tolist() == [2, 0, 1, 1]
    table = encoder.decode(rows)
    assert table["codes_0"].tolist() == ["f", "m", "f", "m"] and table["codes_1"].tolist() == ["2", "0", "1", "2"]
    number, codes = encoder.form.decode(rows)
    assert torch.equal(number, batch()["number"]) and torch.equal(codes, batch()["codes"])
    assert codes.dtype == torch.long


def test_the_described_rows_give_marginals_and_shuffling_loaders_draw_nothing() -> None:
    rows = list(zip(*batch().values(), strict=True))
    loader = torch.utils.data.DataLoader(rows, batch_size=3, shuffle=True)
    before = torch.random.get_rng_state()
    encoder = describe_inputs(loader, names=["number", "sex", "ward"])
    assert torch.equal(torch.random.get_rng_state(), before)
    assert encoder.marginals is not None and encoder.form is not None
    assert encoder.marginals.probabilities["ward"] == (0.25, 0.25, 0.5)
    assert [part.path for part in encoder.form.parts] == [(0,), (1,)]


def test_codes_one_hot_columns_and_numbers_share_a_tensor() -> None:
    rows = torch.cat([inputs(), (torch.arange(50) % 5).float().unsqueeze(1), torch.randn(50, 2)], -1)
    encoder = describe_inputs(rows, names=[*NAMES, "blood", "u", "v"], one_hot=ONE_HOT, codes=["blood"])
    assert encoder.form is not None
    encoded, _ = encoder.form.read((rows, torch.zeros(50)))
    assert encoded.shape == (50, 7 + 5 + 2) and encoder.decode(encoded)["blood"].tolist()[:3] == ["0", "1", "2"]
    assert torch.equal(encoder.form.decode(encoded)[0], rows)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"codes": ["a"]}, r"codes names positions that are not there: \['a'\]"),
        ({"codes": ["number"]}, "codes of position 'number' must be whole numbers from 0"),
        ({"codes": {"codes_1": 2}}, "codes of position 'codes_1' must be below 2, got 2"),
        ({"label": "z"}, "labels of a batch must be one of its tensors, number, codes, y: .* looked for z, found 0"),
    ],
)
def test_codes_and_labels_that_do_not_fit_are_named(words: dict, message: str) -> None:
    with pytest.raises((DataError, UsageError), match=message):
        describe_inputs(batch(), **words)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"codes": torch.tensor([[0, 5]])}, r"'codes_1' must be 0 to 2, got 5 to 5"),
        ({"codes": torch.tensor([[0]])}, r"batch\['codes'\] must have the shape \[1, 2\], got \[1, 1\]"),
        ({"codes": "no tensor"}, r"the batch has no tensor at \['codes'\]"),
    ],
)
def test_batches_of_another_form_are_named(change: dict, message: str) -> None:
    form = describe_inputs(batch()).form
    assert form is not None
    with pytest.raises(UsageError, match=message):
        form.read({key: value[:1] for key, value in batch().items()} | change)


@pytest.mark.parametrize(
    ("rows", "words", "message"),
    [
        (torch.randn(1, 3), {}, r"at least 2 rows, got \[1, 3\]"),
        (torch.randn(3), {}, r"inputs must be finite numbers \[n, d\]"),
        (torch.tensor([[1.0], [float("nan")]]), {}, "finite"),
        (torch.ones(3, 2), {}, "position 'x0' is constant"),
        (torch.randn(5, 2), {"names": ["a"]}, "names must be 2 different ones"),
        (torch.randn(5, 2), {"names": ["a", "a"]}, "names must be 2 different ones"),
        (torch.randn(5, 3), {"one_hot": {"c": ["x0", "x1"]}}, "must hold exactly 2 distinct values, got 5"),
        (torch.randn(5, 3), {"one_hot": {"c": ["x0", "x2"]}}, "follow each other"),
        (torch.randn(5, 3), {"one_hot": {"c": ["x0"]}}, "needs at least 2 positions"),
        (torch.randn(5, 3), {"one_hot": {"c": ["x0", "y"]}}, r"positions that are not there: \['y'\]"),
        (inputs(), {"names": NAMES, "one_hot": {"a": ["f", "m"], "b": ["f", "m"]}}, "share positions"),
        (inputs(), {"names": NAMES, "one_hot": {"a": ["A", "B"], "b": ["m", "weight", "A"]}}, "'a' and 'b' share"),
        (inputs(), {"names": NAMES, "one_hot": ONE_HOT, "codes": ["f"]}, r"codes and one_hot share positions: \['f'\]"),
    ],
)
def test_what_does_not_fit_is_named(rows: torch.Tensor, words: dict, message: str) -> None:
    with pytest.raises(DataError, match=message):
        describe_inputs(rows, **words)


ROWS, CLASSES = torch.randn(4, 2), torch.tensor([0, 1, 0, 1])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([], "at least one batch, got none"),
        ((), "at least one batch, got none"),
        (
            [(ROWS, CLASSES), (torch.randn(4, 3), CLASSES)],
            r"the same tensors: batch 0 has 0 \[4, 2\], batch 1 has 0 \[4, 3\]",
        ),
        (
            [{"x": ROWS, "y": CLASSES}, {"z": ROWS, "y": CLASSES}],
            r"the same tensors: batch 0 has x \[4, 2\], batch 1 has z \[4, 2\]",
        ),
        ({"y": CLASSES}, "inputs and labels, got labels alone"),
        ({"x": ROWS, "w": torch.arange(3), "y": CLASSES}, r"equally many rows, got x \[4, 2\], w \[3\]"),
        ({"x": ROWS, "y": CLASSES[:3]}, r"class indices, one for each row of x \[4, 2\], got \[3\]"),
        ((ROWS, torch.eye(4)), r"class indices, one for each row of 0 \[4, 2\], got \[4, 4\]"),
    ],
)
def test_batches_that_do_not_fit_are_named(given: object, message: str) -> None:
    with pytest.raises(DataError, match=message):
        describe_inputs(given)


def test_one_hot_columns_of_integers_are_no_codes() -> None:
    ward = torch.nn.functional.one_hot(torch.arange(4) % 3)
    encoder = describe_inputs({"x": ROWS, "w": ward, "y": CLASSES}, one_hot={"ward": ["w_0", "w_1", "w_2"]})
    assert encoder.form is not None
    encoded, _ = encoder.form.read({"x": ROWS, "w": ward, "y": CLASSES})
    assert torch.equal(encoded, torch.cat([ROWS, ward.float()], -1))
    assert encoder.decode(encoded)["ward"].tolist() == ["w_0", "w_1", "w_2", "w_0"]
    assert torch.equal(encoder.form.decode(encoded)[1], ward)
