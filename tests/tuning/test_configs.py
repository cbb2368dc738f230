"""The studies that are shipped can be run: every choice of theirs makes an audit that its kind accepts."""

from pathlib import Path

import pytest

from lightleak.data.datasets import DATASETS
from lightleak.data.sources import dataset_folder
from lightleak.tuning.config import load_tune_config
from lightleak.tuning.trial import check_trial, trial_tree

STUDIES = sorted((Path(__file__).parents[2] / "configs").glob("tune-*.yaml"))


def test_there_are_studies_of_attack_target_and_frontier() -> None:
    assert {"tune-tableak-adult", "tune-target", "tune-frontier"} <= {file.stem for file in STUDIES}


@pytest.mark.parametrize("file", STUDIES, ids=lambda file: file.stem)
def test_a_shipped_study_can_be_run(tmp_path: Path, file: Path) -> None:
    config = load_tune_config(file)
    name = config.tree["data"]["name"]
    missing = [f for f in DATASETS.get(name).card.files if not (dataset_folder(name) / f).is_file()]
    if missing:
        pytest.skip(f"needs {', '.join(missing)} of {name}")
    check_trial(config, trial_tree(config, config.space.values(config.space.defaults())))
