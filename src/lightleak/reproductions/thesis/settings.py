"""The thesis's settings (Table 4.3) on Diabetes-130, as audits."""

from dataclasses import replace
from typing import Any

from lightleak.data.task_config import TaskConfig
from lightleak.experiments.config import TargetConfig
from lightleak.experiments.kinds.released.config import ReleasedConfig, ReleasedDataConfig, SamplesConfig

MLP = TargetConfig("mlp", {"hidden": [2048, 1024, 512, 256]})
GANDALF = TargetConfig("gandalf", {"stages": 16, "dropout": 0.1, "embedding_dropout": 0.1})

SETTINGS: dict[str, tuple[int, int, str]] = {
    "0": (100, 50, "mlp"),
    "1": (50, 50, "mlp"),
    "2": (20, 50, "mlp"),
    "3": (20, 100, "mlp"),
    "4": (20, 50, "gandalf"),
}
"""Private classes, encoded columns, target; the other network is the evaluation model."""


PUBLISHED: dict[str, Any] = {
    "iterations": 27_500,
    "batch_size": 500,
    "discriminator_steps": 5,
    "generator_learning_rate": 2e-4,
    "discriminator_learning_rate": 2e-5,
    "inversion_weight": 1.0,
    "pac": 10,
    "dropout": 0.5,
}
"""Hyperparameters of Table 5.4 that are not this project's defaults."""

BESIDE: dict[str, dict[str, Any]] = {
    "plgmi tuned": {"attack": "plgmi"},
    "gan_without_target": {},
    "public_pseudo_labelled": {},
    "public_random": {},
}
"""What stands beside the published attack: generators with default settings, which learn their condition, and rows."""


def setting(
    name: str,
    iterations: int | None = None,
    seeds: tuple[int, ...] = (0,),
    folder: str | None = None,
    attacks: dict[str, dict[str, Any]] | None = None,
    samples: SamplesConfig | None = None,
) -> ReleasedConfig:
    """The audit of one setting.

    Args:
        name: ID of Table 4.3.
        iterations: of the published generator; None: the thesis's.
        seeds: root seeds.
        folder: folder with one subfolder of raw files per dataset.
        attacks: in place of PLG-MI and what stands beside it; each with the hyperparameters of Table 5.4.
        samples: in place of the thesis's ten evaluations of random latent vectors.
    """
    classes, features, network = SETTINGS[name]
    trained = PUBLISHED if iterations is None else {**PUBLISHED, "iterations": iterations}
    models = (MLP, GANDALF) if network == "mlp" else (GANDALF, MLP)
    chosen = {label: {**trained, **options} for label, options in (attacks or {"plgmi": {}}).items()}
    return ReleasedConfig(
        data=ReleasedDataConfig(
            name="diabetes130",
            folder=folder,
            options={"label": "diagnosis", "diagnoses": "codes", "groups": True},
        ),
        task=TaskConfig(private_classes=classes, features=features, group="patient_nbr"),
        target=models[0],
        evaluation_model=models[1],
        attacks=chosen if attacks else {**chosen, **BESIDE},
        samples=samples or replace(SamplesConfig(), evaluations=10),
        setting=name,
        seeds=seeds,
        keep_captures=False,
    )
