"""Commands and their flags."""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn, TypeAlias

from lightleak import __version__
from lightleak.cli import listings, pages, runs
from lightleak.core.errors import UsageError

RUNS = Path("runs")
"""Folder of run folders where no other is named."""

LONGEST_NAME, LONGEST_PATH = 255, 3800
"""Bytes of a file or folder name, and of a path below which a run keeps its own files; systems allow 4095 in all."""


class Parser(argparse.ArgumentParser):
    """An argument parser that raises `UsageError` and does not accept abbreviated flags."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **{**options, "allow_abbrev": False})

    def error(self, message: str) -> NoReturn:
        """Raise the message as a `UsageError`."""
        raise UsageError(f"{message}; see {self.prog} --help")


Commands: TypeAlias = "argparse._SubParsersAction[Parser]"


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of all commands; the parsed ``run`` executes the command."""
    parser = Parser("lightleak", description="Train tabular networks and measure how much private data they leak.")
    parser.add_argument("--version", action="version", version=f"lightleak {__version__}")
    parser.set_defaults(takes_settings=False)
    commands = parser.add_subparsers(dest="command", required=True, parser_class=Parser)
    _add_audit(commands)
    _add_attack(commands)
    _add_tune(commands)
    _add_reproduce(commands)
    _add_report(commands)
    _add_compare(commands)
    _add_data(commands)
    _add_doctor(commands)
    _add_list(commands)
    _add_explain(commands)
    return parser


def _add_audit(commands: Commands) -> None:
    audit = commands.add_parser(
        "audit",
        help="train, capture, attack, report; the config says which kind of audit",
        epilog="Keys and defaults: docs/config.md. Minimal config: data: {table: FILE, label: COLUMN}",
    )
    add = audit.add_argument
    add("config", nargs="?", type=_config, help="YAML config; any of its keys is also a flag (--training.epochs 3)")
    add("--output", type=_path, help="run folder (default: runs/<name of the config>)")
    add("--resume", type=_path, metavar="DIR", help="finish the run in this folder")
    add("--plan", action="store_true", help="print what would be done and stop")
    audit.set_defaults(run=runs.audit, takes_settings=True, output_folder=_audit_folder)


def _add_attack(commands: Commands) -> None:
    attack = commands.add_parser("attack", help="attack captured updates offline")
    add = attack.add_argument
    add("config", type=_config, help="YAML config that lists the attacks; its keys are flags as well")
    add("--capture", type=_path, required=True, metavar="DIR", help="folder with one or more captures")
    add("--output", type=_path, help="run folder (default: runs/attack-<name of the config>)")
    attack.set_defaults(run=runs.attack, takes_settings=True, output_folder=_in_runs("attack-{config.stem}"))


def _add_tune(commands: Commands) -> None:
    tune = commands.add_parser("tune", help="search an audit's settings with Optuna; rerun to resume")
    add = tune.add_argument
    add(
        "config",
        type=_config,
        help="YAML config with searches in place of values and a section 'study'; its keys are flags as well",
    )
    add("--output", type=_path, help="the study's folder (default: runs/<name of the config>)")
    add("--workers", type=int, default=0, help="trials at once (default: one per GPU, or per core)")
    add("--trials", type=int, help="how many (default: the config's)")
    tune.set_defaults(run=runs.tune, takes_settings=True, output_folder=_in_runs("{config.stem}"))


def _add_reproduce(commands: Commands) -> None:
    reproduce = commands.add_parser("reproduce", help="run a paper's table and print paper and ours side by side")
    add = reproduce.add_argument
    add("name", nargs="?", help="a reproduction, such as tableak-table17, or LIST")
    add(
        "--all",
        nargs="?",
        const="*",
        metavar="PATTERN",
        help="run every table (or those whose name fits, such as 'provfl-*') within a budget each; rerun to resume",
    )
    add("--budget", type=float, help="with --all: minutes of one core (or GPU) for each table (default: 8)")
    add("--strongest", action="store_true", help="run this package's strongest attack on the same cells, too")
    add("--dataset", help="only this dataset")
    add("--batches", type=int, help="batches or clients per cell (default 50, as TabLeak; 5 under FedAvg)")
    add("--batch-sizes", help="only these, separated by commas")
    add("--attacks", help="only these, separated by commas")
    add("--labels", choices=["true", "restored"], help="only cells with these labels")
    add("--seed", type=int, default=0, help="root seed")
    add("--seeds", type=int, help="root seeds (default: 1; for ProVFL 10, as the paper's trials)")
    add("--as-published", action="store_true", help="follow the published code where it differs from its paper")
    add(
        "--settings",
        help="only these, separated by commas: of the thesis's Table 4.3; epochs x batches of TabLeak's FedAvg "
        "(10x4); epochs x batch size of the FedAvg paper (10x5)",
    )
    add(
        "--search-restarts",
        type=int,
        help="restarts of the search for the weight of FedAvg's epoch prior, on a validation client (default 5)",
    )
    add(
        "--iterations",
        type=int,
        help="iterations of a generator (default: the thesis's 27,500), or steps of a FedAvg paper's attack",
    )
    add("--device", default="auto", help="auto, cpu, cuda or cuda:N")
    add("--workers", type=int, default=0, help="attacks run at once on a CPU (default: one per core)")
    add("--engine", choices=["local", "ray"], default="local", help="where attacks run")
    add("--ray-address", help="Ray cluster (default: RAY_ADDRESS, or Ray on this machine)")
    add("--data", help="folder with one subfolder of raw files per dataset")
    add("--output", type=_path, help="run folder (default: runs/<name>)")
    add("--plan", action="store_true", help="print what one table would run and how long it takes; run nothing")
    reproduce.set_defaults(run=runs.reproduce, output_folder=_reproduction_folder)


def _add_report(commands: Commands) -> None:
    report = commands.add_parser("report", help="build report.html of one or several run folders")
    add = report.add_argument
    add("folders", type=_path, nargs="+", metavar="DIR", help="run folder; several make one report that compares them")
    add("--output", type=_path, help="file that ends in .html (default: report.html in DIR, combined.html of several)")
    add("--redact", action="store_true", help="omit true and reconstructed values")
    add(
        "--pdf",
        nargs="?",
        const="",
        metavar="FILE",
        help="also print it as an A4 PDF (needs Chromium); FILE ends in .pdf (default: next to the HTML file)",
    )
    report.set_defaults(run=pages.report)


def _add_compare(commands: Commands) -> None:
    compare = commands.add_parser(
        "compare", help="compare two runs person by person, or a method of your own with the attacks of a run"
    )
    add = compare.add_argument
    add("folder", type=_path, metavar="DIR", help="run folder")
    add(
        "after",
        type=_path,
        nargs="?",
        metavar="OTHER",
        help="another run on the same table, such as one with a defense; both need people.csv, which runs with "
        "capture.coverage epoch or rounds write",
    )
    add(
        "--with",
        dest="file",
        type=_path,
        metavar="FILE",
        help="CSV file with a line for each observation: columns that name it (unit, or keys of results.json such as "
        "seed and batch_index) and columns of scores (cell_accuracy, estimated_fraction, ...)",
    )
    add(
        "--output",
        type=_path,
        metavar="FILE",
        help="CSV file with a line for each person of both runs, readable by its owner only",
    )
    compare.set_defaults(run=pages.compare)


def _add_data(commands: Commands) -> None:
    data = commands.add_parser("data", help="list, fetch or describe tables")
    steps = data.add_subparsers(dest="step", required=True, parser_class=Parser)
    steps.add_parser("list", help="datasets and whether their files are here").set_defaults(run=listings.data_list)
    _add_data_prepare(steps)
    _add_data_describe(steps)


def _add_data_prepare(steps: Commands) -> None:
    prepare = steps.add_parser("prepare", help="download the official files")
    add = prepare.add_argument
    add("name", help="as lightleak data list prints it")
    add("--data", type=_path, help="folder to keep them in")
    add("--force", action="store_true", help="download again")
    prepare.set_defaults(run=listings.data_prepare)


def _add_data_describe(steps: Commands) -> None:
    describe = steps.add_parser("describe", help="rows, columns, classes and encoded width of a dataset or a file")
    add = describe.add_argument
    add("name", help="dataset, or a CSV, TSV or Parquet file")
    add("--label", help="label column of a file")
    add("--drop", metavar="A,B", help="columns of a file that are not features, separated by commas")
    add("--categorical", metavar="A,B", help="columns of a file whose numbers are codes of categories")
    add(
        "--missing",
        choices=["refuse", "impute", "category"],
        help="missing values of a file: refuse the file (default), impute the median or the most frequent category, or "
        "make missing a category (of numbers: impute)",
    )
    describe.set_defaults(run=listings.data_describe)


def _add_doctor(commands: Commands) -> None:
    doctor = commands.add_parser("doctor", help="check install, devices, data, storage, and suggest fixes")
    add = doctor.add_argument
    add("--data", type=_path, metavar="FOLDER", help="folder with a subfolder of raw files per dataset")
    add("--output", type=_path, default=RUNS, metavar="FOLDER", help="where runs are to be kept")
    add("--engine", choices=["local", "ray"], default="local", help="ray: check the nodes of a Ray cluster as well")
    add("--ray-address", help="of the cluster (default: RAY_ADDRESS, or Ray on this machine)")
    add("--json", type=_path, metavar="FILE", help="write the findings to this .json file as well")
    doctor.set_defaults(run=pages.doctor)


def _add_list(commands: Commands) -> None:
    listing = commands.add_parser("list", help="list attacks, datasets, targets, defenses, metrics or reproductions")
    listing.add_argument("what", choices=["attacks", "datasets", "targets", "defenses", "metrics", "reproductions"])
    listing.set_defaults(run=listings.list_names)


def _add_explain(commands: Commands) -> None:
    explain = commands.add_parser(
        "explain", help="what an attack, a defense or a metric does and assumes, and what was measured"
    )
    explain.add_argument("name", help="an attack, a defense or a metric, as lightleak list prints it")
    explain.set_defaults(run=listings.explain)


def _path(text: str) -> Path:
    """Return a file or folder; an empty text is refused, as it would mean the current folder."""
    if not text:
        raise argparse.ArgumentTypeError("must name a file or folder, got ''")
    path = Path(text)
    for name in path.parts:
        if len(name.encode()) > LONGEST_NAME:
            raise argparse.ArgumentTypeError(
                f"must hold names of at most {LONGEST_NAME} bytes, got one of {len(name.encode())}: {name[:20]}..."
            )
    if len(text.encode()) > LONGEST_PATH:
        raise argparse.ArgumentTypeError(f"must have at most {LONGEST_PATH} bytes, got {len(text.encode())}")
    return path


def _config(text: str) -> Path:
    """Return the path of a config; a shipped one may be given by its former name (`released_model.yaml`)."""
    path = _path(text)
    renamed = path.parent / path.name.replace("_", "-").replace("defence", "defense")
    return renamed if renamed.is_file() and not path.exists() else path


def _audit_folder(parsed: argparse.Namespace) -> Path:
    if parsed.resume is not None:
        return Path(parsed.resume)
    return parsed.output or RUNS / (parsed.config.stem if parsed.config else "audit")


def _reproduction_folder(parsed: argparse.Namespace) -> Path:
    return _in_runs("{name}" if parsed.all is None else "every-table")(parsed)


def _in_runs(name: str) -> Callable[[argparse.Namespace], Path]:
    """Return what finds the run folder: the one that was named, or one whose name is made of the arguments."""
    return lambda parsed: parsed.output or RUNS / name.format(**vars(parsed))
