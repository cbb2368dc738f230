"""The thesis's settings (Table 4.3) on Diabetes-130, as audits."""

from dataclasses import replace
from typing import Any

from lightleak.audit.config import TargetConfig
from lightleak.audit.released.config import ReleasedConfig, ReleasedDataConfig, SamplesConfig
from lightleak.data.task_config import TaskConfig

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
        iterations: of the generator; None: the thesis's.
        seeds: root seeds.
        folder: folder with one subfolder of raw files per dataset.
        attacks: in place of PLG-MI and its baselines.
        samples: in place of the thesis's ten evaluations of random latent vectors.
    """
    classes, features, network = SETTINGS[name]
    trained = {} if iterations is None else {"iterations": iterations}
    models = (MLP, GANDALF) if network == "mlp" else (GANDALF, MLP)
    chosen = attacks or {"plgmi": {}, "gan_without_target": {}, "public_pseudo_labelled": {}, "public_random": {}}
    return ReleasedConfig(
        data=ReleasedDataConfig(
            name="diabetes130",
            folder=folder,
            options={"label": "diagnosis", "diagnoses": "codes", "groups": True},
        ),
        task=TaskConfig(private_classes=classes, features=features, group="patient_nbr"),
        target=models[0],
        evaluation_model=models[1],
        attacks={
            label: options if label.startswith("public") else {**trained, **options}
            for label, options in chosen.items()
        },
        samples=samples or replace(SamplesConfig(), evaluations=10),
        setting=name,
        seeds=seeds,
        keep_captures=False,
    )
