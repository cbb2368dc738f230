"""What a study's file may say, and what it is told when it says something else."""

from pathlib import Path
from typing import Any

import pytest

from lightleak.core.errors import UsageError
from lightleak.tuning.config import load_tune_config

CELLS = {"metric": "cell_accuracy", "where": {"attack": "tableak"}}


def test_short_forms_mean_their_long_ones(write_study: Any) -> None:
    short = load_tune_config(write_study(study__sampler="random", study__pruner="median"))
    long = load_tune_config(
        write_study(study__sampler={"name": "random"}, study__pruner={"name": "median"}, study__objectives=[CELLS])
    )
    assert short.study == long.study
    assert load_tune_config(write_study(study__objectives="rmse")).study.objectives[0].metric == "rmse"


def test_a_study_reads_as_itself_again(tmp_path: Path, tiny_study: Any) -> None:
    import yaml

    config = tiny_study(study__pruner="median")
    file = tmp_path / "again.yaml"
    file.write_text(yaml.safe_dump(config.to_dict()))
    assert load_tune_config(file) == config


def test_a_flag_replaces_a_search_by_a_value(write_study: Any) -> None:
    config = load_tune_config(write_study(), {"attacks.tableak.restarts": 2, "study.trials": 9})
    assert [parameter.key for parameter in config.space.parameters] == ["attacks.tableak.learning_rate"]
    assert config.study.trials == 9


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"study": None}, "needs a section 'study'"),
        ({"study": 3}, "needs a section 'study'"),
        ({"study__objectives": []}, "must name at least one"),
        ({"study__objectives": None}, "objectives"),
        ({"study__objectives": [CELLS, CELLS]}, "different metrics"),
        ({"study__objectives": {"metric": "test/accuracy"}}, "must not choose settings"),
        ({"study__objectives": [CELLS, {"metric": "rmse"}], "study__pruner": "median"}, "needs one objective"),
        ({"study__objectives": {"metric": "rmse", "direction": "up"}}, "direction"),
        ({"study__trials": 0}, "study.trials must be at least 1"),
        ({"study__trials": "many"}, "trials"),
        ({"study__trails": 3}, "did you mean 'trials'"),
        ({"study__held_out": 1}, "no interval"),
        ({"study__held_out": -1}, "study.held_out"),
        ({"study__report_every": 0}, "study.report_every"),
        ({"study__budget": {"restart_steps": 3, "seconds": 1.0}}, "got both"),
        ({"study__budget": {"restart_steps": 0}}, "must be above 0"),
        ({"study__budget": {"minutes": 1}}, "minutes"),
        ({"study__sampler": "grid"}, "sampler"),
        ({"study__pruner": {"name": "median", "reduction_factor": 3}}, "reduction_factor"),
        ({"attacks": {"tableak": {}}}, "nothing is searched"),
        (
            {"attacks__tableak__steps": {"search": "int", "low": 1, "high": 9, "default": 2}},
            "attacks.tableak.steps follows from study.budget",
        ),
        ({"attacks__tableak__steps": 50}, "attacks.tableak.steps follows from study.budget"),
    ],
)
def test_a_wrong_study_is_refused_with_its_place(write_study: Any, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        load_tune_config(write_study(**changes))
