"""The way in from Python: a DataFrame and any module to a report, configs as the command reads them."""

import html
import json
import logging
import re
import subprocess
import sys
from ast import literal_eval
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
import yaml
from torch import Tensor, nn

import lightleak
from lightleak.api import Leakage, PreparedTable
from lightleak.attacks import ATTACKS
from lightleak.cli.arguments import flag_settings
from lightleak.core.errors import LightLeakError, UnsupportedError, UsageError
from lightleak.core.ground_truth import GroundTruth
from lightleak.core.observations import ClientUpdate
from lightleak.experiments.clients import FreshClients, Population
from lightleak.experiments.config import AuditConfig
from lightleak.experiments.load import load_config
from lightleak.targets import NetworkSpec, own
from lightleak.targets.own import hand_over
from lightleak.tuning.config import load_tune_config

CONFIGS = sorted((Path(__file__).parents[1] / "configs").glob("*.yaml"))
QUICK = {"inverting_gradients": {"steps": 5}, "random": {}}


@pytest.fixture(scope="module")
def data() -> PreparedTable:
    rng = np.random.default_rng(3)
    n = 120
    frame = pd.DataFrame(
        {
            "age": rng.integers(18, 90, n),
            "sex": rng.choice(["f", "m"], n),
            "ward": rng.choice(list("abcd"), n),
            "weight": rng.normal(75, 12, n).round(1),
            "ill": rng.choice(["no", "yes"], n),
        }
    )
    return lightleak.prepare(frame, label="ill", name="patients")


def chain(width: int, n_classes: int) -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(width, 20), nn.ReLU(), nn.Linear(20, 20), nn.ReLU(), nn.Linear(20, n_classes))


class Normalised(nn.Module):
    """A residual network with BatchNorm and dropout, written by hand."""

    def __init__(self, width: int, n_classes: int) -> None:
        super().__init__()
        self.first, self.norm = nn.Linear(width, 12), nn.BatchNorm1d(12)
        self.second, self.last = nn.Linear(12, 12), nn.Linear(12, n_classes)
        self.dropout = nn.Dropout(0.3)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.tanh(self.norm(self.first(x)))
        return self.last(self.dropout(x + nn.functional.gelu(self.second(x))))


Audit = Callable[..., Leakage]


@pytest.fixture
def audit(data: PreparedTable, tmp_path: Path) -> Audit:
    def run(model: Any, **settings: Any) -> Leakage:
        usual = {"output": tmp_path / "run", "attacks": QUICK, "batch_size": 6, "batches": 2}
        return lightleak.audit_model(data, model, **{**usual, **settings})

    return run


@pytest.mark.parametrize("make", [chain, Normalised])
def test_any_module_gets_a_report_and_stays_as_it_is(
    audit: Audit, data: PreparedTable, make: Callable[[int, int], nn.Module]
) -> None:
    network = make(data.width, data.n_classes).eval()
    before = {name: value.clone() for name, value in network.state_dict().items()}
    found = audit(network, epochs=1, settings={"capture.epochs": [0], "capture.per_epoch": 1})
    assert not network.training
    assert all(torch.equal(value, network.state_dict()[name]) for name, value in before.items())
    assert set(found.rows["attack"]) == set(QUICK) and set(found.rows["source"]) == {"given", "training"}
    assert found.summary["cell_accuracy"].between(0, 1).all()
    page = found.report.read_text()
    assert "patients" in page and "as it was handed over" in page and "random weights" not in page
    assert "inverting_gradients" in str(found) and "as given" in str(found)
    assert found.folder.stat().st_mode & 0o077 == 0


def test_the_weights_of_the_module_are_what_is_attacked(audit: Audit, data: PreparedTable, tmp_path: Path) -> None:
    network = chain(data.width, data.n_classes)
    exact = audit(network, attacks=["exact"])
    assert (exact.rows["exact_match_rate"] == 1.0).all() and (exact.rows["certified_share"] == 1.0).all()
    page = html.unescape(exact.report.read_text())
    assert "lightleak audit" not in page and page.count("make the same call in Python with another output folder") == 2
    advised = re.search(r"settings=({[^<]*}})</code>", page)
    assert (
        advised
        and AuditConfig.parse({"data": {"name": "adult"}}, literal_eval(advised[1]), "settings").defense.name
        == "gaussian_noise"
    )
    with torch.no_grad():
        network[0].weight.zero_()
        network[0].bias.fill_(-1.0)  # no unit is ever reached: nothing of a row is left in its gradient
    dead = audit(network, attacks=["exact"], output=tmp_path / "dead")
    assert (dead.rows["certified_share"] == 0.0).all()


def test_layers_in_eval_mode_within_a_training_module_stay_in_it(
    audit: Audit, data: PreparedTable, tmp_path: Path
) -> None:
    """Frozen BatchNorm does not mix rows, which are then as exposed as without it."""
    torch.manual_seed(1)
    network = nn.Sequential(nn.Linear(data.width, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 2))
    network[1].eval()
    captured = {"capture.epochs": [0], "capture.per_epoch": 1}
    found = audit(network, attacks=["exact"], batch_size=2, epochs=1, settings=captured)
    assert set(found.rows["source"]) == {"given", "training"} and (found.rows["certified_share"] == 1.0).all()
    assert network.training and not network[1].training
    with pytest.raises(UnsupportedError, match="BatchNorm"):
        audit(network.train(), attacks=["exact"], output=tmp_path / "all")


def test_nothing_is_printed_and_loggers_stay_as_they_were(
    audit: Audit, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    level = logging.getLogger("lightning.pytorch").level
    audit(chain, attacks=["random"], epochs=1)
    assert capfd.readouterr() == ("", "") and not caplog.records
    assert logging.getLogger("lightning.pytorch").level == level


def test_one_logit_is_audited_as_the_two_classes_that_it_equals(audit: Audit, data: PreparedTable) -> None:
    found = audit(chain(data.width, 1), attacks=["exact"])
    assert (found.rows["exact_match_rate"] == 1.0).all()


def test_a_compiled_module_is_audited_as_the_one_it_was_made_from(audit: Audit, data: PreparedTable) -> None:
    found = audit(torch.compile(chain(data.width, 2), backend="eager"), attacks=["exact"])
    assert not found.left_out and bool((found.rows.exact_match_rate == 1).all())


class Hidden(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.second, self.last = nn.Linear(width, 20), nn.Linear(20, 20), nn.Linear(20, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.second(self.first(x).relu()).relu())


class SharedBias(Hidden):
    def __init__(self, width: int) -> None:
        super().__init__(width)
        self.second.bias = self.first.bias


class OfFloat32(Hidden):
    def forward(self, x: Tensor) -> Tensor:
        if x.dtype != torch.float32:
            raise ValueError("float32 is all that it takes")
        return super().forward(x)


class ReadsParameters(Hidden):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + 0 * sum(parameter.sum() for parameter in self.parameters())


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (SharedBias, "weights of ['first'] are also used elsewhere in SharedBias"),
        (OfFloat32, "cannot be tried on this network (ValueError: float32 is all that it takes)"),
    ],
)
def test_an_attack_that_fails_on_a_network_is_left_out_with_the_reason(
    audit: Audit, data: PreparedTable, make: type[Hidden], reason: str
) -> None:
    found = audit(make(data.width), attacks=["exact", "random"])
    assert found.left_out == {"exact": reason} and set(found.rows.attack) == {"random"}


def test_a_network_that_computes_with_all_its_parameters_is_inverted(audit: Audit, data: PreparedTable) -> None:
    torch.manual_seed(0)
    network = ReadsParameters(data.width)
    found = audit(network, attacks=["exact"])
    assert bool((found.rows.exact_match_rate == 1).all()) and bool((found.rows.certified_wrong == 0).all())
    assert not any(name.startswith("_tensor_constant") for name in vars(network))


def test_a_chain_of_ones_own_is_attacked_as_the_registrys(data: PreparedTable) -> None:
    registered = NetworkSpec("mlp", 2, data.encoder.layout, {"hidden": [20, 20]})
    people = Population(*data.encode(), data.encoder, data.marginals)
    update, _ = FreshClients(people, registered, 0, share_labels=True).observe(6, 0)
    own = chain(data.width, 2)
    names = dict(zip(update.parameters, dict(own.named_parameters()), strict=True))
    spec = NetworkSpec(hand_over(own), 2, data.encoder.layout)
    renamed = {
        "network": spec.to_dict(),
        "parameters": {names[name]: value for name, value in update.parameters.items()},
        "update": {names[name]: value for name, value in update.update.items()},
    }
    same = ClientUpdate(**{**vars(update), **renamed})
    for attack in (ATTACKS.get("tableak")(steps=20, restarts=2), ATTACKS.get("exact")()):
        expected, found = attack.run(update, seed=4), attack.run(same, seed=4)
        assert torch.equal(expected.encoded, found.encoded)
        pd.testing.assert_frame_equal(expected.rows, found.rows)


def test_where_exact_inversion_does_not_apply_it_says_so_before_any_work(audit: Audit, tmp_path: Path) -> None:
    with pytest.raises(
        UnsupportedError, match=r"Normalised mixes the rows of a batch by BatchNorm, whose statistics it does not share"
    ):
        audit(Normalised, attacks=["exact"])
    assert not (tmp_path / "run").exists()


def test_attacks_that_do_not_apply_are_listed_in_result_table_and_report(audit: Audit) -> None:
    network = Normalised(8, 2)
    found = audit(network, attacks={**QUICK, "exact": {}})
    assert set(found.rows["attack"]) == set(QUICK)
    assert list(found.left_out) == ["exact"] and "BatchNorm" in found.left_out["exact"]
    assert "left out: exact: " in str(found)
    page = " ".join(found.report.read_text().split())
    assert "Attacks that were left out" in page and "by BatchNorm, whose statistics" in page
    again = audit(network, attacks={**QUICK, "exact": {}})
    assert again.left_out == found.left_out
    assert not audit(chain, attacks=["exact"], output=found.folder.with_name("all")).left_out


class ByIndex(nn.Module):
    """Everything by one index: no gradient reaches any input."""

    def __init__(self, width: int, n_classes: int) -> None:
        super().__init__()
        self.table, self.last = nn.Embedding(width, 4), nn.Linear(4, n_classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.table(x.argmax(-1)))


def test_a_network_that_no_gradient_goes_through_leaves_the_baseline_alone(audit: Audit, tmp_path: Path) -> None:
    found = audit(ByIndex)
    assert set(found.rows["attack"]) == {"random"}
    assert "does not reach 4 of 4 columns" in found.left_out["inverting_gradients"]
    page = " ".join(found.report.read_text().split())
    assert "no attack has been measured" in page and "Nothing can be said yet" in page
    with pytest.raises(UnsupportedError, match=r"does not reach 4 of 4 columns.*layer 'table'"):
        audit(ByIndex, attacks="inverting_gradients", output=tmp_path / "none")
    with pytest.raises(UnsupportedError, match=r"none of the attacks applies\. inverting_gradients: .*; exact: "):
        audit(ByIndex, attacks=["inverting_gradients", "exact"], output=tmp_path / "none")
    assert not (tmp_path / "none").exists()


def test_a_config_with_an_attack_that_does_not_apply_is_refused_before_any_work(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(
        "data: {name: synthetic, options: {n_discrete: 2, n_continuous: 2, n_rows: 60}}\n"
        "target: {options: {norm: batch}}\ntraining: {epochs: 0}\nattacks: [random, exact]\nworkers: 1\n"
    )
    with pytest.raises(UnsupportedError, match="MLP mixes the rows of a batch by BatchNorm"):
        lightleak.run_config(lightleak.load_config(tmp_path / "mine.yaml"), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_network_may_be_made_named_or_code(audit: Audit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mynetworks.py").write_text(
        "from torch import nn\ndef wide(layout, n_classes):\n    return nn.Linear(layout.width, n_classes)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    for i, model in enumerate((chain, "mlp", "mynetworks:wide")):
        found = audit(model, attacks=["random"], output=tmp_path / str(i), batches=1)
        assert len(found.rows) == 1
    assert found.rows["target"][0] == "mynetworks:wide"


CODE = """from torch import nn
def wide(layout, n_classes):
    return nn.Linear(layout.width, n_classes + 1)
def double(layout, n_classes):
    return nn.Linear(layout.width, n_classes).double()
def lazy(layout, n_classes):
    return nn.LazyLinear(n_classes)
def soft(layout, n_classes):
    return nn.Sequential(nn.Linear(layout.width, n_classes), nn.Softmax(-1))
"""


def test_a_frozen_layer_is_refused_before_any_work(audit: Audit, data: PreparedTable, tmp_path: Path) -> None:
    network = chain(data.width, data.n_classes)
    network[0].requires_grad_(False)
    with pytest.raises(UsageError, match=r"must be trained to be captured; frozen: \['0.weight', '0.bias'\]"):
        audit(network)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("wide", "must return 2 logits .* got 3"),
        ("double", "must be torch.float32"),
        ("lazy", "without a shape yet"),
        ("soft", "returns probabilities"),
    ],
)
def test_code_is_checked_as_modules_are(
    audit: Audit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, message: str
) -> None:
    (tmp_path / "checked.py").write_text(CODE)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "checked", raising=False)
    with pytest.raises(UsageError, match=message):
        audit(f"checked:{name}")
    assert not (tmp_path / "run").exists()


def test_the_same_call_goes_on_and_another_is_refused(audit: Audit, data: PreparedTable) -> None:
    network = chain(data.width, data.n_classes)
    first = audit(network)
    written = {file: file.stat().st_mtime_ns for file in (first.folder / "units").iterdir()}
    assert audit(chain(data.width, data.n_classes)).results == first.results
    assert {file: file.stat().st_mtime_ns for file in (first.folder / "units").iterdir()} == written
    with pytest.raises(UsageError, match="holds a run of another config"):
        audit(network, batches=3)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ({"model": nn.Linear(3, 2)}, r"Linear must take encoded rows \[n, 8\]"),
        ({"model": lambda width, n: nn.Linear(width, n + 1)}, r"2 logits \(classes of the label\), got 3"),
        ({"model": lambda width, n: "mlp"}, "model must be or make an nn.Module, or name a network, got str"),
        ({"model": "mpl"}, r"unknown network 'mpl' \(did you mean 'mlp'\?\)"),
        ({"model": "nosuch.package:make"}, "'nosuch.package' cannot be imported"),
        ({"model": "mlp", "attacks": ["tableakk"]}, "unknown attack 'tableakk'"),
        ({"model": "mlp", "attacks": {"tableak": {"stepz": 1}}}, "stepz"),
        ({"model": "mlp", "batch_size": 10_000}, "batch_size must be at most 96"),
        ({"model": "mlp", "batch_size": []}, "batch_size"),
        ({"model": "mlp", "batches": 0}, "nothing to attack"),
        ({"model": "mlp", "settings": {"trainning.epochs": 1}}, r"unknown setting 'trainning' \(did you mean"),
        ({"model": "mlp", "settings": {"workers": 2}}, "workers must be 1, got 2"),
        ({"model": "mlp", "settings": {"device": "gpu"}}, "device"),
        ({"model": "mlp", "device": "gpu"}, "got 'gpu'"),
        ({"model": "mlp", "device": "cpu", "settings": {"device": "cuda"}}, "contradict each other; give one"),
        ({"model": "mlp", "label": "age"}, "was prepared with label 'ill', got label 'age'"),
    ],
)
def test_wrong_use_is_one_message_before_any_work(
    audit: Audit, tmp_path: Path, call: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        audit(call.pop("model"), **call)
    assert not (tmp_path / "run").exists()


def test_whole_numbers_may_be_numpys(audit: Audit) -> None:
    found = audit("mlp", attacks=["random"], batch_size=np.int64(6), batches=np.int64(2), epochs=np.int32(0))
    assert len(found.rows) == 2


def test_the_device_is_an_argument_or_a_setting(audit: Audit, tmp_path: Path) -> None:
    found = audit("mlp", attacks=["random"], device="cpu", settings={"device": "cpu"})
    assert yaml.safe_load((found.folder / "config.yaml").read_text())["device"] == "cpu"
    by_setting = audit("mlp", attacks=["random"], output=tmp_path / "other", settings={"device": "cpu"})
    assert yaml.safe_load((by_setting.folder / "config.yaml").read_text())["device"] == "cpu"


def test_a_frame_needs_its_label(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="label must name the label column"):
        lightleak.audit_model(pd.DataFrame({"a": [1, 2]}), "mlp", output=tmp_path / "run")


class TestUpdates:
    """Updates from anywhere."""

    @pytest.fixture
    def observed(self, data: PreparedTable) -> list[tuple[ClientUpdate, GroundTruth]]:
        spec = NetworkSpec(hand_over(chain(data.width, 2)), 2, data.encoder.layout)
        people = Population(*data.encode(), data.encoder, data.marginals)
        clients = FreshClients(people, spec, 0, share_labels=True)
        return [clients.observe(4, i) for i in range(2)]

    def test_with_and_without_their_rows(self, observed: list[Any], tmp_path: Path) -> None:
        scored = lightleak.attack_updates(observed, "exact", output=tmp_path / "scored")
        assert (scored.rows["exact_match_rate"] == 1.0).all() and len(scored.rows) == 2
        alone = lightleak.attack_updates([update for update, _ in observed], "exact", output=tmp_path / "alone")
        assert alone.rows["exact_match_rate"].isna().all()
        shares = alone.rows["certified_share"].tolist()  # below 1 where a client drew a row twice
        assert shares == scored.rows["certified_share"].tolist() and min(shares) >= 0.5
        assert alone.report.is_file()
        assert len(list((tmp_path / "alone" / "captures").rglob("observation"))) == 2
        assert not list((tmp_path / "alone").rglob("truth"))

    def test_the_usual_attacks_are_those_of_the_kind(self, observed: list[Any], tmp_path: Path) -> None:
        settings = {"attacks.tableak": {"steps": 5, "restarts": 1}}
        found = lightleak.attack_updates(observed[0], output=tmp_path / "run", settings=settings)
        assert list(found.rows["attack"]) == ["tableak", "audit_max", "random"]

    def test_the_device_is_an_argument(self, observed: list[Any], tmp_path: Path) -> None:
        found = lightleak.attack_updates(observed, "random", output=tmp_path / "run", device="cpu")
        assert yaml.safe_load((found.folder / "config.yaml").read_text())["device"] == "cpu"
        with pytest.raises(UsageError, match="contradict each other"):
            lightleak.attack_updates(observed, output=tmp_path / "no", device="cpu", settings={"device": "cuda"})

    def test_other_updates_in_the_same_folder_are_refused(self, observed: list[Any], tmp_path: Path) -> None:
        lightleak.attack_updates(observed[0], "random", output=tmp_path / "run")
        again = lightleak.attack_updates(observed[0], "random", output=tmp_path / "run")
        assert len(again.rows) == 1
        with pytest.raises(UsageError, match="holds a run on other updates"):
            lightleak.attack_updates(observed[1], "random", output=tmp_path / "run")

    def test_rows_that_are_not_an_updates_are_refused(self, observed: list[Any], tmp_path: Path) -> None:
        crossed = [(observed[0][0], observed[1][1])]
        with pytest.raises(LightLeakError, match=r"does not reproduce|labels that the update shares"):
            lightleak.attack_updates(crossed, "random", output=tmp_path / "run")

    @pytest.mark.parametrize(
        ("updates", "message"),
        [([], "at least one"), ([3], "must be ClientUpdate, Capture, or pairs"), ("nowhere", "holds no captured")],
    )
    def test_what_is_no_update_is_named(self, updates: Any, message: str, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match=message):
            lightleak.attack_updates(updates, "random", output=tmp_path / "run")

    def test_another_process_asks_for_the_module(
        self, observed: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        lightleak.attack_updates(observed, "random", output=tmp_path / "run")
        captures = tmp_path / "run" / "captures"
        monkeypatch.setattr(own, "_KNOWN", {})  # what another process knows
        with pytest.raises(UsageError, match="was handed over in memory, and not in this process"):
            lightleak.attack_updates(captures, "exact", output=tmp_path / "refused")
        found = lightleak.attack_updates(captures, "exact", output=tmp_path / "mended", model=chain(8, 2))
        assert found.rows["exact_match_rate"].tolist() == [1.0, 1.0]


FLAGS: list[list[str]] = [
    [],
    ["--seed", "3"],
    ["--trainer.max-steps", "3", "--title=x"],
    ["--seed", "three"],
    ["--no.such.key", "1"],
    ["--seed", "-1", "--device", "abacus"],
]


ONE_OF_EACH_KIND = ("quickstart", "vertical-survey", "released-model", "defense-frontier", "tune-target")
CASES = [
    pytest.param(path, flags, id=" ".join([path.stem, *flags]))
    for path in CONFIGS
    for flags in (FLAGS if path.stem in ONE_OF_EACH_KIND else FLAGS[:1])
]


@pytest.mark.parametrize(("path", "flags"), CASES)
def test_configs_load_as_on_the_command_line(path: Path, flags: list[str]) -> None:
    """Parsed flags through the command's own functions on one side, dotted keys through the API on the other."""

    def outcome(load: Callable[[], Any]) -> tuple[str, Any]:
        try:
            return "config", load().to_dict()
        except LightLeakError as error:
            return type(error).__name__, str(error)

    def by_command() -> Any:
        settings = flag_settings(flags)
        if "study" in yaml.safe_load(path.read_text()):
            return load_tune_config(path, settings)
        return load_config(path, settings)

    words = [word for flag in flags for word in flag.split("=")]
    keys = {words[i].removeprefix("--"): yaml.safe_load(words[i + 1]) for i in range(0, len(words), 2)}
    assert outcome(lambda: lightleak.load_config(path, keys)) == outcome(by_command)


def test_a_config_runs_from_python(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(
        "data: {name: synthetic, options: {n_discrete: 2, n_continuous: 2, n_rows: 60}}\n"
        "training: {epochs: 0}\nattacks: [random]\nworkers: 1\n"
    )
    config = lightleak.load_config(tmp_path / "mine.yaml", {"initial.batch_sizes": [4], "initial.batches": 2})
    found = lightleak.run_config(config, tmp_path / "run")
    assert len(found.rows) == 2 and found.report.is_file()
    with pytest.raises(UsageError, match="config must be one of load_config, got dict"):
        lightleak.run_config({}, tmp_path / "other")


def test_names_are_there_without_loading_anything() -> None:
    program = (
        "import sys, lightleak\n"
        "assert {'audit_model', 'LeakageCallback'} <= set(dir(lightleak))\n"
        "try:\n    lightleak.nosuch\nexcept AttributeError as error:\n    assert 'nosuch' in str(error)\n"
        "assert 'torch' not in sys.modules and 'lightleak.api' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert all(callable(getattr(lightleak, name)) for name in lightleak.__all__)


@pytest.mark.parametrize(
    ("kind", "shown"),
    [
        ("updates", "interval: 95%, of cells"),
        ("vertical", "provfl_b"),
        ("released", "plgmi"),
        ("frontier", "accuracy"),
    ],
)
def test_printing_a_result_gives_the_table_of_its_kind(kind: str, shown: str, tmp_path: Path) -> None:
    golden = json.loads((Path(__file__).parent / "golden" / f"{kind}.json").read_text())["results"]
    for group in golden["summary"]:
        group.setdefault("seconds", {"n": 1, "mean": 1.0})  # golden files hold no times
    printed = str(lightleak.api.Leakage(tmp_path, golden))
    assert shown in printed and len(printed.splitlines()) > 3
