"""Federated averaging on a Trainer: it is the algorithm of the paper, learns, and resumes to the same bits."""

import copy
import dataclasses
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

import lightning
import pytest
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from lightleak.core.errors import UnsupportedError, UsageError
from lightleak.core.seeds import derive_seed, generator
from lightleak.data.layout import EncodedLayout
from lightleak.defenses.horizontal import DPSGD
from lightleak.defenses.horizontal.defense import UpdateDefense
from lightleak.defenses.horizontal.noise import GaussianNoise
from lightleak.protocols.client_training import LocalTraining, row_order
from lightleak.protocols.federated_data import FederatedData
from lightleak.protocols.federation import FederatedAveraging, Round
from lightleak.targets import NetworkSpec, build_network
from lightleak.targets.classifier import TabularClassifier
from lightleak.targets.normalization import batch_statistics

N_ROWS, N_HELD, N_CLIENTS = 300, 200, 12
EQUAL = [range(client, N_ROWS, N_CLIENTS) for client in range(N_CLIENTS)]
UNEQUAL = [60, 7, 30, 2, 50, 12, 40, 3, 20, 36, 25, 15]
"""Rows of the clients by default; most have rows of one class alone."""
HARD = {"norm": "batch", "dropout": 0.3}
LOCAL = LocalTraining(epochs=2, batch_size=16, learning_rate=0.1, momentum=0.5)

pytestmark = [
    pytest.mark.filterwarnings("ignore::lightning.pytorch.utilities.warnings.PossibleUserWarning"),
    pytest.mark.filterwarnings("ignore:.*treespec, LeafSpec.*"),
    # Lightning explains that a checkpoint within a round holds the weights after the server's step, which is meant.
    pytest.mark.filterwarnings("ignore:Using ModelCheckpoint with manual optimization"),
    pytest.mark.filterwarnings("ignore:Be aware that when using `ckpt_path`"),
]


def table() -> tuple[TensorDataset, TensorDataset]:
    """Five numbers, of which a linear rule with noise makes a label; 62% of the rows are of class 0."""
    draw = torch.Generator().manual_seed(7)
    inputs = torch.randn(N_ROWS + N_HELD, 5, generator=draw)
    rule = torch.tensor([1.0, -2.0, 0.5, 0.0, 1.0])
    labels = (inputs @ rule + 0.5 * torch.randn(len(inputs), generator=draw) > 0.8).long()
    return TensorDataset(inputs[:N_ROWS], labels[:N_ROWS]), TensorDataset(inputs[N_ROWS:], labels[N_ROWS:])


def spec_of(**options: Any) -> NetworkSpec:
    return NetworkSpec("mlp", 2, EncodedLayout.of_numerical(5), {"hidden": [8], **options})


def data(**changes: Any) -> FederatedData:
    train, held = table()
    labels = train.tensors[1]
    settings = {
        "partition": labels.argsort(stable=True).split(UNEQUAL),
        "clients_per_round": 4,
        "seed": 1,
        "validation": held,
    }
    return FederatedData(train, **(settings | changes))


class Recorder(lightning.Callback):
    """Keeps every round."""

    def __init__(self) -> None:
        self.rounds: list[Round] = []

    def on_train_batch_end(self, trainer: Any, pl_module: Any, *_: Any) -> None:
        self.rounds.append(pl_module.round)


def fit(
    module: FederatedAveraging, federation: Any = None, ckpt_path: Any = None, **settings: Any
) -> lightning.Trainer:
    quiet = dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False)
    trainer = lightning.Trainer(**({"accelerator": "cpu", "max_epochs": 3, **quiet} | settings))
    trainer.fit(module, datamodule=federation or data(), ckpt_path=ckpt_path)
    return trainer


def same(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def by_hand(federation: FederatedData, spec: NetworkSpec, local: LocalTraining, n_rounds: int, train: Any) -> nn.Module:
    """The slow obvious loop over rounds, clients, epochs and batches."""
    server = build_network(spec, seed=3).train()
    for r in range(n_rounds):
        drawn = torch.randperm(N_CLIENTS, generator=generator(1, "round", r))[:4].tolist()
        total = sum(len(federation.partition[client]) for client in drawn)
        mean: dict[str, Any] = dict.fromkeys(server.state_dict(), 0.0)
        for client in drawn:
            inputs, labels = federation.train[federation.partition[client]]
            seed = derive_seed(3, "client", r, client)
            order = row_order(local, len(inputs), seed)
            after = train(server, inputs, labels, local, order, derive_seed(seed, "dropout")).state_dict()
            for name, value in server.state_dict().items():
                moved = after[name] - value if name in dict(server.named_parameters()) else after[name]
                wide = moved if moved.is_floating_point() else moved.double()
                mean[name] = mean[name] + wide * (len(inputs) / total)
        with torch.no_grad():
            for name, parameter in server.named_parameters():
                parameter += mean[name]
            for name, buffer in server.named_buffers():
                buffer.copy_(mean[name] if buffer.is_floating_point() else mean[name].round())
    return server


@pytest.mark.parametrize("options", [{}, HARD])
def test_it_equals_a_loop_written_by_hand_to_the_bit(
    options: dict[str, Any], plain_sgd: Callable[..., nn.Module]
) -> None:
    state = torch.get_rng_state()
    module, federation = FederatedAveraging(spec_of(**options), LOCAL, seed=3), data()
    if options:  # a batch of one row has no variance
        federation = data(partition=EQUAL)
    fit(module, federation)
    assert torch.equal(torch.get_rng_state(), state), "a federation leaves the global generator as it was"
    expected = by_hand(federation, spec_of(**options), LOCAL, 3, plain_sgd)
    assert same(module.network.state_dict(), expected.state_dict())


def test_it_learns() -> None:
    _, held = table()
    module = FederatedAveraging(spec_of(), LOCAL, seed=3)
    trainer = fit(module, data(test=held), max_epochs=15)
    majority = held.tensors[1].bincount().max() / N_HELD
    scores = {name: float(value) for name, value in trainer.callback_metrics.items()}
    assert scores["val/accuracy"] > majority + 0.15
    assert scores["val/auroc"] > 0.9
    assert scores["val/loss"] < 0.5
    assert scores["train/loss"] < 0.5
    assert trainer.global_step == 15
    logits = module.eval()(held.tensors[0])
    assert scores["val/loss"] == pytest.approx(nn.functional.cross_entropy(logits, held.tensors[1]).item())
    tested = trainer.test(module, datamodule=data(test=held), verbose=False)[0]
    assert tested["test/accuracy"] == pytest.approx(scores["val/accuracy"])


def test_one_full_batch_step_of_all_clients_is_gradient_descent() -> None:
    """McMahan et al. 2017, Sec. 2: FedSGD is FedAvg with one epoch, one batch and every client."""
    module = FederatedAveraging(spec_of(), LocalTraining(1, N_ROWS, 0.3), seed=3)
    network = copy.deepcopy(module.network)
    fit(module, data(clients_per_round=1.0), max_epochs=2)
    optimizer = torch.optim.SGD(network.parameters(), 0.3)
    train, _ = table()
    for _ in range(2):
        optimizer.zero_grad()
        nn.functional.cross_entropy(network(train.tensors[0]), train.tensors[1]).backward()
        optimizer.step()
    for name, value in network.named_parameters():
        torch.testing.assert_close(module.network.state_dict()[name], value.detach(), rtol=1e-4, atol=1e-6)


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("checkpoints")
    keep = ModelCheckpoint(folder, "{epoch}", save_top_k=-1, save_on_train_epoch_end=True)
    within = ModelCheckpoint(folder / "within", "{epoch}", save_top_k=-1, every_n_train_steps=1)
    module = FederatedAveraging(spec_of(**HARD), LOCAL, seed=3, defense=GaussianNoise(0.01))
    fit(module, data(partition=EQUAL), callbacks=[keep, within], enable_checkpointing=True, max_epochs=4)
    yield folder


@pytest.mark.parametrize("name", ["epoch=1.ckpt", "within/epoch=1.ckpt"])
def test_a_resumed_run_ends_in_the_same_bits(checkpoints: Path, name: str) -> None:
    federation = data(partition=EQUAL)
    module = FederatedAveraging(spec_of(**HARD), LOCAL, seed=3, defense=GaussianNoise(0.01))
    torch.rand(3)
    recorder = Recorder()
    fit(module, federation, checkpoints / name, max_epochs=4, callbacks=[recorder])
    assert [done.number for done in recorder.rounds] == [2, 3]
    whole = FederatedAveraging.load_from_checkpoint(checkpoints / "epoch=3.ckpt", weights_only=True)
    assert same(module.state_dict(), whole.state_dict())


def test_a_federation_is_rebuilt_from_its_checkpoint_alone(checkpoints: Path) -> None:
    module = FederatedAveraging.load_from_checkpoint(checkpoints / "epoch=3.ckpt", weights_only=True)
    assert module.local_training == LOCAL
    assert module.defense == GaussianNoise(0.01)
    assert (module.defend, module.group_size, module.training_mode, module.seed) == ("update", None, True, 3)


def test_a_round_shows_the_clean_weights_and_what_every_client_sent() -> None:
    recorder, federation = Recorder(), data(partition=EQUAL)
    module = FederatedAveraging(spec_of(norm="batch"), LOCAL, seed=3)
    assert module.round is None
    start = copy.deepcopy(module.network)
    fit(module, federation, callbacks=[recorder])
    assert [done.number for done in recorder.rounds] == [0, 1, 2]
    assert same(recorder.rounds[0].runs[0].parameters, dict(start.named_parameters()))
    for now, after in zip(recorder.rounds[:-1], recorder.rounds[1:], strict=True):
        rows = torch.tensor([len(run.labels) for run in now.runs])
        assert len(now.clients) == 4
        assert now.groups is None
        for client, run in zip(now.clients, now.runs, strict=True):
            assert torch.equal(run.inputs, federation.train.tensors[0][federation.partition[client]])
            assert same(run.parameters, now.runs[0].parameters)
            assert same(run.buffers, now.runs[0].buffers)
        for name, value in after.runs[0].parameters.items():
            moved = sum(run.trained.delta[name] * n for run, n in zip(now.runs, rows, strict=True)) / rows.sum()
            torch.testing.assert_close(value, now.runs[0].parameters[name] + moved)
        for name, value in after.runs[0].buffers.items():
            mean = sum(run.trained.buffers[name] * n for run, n in zip(now.runs, rows, strict=True)) / rows.sum()
            torch.testing.assert_close(value.float(), mean.float())


def test_running_statistics_approach_those_of_the_rows() -> None:
    module = FederatedAveraging(spec_of(norm="batch"), LocalTraining(4, 25, 1e-12), seed=3)
    federation = data(partition=EQUAL, clients_per_round=1.0)
    fit(module, federation, max_epochs=8)
    mean, variance = batch_statistics(module.network.linears[0](federation.train.tensors[0]))
    norm = next(layer for layer in module.network.modules() if isinstance(layer, nn.BatchNorm1d))
    # 32 local batches of 25 rows leave 0.9^32 = 3% of the initial statistics.
    torch.testing.assert_close(norm.running_mean, mean.detach(), rtol=0.1, atol=0.1)
    torch.testing.assert_close(norm.running_var, variance.detach(), rtol=0.15, atol=0.1)


@dataclasses.dataclass(frozen=True)
class Silence(UpdateDefense):
    """Sends nothing."""

    name: ClassVar[str] = "silence"
    citation: ClassVar[str] = ""

    def apply(self, gradient: Mapping[str, Tensor], draws: torch.Generator) -> dict[str, Tensor]:
        return {name: torch.zeros_like(g) for name, g in gradient.items()}

    @property
    def strength(self) -> None:
        return None

    def describe(self) -> str:
        return "silence"


@pytest.mark.parametrize("defend", ["update", "steps"])
def test_the_defense_enters_training(defend: Any) -> None:
    still, start = FederatedAveraging(spec_of(), LOCAL, seed=3, defense=Silence(), defend=defend), spec_of()
    fit(still)
    assert same(still.network.state_dict(), build_network(start, seed=3).state_dict())
    noised, plain = (
        FederatedAveraging(spec_of(), LOCAL, seed=3, defense=defense, defend=defend)
        for defense in (GaussianNoise(0.1), {"name": "none"})
    )
    recorder = Recorder()
    fit(noised, callbacks=[recorder])
    fit(plain)
    assert plain.defense is None
    assert not same(noised.network.state_dict(), plain.network.state_dict())
    # Every client of every round draws noise of its own.
    deltas = [run.trained.delta["linears.0.weight"] for done in recorder.rounds for run in done.runs]
    assert len({tuple(delta.flatten().tolist()) for delta in deltas}) == 12


def test_dp_sgd_acts_on_the_rows_of_local_steps() -> None:
    pytest.importorskip("opacus", reason="the extra dp brings it")
    clips = {"name": "dp_sgd", "options": {"noise_multiplier": 0.0, "max_grad_norm": 1e6}}
    modules = [
        FederatedAveraging(spec_of(), LOCAL, seed=3, defense=defense, defend="steps")
        for defense in (None, clips, DPSGD(noise_multiplier=0.0, max_grad_norm=1e-3), DPSGD(noise_multiplier=1.0))
    ]
    recorder = Recorder()
    for module in modules:
        fit(module, callbacks=[recorder] if module is modules[2] else [])
    plain, wide, narrow, noised = (module.network.state_dict() for module in modules)
    for name, value in plain.items():
        torch.testing.assert_close(wide[name], value, rtol=1e-4, atol=1e-6)
    assert not same(noised, plain) and not same(narrow, plain)
    # Momentum of 0.5 at most doubles a step of 0.1 along a gradient of norm 0.001.
    run = recorder.rounds[0].runs[0]
    steps = LOCAL.steps(len(run.labels))
    assert 0 < torch.cat([d.flatten() for d in run.trained.delta.values()]).norm() <= 2 * 0.1 * 1e-3 * steps
    with pytest.raises(UnsupportedError, match="dp_sgd cannot protect these layers"):
        fit(FederatedAveraging(spec_of(norm="batch"), LOCAL, seed=3, defense=clips, defend="steps"))


def test_secure_aggregation_changes_who_is_seen_and_not_what_is_learned() -> None:
    recorder = Recorder()
    grouped, single = (FederatedAveraging(spec_of(), LOCAL, seed=3, group_size=size) for size in (2, None))
    fit(grouped, callbacks=[recorder])
    fit(single)
    assert recorder.rounds[0].groups == ((0, 1), (2, 3))
    for name, value in single.network.state_dict().items():
        torch.testing.assert_close(grouped.network.state_dict()[name], value, rtol=1e-4, atol=1e-6)


def test_clients_may_train_in_eval_mode() -> None:
    recorder = Recorder()
    module = FederatedAveraging(spec_of(**HARD), LOCAL, seed=3, training_mode=False)
    before = {name: value.clone() for name, value in module.network.named_buffers()}
    fit(module, callbacks=[recorder])
    assert same(before, dict(module.network.named_buffers()))
    assert not recorder.rounds[0].runs[0].training_mode


@pytest.mark.parametrize("precision", ["64-true", "bf16-true"])
def test_other_precisions(precision: Any) -> None:
    module = FederatedAveraging(spec_of(), LOCAL, seed=3)
    fit(module, precision=precision, max_epochs=1)
    assert next(module.network.parameters()).dtype == (torch.float64 if precision == "64-true" else torch.bfloat16)


@pytest.mark.parametrize(
    ("settings", "federation", "message"),
    [
        ({}, {"partition": [range(17), range(17, 34)], "clients_per_round": 1}, "one row of 17"),
        (
            {"group_size": 3},
            {"partition": EQUAL},
            "divide the clients of a round, 4",
        ),
    ],
)
def test_federations_that_cannot_run_are_refused_before_the_first_round(
    settings: dict[str, Any], federation: dict[str, Any], message: str
) -> None:
    recorder = Recorder()
    module = FederatedAveraging(spec_of(norm="batch"), LOCAL, seed=3, **settings)
    with pytest.raises(UsageError, match=message):
        fit(module, data(**federation), callbacks=[recorder])
    assert not recorder.rounds


def test_rows_that_do_not_fit_the_network_are_refused() -> None:
    other = TensorDataset(torch.zeros(N_ROWS, 4), torch.zeros(N_ROWS, dtype=torch.long))
    with pytest.raises(UsageError, match=r"encoded rows \[n, 5\]"):
        fit(FederatedAveraging(spec_of(), LOCAL, seed=3), FederatedData(other, [range(9)], seed=0))


def test_other_data_and_trainers_are_refused() -> None:
    module = FederatedAveraging(spec_of(), LOCAL, seed=3)
    with pytest.raises(UsageError, match=r"datamodule=FederatedData\(...\)\), got NoneType"):
        lightning.Trainer(accelerator="cpu", logger=False, enable_checkpointing=False).fit(
            module, DataLoader(table()[0], batch_size=8)
        )
    with pytest.raises(UsageError, match="precision must be 32-true, 64-true or bf16-true, got 'bf16-mixed'"):
        fit(module, precision="bf16-mixed")
    module.wrap_optimizer = lambda optimizer, network: optimizer
    with pytest.raises(UsageError, match=r"FederatedAveraging\(defense=...\), not wrap_optimizer"):
        fit(module)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"group_size": 1}, "group_size must be at least 2"),
        ({"defend": "rows"}, "defend must be one of update, steps"),
        ({"defense": {"name": "magic"}}, "unknown defense 'magic'"),
        ({"defense": {"name": "gaussian_noise", "options": {"level": 1}}}, "does not take these options: .*level"),
        ({"defense": {"options": {}}}, "unknown defense 'None'"),
        ({"defense": 3}, "defense must be a defense of what clients send or None, got int"),
        ({"defense": DPSGD(noise_multiplier=1.0)}, "dp_sgd acts on the rows of local steps: defend must be 'steps'"),
        ({"training": {"epochs": 0}}, "epochs must be at least 1"),
    ],
)
def test_wrong_settings_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        FederatedAveraging(spec_of(), **({"training": LOCAL, "seed": 3} | settings))


def test_it_is_a_classifier_of_the_same_initial_weights() -> None:
    module = FederatedAveraging(spec_of().to_dict(), dataclasses.asdict(LOCAL), seed=3)
    assert same(module.network.state_dict(), TabularClassifier(spec_of(), seed=3).network.state_dict())
    assert module.optimizer_config.learning_rate == LOCAL.learning_rate
