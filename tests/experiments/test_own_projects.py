"""Projects as users have them: embeddings of integer codes, BatchNorm, dropout, attention, batches of any form."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lightning
import pytest
import pytorch_lightning  # noqa: TID251  pytorch-tabular's trainers are of this package
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

import lightleak
from lightleak.core.observations import ClientUpdate

WIDTHS = (4, 3, 6)
QUICK = {"inverting_gradients": {"steps": 20}, "random": {}}


def columns() -> tuple[Tensor, Tensor, Tensor]:
    draws = torch.Generator().manual_seed(3)
    codes = torch.stack([torch.randint(width, (48,), generator=draws) for width in WIDTHS], 1)
    codes[0] = torch.tensor(WIDTHS) - 1
    numbers = 40 + 10 * torch.randn(48, 3, generator=draws)
    return numbers, codes, (numbers[:, 0] > 40).long()


class Records(Dataset):
    def __init__(self) -> None:
        self.rows = columns()

    def __len__(self) -> int:
        return len(self.rows[0])

    def __getitem__(self, i: int) -> dict[str, Tensor]:
        numbers, codes, labels = (column[i] for column in self.rows)
        return {"numbers": numbers, "codes": codes, "target": labels.reshape(1)}


class Parts:
    """An embedding per column, BatchNorm on the numbers, dropout, Adam; for either package of Lightning."""

    def __init__(self) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(width, 4) for width in WIDTHS)
        self.norm = nn.BatchNorm1d(3)
        self.rest = nn.Sequential(nn.Dropout(0.1), nn.Linear(15, 16), nn.ReLU(), nn.Linear(16, 2))

    def forward(self, numbers: Tensor, codes: Tensor) -> Tensor:
        embedded = [table(codes[:, i]) for i, table in enumerate(self.tables)]
        return self.rest(torch.cat([self.norm(numbers), *embedded], 1))

    def training_step(self, batch: Any, index: int) -> Tensor:
        return nn.functional.cross_entropy(self(batch["numbers"], batch["codes"]), batch["target"].squeeze(1))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters())


class Project(Parts, lightning.LightningModule):
    pass


class ProjectOfTheOtherPackage(Parts, pytorch_lightning.LightningModule):
    pass


class Frozen(Project):
    """Its normalization stays in eval mode."""

    def __init__(self) -> None:
        super().__init__()
        self.norm.eval()
        self.norm.running_mean.fill_(40.0)
        self.norm.running_var.fill_(100.0)


class Attention(Project):
    """Stock attention with its dropout; takes the batch itself."""

    def __init__(self) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(width, 8) for width in WIDTHS)
        self.token, self.lift = nn.Parameter(torch.randn(1, 1, 8)), nn.Linear(3, 8)
        self.mix, self.rest = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), nn.Linear(8, 2)
        del self.norm

    def forward(self, batch: dict[str, Tensor]) -> Tensor:
        tokens = [self.lift(batch["numbers"] / 40), *(t(batch["codes"][:, i]) for i, t in enumerate(self.tables))]
        rows = torch.cat([self.token.expand(len(tokens[0]), 1, 8), torch.stack(tokens, 1)], 1)
        return self.rest(self.mix(rows)[:, 0])

    def training_step(self, batch: Any, index: int) -> Tensor:
        return nn.functional.cross_entropy(self(batch), batch["target"].squeeze(1))


class Wide(Frozen):
    """Without dropout, with two hidden layers."""

    def __init__(self) -> None:
        super().__init__()
        layers = nn.Linear(15, 64), nn.ReLU(), nn.Linear(64, 48), nn.ReLU(), nn.Linear(48, 2)
        self.rest = nn.Sequential(*layers)


class OfTuples(Project):
    def training_step(self, batch: Any, index: int) -> Tensor:
        numbers, codes, labels = batch
        return nn.functional.cross_entropy(self(numbers, codes), labels)


class OneTensor(Project):
    """Codes stand among the numbers of one tensor."""

    def forward(self, rows: Tensor) -> Tensor:
        return super().forward(rows[:, :3], rows[:, 3:].long())

    def training_step(self, batch: Any, index: int) -> Tensor:
        return nn.functional.cross_entropy(self(batch[0]), batch[1])


Package = Any


def fit(project: Callable[[], Any], data: Any, *callbacks: Any, package: Package = lightning) -> Any:
    torch.manual_seed(5)
    trainer = package.Trainer(
        max_epochs=1,
        accelerator="cpu",
        callbacks=list(callbacks),
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    model = project()
    trainer.fit(model, DataLoader(data, batch_size=8, shuffle=True))
    return trainer, model


def audit(project: Callable[[], Any], data: Any, folder: Path, package: Package = lightning, **words: Any) -> Any:
    """What three lines give: the report's rows, the captured update, and the trained weights as without them."""
    _, plain = fit(project, data, package=package)
    inputs = data.tensors[0] if words else DataLoader(data, batch_size=10)
    encoder = lightleak.describe_inputs(inputs, **words)
    watch = lightleak.LeakageCallback(encoder, QUICK, output=folder, max_captures=1)
    _, model = fit(project, data, watch, package=package)
    for name, value in model.state_dict().items():
        assert torch.equal(value, plain.state_dict()[name]), name
    assert (folder / "report.html").is_file()
    rows = json.loads((folder / "results.json").read_text())["rows"]
    return {row["attack"]: row for row in rows}, watch.captured[0].update


@pytest.mark.parametrize(
    ("project", "data"),
    [
        (Project, Records()),
        (Frozen, Records()),
        (Attention, Records()),
        (OfTuples, TensorDataset(*columns())),
    ],
)
def test_a_project_of_embeddings_is_audited(project: Callable[[], Any], data: Any, tmp_path: Path) -> None:
    rows, update = audit(project, data, tmp_path / "run")
    assert set(rows) == set(QUICK), "attacks that follow gradients reach the categories"
    assert all(0 <= row["cell_accuracy"] <= 1 for row in rows.values())
    assert update.network["name"].startswith(f"own:{project.__name__}-")
    assert update.marginals is not None and "network.tables.0.weight" in update.parameters
    named = {f"{kind}_{i}" for kind in ("numbers", "codes") for i in range(3)}
    assert set(rows["random"]["column_accuracy"]) == ({f"x{i}" for i in range(6)} if project is OfTuples else named)


def test_codes_may_stand_among_numbers(tmp_path: Path) -> None:
    numbers, codes, labels = columns()
    data = TensorDataset(torch.cat([numbers, codes.float()], 1), labels)
    names = ["age", "height", "weight", "ward", "sex", "blood"]
    rows, _ = audit(
        OneTensor, data, tmp_path / "run", names=names, codes={"ward": 4, "sex": ["f", "m", "x"], "blood": 6}
    )
    assert set(rows) == set(QUICK)


def test_a_trainer_of_the_other_package_is_served(tmp_path: Path) -> None:
    rows, update = audit(ProjectOfTheOtherPackage, Records(), tmp_path / "run", package=pytorch_lightning)
    assert set(rows) == set(QUICK)
    assert isinstance(update, ClientUpdate) and update.facts.optimizer == "adam"


def test_codes_beyond_those_described_are_named(tmp_path: Path) -> None:
    data = Records()
    first = {key: value[:8] for key, value in zip(("numbers", "codes", "target"), data.rows, strict=True)}
    first["codes"] = first["codes"].clamp(max=1)
    watch = lightleak.LeakageCallback(lightleak.describe_inputs(first), QUICK)
    with pytest.warns(UserWarning, match=r"codes of column 'codes_\d' must be 0 to 1, got .* all of the training data"):
        fit(Project, data, watch)
    assert not watch.captured


def test_every_row_behind_embeddings_of_codes_is_proven(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(QUICK, "exact", {})
    rows, _ = audit(Wide, Records(), tmp_path / "run")
    assert rows["exact"]["cell_accuracy"] == 1 and rows["exact"]["certified_accuracy"] == 1
    assert rows["exact"]["certified_rows"] == 8 and rows["exact"]["certified_wrong"] == 0
