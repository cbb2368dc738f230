"""The command: exit codes, one message per error, and what each command prints."""

import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml

import lightleak
from lightleak.attacks import ATTACKS
from lightleak.cli import main
from lightleak.cli.parser import build_parser
from lightleak.core.errors import DataError, ObservationError, UnsupportedError
from lightleak.data.datasets import DATASETS
from lightleak.defenses.horizontal import TRAINING_DEFENSES, UPDATE_DEFENSES
from lightleak.defenses.vertical import VERTICAL_DEFENSES
from lightleak.experiments import run
from lightleak.metrics import METRICS
from lightleak.reproductions import every_table, reproduce
from lightleak.targets import NETWORKS
from lightleak.targets.classifier import TabularClassifier

CONFIG: dict[str, Any] = {
    "data": {"name": "synthetic", "options": {"n_discrete": 1, "n_continuous": 1, "n_rows": 60}},
    "target": {"options": {"hidden": [3]}},
    "training": {"epochs": 1, "batch_size": 4},
    "capture": {"epochs": [0], "per_epoch": 1},
    "initial": {"batch_sizes": [2], "batches": 1},
    "attacks": {"random": {}},
    "device": "cpu",
    "workers": 1,
}

Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def lightleak_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """Runs the command in a folder with ``config.yaml``; returns exit code, output and errors."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(CONFIG))

    def command(*arguments: str) -> tuple[int, str, str]:
        code = main(arguments)
        out, err = capsys.readouterr()
        return code, out, err

    return command


@pytest.fixture
def finished(lightleak_command: Command) -> Path:
    code, _, err = lightleak_command("audit", "config.yaml", "--output", "done")
    assert code == 0, err
    return Path("done")


def assert_one_message(err: str, *parts: str) -> None:
    assert err.startswith("lightleak: ") and err.count("\n") == 1 and "Traceback" not in err
    for part in parts:
        assert part in err


def test_a_shipped_config_may_be_given_by_its_former_name(lightleak_command: Command, tmp_path: Path) -> None:
    for name in ("released-model.yaml", "defense-frontier.yaml"):
        (tmp_path / name).write_text("")
    parser = build_parser()
    assert parser.parse_args(["audit", "released_model.yaml"]).config == Path("released-model.yaml")
    assert parser.parse_args(["audit", "defence-frontier.yaml"]).config == Path("defense-frontier.yaml")
    (tmp_path / "released_model.yaml").write_text("")
    assert parser.parse_args(["audit", "released_model.yaml"]).config == Path("released_model.yaml")
    assert parser.parse_args(["audit", "my_config.yaml"]).config == Path("my_config.yaml")


AUDIT = ("audit", "config.yaml", "--output", "new")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "the following arguments are required: command"),
        (["audti"], "'audti'"),
        (["--verbose"], "the following arguments are required: command"),
        (["audit"], "audit needs either a config or --resume DIR"),
        (["audit", "--plan"], "audit needs either a config or --resume DIR"),
        (["reproduce", "tableak-table7", "--budget", "8"], "--budget is for --all"),
        (["audit", "missing.yaml"], "config missing.yaml does not exist"),
        (["audit", "."], "config . does not exist or is no file"),
        ([*AUDIT, "--trainig.epochs", "1"], "trainig"),
        ([*AUDIT, "--training.epoch", "1"], "epoch"),
        ([*AUDIT, "--plann"], "--plann needs a value"),
        ([*AUDIT, "--training.epochs"], "--training.epochs needs a value"),
        ([*AUDIT, "--training.epochs", "--plan"], "--training.epochs needs a value"),
        ([*AUDIT, "--training.epochs", "-2"], "training.epochs must be at least 0, got -2"),
        ([*AUDIT, "--training.epochs", "few"], "training.epochs"),
        ([*AUDIT, "--title", "[open"], "--title needs a YAML value, got '[open'"),
        ([*AUDIT, "stray"], "expected a flag such as --training.epochs, got 'stray'"),
        ([*AUDIT, "--attacks", "tabbleak"], "did you mean 'tableak'"),
        ([*AUDIT, "--attacks.random.tries", "3"], "attacks.random: random has no setting tries"),
        ([*AUDIT, "--data.name", "adlut"], "did you mean 'adult'"),
        ([*AUDIT, "--data.lable", "ill"], "did you mean 'label'"),
        ([*AUDIT, "--kind", "vertical"], "unknown setting 'capture' of kind vertical; it is one of kind updates"),
        ([*AUDIT, "--target.network", "restnet"], "did you mean 'resnet'"),
        ([*AUDIT, "--initial.batch_sizes", "[49]"], "batch_size must be at most 48 (training rows of 'synthetic')"),
        ([*AUDIT, "--device", "abacus"], "device must be auto, cpu, cuda or cuda:N, got 'abacus'"),
        ([*AUDIT, "--device", "cuda:99"], "device 'cuda:99' is not on this machine"),
        ([*AUDIT, "--training.trainer.acelerator", "cpu"], "training.trainer:"),
        (["audit", "config.yaml", "--output", ".."], "is not empty and holds no run"),
        (["audit", "config.yaml", "--output", "config.yaml"], "--output must be a folder"),
        (["audit", "--resume", "nowhere"], "nothing to resume in nowhere"),
        (["audit", "--resume"], "--resume"),
        (["attack", "config.yaml"], "--capture"),
        (["attack", "config.yaml", "--capture", "nowhere"], "--capture nowhere holds no captured update"),
        (
            ["attack", "config.yaml", "--capture", "x", "--plan"],
            "unknown argument '--plan'; see lightleak attack --help",
        ),
        (["tune", "config.yaml", "--plan"], "unknown argument '--plan'; see lightleak tune --help"),
        (["reproduce"], "needs the name of a table or figure, LIST, or --all"),
        (["reproduce", "tableak-table1", "--all"], "needs the name of a table or figure, LIST, or --all"),
        (["reproduce", "--all", "--budget", "0"], "--budget must be more than 0 minutes, got 0"),
        (["reproduce", "tableak-tabel17"], "did you mean 'tableak-table17'"),
        (["reproduce", "tableak-table17", "--batches", "0"], "--batches must be at least 1, got 0"),
        (["reproduce", "tableak-table17", "--batches", "two"], "--batches"),
        (["reproduce", "tableak-table17", "--batch-sizes", "8;16"], "--batch-sizes must be whole numbers"),
        (["reproduce", "tableak-table17", "--seeds", "0"], "--seeds must be at least 1"),
        (["reproduce", "tableak-table2", "--search-restarts", "0"], "--search-restarts must be at least 1, got 0"),
        ([*AUDIT, "--protocol.name", "fedprox"], "protocol.name"),
        ([*AUDIT, "--protocol.local_epochs", "5"], "protocol.local_epochs is a setting of FedAvg"),
        ([*AUDIT, "--defense.name", "gausian_noise"], "did you mean 'gaussian_noise'"),
        (["reproduce", "tableak-table17", "--dataset", "bank"], "nothing of tableak-table17 is left to run"),
        (["reproduce", "tableak-table17", "--steps", "3"], "unknown argument '--steps'"),
        (["report"], "DIR"),
        (["report", "nowhere"], "nowhere is no run folder"),
        (["report", "nowhere", "--pages", "3"], "unknown argument '--pages'"),
        (["data"], "step"),
        (["data", "prepare", "adlut"], "did you mean 'adult'"),
        (["data", "describe", "adlut"], "did you mean 'adult'"),
        (["data", "describe", "table.csv"], "table.csv is a file: name its label column with --label"),
        (["data", "describe", "table.csv", "--label", "ill"], "table table.csv does not exist"),
        (["data", "describe", "german", "--label", "x"], "--label is for a file, and 'german' is a dataset"),
        (["data", "describe", "german", "--drop", "x"], "--drop is for a file, and 'german' is a dataset"),
        (["data", "describe", "german", "--categorical", "x"], "--categorical is for a file"),
        (["data", "describe", "german", "--missing", "refuse"], "--missing is for a file"),
        (["data", "describe", "."], "is no file but a folder; name a file in it (.csv, "),
        (["list"], "what"),
        (["list", "attakcs"], "'attakcs'"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_use_is_exit_code_2_and_one_message(
    lightleak_command: Command, arguments: list[str], message: str
) -> None:
    code, out, err = lightleak_command(*arguments)
    assert code == 2
    assert_one_message(err, message)
    assert out == ""
    assert sorted(path.name for path in Path().iterdir()) == ["config.yaml"]  # nothing was begun


def test_a_flag_is_never_the_beginning_of_another(lightleak_command: Command) -> None:
    code, _, err = lightleak_command("reproduce", "LIST", "--batch", "3")
    assert code == 2
    assert_one_message(err, "--batch")


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (OSError("disk full"), 1, "OSError: disk full"),
        (RuntimeError("broken"), 1, "RuntimeError: broken"),
        (MemoryError(), 1, "MemoryError"),
        (ZeroDivisionError("by nought"), 1, "ZeroDivisionError: by nought"),
        (KeyError("gone"), 1, "KeyError: 'gone'"),
        (KeyboardInterrupt(), 130, "interrupted"),
        (ObservationError("not finite"), 2, "not finite"),
        (DataError("bad [bold]cell[/bold]"), 2, "bad [bold]cell[/bold]"),
        (UnsupportedError("no such loss"), 2, "no such loss"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
def test_every_failure_has_its_code_and_one_message(
    lightleak_command: Command, monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int, message: str
) -> None:
    def fail(*_: Any) -> None:
        raise error

    monkeypatch.setattr(run, "run_audit", fail)
    got, _, err = lightleak_command(*AUDIT)
    assert got == code
    assert_one_message(err, message)


@pytest.mark.parametrize("error", [RuntimeError("broken"), KeyboardInterrupt()], ids=["failed", "interrupted"])
def test_what_broke_off_says_how_to_go_on(
    lightleak_command: Command, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(run, "run_packs", fail)
        code, _, err = lightleak_command(*AUDIT[:-1], "a new")
    assert code in (1, 130)
    assert_one_message(err, "Finished work is kept in a new; resume with: lightleak audit --resume 'a new'")
    code, out, err = lightleak_command("audit", "--resume", "a new")
    assert (code, err) == (0, "")
    assert "report: a new/report.html" in out


@pytest.mark.parametrize("ignored", [False, True], ids=["", "Ctrl-C is ignored"])
def test_sigterm_ends_a_training_as_ctrl_c_does(
    lightleak_command: Command, monkeypatch: pytest.MonkeyPatch, ignored: bool
) -> None:
    plain, before = TabularClassifier.training_step, signal.getsignal(signal.SIGTERM)

    def step(self: TabularClassifier, batch: Any, batch_index: int) -> Any:
        if self.trainer.current_epoch == 1:
            signal.raise_signal(signal.SIGTERM)
        return plain(self, batch, batch_index)

    on_ctrl_c = signal.signal(signal.SIGINT, signal.SIG_IGN if ignored else signal.default_int_handler)
    try:
        with monkeypatch.context() as patch:
            patch.setattr(TabularClassifier, "training_step", step)
            code, _, err = lightleak_command(*AUDIT, "--training.epochs", "3")
    finally:
        signal.signal(signal.SIGINT, on_ctrl_c)
    assert code == 143
    assert err == ("lightleak: terminated. Finished work is kept in new; resume with: lightleak audit --resume new\n")
    assert signal.getsignal(signal.SIGTERM) is before
    assert Path("new/checkpoints/last.ckpt").is_file() and not Path("new/training.json").exists()
    assert lightleak_command("audit", "--resume", "new")[0] == 0


@pytest.mark.parametrize(
    "arguments",
    [["list", "attacks"], ["explain", "exact"], ["data", "describe", "german"], AUDIT],
    ids=lambda words: " ".join(words[:2]),
)
@pytest.mark.usefixtures("lightleak_command")
def test_a_reader_that_leaves_ends_no_command(arguments: list[str]) -> None:
    """As ``| head -1`` does; a pipe whose reader is gone already is the earliest case."""
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "lightleak", *arguments],
            stdout=writing,
            stderr=subprocess.PIPE,
            text=True,
            timeout=300,
        )
    finally:
        os.close(writing)
    assert (done.returncode, done.stderr) == (0, "")
    assert arguments != AUDIT or Path("new/report.html").is_file()


def test_an_interrupted_attack_is_gone_on_with_by_the_same_command(
    lightleak_command: Command, finished: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    arguments = ("attack", "config.yaml", "--capture", str(finished / "captures"), "--output", "offline")
    with monkeypatch.context() as patch:
        patch.setattr("lightleak.experiments.run.run_packs", stop)
        code, _, err = lightleak_command(*arguments)
    assert code == 130
    assert_one_message(err, "kept in offline; resume with: the same command")
    code, _, err = lightleak_command("audit", "--resume", "offline")
    assert code == 2
    assert_one_message(err, "was made by `lightleak attack`")
    assert lightleak_command(*arguments)[0] == 0


def test_an_interruption_before_anything_was_kept_promises_nothing(
    lightleak_command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(run, "run_audit", stop)
    assert lightleak_command(*AUDIT)[2] == "lightleak: interrupted\n"


def test_audit_prints_its_table_and_where_the_report_is(lightleak_command: Command) -> None:
    code, out, err = lightleak_command("audit", "config.yaml", "--output", "runs/a", "--seed=3", "--title", "Mine")
    assert (code, err) == (0, "")
    assert "report: runs/a/report.html" in out and "untrained" in out and "epoch 0" in out
    written = yaml.safe_load(Path("runs/a/config.yaml").read_text())
    assert (written["seed"], written["title"]) == (3, "Mine")
    assert json.loads(Path("runs/a/environment.json").read_text())["command"][:2] == ["lightleak", "audit"]


def test_default_folder_is_named_after_the_config(lightleak_command: Command) -> None:
    assert lightleak_command("audit", "config.yaml")[0] == 0
    assert Path("runs/config/results.json").is_file()


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--resume", "done", "--seed", "1"], "--resume takes its settings from the run folder; remove '--seed'"),
        (["--resume", "done", "--output", "other"], "--resume continues in its own folder; remove --output"),
        (["other.yaml", "--resume", "done"], "done holds a run of another config than other.yaml"),
        (["other.yaml", "--output", "done"], "done holds a run of another config"),
    ],
)
def test_a_run_is_resumed_with_its_own_settings(
    lightleak_command: Command, finished: Path, flags: list[str], message: str
) -> None:
    Path("other.yaml").write_text(yaml.safe_dump(CONFIG | {"seed": 9}))
    before = (finished / "results.json").read_bytes()
    code, _, err = lightleak_command("audit", *flags)
    assert code == 2
    assert_one_message(err, message)
    assert (finished / "results.json").read_bytes() == before


def test_resuming_with_the_same_config_named_again_is_no_mistake(lightleak_command: Command, finished: Path) -> None:
    rows = json.loads((finished / "results.json").read_text())["rows"]
    assert lightleak_command("audit", "config.yaml", "--resume", "done")[0] == 0
    assert json.loads((finished / "results.json").read_text())["rows"] == rows


def test_plan_says_what_would_be_done_and_does_nothing(lightleak_command: Command) -> None:
    code, out, err = lightleak_command(*AUDIT, "--plan", "--initial.batches", "5")
    assert (code, err) == (0, "")
    assert "synthetic: 48 training and 12 test rows" in out
    assert "mlp-3, 1 epochs at batch size 4" in out
    assert "5 on fresh clients in 1 packs, 1 on the training run" in out
    assert not Path("new").exists()


def test_attack_reads_captures_of_a_run(lightleak_command: Command, finished: Path) -> None:
    code, out, err = lightleak_command("attack", "config.yaml", "--capture", "done/captures")
    assert (code, err) == (0, "")
    assert "report: runs/attack-config/report.html" in out
    (row,) = json.loads(Path("runs/attack-config/results.json").read_text())["rows"]
    (expected,) = (r for r in json.loads((finished / "results.json").read_text())["rows"] if r["source"] == "training")
    assert row["cell_accuracy"] == expected["cell_accuracy"]


def test_tampered_truth_is_wrong_use(lightleak_command: Command, finished: Path) -> None:
    (truth,) = (finished / "captures").glob("*/truth/truth.safetensors")
    truth.write_bytes(truth.read_bytes()[:-4] + b"\x00\x00\x80\x3f")
    code, _, err = lightleak_command("attack", "config.yaml", "--capture", "done", "--output", "new")
    assert code == 2
    assert_one_message(err)
    assert not Path("new").exists()


def test_report_is_built_again_elsewhere_and_of_several_runs(lightleak_command: Command, finished: Path) -> None:
    assert lightleak_command("audit", "config.yaml", "--output", "second", "--seed", "1")[0] == 0
    code, out, err = lightleak_command("report", "done", "--output", "one.html", "--redact")
    assert (code, out, err) == (0, "report: one.html\n", "")
    code, out, err = lightleak_command("report", "done", "second", "--output", "both.html")
    assert (code, out, err) == (0, "report: both.html\n", "")
    assert "<html" in Path("both.html").read_text()[:300]
    code, out, err = lightleak_command("report", "done", "second")  # beside the first one's own report
    assert (code, out, err) == (0, "report: done/combined.html\n", "")


def test_reproduce_prints_and_writes_the_comparison(
    lightleak_command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The random baseline of Table 14 is the one run of TabLeak that needs neither files nor minutes.
    code, out, err = lightleak_command(
        *("reproduce", "tableak-table14", "--batches", "2", "--batch-sizes", "16"),
        *("--attacks", "random", "--workers", "1", "--device", "cpu", "--output", "new"),
    )
    assert (code, err) == (0, "")
    assert "comparison: new/comparison.md" in out
    page = Path("new/comparison.md").read_text()
    assert page.startswith("# tableak-table14") and "synthetic-d125-c125" in page and "random" in page
    results = json.loads(Path("new/results.json").read_text())
    assert [row["batch_size"] for row in results["rows"]] == [16, 16]
    assert results["summary"][0]["cell_accuracy"]["n"] == 2


def test_selection_reaches_the_reproduction(lightleak_command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    monkeypatch.setattr(reproduce, "reproduce", lambda *arguments: seen.extend(arguments))
    code, _, err = lightleak_command(
        *("reproduce", "tableak-fig9", "--dataset", "german", "--batches", "3", "--batch-sizes", "8,16", "--attacks"),
        *(
            "tableak,random",
            "--labels",
            "restored",
            "--seed",
            "5",
            "--seeds",
            "2",
            "--data",
            "tables",
            "--workers",
            "2",
            "--settings",
            "1x1,10x4",
            "--search-restarts",
            "3",
        ),
    )
    assert (code, err) == (0, "")
    name, selection, folder, where, command, _ = seen
    assert (name, folder) == ("tableak-fig9", Path("runs/tableak-fig9"))
    assert (where.device, where.workers, where.engine, where.ray_address) == ("auto", 2, "local", None)
    assert command[:3] == ["lightleak", "reproduce", "tableak-fig9"]
    assert selection == reproduce.Selection(
        "german",
        3,
        (8, 16),
        ("tableak", "random"),
        "restored",
        seeds=(5, 6),
        data_folder="tables",
        settings=("1x1", "10x4"),
        search_restarts=3,
    )


def test_every_table_gets_its_budget(lightleak_command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    monkeypatch.setattr(every_table, "run_every_table", lambda *arguments: seen.extend(arguments))
    code, out, err = lightleak_command("reproduce", "--all", "provfl-*", "--budget", "2.5", "--strongest")
    assert (code, err) == (0, "") and "runs/every-table/status.html" in out
    pattern, folder, _, budget, selection, _ = seen
    assert (pattern, folder, budget) == ("provfl-*", Path("runs/every-table"), 2.5)
    assert selection == reproduce.Selection(strongest=True)


def test_reproduce_list_names_them_all(lightleak_command: Command) -> None:
    code, out, _ = lightleak_command("reproduce", "LIST")
    assert code == 0
    names = [line.split()[0] for line in out.splitlines()]
    assert {"tableak-table17", "tableak-fig9"} <= set(names)
    assert not Path("runs").exists()


@pytest.mark.parametrize(
    ("what", "names"),
    [
        ("attacks", ATTACKS.names()),
        ("datasets", DATASETS.names()),
        ("targets", NETWORKS.names()),
        ("metrics", METRICS.names()),
        ("defenses", (*UPDATE_DEFENSES, *TRAINING_DEFENSES, *VERTICAL_DEFENSES)),
        ("reproductions", ("tableak-table1", "tableak-fig13", "tableak-table2", "tableak-table6", "tableak-fig5")),
    ],
)
def test_list_names_everything_with_a_word_about_it(
    lightleak_command: Command, what: str, names: tuple[str, ...]
) -> None:
    code, out, err = lightleak_command("list", what)
    assert (code, err) == (0, "")
    listed = {line.split()[0]: line.split(maxsplit=1)[1] for line in out.splitlines()}
    assert set(names) <= set(listed)
    assert all(listed.values())


def test_settings_may_stand_before_the_config(lightleak_command: Command, tmp_path: Path) -> None:
    config = tmp_path / "a.yaml"
    config.write_text("data: {name: fair}\n")
    code, out, err = lightleak_command("audit", "--seed", "3", "--training.epochs=0", str(config), "--plan")
    assert (code, err) == (0, "") and "0 epochs" in out


def test_data_list_says_which_files_are_here(
    lightleak_command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LIGHTLEAK_DATA_DIR", str(tmp_path / "tables"))
    (tmp_path / "tables" / "bank").mkdir(parents=True)
    for file in DATASETS.get("bank").card.files:
        (tmp_path / "tables" / "bank" / file).touch()
    code, out, _ = lightleak_command("data", "list")
    assert code == 0
    lines = {line.strip("│┃ ").split()[0]: line for line in out.splitlines() if line.strip("│┃ ")}
    assert set(DATASETS.names()) <= set(lines)
    assert "yes" in lines["bank"] and "0 of" in lines["adult"] and "not needed" in lines["german"]


@pytest.mark.parametrize("name", ["german", "synthetic"])
def test_data_prepare_says_that_there_is_nothing_to_download(lightleak_command: Command, name: str) -> None:
    code, out, err = lightleak_command("data", "prepare", name)
    assert (code, err) == (0, "")
    assert out == f"{name}: nothing needs to be downloaded; it is generated, or part of an installed package\n"


@pytest.mark.parametrize("more", [[], ["--label", "ill"]], ids=["", "label"])
def test_a_file_without_an_ending_is_no_dataset(lightleak_command: Command, more: list[str]) -> None:
    Path("noext").write_text("age,ill\n")
    code, _, err = lightleak_command("data", "describe", "./noext", *more)
    assert code == 2
    assert_one_message(
        err, "table noext must be one of .csv, .csv.gz, .tsv, .tsv.gz, .txt, .parquet, .pq, got 'no suffix'"
    )


def test_data_describe_shows_columns_of_a_dataset_and_of_a_file(lightleak_command: Command) -> None:
    code, out, err = lightleak_command("data", "describe", "fair")
    assert (code, err) == (0, "")
    assert "5093 training rows, 1273 test rows" in out
    assert "encoded width 25" in out and "rate_marriage" in out and "5 categories" in out
    frame = pd.DataFrame(
        {"age": [20, 30, 40, 50, 60] * 4, "sex": ["f", "m"] * 10, "ill": ["no", "no", "yes", "no"] * 5}
    )
    frame.to_csv("mine.csv", index=False)
    code, out, err = lightleak_command("data", "describe", "mine.csv", "--label", "ill")
    assert (code, err) == (0, "")
    assert "16 training rows, 4 test rows" in out
    assert "1 categorical and 1 numerical columns, encoded width 3" in out
    assert "may be codes" not in out
    frame.assign(sex=[1, 2] * 10).to_csv("mine.csv", index=False)
    code, out, err = lightleak_command("data", "describe", "mine.csv", "--label", "ill")
    assert "data.categorical: [sex]" in out
    code, out, err = lightleak_command("data", "describe", "mine.csv", "--label", "ill", "--categorical", "sex")
    assert "1 categorical and 1 numerical columns, encoded width 3" in out and "may be codes" not in out
    code, _, err = lightleak_command("data", "describe", "mine.csv", "--label", "sick")
    assert code == 2
    assert_one_message(err, "sick")


def test_data_describe_counts_the_classes_that_it_does_not_list(lightleak_command: Command) -> None:
    frame = pd.DataFrame({"age": [20, 30, 40, 50, 60, 25] * 20, "stay": [*range(40)] * 3})
    frame.to_csv("mine.csv", index=False)
    out = lightleak_command("data", "describe", "mine.csv", "--label", "stay")[1]
    assert "and 34 more" in " ".join(out.split())
    assert "Each of the 40 numbers of the label is a class; if stay is measured, bin it" in out
    frame.assign(stay=[f"s{i}" for i in [*range(6)] * 20]).to_csv("mine.csv", index=False)
    out = lightleak_command("data", "describe", "mine.csv", "--label", "stay")[1]
    assert "more" not in out and "bin it" not in out


def test_data_describe_shows_names_as_they_are(lightleak_command: Command) -> None:
    cells = {"weight [kg]": [1.5, 2, 3, 4], "[/red]": ["a", "b", "b", "a"], ":smile:": [2, 5, 2, 7]}
    pd.DataFrame({**cells, "[bold]ill": ["[i]no", "yes", "[i]no", "yes"]}).to_csv("[b]mine.csv", index=False)
    code, out, err = lightleak_command("data", "describe", "[b]mine.csv", "--label", "[bold]ill")
    assert (code, err) == (0, "")
    for shown in ("[b]mine.csv: 3 training rows", "weight [kg] ", "[/red] ", ":smile: ", "[bold]ill ", "[i]no "):
        assert shown in out


def test_data_describe_shows_every_digit_of_a_range(lightleak_command: Command) -> None:
    frame = pd.DataFrame({"income": [1234567, 9876543] * 9, "dose": [0.12345678, 2] * 9, "ill": list("aabbab") * 3})
    frame.to_csv("mine.csv", index=False)
    out = lightleak_command("data", "describe", "mine.csv", "--label", "ill")[1]
    assert "1234567 to 9876543" in out and "0.12345678 to 2 " in out


def test_a_terminal_without_a_character_shows_a_question_mark(
    lightleak_command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame = pd.DataFrame({"größe – cm": [20.5, 30.0, 40.0, 50.0] * 5, "ill": ["no", "yes"] * 10})
    frame.to_csv("mine.csv", index=False)
    written = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(written, encoding="latin-1", write_through=True))
    assert lightleak_command("data", "describe", "mine.csv", "--label", "ill")[0] == 0
    assert "größe ? cm" in written.getvalue().decode("latin-1")


@pytest.mark.parametrize("flag", ["--version", "--help"])
def test_version_and_help(flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_info:
        main([flag])
    assert exit_info.value.code == 0
    out = capsys.readouterr().out
    assert lightleak.__version__ in out if flag == "--version" else "reproduce" in out


def test_audit_of_ones_own_table(lightleak_command: Command) -> None:
    frame = pd.DataFrame(
        {
            "age": [*range(20, 50), *range(30, 60)],
            "clinic": ["north", "south", "<b>east</b>"] * 20,
            "ill": ["no", "no", "no", "yes", "no"] * 12,
        }
    )
    frame.to_csv("patients.csv", index=False)
    Path("mine.yaml").write_text(yaml.safe_dump(CONFIG | {"data": {"table": "patients.csv", "label": "ill"}}))
    code, _, err = lightleak_command("audit", "mine.yaml", "--output", "mine")
    assert (code, err) == (0, "")
    assert {row["dataset"] for row in json.loads(Path("mine/results.json").read_text())["rows"]} == {"patients"}
    assert "<b>east</b>" not in Path("mine/report.html").read_text()
