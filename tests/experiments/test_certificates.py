"""Certificates from an attack to results.json, the cells' file and the table on the terminal."""

import io
import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from rich.console import Console
from torch import nn

from lightleak.attacks import ATTACKS
from lightleak.attacks.gradient_inversion.compose.audit_max import ComposedAttack
from lightleak.attacks.gradient_inversion.config import InversionConfig
from lightleak.attacks.gradient_inversion.optimize.attack import GradientInversion
from lightleak.attacks.gradient_inversion.optimize.labels import last_linear
from lightleak.core.certificate import Certificate, Feasibility
from lightleak.core.reconstruction import Reconstruction
from lightleak.core.results import UpdateRow, read_row
from lightleak.experiments.attack_settings import label_setting, label_sharing, with_label_setting
from lightleak.experiments.campaign import plan_packs
from lightleak.experiments.experiment import prepare_experiment
from lightleak.experiments.kinds.updates import run_plan
from lightleak.experiments.kinds.updates.plan import plan_units
from lightleak.experiments.kinds.updates.run_plan import feasibility_lines
from lightleak.experiments.kinds.updates.summary import update_tables
from lightleak.experiments.run import attack_captures, run_audit
from lightleak.experiments.terminal import print_results
from lightleak.experiments.unit import candidates, largest
from lightleak.targets.spec import NetworkSpec

PLANNED = Feasibility((3, 3), (9, 9), (8, 8), 0.0, "partial", "a test says so")
FIELDS = (
    "certified_rows",
    "certified_share",
    "certificate_residual",
    "expected",
    "row_status",
    "feasibility",
    "certified_accuracy",
    "certified_exact",
)


class Sure(GradientInversion):
    """TabLeak with few steps that calls its first row certain and its last one missing."""

    def run_many(self, *args: Any, **kwargs: Any) -> list[Reconstruction]:
        return [self._certified(found) for found in super().run_many(*args, **kwargs)]

    @staticmethod
    def _certified(found: Reconstruction) -> Reconstruction:
        n = len(found.rows)
        status: tuple[Any, ...] = ("certified", *["likely"] * (n - 2), "missing")
        return replace(
            found, certificate=Certificate(0.25, status, tuple(s == "certified" for s in status), (1,) * n, PLANNED)
        )


def sure(**options: Any) -> Sure:
    return Sure("sure", "none", InversionConfig(steps=5, restarts=2, **options))


def composed(**options: Any) -> ComposedAttack:
    settings = {"labels": "restored", **options, "exact": {"chains": 7}, "tableak": {"restarts": 3, "steps": 4}}
    stages = {"gradient": [sure(labels="geng")], "delta": [ATTACKS.get("tableak_fedavg")()]}
    return ComposedAttack("composed", "none", stages, settings)


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    known = {**{name: ATTACKS.get(name) for name in ATTACKS}, "sure": sure, "composed": composed}
    monkeypatch.setattr(ATTACKS, "_entries", known)


def test_rows_cells_and_summary_carry_the_certificate(tmp_path: Path, tiny: Any) -> None:
    console = Console(file=io.StringIO(), width=120)
    config = tiny(attacks={"sure": {}, "random": {}}, training__epochs=0)
    results = run_audit(config, tmp_path / "run", console=console)
    proven = [row for row in results["rows"] if row["attack"] == "sure"]
    for row in proven:
        assert row["certified_rows"] == 1 and row["certified_share"] == 0.25 and row["certificate_residual"] == 0.25
        assert row["row_status"] == ["certified", "likely", "likely", "missing"] and row["expected"] == "partial"
        assert row["feasibility"]["ranks"] == [3, 3]
        assert 0 <= row["certified_accuracy"] <= 1 and row["certified_exact"] in (0, 1)
        read = read_row(row, "row")
        assert isinstance(read, UpdateRow) and read.certified_rows == 1
        cells = pd.read_csv(tmp_path / "run" / row["reconstruction"])
        by_row = cells.groupby("row")["status"].unique()
        assert sorted(status for (status,) in by_row) == ["certified", "likely", "likely", "missing"]
        certain = cells[cells["status"] == "certified"]
        assert certain["correct"].mean() == row["certified_accuracy"]
    for row in results["rows"]:
        if row["attack"] == "random":
            assert [row[name] for name in FIELDS] == [None] * len(FIELDS)
            assert pd.read_csv(tmp_path / "run" / row["reconstruction"])["status"].isna().all()
    of_sure, of_random = results["summary"]
    assert (of_sure["certified_share"]["mean"], of_sure["certified_share"]["n"]) == (0.25, 2)
    assert of_random["certified_share"]["n"] == 0
    printed = console.file.getvalue()  # type: ignore[attr-defined]
    assert "proven: % of rows that the attack has certified" in printed
    lines = [line.split() for line in printed.splitlines()]
    header = next(line for line in lines if "proven" in line and "attack" in line)
    assert header[header.index("rows") + 1] == "proven"
    assert [line[-3] for line in lines if "sure" in line] == ["25.0"]
    assert [line[-3] for line in lines if "random" in line] == ["-"]
    assert "Rows proven" in (tmp_path / "run" / "report.html").read_text()


def test_without_certificates_the_table_has_no_column_for_them(tmp_path: Path, tiny: Any) -> None:
    results = run_audit(tiny(attacks=["random"], training__epochs=0), tmp_path / "run", console=Console(quiet=True))
    console = Console(file=io.StringIO(), width=120)
    print_results(update_tables(results), results, console)
    assert "proven" not in console.file.getvalue()  # type: ignore[attr-defined]


def test_a_capture_without_truth_keeps_what_is_certain(
    tmp_path: Path, tiny: Any, save_captures: Callable[..., list[Path]]
) -> None:
    for folder in save_captures(tmp_path / "captures", sizes=(4,)):
        shutil.rmtree(folder / "truth")
    results = attack_captures(
        tiny(attacks=["sure"]), tmp_path / "captures", tmp_path / "run", console=Console(quiet=True)
    )
    (row,) = results["rows"]
    assert (row["cell_accuracy"], row["certified_accuracy"], row["certified_exact"]) == (None, None, None)
    assert (row["certified_rows"], row["row_status"][-1]) == (1, "missing")
    cells = pd.read_csv(tmp_path / "run" / row["reconstruction"])
    assert cells["status"].tolist() == [status for status in row["row_status"] for _ in range(4)]
    assert "of the others nothing is known here" in (tmp_path / "run" / "report.html").read_text()


def test_a_redacted_run_keeps_the_status_and_no_value(tmp_path: Path, tiny: Any) -> None:
    config = tiny(attacks=["sure"], training__epochs=0, redact=True, initial__batches=1)
    (row,) = run_audit(config, tmp_path / "run", console=Console(quiet=True))["rows"]
    cells = pd.read_csv(tmp_path / "run" / row["reconstruction"], keep_default_na=False)
    assert set(cells["status"]) == {"certified", "likely", "missing"}
    assert (cells["reconstructed"] == "").all() and (cells["true"] == "").all()


def test_a_composed_attack_counts_as_its_largest_stage(tiny: Any) -> None:
    settings = composed().options()
    assert candidates(settings) == 7 and largest(settings, "steps") == 4
    experiment = prepare_experiment(tiny(training__epochs=0))
    config = tiny(training__epochs=0, attacks=["composed"], initial__batch_sizes=[80], initial__batches=3)
    units = plan_units(config, experiment, Path("none"))
    assert units[0].cost == 7 * 4 * 80
    assert [len(pack) for pack in plan_packs(units, torch.device("cpu"))] == [1, 1, 1]


def test_labels_of_a_composed_attack_are_those_of_the_config(tiny: Any, tiny_fedavg: Any) -> None:
    assert with_label_setting(tiny(), "composed", {}) == {"labels": "true"}
    assert with_label_setting(tiny(labels="restored"), "composed", {}) == {"labels": "restored"}
    assert with_label_setting(tiny(), "composed", {"labels": "restored"}) == {"labels": "restored"}
    by_bias = with_label_setting(
        tiny(labels="restored", label_method="bias"), "composed", {"sure": {"steps": 3}, "exact": {"chains": 2}}
    )
    assert by_bias == {"labels": "restored", "sure": {"labels": "bias", "steps": 3}, "exact": {"chains": 2}}
    fedavg = tiny_fedavg(protocol__label_order="batches", attacks=["composed"])
    chosen = with_label_setting(fedavg, "composed", {})
    assert chosen == {"labels": "true", "tableak_fedavg": {"label_order": "batches"}}
    assert [label_setting(tiny(), {"labels": labels}) for labels in ("true", "restored")] == ["true", "restored"]
    assert label_sharing(fedavg) == "batches"
    assert label_sharing(tiny_fedavg(attacks=["composed"])) == "counts"
    assert label_sharing(tiny_fedavg(attacks=["composed"], labels="restored")) == "none"


def lines_of(config: Any) -> list[str]:
    return feasibility_lines(config, prepare_experiment(config))


def test_the_plan_of_numbers_that_batch_norm_normalizes_says_what_stays_open(tiny: Any) -> None:
    (line, *others) = lines_of(tiny(target__network="category_embedding", target__options={}, initial__batch_sizes=[4]))
    assert line.startswith("4 rows: every row, with proof")
    assert others[-1] == "numbers that BatchNorm normalizes up to a shift and a scale: its statistics are not shared"


def test_the_plan_says_what_to_expect_of_each_size(tiny: Any, tiny_fedavg: Any) -> None:
    wide = {"target__options": {"hidden": [40, 40]}, "training__batch_size": 36}
    few, near, many = lines_of(tiny(**wide, initial__batch_sizes=[8, 60]))
    assert few.startswith("8 rows: every row, with proof (33 + 32 equations of layer 2 test every row)")
    assert near.startswith("36 rows: some rows, perhaps with proof (only 5 + 4 equations")
    assert many.startswith("60 rows: rows are optimized together; none is proven by itself")
    assert len(lines_of(tiny(**wide, initial__batches=0))) == 1
    smooth = {"target__options": {"hidden": [40, 40], "activation": "gelu", "norm": "layer"}}
    assert lines_of(tiny(**smooth, initial__batch_sizes=[8]))[0] == few
    gandalf = {"target__network": "gandalf", "target__options": {"stages": 2}, "initial__batch_sizes": [2]}
    assert lines_of(tiny(**gandalf))[0].startswith("2 rows: every row, with proof")  # its BatchNorm sees numbers alone
    inner = tiny(target__options={"hidden": [40, 40], "norm": "batch"}, initial__batch_sizes=[8])
    assert "mixes the rows of a batch by BatchNorm" in lines_of(inner)[0]
    with_statistics = tiny(**gandalf, attacks={"exact": {"batch_statistics": True}})
    assert lines_of(with_statistics)[0].startswith("2 rows: every row, with proof")
    known = {"target__options": {"hidden": [40, 40], "norm": "batch"}, "attacks": {"exact": {"batch_statistics": True}}}
    assert lines_of(tiny(**known, initial__batch_sizes=[8]))[0] == few
    (one_layer, *_) = lines_of(tiny(target__options={"hidden": [40]}, initial__batch_sizes=[8]))
    assert one_layer.startswith("8 rows: some rows, perhaps with proof (32 equations of the one hidden layer's column")
    assert "without the defense" in lines_of(tiny(**wide, defense={"name": "gaussian_noise"}))[-1]
    fedavg = lines_of(
        tiny_fedavg(
            target__options={"hidden": [40, 40]}, protocol__aggregate=2, initial__batch_sizes=[4], protocol__rounds=0
        )
    )
    assert len(fedavg) == 1 and fedavg[0].startswith("8 rows: ") and "first layer" in fedavg[0]
    gelu = {"target__options": {"hidden": [40, 40], "activation": "gelu"}, "protocol__rounds": 0}
    local = {"initial__batch_sizes": [8], "protocol__aggregate": 1, "protocol__local_epochs": 1}
    assert lines_of(tiny_fedavg(**gelu, **local, protocol__local_batches=1))[0] == few
    (several, *_) = lines_of(tiny_fedavg(**gelu, **local, protocol__local_batches=2))
    assert "the first layer alone proves rows of 2 local steps" in several
    (momentum, *_) = lines_of(tiny_fedavg(**gelu, **local, protocol__local_batches=2, protocol__momentum=0.5))
    assert "equations of the first layer's update" in momentum


def test_the_plan_counts_rows_of_which_the_network_is_sure(tiny: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    config = tiny(target__options={"hidden": [40, 40]}, initial__batch_sizes=[8])
    assert not any("sure of them" in line for line in lines_of(config))
    original = run_plan.build_network

    def sure(spec: NetworkSpec, seed: int) -> nn.Module:
        network = original(spec, seed)
        with torch.no_grad():
            last_linear(network)[1].weight.mul_(1000)
        return network

    monkeypatch.setattr(run_plan, "build_network", sure)
    found = [line for line in lines_of(config) if "sure of them" in line]
    assert len(found) == 1 and 20 < int(found[0].split("%")[0]) < 80


def test_the_plan_expects_less_of_large_batches_behind_attention(tiny: Any) -> None:
    without = dict.fromkeys(("attn_dropout", "add_norm_dropout", "ff_dropout"), 0.0)
    sizes = {"input_embed_dim": 64, "num_heads": 2, "num_attn_blocks": 1, "batch_norm_continuous_input": False}
    attention = {"target__network": "ft_transformer", "initial__batch_sizes": [8, 48]}
    few, *_, many = lines_of(tiny(**attention, target__options={**sizes, **without}))
    assert few.startswith("8 rows: every row, with proof") and many.startswith("48 rows: some rows, perhaps with proof")
    (refused,) = lines_of(tiny(**attention, target__options=sizes))
    assert refused.startswith("does not apply: clients train with dropout, so only a first linear layer on cells")


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"target__network": "resnet", "target__options": {}}, "mixes the rows of a batch by BatchNorm"),
        ({"target__options": {"hidden": [6, 6], "norm": "batch"}}, "mixes the rows of a batch by BatchNorm"),
        ({"target__network": "linear", "target__options": {}}, "Linear has none"),
        ({"target__options": {"hidden": [6, 6]}, "data__encoding": "quantile"}, "the encoding 'quantile'"),
    ],
)
def test_the_plan_says_why_exact_inversion_does_not_apply(tiny: Any, changes: dict[str, Any], why: str) -> None:
    (line,) = lines_of(tiny(**changes))
    assert line.startswith("does not apply: ") and why in line


def test_results_stay_readable_as_json(tmp_path: Path, tiny: Any) -> None:
    config = tiny(attacks=["sure"], training__epochs=0)
    results = run_audit(config, tmp_path / "run", console=Console(quiet=True))
    assert json.loads((tmp_path / "run" / "results.json").read_text()) == results
