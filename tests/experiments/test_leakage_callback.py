"""One callback in a Lightning project that knows nothing of LightLeak: found, captured, attacked, logged, reported."""

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lightning
import pandas as pd
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

import lightleak
from lightleak.callbacks.module_capture import REFUSALS_IN_A_ROW, find_network
from lightleak.core.errors import UnsupportedError, UsageError
from lightleak.data.described_inputs import describe_inputs
from lightleak.data.encoder import TableEncoder
from lightleak.data.marginals import Marginals
from lightleak.experiments.leakage_callback import LeakageCallback

QUICK = {"inverting_gradients": {"steps": 5}}
NAME = "reconstruction/inverting_gradients/cell_accuracy"


class Project(lightning.LightningModule):
    """Layers of its own, in the LightningModule itself."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.last = nn.Linear(6, 20), nn.Linear(20, 20), nn.Linear(20, 2)
        self.dropout = nn.Dropout(0.2)
        self.loss = nn.CrossEntropyLoss()

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.dropout(torch.relu(self.second(torch.relu(self.first(x))))))

    def training_step(self, batch: Any, index: int) -> Tensor:
        inputs, labels = batch
        loss = self.loss(self(inputs), labels)
        self.log("train/loss", loss)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=0.01)


class Wrapped(Project):
    """One submodule holds all parameters."""

    def __init__(self) -> None:
        lightning.LightningModule.__init__(self)
        self.model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2))
        self.loss = nn.CrossEntropyLoss()

    def forward(self, x: Tensor) -> Tensor:
        return self.model(x)


class Chain(Project):
    def __init__(self) -> None:
        super().__init__()
        self.dropout.p = 0.0


class OneLogit(Project):
    """A chain with a single logit, as binary classifiers often are."""

    def __init__(self) -> None:
        lightning.LightningModule.__init__(self)
        self.model = nn.Sequential(nn.Linear(6, 20), nn.ReLU(), nn.Linear(20, 20), nn.ReLU(), nn.Linear(20, 1))

    def training_step(self, batch: Any, index: int) -> Tensor:
        inputs, labels = batch
        return nn.functional.binary_cross_entropy_with_logits(self.model(inputs).squeeze(-1), labels.float())


class OneLogitOfColumns(OneLogit):
    def training_step(self, batch: Any, index: int) -> Tensor:
        return nn.functional.binary_cross_entropy_with_logits(self.model(batch[0]), batch[1])


class LossOfOneElement(Wrapped):
    def training_step(self, batch: Any, index: int) -> Tensor:
        return super().training_step(batch, index).reshape(1)


class InDictionaries(Wrapped):
    def training_step(self, batch: Any, index: int) -> Tensor:
        return super().training_step((batch["x"], batch["y"]), index)


class Weighted(Wrapped):
    def __init__(self) -> None:
        super().__init__()
        self.loss = nn.CrossEntropyLoss(weight=torch.tensor([1.0, 3.0]))


class SometimesWeighted(Weighted):
    def training_step(self, batch: Any, index: int) -> Tensor:
        inputs, labels = batch
        return self.loss(self(inputs), labels) if index % 2 else nn.functional.cross_entropy(self(inputs), labels)


class Pairs(torch.utils.data.Dataset):
    def __init__(self, x: Tensor, y: Tensor) -> None:
        self.x, self.y = x, y

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, i: int) -> dict[str, Tensor]:
        return {"x": self.x[i], "y": self.y[i]}


@pytest.fixture(scope="module")
def rows() -> tuple[Tensor, Tensor]:
    draws = torch.Generator().manual_seed(1)
    kind = torch.nn.functional.one_hot(torch.randint(3, (48,), generator=draws), 3).float()
    x = torch.cat([torch.randn(48, 3, generator=draws), kind], -1)
    return x, (x[:, 0] > 0).long()


@pytest.fixture(scope="module")
def encoder(rows: tuple[Tensor, Tensor]) -> TableEncoder:
    return describe_inputs(rows[0], names=["a", "b", "c", "k0", "k1", "k2"], one_hot={"kind": ["k0", "k1", "k2"]})


Fit = Callable[..., lightning.Trainer]


@pytest.fixture
def fit(rows: tuple[Tensor, Tensor]) -> Fit:
    def run(
        project: type[Project], *callbacks: lightning.Callback, epochs: int = 2, data: Any = None
    ) -> lightning.Trainer:
        torch.manual_seed(5)
        trainer = lightning.Trainer(
            max_epochs=epochs,
            accelerator="cpu",
            callbacks=list(callbacks),
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        shuffle = not isinstance(data, IterableDataset)
        trainer.fit(project(), DataLoader(data or TensorDataset(*rows), batch_size=8, shuffle=shuffle))
        return trainer

    return run


@pytest.mark.parametrize("project", [Project, Wrapped])
def test_any_project_is_watched_and_trains_as_without(
    fit: Fit, encoder: TableEncoder, project: type[Project], tmp_path: Path
) -> None:
    plain = fit(project).lightning_module.state_dict()
    watch = LeakageCallback(encoder, QUICK, output=tmp_path / "run")
    trainer = fit(project, watch)
    for name, value in trainer.lightning_module.state_dict().items():
        assert torch.equal(value, plain[name]), name
    assert [taken.update.facts.epoch for taken in watch.captured] == [0, 1]
    assert 0 <= float(trainer.callback_metrics[NAME]) <= 1
    results = json.loads((tmp_path / "run" / "results.json").read_text())
    assert [row["epoch"] for row in results["rows"]] == [0, 1]
    # What was logged is what the report says: nothing is attacked twice.
    assert float(trainer.callback_metrics[NAME]) == pytest.approx(results["rows"][1]["cell_accuracy"])
    assert (tmp_path / "run" / "report.html").is_file()
    assert (tmp_path / "run").stat().st_mode & 0o077 == 0


def test_a_loss_of_shape_1_is_served(fit: Fit, encoder: TableEncoder) -> None:
    watch = LeakageCallback(encoder, QUICK)
    fit(LossOfOneElement, watch)
    assert len(watch.captured) == 2


def test_two_callbacks_with_other_attacks_watch_one_training(fit: Fit, encoder: TableEncoder) -> None:
    watches = [LeakageCallback(encoder, attack) for attack in ("random", QUICK, {"inverting_gradients": {"steps": 6}})]
    trainer = fit(Wrapped, *watches, epochs=1)
    assert len({watch.state_key for watch in watches}) == 3
    assert NAME in trainer.callback_metrics and all(len(watch.captured) == 1 for watch in watches)


class Stops(Wrapped):
    def on_train_epoch_end(self) -> None:
        if self.current_epoch == 1:
            raise ValueError("stop")


def test_a_report_is_on_one_training_after_an_interrupted_one(fit: Fit, encoder: TableEncoder, tmp_path: Path) -> None:
    watch = LeakageCallback(encoder, QUICK, output=tmp_path / "run")
    with pytest.raises(ValueError, match="stop"):
        fit(Stops, watch, epochs=3)
    trainer = fit(Smooth, watch, epochs=1)
    assert len(watch.captured) == len(watch.monitors[0].found) == 1
    (row,) = json.loads((tmp_path / "run" / "results.json").read_text())["rows"]
    assert row["cell_accuracy"] == pytest.approx(float(trainer.callback_metrics[NAME]))


class CallsForward(Project):
    def training_step(self, batch: Any, index: int) -> Tensor:
        return self.loss(self.forward(batch[0]), batch[1])


def test_a_network_that_is_not_called_is_told_once_and_at_the_end(fit: Fit, encoder: TableEncoder) -> None:
    watch = LeakageCallback(encoder, QUICK)
    first, end = told(fit, watch, CallsForward, epochs=2)
    assert "step 0 was not captured: its training step did not run the network" in first and "call self(x)" in first
    assert "no step of this training was captured" in end and "network=..." in end
    assert not watch.captured


def test_rows_that_make_no_full_batch_are_told_at_the_end(
    fit: Fit, encoder: TableEncoder, rows: tuple[Tensor, Tensor]
) -> None:
    data = TensorDataset(rows[0][:7], rows[1][:7])
    with pytest.warns(UserWarning, match=r"no step .* was captured; .* not full: \[7\]; per_epoch=None takes it"):
        fit(Wrapped, LeakageCallback(encoder, QUICK), epochs=1, data=data)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*captured")
        fit(Wrapped, LeakageCallback(encoder, QUICK, per_epoch=None), epochs=1, data=data)


def test_exact_inversion_proves_rows_of_a_chain_in_the_lightning_module(fit: Fit, encoder: TableEncoder) -> None:
    watch = LeakageCallback(encoder, "exact", max_captures=1)
    trainer = fit(Chain, watch, epochs=1)
    assert watch.captured[0].update.network["name"].startswith("own:Chain-")
    assert float(trainer.callback_metrics["reconstruction/exact/exact_match_rate"]) == 1.0


class Scaled(Wrapped):
    """Scales its inputs by buffers of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.model = nn.Sequential(nn.Linear(6, 20), nn.ReLU(), nn.Linear(20, 2))
        self.register_buffer("mean", torch.full((6,), 0.3))
        self.register_buffer("deviation", torch.full((6,), 2.0))

    def forward(self, x: Tensor) -> Tensor:
        return self.model((x - self.mean) / self.deviation)


def test_a_module_that_scales_the_inputs_of_its_network_is_named_as_the_network(
    fit: Fit, encoder: TableEncoder
) -> None:
    with pytest.warns(UserWarning, match=r"was not captured: .* changes inputs .* give network='self'"):
        fit(Scaled, LeakageCallback(encoder, QUICK), epochs=1)
    watch = LeakageCallback(encoder, QUICK, network="self")
    fit(Scaled, watch, epochs=1)
    assert len(watch.captured) == 1


class Compiled(Wrapped):
    def __init__(self) -> None:
        super().__init__()
        layers = nn.Linear(6, 20), nn.ReLU(), nn.Linear(20, 20), nn.ReLU(), nn.Linear(20, 2)
        self.model = torch.compile(nn.Sequential(*layers), backend="eager")


def test_a_compiled_network_is_watched_as_the_one_it_was_made_from(fit: Fit, encoder: TableEncoder) -> None:
    watch = LeakageCallback(encoder, "exact", max_captures=1)
    trainer = fit(Compiled, watch, epochs=1)
    assert float(trainer.callback_metrics["reconstruction/exact/exact_match_rate"]) == 1.0


class Smooth(Wrapped):
    """No chain of ReLU: its layers are found by tracing, within the optimizer's step."""

    def __init__(self) -> None:
        super().__init__()
        self.model = nn.Sequential(nn.Linear(6, 32), nn.GELU(), nn.Linear(32, 32), nn.GELU(), nn.Linear(32, 2))


def test_exact_inversion_traces_a_network_while_it_trains(fit: Fit, encoder: TableEncoder) -> None:
    watch = LeakageCallback(encoder, "exact", max_captures=1)
    trainer = fit(Smooth, watch, epochs=1)
    assert watch.monitors[0].trouble is None
    assert float(trainer.callback_metrics["reconstruction/exact/exact_match_rate"]) > 0.5


def test_attacks_that_do_not_apply_are_left_out_on_the_first_batch_and_listed(
    fit: Fit, encoder: TableEncoder, tmp_path: Path
) -> None:
    plain = fit(Wrapped).lightning_module.state_dict()
    watch = LeakageCallback(encoder, {**QUICK, "exact": {}}, output=tmp_path / "run", epochs=[1])
    steps: list[int] = []
    seen: list[str] = []

    class Watched(Wrapped):
        def training_step(self, batch: Any, index: int) -> Tensor:
            steps.append(self.trainer.global_step)
            return super().training_step(batch, index)

        def on_before_optimizer_step(self, optimizer: torch.optim.Optimizer) -> None:
            seen.append(watch.monitors[1].trouble or "")

    with pytest.warns(UserWarning, match="exact is left out of this training: .* by BatchNorm") as caught:
        trainer = fit(Watched, watch)
    assert len([one for one in caught if "is left out" in str(one.message)]) == 1
    assert "BatchNorm" in seen[0], "found out before the first step was taken, though epoch 1 alone is attacked"
    assert len(steps) == 12 and NAME in trainer.callback_metrics
    assert all(torch.equal(value, plain[name]) for name, value in trainer.lightning_module.state_dict().items())
    results = json.loads((tmp_path / "run" / "results.json").read_text())
    assert [row["attack"] for row in results["rows"]] == ["inverting_gradients"]
    assert "BatchNorm" in results["left_out"]["exact"]
    assert "Attacks that were left out" in (tmp_path / "run" / "report.html").read_text()


def test_batch_statistics_are_recorded_for_an_attack_that_knows_them(fit: Fit, encoder: TableEncoder) -> None:
    watch = LeakageCallback(encoder, {"gradinversion": {"steps": 2, "restarts": 1}}, max_captures=1)
    trainer = fit(Wrapped, watch, epochs=1)
    assert "reconstruction/gradinversion/cell_accuracy" in trainer.callback_metrics
    assert set(watch.captured[0].update.batch_statistics) == {"1.mean", "1.var"}


def test_an_attack_that_fails_later_keeps_what_it_found_and_ends_nothing(
    fit: Fit, encoder: TableEncoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = LeakageCallback(encoder, QUICK, output=tmp_path / "run")
    attack, runs = watch.monitors[0].attack, []

    def fail_from_the_second_on(*args: Any) -> Any:
        runs.append(args)
        if len(runs) > 1:
            raise RuntimeError("out of memory")
        return type(attack).run(attack, *args)

    monkeypatch.setattr(attack, "run", fail_from_the_second_on)
    with pytest.warns(UserWarning, match="inverting_gradients is left out .*RuntimeError: out of memory"):
        fit(Wrapped, watch, epochs=3)
    results = json.loads((tmp_path / "run" / "results.json").read_text())
    assert [row["epoch"] for row in results["rows"]] == [0] and len(runs) == 2
    assert results["left_out"] == {"inverting_gradients": "RuntimeError: out of memory"}


def test_a_report_that_cannot_be_written_ends_nothing(
    fit: Fit, encoder: TableEncoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise OSError("no space left")

    monkeypatch.setattr("lightleak.experiments.leakage_callback.run_updates", fail)
    with pytest.warns(UserWarning, match="no report was written to .*: no space left"):
        fit(Wrapped, LeakageCallback(encoder, QUICK, output=tmp_path / "run"), epochs=1)


class Stream(IterableDataset):
    """Rows that have no length."""

    def __init__(self, rows: tuple[Tensor, Tensor]) -> None:
        self.rows = rows

    def __iter__(self) -> Any:
        return zip(*self.rows, strict=True)


def test_a_loader_without_a_length_is_watched_as_some_of_the_steps(
    fit: Fit, encoder: TableEncoder, rows: tuple[Tensor, Tensor], tmp_path: Path
) -> None:
    watch = LeakageCallback(encoder, "random", per_epoch=None, output=tmp_path / "run")
    fit(Wrapped, watch, epochs=1, data=Stream(rows))
    assert len(watch.captured) == 6
    assert (tmp_path / "run" / "report.html").is_file()


@pytest.mark.parametrize("form", ["classes", "numbers", "column"])
def test_one_logit_under_binary_cross_entropy_is_two_classes(
    fit: Fit, encoder: TableEncoder, rows: tuple[Tensor, Tensor], form: str
) -> None:
    given = {"classes": rows[1], "numbers": rows[1].float(), "column": rows[1].float().unsqueeze(-1)}[form]
    project = OneLogit if form != "column" else OneLogitOfColumns
    watch = LeakageCallback(encoder, "exact", max_captures=1)
    trainer = fit(project, watch, epochs=1, data=TensorDataset(rows[0], given))
    update = watch.captured[0].update
    assert update.parameters["4.weight"].shape == (2, 20) and update.labels is not None
    assert torch.equal(update.update["4.bias"], update.update["4.bias"][1] * torch.tensor([-1.0, 1.0]))
    assert float(trainer.callback_metrics["reconstruction/exact/exact_match_rate"]) == 1.0


def test_labels_of_one_logit_must_be_binary(fit: Fit, encoder: TableEncoder, rows: tuple[Tensor, Tensor]) -> None:
    watch = LeakageCallback(encoder, QUICK)
    with pytest.warns(UserWarning, match="was not captured: labels of a network of one logit must be 0 or 1"):
        fit(OneLogit, watch, data=TensorDataset(rows[0], rows[1] + 0.5))
    assert not watch.captured


def test_batches_of_any_form_are_read_by_a_function(
    fit: Fit, encoder: TableEncoder, rows: tuple[Tensor, Tensor]
) -> None:
    watch = LeakageCallback(encoder, QUICK, batch=lambda batch: (batch["x"], batch["y"]), every=2)
    fit(InDictionaries, watch, epochs=3, data=Pairs(*rows))
    assert [taken.update.facts.epoch for taken in watch.captured] == [0, 2]
    unread = LeakageCallback(encoder, QUICK)
    with pytest.warns(UserWarning, match=r"gradient capture needs batches .* got dict.* batch=\.\.\. makes one"):
        fit(InDictionaries, unread, data=Pairs(*rows))
    assert not unread.captured
    wrong = LeakageCallback(encoder, QUICK, batch=lambda batch: (batch["X"], batch["y"]))
    with pytest.warns(UserWarning, match="was not captured: KeyError: 'X'"):
        fit(InDictionaries, wrong, data=Pairs(*rows))


def test_another_loss_is_found_out_and_left_out(fit: Fit, encoder: TableEncoder, tmp_path: Path) -> None:
    watch = LeakageCallback(encoder, QUICK, output=tmp_path / "run", max_captures=1)
    with pytest.warns(UserWarning, match="was not captured: .* must take the mean cross-entropy"):
        trainer = fit(Weighted, watch, epochs=1)
    assert not watch.captured and NAME not in trainer.callback_metrics
    assert not (tmp_path / "run").exists()


def told(fit: Fit, watch: LeakageCallback, project: type[Project], epochs: int) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fit(project, watch, epochs=epochs)
    return [str(one.message) for one in caught if "captured" in str(one.message) or "left out" in str(one.message)]


def test_another_loss_is_told_once_and_recorded_no_more(fit: Fit, encoder: TableEncoder) -> None:
    watch = LeakageCallback(encoder, QUICK, per_epoch=6)
    for _ in range(2):  # every training begins anew
        first, last_try, end = told(fit, watch, Weighted, epochs=4)
        assert "optimizer step 0 was not captured" in first and "mean cross-entropy" in first
        assert f"{REFUSALS_IN_A_ROW} steps in a row" in last_try and "nothing more is recorded" in last_try
        assert end.startswith(f"{REFUSALS_IN_A_ROW} of {REFUSALS_IN_A_ROW} recorded steps were left out")
        assert not watch.captured


def test_a_report_on_some_of_the_steps_says_so(fit: Fit, encoder: TableEncoder, tmp_path: Path) -> None:
    watch = LeakageCallback(encoder, QUICK, per_epoch=6, output=tmp_path / "run")
    warned = told(fit, watch, SometimesWeighted, epochs=2)
    assert len(warned) == 2 and warned[1].startswith("6 of 12 recorded steps were left out")
    assert len(watch.captured) == 6
    assert "6 of 12 recorded steps were left out" in (tmp_path / "run" / "report.html").read_text()


def test_a_prepared_table_brings_encoder_and_marginals() -> None:
    frame = pd.DataFrame({"age": range(20, 60), "sex": ["f", "m"] * 20, "ill": ["no", "no", "yes", "yes"] * 10})
    data = lightleak.prepare(frame, label="ill")
    watch = LeakageCallback(data, "random")
    assert watch.encoder is data.encoder and watch.marginals is data.marginals
    known = Marginals.of(data.schema, frame)
    assert LeakageCallback(data, "random", marginals=known).marginals is known


def test_labels_may_stay_hidden(fit: Fit, encoder: TableEncoder) -> None:
    watch = LeakageCallback(encoder, QUICK, labels="restored", max_captures=1)
    fit(Wrapped, watch, epochs=1)
    assert watch.captured[0].update.labels is None
    assert watch.monitors[0].attack.options()["labels"] != "true"


def test_the_baseline_guesses_with_marginals_and_without(
    fit: Fit, encoder: TableEncoder, rows: tuple[Tensor, Tensor]
) -> None:
    assert (
        "reconstruction/random/cell_accuracy"
        in fit(Wrapped, LeakageCallback(encoder, "random"), epochs=1).callback_metrics
    )
    known = Marginals.of(encoder.schema, encoder.decode(rows[0]))
    trainer = fit(Wrapped, LeakageCallback(encoder, "random", marginals=known), epochs=1)
    assert "reconstruction/random/cell_accuracy" in trainer.callback_metrics


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"attacks": "tableaux"}, "unknown attack 'tableaux'"),
        ({"attacks": {"tableak": {"stepz": 1}}}, "stepz"),
        ({"every": 0}, "every must be at least 1, got 0"),
        ({"labels": "guessed"}, "labels"),
        ({"per_epoch": 0}, "per_epoch must be at least 1"),
    ],
)
def test_wrong_settings_are_refused_at_once(encoder: TableEncoder, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        LeakageCallback(encoder, **{"attacks": QUICK, **settings})


def test_what_cannot_be_watched_is_refused_before_the_first_batch(
    fit: Fit, encoder: TableEncoder, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=r"network must name a module of Wrapped \(model, self\), got 'nosuch'"):
        fit(Wrapped, LeakageCallback(encoder, QUICK, network="nosuch"))
    narrow = describe_inputs(torch.randn(9, 4))
    with pytest.raises(UnsupportedError, match=r"must take encoded rows \[n, 4\]"):
        fit(Wrapped, LeakageCallback(narrow, QUICK))
    fit(Wrapped, LeakageCallback(encoder, QUICK, output=tmp_path / "run"), epochs=1)
    with pytest.raises(UsageError, match="holds the report of an earlier training"):
        fit(Wrapped, LeakageCallback(encoder, QUICK, output=tmp_path / "run"), epochs=1)


def test_the_network_is_the_only_child_that_holds_all_or_the_module() -> None:
    project, wrapped = Project(), Wrapped()
    assert find_network(project) is project and find_network(wrapped) is wrapped.model
    assert find_network(wrapped, "self") is wrapped and find_network(wrapped, "model.0") is wrapped.model[0]
    with pytest.raises(UsageError, match="has no parameters before the training"):
        find_network(lightning.LightningModule())


def test_no_warning_where_all_is_well(fit: Fit, encoder: TableEncoder) -> None:
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*was not captured.*")
        fit(Wrapped, LeakageCallback(encoder, QUICK), epochs=1)


def test_the_run_folder_is_called_output_and_its_old_name_is_accepted(encoder: TableEncoder, tmp_path: Path) -> None:
    with pytest.warns(DeprecationWarning, match="is now output"):
        assert LeakageCallback(encoder, QUICK, report=tmp_path).output == tmp_path


def test_people_of_a_prepared_table_are_its_rows(tmp_path: Path, fit: Fit) -> None:
    frame = pd.DataFrame({"age": range(20, 68), "pay": [i * 7 % 48 for i in range(48)], "ill": ["no", "yes"] * 24})
    frame = frame.assign(a=frame["pay"] % 5, b=frame["age"] % 7, sex=["f", "m", "m"] * 16)
    frame.index = pd.Index([f"patient {i}" for i in range(48)])
    table = lightleak.prepare(frame, label="ill")
    attacks = {"exact": {"patience": 1, "chains": 4, "sweeps": 2}, "random": {}}
    callback = LeakageCallback(table, attacks, output=tmp_path / "run", per_epoch=None, labels="restored")
    fit(Chain, callback, data=TensorDataset(*table.encode()))
    people, n_rows = callback.people, len(table.table.train)
    for _, of in people.groupby("attack"):
        assert sorted(of["person"]) == list(range(n_rows)) and of["seen"].eq(2).all()  # every batch of two epochs
        assert table.table.train_index is not None
        assert of["row"].tolist() == list(table.table.train_index[of["person"]])
    results = json.loads((tmp_path / "run" / "results.json").read_text())
    exact = next(one for one in results["people"] if one["attack"] == "exact")
    assert exact["is_whole"] and exact["curve"][-1]["seen"] == exact["n"] and exact["unit"] == "step"
    assert exact["proven"] == (people.query("attack == 'exact'")["verdict"] == "proven").sum() > 0
    assert exact["rows"] - exact["wrong"] == 2 * exact["n"] and exact["singling_out"]["control"]["n"] == exact["n"]


def test_people_of_rows_that_are_not_in_the_table_are_known_by_their_rows(
    tmp_path: Path, fit: Fit, encoder: TableEncoder, rows: tuple[Tensor, Tensor]
) -> None:
    callback = LeakageCallback(encoder, "random", output=tmp_path / "run", per_epoch=100)
    fit(Project, callback, epochs=2)
    assert callback.people["seen"].eq(2).all() and len(callback.people) == len(rows[0])
    assert json.loads((tmp_path / "run" / "results.json").read_text())["people"][0]["is_whole"]
    some = LeakageCallback(encoder, "random", output=tmp_path / "some", per_epoch=2)
    fit(Project, some, epochs=2)
    assert not json.loads((tmp_path / "some" / "results.json").read_text())["people"][0]["is_whole"]
    with pytest.raises(UsageError, match="output"):
        _ = LeakageCallback(encoder, "random").people
