"""The thesis's settings (Table 4.3) on Diabetes-130, as audits."""

from dataclasses import replace
from typing import Any

from lightleak.data.task_config import TaskConfig
from lightleak.experiments.config import TargetConfig
from lightleak.experiments.kinds.released.config import ReleasedConfig, ReleasedDataConfig, SamplesConfig
from lightleak.reproductions.paper.settings import paper_settings

THESIS = paper_settings("thesis")
SETTINGS: dict[str, dict[str, Any]] = THESIS["settings"]
"""Private classes, encoded columns and target by ID of Table 4.3; the other network is the evaluation model."""


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
        attacks: in place of PLG-MI and its companions; each with the hyperparameters of Table 5.4.
        samples: in place of the thesis's ten evaluations of random latent vectors.
    """
    chosen_setting, networks = SETTINGS[name], THESIS["networks"]
    trained = THESIS["published"] | ({} if iterations is None else {"iterations": iterations})
    models = {network: TargetConfig(network, dict(options)) for network, options in networks.items()}
    target = models.pop(chosen_setting["network"])
    chosen = {label: {**trained, **options} for label, options in (attacks or {"plgmi": {}}).items()}
    return ReleasedConfig(
        data=ReleasedDataConfig(
            name="diabetes130",
            folder=folder,
            options={"label": "diagnosis", "diagnoses": "codes", "groups": True},
        ),
        task=TaskConfig(
            private_classes=chosen_setting["classes"], features=chosen_setting["features"], group="patient_nbr"
        ),
        target=target,
        evaluation_model=next(iter(models.values())),
        attacks=chosen if attacks else {**chosen, **THESIS["companions"]},
        samples=samples or replace(SamplesConfig(), evaluations=10),
        setting=name,
        seeds=seeds,
        keep_captures=False,
    )
