"""Label replacement changes what is trained on for the rows it says, and nothing else."""

from typing import Any

import lightning
import pytest
import torch
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset

from lightleak.attacks.property_inference.label_replacement import LabelReplacement, LabelReplacementConfig
from lightleak.core.errors import UnsupportedError, UsageError
from lightleak.data.vertical import VerticalDataModule, VerticalRows
from lightleak.targets.split import Exchange, SplitClassifier, SplitSpec

pytestmark = pytest.mark.filterwarnings("ignore::lightning.pytorch.utilities.warnings.PossibleUserWarning")
N_ROWS, BATCH_SIZE = 40, 8
WIDTHS = (3, 2)


def rows(n_classes: int = 2) -> VerticalRows:
    draw = torch.Generator().manual_seed(0)
    labels = torch.randint(n_classes, (N_ROWS,), generator=draw)
    ids = torch.randperm(200, generator=draw)[:N_ROWS]
    return VerticalRows(torch.randn(N_ROWS, 5, generator=draw), labels, ids, WIDTHS)


def fit(data: VerticalRows, *callbacks: lightning.Callback, n_classes: int = 2, epochs: int = 2) -> SplitClassifier:
    module = SplitClassifier(SplitSpec(WIDTHS, n_classes), seed=0)
    trainer = lightning.Trainer(
        accelerator="cpu",
        max_epochs=epochs,
        callbacks=list(callbacks),
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(module, datamodule=VerticalDataModule(data, data, BATCH_SIZE))
    return module


class Witness(lightning.Callback):
    """Keeps every exchange."""

    def __init__(self) -> None:
        self.seen: list[Exchange] = []

    def on_train_batch_end(self, trainer: Any, pl_module: Any, *_: Any) -> None:
        self.seen.append(pl_module.exchange)


def same(one: SplitClassifier, other: SplitClassifier) -> bool:
    a, b = one.network.state_dict(), other.network.state_dict()
    return all(torch.equal(a[name], b[name]) for name in a)


def with_labels(data: VerticalRows, labels: Tensor) -> VerticalRows:
    return VerticalRows(data.inputs, labels, data.ids, data.widths)


# Row 3 comes twice, and the second time with another property: the first counts.
AUXILIARY = torch.tensor([3, 30, 11, 3, 25])
PROPERTY = torch.tensor([True, False, True, False, True])


def test_only_the_auxiliary_rows_are_relabelled() -> None:
    data = rows()
    callback = LabelReplacement(LabelReplacementConfig(), data.ids[AUXILIARY], PROPERTY)
    expected = data.labels.clone()
    expected[[3, 30, 11, 25]] = torch.tensor([1, 0, 1, 1])
    assert torch.equal(callback.relabel(data.ids, data.labels), expected)
    assert torch.equal(callback.relabel(torch.tensor([1000, -1]), torch.tensor([1, 0])), torch.tensor([1, 0]))


@pytest.mark.parametrize("query_relabelled", [False, True])
def test_training_is_that_on_a_relabelled_table(query_relabelled: bool) -> None:
    """The slow reference writes the property into the table; gradients are queried of one loss or the other."""
    data = rows()
    config = LabelReplacementConfig(query_relabelled=query_relabelled)
    callback, witness, other = LabelReplacement(config, data.ids[AUXILIARY], PROPERTY), Witness(), Witness()
    replaced = fit(data, callback, witness)
    labels = callback.relabel(data.ids, data.labels)
    assert not torch.equal(labels, data.labels)
    reference = fit(with_labels(data, labels), other)
    assert same(replaced, reference)
    assert not same(replaced, fit(data))
    for step, plain in zip(witness.seen, other.seen, strict=True):
        assert torch.equal(step.outputs, plain.outputs)
        changed = torch.isin(step.ids, data.ids[labels != data.labels])
        equal = (step.gradients == plain.gradients).all(2).all(0)
        assert equal[~changed].all()
        # Where a label was replaced, the gradient of the true label's loss points the other way.
        assert equal[changed].all() if query_relabelled else (step.gradients * plain.gradients)[:, changed].sum() <= 0


@pytest.mark.parametrize("inverted", [False, True])
def test_the_label_that_goes_with_the_property_stands_for_it(inverted: bool) -> None:
    data = rows()
    labels = (torch.arange(N_ROWS) % 2 == 0).long()
    data = with_labels(data, labels)
    known = torch.arange(10)
    # Four in five of the known rows with the property have one label, and none of the others.
    has = (labels[:10] == 1) != inverted
    has[0] = not has[0]
    callback = LabelReplacement(LabelReplacementConfig(), data.ids[known], has)
    fit(data, callback, epochs=1)
    assert callback.inverted == inverted
    expected = torch.cat([(has != inverted).long(), labels[10:]])
    assert torch.equal(callback.relabel(data.ids, labels), expected)
    assert int((expected != labels).sum()) == 1
    printed = LabelReplacement(LabelReplacementConfig(orientation="printed"), data.ids[known], has)
    fit(data, printed, epochs=1)
    assert not printed.inverted


@pytest.mark.parametrize(("n_auxiliary", "n_replaced"), [(1, 8), (8, 8), (9, 16), (40, 40)])
def test_first_batches_are_those_that_the_auxiliary_rows_would_fill(n_auxiliary: int, n_replaced: int) -> None:
    """The published rule: a batch is replaced while batch * size < auxiliary rows, in every epoch."""
    data = rows()
    has = torch.arange(N_ROWS) % 3 == 0
    callback = LabelReplacement(
        LabelReplacementConfig("first_batches", orientation="printed"), data.ids, has, n_auxiliary
    )
    labels = torch.where(torch.arange(N_ROWS) < n_replaced, has.long(), data.labels)
    assert same(fit(data, callback), fit(with_labels(data, labels)))


def test_labels_are_given_back() -> None:
    data = rows()

    class Break(lightning.Callback):
        def on_train_epoch_end(self, *_: Any) -> None:
            raise RuntimeError("broken")

    callback = LabelReplacement(LabelReplacementConfig(query_relabelled=True), data.ids[AUXILIARY], PROPERTY)
    module = fit(data, callback)
    assert (module.relabel, module.query_relabeled) == (None, False)
    module = SplitClassifier(SplitSpec(WIDTHS), seed=0)
    trainer = lightning.Trainer(
        accelerator="cpu",
        max_epochs=1,
        callbacks=[callback, Break()],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
    )
    with pytest.raises(RuntimeError, match="broken"):
        trainer.fit(module, datamodule=VerticalDataModule(data, data, BATCH_SIZE))
    assert (module.relabel, module.query_relabeled) == (None, False)


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(UsageError, match="rows must be one of auxiliary, first_batches; got 'all'"):
        LabelReplacementConfig("all")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="orientation must be one of agreeing, printed; got 'other'"):
        LabelReplacementConfig(orientation="other")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"shape \[m\], got \(5,\) and \(4,\)"):
        LabelReplacement(LabelReplacementConfig(), AUXILIARY, PROPERTY[:4])
    data = rows(3)
    callback = LabelReplacement(LabelReplacementConfig(), data.ids[AUXILIARY], PROPERTY)
    with pytest.raises(UnsupportedError, match="the task has 3"):
        fit(data, callback, n_classes=3)
    batches = DataLoader(TensorDataset(data.inputs, data.labels.clamp(max=1), data.ids))
    with pytest.raises(
        UsageError, match="'agreeing' reads labels from a VerticalLoader, got DataLoader; use 'printed'"
    ):
        lightning.Trainer(
            accelerator="cpu", max_epochs=1, callbacks=[callback], logger=False, enable_checkpointing=False
        ).fit(SplitClassifier(SplitSpec(WIDTHS), seed=0), batches)
    with pytest.raises(UsageError, match="already replaced"):
        fit(rows(), callback, LabelReplacement(LabelReplacementConfig(), data.ids[AUXILIARY], PROPERTY))


def test_as_published_is_what_the_code_does() -> None:
    published = LabelReplacementConfig("first_batches", query_relabelled=True, orientation="printed")
    assert LabelReplacementConfig.as_published() == published
