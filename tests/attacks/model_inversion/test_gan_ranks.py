"""Two ranks train to the losses and weights of one process with the same global batch, gradient penalty included."""

import importlib.util
from collections.abc import Callable
from pathlib import Path

import lightning
import pytest
import torch
from torch import Tensor

SCRIPT = Path(__file__).with_name("train_gan_on_processes.py")


@pytest.fixture(scope="module")
def two_ranks(leave_results: Callable[[Path], Path]) -> Path:
    return leave_results(SCRIPT)


@pytest.fixture(scope="module")
def one_process() -> dict[str, Tensor]:
    loaded = importlib.util.spec_from_file_location("train_gan_on_processes", SCRIPT)
    assert loaded is not None and loaded.loader is not None
    module = importlib.util.module_from_spec(loaded)
    loaded.loader.exec_module(module)
    gan = module.make_gan()
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=1,
        max_epochs=gan.epochs,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(gan)
    return {name: value.detach() for name, value in gan.state_dict().items()}


@pytest.mark.slow
@pytest.mark.parametrize("rank", [0, 1])
def test_two_ranks_train_to_the_losses_and_weights_of_one(
    two_ranks: Path, one_process: dict[str, Tensor], rank: int
) -> None:
    found = torch.load(two_ranks / f"rank-{rank}.pt", weights_only=True)
    assert found.keys() == one_process.keys()
    assert (one_process["history"] != 0).all()
    for name, value in one_process.items():
        torch.testing.assert_close(
            found[name], value, rtol=1e-6, atol=1e-8, msg=lambda text, name=name: f"{name}: {text}"
        )
