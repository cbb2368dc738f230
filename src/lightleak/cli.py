"""The command ``lightleak``. Exit codes: 0 done, 2 wrong use, 1 failed while running, 130 interrupted."""

import argparse
import logging
import os
import stat
import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NoReturn

import yaml
from rich.console import Console
from rich.table import Table as Grid

from lightleak import __version__
from lightleak.core.errors import UsageError
from lightleak.core.plugins import load_plugins
from lightleak.core.private_files import private_files
from lightleak.core.ranks import detect_ranks
from lightleak.core.unique_keys import RepeatedKey

VALUE_FLAGS = {
    "audit": ("--output", "--resume"),
    "attack": ("--output", "--capture"),
    "tune": ("--output", "--workers", "--trials"),
}
"""Commands that take a config, whose settings are flags, and their own flags that take a value."""

BARE_FLAGS = ("--plan", "--help")
"""Flags of these commands that take no value."""

COMMA_FLAGS = ("--attacks", "--batch-sizes", "--drop", "--settings")
"""Flags that take several values as one word."""

PDF = ".pdf"

PROVFL_TRIALS = 10
DONE, FAILED, WRONG_USE, INTERRUPTED = 0, 1, 2, 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; every error is one message, without a traceback."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    console = Console() if detect_ranks().leads else Console(quiet=True, force_interactive=False)
    folder, command = None, ""
    try:
        load_plugins()
        own, settings = _split(arguments)
        parsed, unknown = _parser().parse_known_args(own)
        rest = [*settings, *unknown]
        if rest and not parsed.takes_settings:
            raise UsageError(_unknown(rest[0], arguments, parsed))
        folder = parsed.output_folder(parsed) if hasattr(parsed, "output_folder") else None
        command = parsed.command
        with private_files() if folder is not None else nullcontext():
            code = parsed.run(parsed, rest, folder, ["lightleak", *arguments], console)
        return DONE if code is None else int(code)
    except UsageError as error:
        _complain(str(error))
        return WRONG_USE
    except KeyboardInterrupt:
        _complain(f"interrupted{_resume_hint(command, folder)}")
        return INTERRUPTED
    except Exception as error:  # whatever it is: one message, and a folder that can be resumed
        logging.getLogger(__name__).debug("failed", exc_info=True)
        _complain(f"{type(error).__name__}: {error}{_resume_hint(command, folder)}")
        return FAILED


def _complain(message: str) -> None:
    Console(stderr=True).print(f"lightleak: {message}", markup=False, highlight=False, soft_wrap=True)


def _unknown(word: str, arguments: Sequence[str], parsed: argparse.Namespace) -> str:
    """What to say of a word that no command takes; one after a flag was perhaps meant for it.

    >>> words = ["data", "describe", "F", "--drop", "a", "b"]
    >>> _unknown("b", words, argparse.Namespace(command="data", step="describe"))
    "unknown argument 'b' (--drop takes names separated by commas: --drop a,b); see lightleak data describe --help"
    """
    before = list(arguments[: arguments.index(word)])
    flags = [at for at, told in enumerate(before) if told.startswith("-")]
    hint = ""
    if flags and before[flags[-1]] in COMMA_FLAGS and not word.startswith("-"):
        flag, *values = before[flags[-1] :]
        hint = f" ({flag} takes names separated by commas: {flag} {','.join([*values, word])})"
    command = " ".join(filter(None, (parsed.command, getattr(parsed, "step", ""))))
    return f"unknown argument {word!r}{hint}; see lightleak {command} --help"


class _Parser(argparse.ArgumentParser):
    """An argument parser whose complaints are our own errors, and which takes no flag for the beginning of another."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **{**options, "allow_abbrev": False})

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}; see {self.prog} --help")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser("lightleak", description="Train tabular networks and measure how much private data they leak.")
    parser.add_argument("--version", action="version", version=f"lightleak {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, parser_class=_Parser)

    audit = commands.add_parser("audit", help="train a target, attack what leaves its clients, report")
    audit.add_argument(
        "config", nargs="?", type=_path, help="YAML config; any of its keys is also a flag (--training.epochs 3)"
    )
    audit.add_argument("--output", type=_path, help="run folder (default: runs/<name of the config>)")
    audit.add_argument("--resume", type=_path, metavar="DIR", help="finish the run in this folder")
    audit.add_argument("--plan", action="store_true", help="print what would be done and stop")
    audit.set_defaults(run=_audit, takes_settings=True, output_folder=_audit_folder)

    attack = commands.add_parser("attack", help="attack captured updates offline")
    attack.add_argument("config", type=_path, help="YAML config that lists the attacks")
    attack.add_argument("--capture", type=_path, required=True, metavar="DIR", help="folder with one or more captures")
    attack.add_argument("--output", type=_path, help="run folder (default: runs/attack-<name of the config>)")
    attack.set_defaults(run=_attack, takes_settings=True, output_folder=_attack_folder)

    tune = commands.add_parser("tune", help="search an audit's settings by Optuna; started again, it joins or goes on")
    tune.add_argument("config", type=_path, help="YAML config with searches in place of values and a section 'study'")
    tune.add_argument("--output", type=_path, help="the study's folder (default: runs/<name of the config>)")
    tune.add_argument("--workers", type=int, default=0, help="trials at once (default: one per GPU, or per core)")
    tune.add_argument("--trials", type=int, help="how many (default: the config's)")
    tune.set_defaults(run=_tune, takes_settings=True, output_folder=_tune_folder)

    reproduce = commands.add_parser("reproduce", help="run a paper's table and print paper and ours side by side")
    reproduce.add_argument("name", help="a reproduction, such as tableak-table17, or LIST")
    reproduce.add_argument("--dataset", help="only this dataset")
    reproduce.add_argument(
        "--batches", type=int, help="batches or clients per cell (default 50, as TabLeak; 5 under FedAvg)"
    )
    reproduce.add_argument("--batch-sizes", help="only these, separated by commas")
    reproduce.add_argument("--attacks", help="only these, separated by commas")
    reproduce.add_argument("--labels", choices=["true", "restored"], help="only cells with these labels")
    reproduce.add_argument("--seed", type=int, default=0, help="root seed")
    reproduce.add_argument("--seeds", type=int, help="root seeds (default: 1; for ProVFL 10, as the paper's trials)")
    reproduce.add_argument(
        "--as-published", action="store_true", help="do what the published code does where it departs from its paper"
    )
    reproduce.add_argument(
        "--settings",
        help="only these, separated by commas: of the thesis's Table 4.3; epochs x batches of TabLeak's FedAvg "
        "(10x4); epochs x batch size of the FedAvg paper (10x5)",
    )
    reproduce.add_argument(
        "--search-restarts",
        type=int,
        help="restarts of the search for the weight of FedAvg's epoch prior, on a validation client (default 5)",
    )
    reproduce.add_argument(
        "--iterations",
        type=int,
        help="iterations of a generator (default: the thesis's 27,500), or steps of a FedAvg paper's attack",
    )
    reproduce.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:N")
    reproduce.add_argument(
        "--workers", type=int, default=0, help="attacks run at once on a CPU (default: one per core)"
    )
    reproduce.add_argument("--data", help="folder with one subfolder of raw files per dataset")
    reproduce.add_argument("--output", type=_path, help="run folder (default: runs/<name>)")
    reproduce.set_defaults(run=_reproduce, takes_settings=False, output_folder=_reproduce_folder)

    report = commands.add_parser("report", help="build report.html of one or several run folders")
    report.add_argument(
        "folders", type=_path, nargs="+", metavar="DIR", help="run folder; several make one report that compares them"
    )
    report.add_argument(
        "--output", type=_path, help="file that ends in .html (default: report.html in DIR, combined.html of several)"
    )
    report.add_argument("--redact", action="store_true", help="leave true and reconstructed values out")
    report.add_argument(
        "--pdf",
        nargs="?",
        const="",
        metavar="FILE",
        help="print it as well, on A4 (needs Chromium); a FILE ends in .pdf (default: beside the HTML)",
    )
    report.set_defaults(run=_report, takes_settings=False)

    data = commands.add_parser("data", help="list, fetch or describe tables")
    steps = data.add_subparsers(dest="step", required=True, parser_class=_Parser)
    steps.add_parser("list", help="datasets and whether their files are here").set_defaults(
        run=_data_list, takes_settings=False
    )
    prepare = steps.add_parser("prepare", help="download the official files")
    prepare.add_argument("name")
    prepare.add_argument("--data", type=_path, help="folder to keep them in")
    prepare.add_argument("--force", action="store_true", help="download again")
    prepare.set_defaults(run=_data_prepare, takes_settings=False)
    describe = steps.add_parser("describe", help="rows, columns, classes and encoded width of a dataset or a file")
    describe.add_argument("name", help="dataset, or a CSV, TSV or Parquet file")
    describe.add_argument("--label", help="label column of a file")
    describe.add_argument("--drop", metavar="A,B", help="columns of a file that are no features, separated by commas")
    describe.add_argument(
        "--missing",
        choices=["refuse", "impute", "category"],
        default="refuse",
        help="missing values of a file: refuse the file (default), impute the median or the most frequent category, or "
        "make missing a category (of numbers: impute)",
    )
    describe.set_defaults(run=_data_describe, takes_settings=False)

    doctor = commands.add_parser("doctor", help="check install, devices, data, storage, and say how to mend them")
    doctor.add_argument("--data", type=_path, metavar="FOLDER", help="folder with a subfolder of raw files per dataset")
    doctor.add_argument(
        "--output", type=_path, default=Path("runs"), metavar="FOLDER", help="where runs are to be kept"
    )
    doctor.add_argument("--json", type=_path, metavar="FILE", help="write the findings to this .json file as well")
    doctor.set_defaults(run=_doctor, takes_settings=False)

    listing = commands.add_parser("list", help="what there is")
    listing.add_argument("what", choices=["attacks", "datasets", "targets", "defenses", "metrics", "reproductions"])
    listing.set_defaults(run=_list, takes_settings=False)

    explain = commands.add_parser("explain", help="what an attack, a defence or a metric is, assumes and has measured")
    explain.add_argument("name", help="as lightleak list prints it")
    explain.set_defaults(run=_explain, takes_settings=False)
    return parser


def _path(text: str) -> Path:
    """A file or a folder; what is empty would be the current folder."""
    if not text:
        raise argparse.ArgumentTypeError("must name a file or folder, got ''")
    return Path(text)


def _audit_folder(parsed: argparse.Namespace) -> Path:
    if parsed.resume is not None:
        return Path(parsed.resume)
    return parsed.output or Path("runs") / (parsed.config.stem if parsed.config else "audit")


def _attack_folder(parsed: argparse.Namespace) -> Path:
    return parsed.output or Path("runs") / f"attack-{parsed.config.stem}"


def _tune_folder(parsed: argparse.Namespace) -> Path:
    return parsed.output or Path("runs") / parsed.config.stem


def _reproduce_folder(parsed: argparse.Namespace) -> Path:
    return parsed.output or Path("runs") / parsed.name


def _resume_hint(command: str, folder: Path | None) -> str:
    if folder is None or not folder.is_dir():
        return ""
    resumable = command == "audit" and (folder / "config.yaml").is_file()
    again = f"lightleak audit --resume {folder}" if resumable else "the same command"
    return f". What is finished is kept in {folder}; go on with: {again}"


def _split(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """The command's own arguments, and its settings (``--training.epochs 3``), wherever among them they stand.

    >>> _split(["audit", "--seed", "3", "a.yaml", "--plan"])
    (['audit', 'a.yaml', '--plan'], ['--seed', '3'])
    """
    if arguments and arguments[0] == "report":
        return _with_pdf_first(arguments), []
    if not arguments or arguments[0] not in VALUE_FLAGS:
        return list(arguments), []
    with_value = VALUE_FLAGS[arguments[0]]
    own, settings, queue = [], [], list(arguments)
    while queue:
        word = queue.pop(0)
        if not word.startswith("--") or word.partition("=")[0] in (*with_value, *BARE_FLAGS):
            own.append(word)
            if word in with_value and queue:
                own.append(queue.pop(0))
            continue
        settings.append(word)
        if "=" not in word and queue and not queue[0].startswith("--"):
            settings.append(queue.pop(0))
    return own, settings


def _with_pdf_first(arguments: Sequence[str]) -> list[str]:
    """``--pdf`` and the FILE behind it as one word before the folders; what does not end in .pdf is a folder.

    >>> _with_pdf_first(["report", "a", "--pdf", "b"]), _with_pdf_first(["report", "a", "--pdf", "b.pdf"])
    (['report', '--pdf=', 'a', 'b'], ['report', '--pdf=b.pdf', 'a'])
    """
    if "--pdf" not in arguments:
        return list(arguments)
    at = arguments.index("--pdf")
    (*before,), (*after,) = arguments[:at], arguments[at + 1 :]
    file = after.pop(0) if after and after[0].lower().endswith(PDF) else ""
    return [*before[:1], f"--pdf={file}", *before[1:], *after]


def _settings(rest: Sequence[str]) -> dict[str, Any]:
    """``--a.b value`` and ``--a.b=value`` as dotted keys and YAML values; ``trainer.`` is ``training.trainer.``.

    >>> _settings(["--seed=3", "--trainer.num-nodes", "2"])
    {'seed': 3, 'training.trainer.num_nodes': 2}
    """
    from lightleak.audit.settings import read_yaml, setting_key

    settings: dict[str, Any] = {}
    queue = list(rest)
    while queue:
        flag = queue.pop(0)
        if not flag.startswith("--"):
            raise UsageError(f"expected a flag such as --training.epochs, got {flag!r}")
        key, given, text = flag[2:].partition("=")
        if not given:
            if not queue or queue[0].startswith("--"):
                raise UsageError(f"--{key} needs a value")
            text = queue.pop(0)
        try:
            settings[setting_key(key)] = read_yaml(text)
        except RepeatedKey as error:
            raise UsageError(f"--{key}: {error}") from error
        except yaml.YAMLError as error:
            raise UsageError(f"--{key} needs a YAML value, got {text!r}") from error
    return settings


def _audit(parsed: argparse.Namespace, rest: list[str], folder: Path, command: list[str], console: Console) -> None:
    from lightleak.audit.kinds import kind_of_config, load_any_config
    from lightleak.audit.run import resumed_file

    _quiet_lightning()
    if parsed.config is None and parsed.resume is None:
        raise UsageError("audit needs either a config or --resume DIR; see lightleak audit --help")
    if parsed.resume is not None:
        if rest:
            raise UsageError(f"--resume takes its settings from the run folder, got {rest[0]!r} as well; leave it out")
        if parsed.output is not None:
            raise UsageError("--resume goes on in its own folder, got --output as well; leave it out")
        saved = resumed_file(folder)
        kind = kind_of_config(saved)
        config = kind.load(saved)
        if parsed.config is not None and kind.load(parsed.config) != config:
            raise UsageError(f"{folder} holds a run of another config than {parsed.config}; leave the config out")
    else:
        kind, config = load_any_config(parsed.config, _settings(rest))
    if parsed.plan:
        kind.describe(config, console)
        return
    kind.run(config, folder, command, console)
    console.print(f"report: {folder / 'report.html'}", soft_wrap=True)


def _attack(parsed: argparse.Namespace, rest: list[str], folder: Path, command: list[str], console: Console) -> None:
    from lightleak.audit.kinds import load_any_config

    kind, config = load_any_config(parsed.config, _settings(rest))
    kind.attack(config, parsed.capture, folder, command, console)
    console.print(f"report: {folder / 'report.html'}", soft_wrap=True)


def _tune(parsed: argparse.Namespace, rest: list[str], folder: Path, command: list[str], console: Console) -> None:
    from lightleak.tuning.config import load_tune_config
    from lightleak.tuning.run import run_tune

    _quiet_lightning()
    asked = {} if parsed.trials is None else {"study.trials": parsed.trials}
    run_tune(load_tune_config(parsed.config, _settings(rest) | asked), folder, parsed.workers, command, console)
    console.print(f"report: {folder / 'report.html'}", soft_wrap=True)


def _reproduce(parsed: argparse.Namespace, rest: list[str], folder: Path, command: list[str], console: Console) -> None:
    from lightleak.audit.reproduce import list_reproductions, reproduce
    from lightleak.audit.reproduction_settings import Selection

    if parsed.name.upper() == "LIST":
        list_reproductions(console)
        return
    if parsed.seed < 0:
        raise UsageError(f"--seed must be at least 0, got {parsed.seed}")
    _quiet_lightning()
    usual = PROVFL_TRIALS if parsed.name.startswith("provfl-") else 1
    seeds = usual if parsed.seeds is None else parsed.seeds
    selection = Selection(
        dataset=parsed.dataset,
        batches=parsed.batches,
        batch_sizes=_numbers("--batch-sizes", parsed.batch_sizes),
        attacks=tuple(parsed.attacks.split(",")) if parsed.attacks else None,
        labels=parsed.labels,
        seeds=tuple(range(parsed.seed, parsed.seed + seeds)),
        data_folder=parsed.data,
        as_published=parsed.as_published,
        settings=tuple(parsed.settings.split(",")) if parsed.settings else None,
        iterations=parsed.iterations,
        search_restarts=parsed.search_restarts,
    )
    reproduce(parsed.name, selection, folder, parsed.device, parsed.workers, command, console)
    console.print(f"comparison: {folder / 'comparison.md'}", soft_wrap=True)


def _report(
    parsed: argparse.Namespace, rest: list[str], folder: Path | None, command: list[str], console: Console
) -> None:
    from lightleak.report import build_report, find_browser, print_pdf
    from lightleak.report.earlier import is_printed_report, is_report

    printed = None
    if parsed.output is not None:
        _check_file("--output", parsed.output, (".html", ".htm"), "report", is_report)
        printed = parsed.output.with_suffix(PDF)
    if parsed.pdf:
        printed = Path(parsed.pdf)
    if parsed.pdf is not None:
        if printed is not None:
            _check_file("--pdf", printed, (PDF,), "report", is_printed_report)
        find_browser()  # refused before anything is written
    runs = parsed.folders[0] if len(parsed.folders) == 1 else parsed.folders
    page = build_report(runs, parsed.output, parsed.redact)
    console.print(f"report: {page}", soft_wrap=True)
    if parsed.pdf is not None:
        console.print(f"printed: {print_pdf(page, printed or page.with_suffix(PDF))}", soft_wrap=True)


def _data_list(
    parsed: argparse.Namespace, rest: list[str], folder: Path | None, command: list[str], console: Console
) -> None:
    from lightleak.data.datasets import DATASETS
    from lightleak.data.sources import dataset_folder

    grid = Grid("name", "table", "licence", "files here", header_style="bold")
    for name in DATASETS:
        card = DATASETS.get(name).card
        found = sum((dataset_folder(name) / file).is_file() for file in card.files)
        here = "yes" if found == len(card.files) else f"{found} of {len(card.files)}"
        grid.add_row(name, card.title, card.licence, here if card.files else "not needed")
    console.print(grid)


def _data_prepare(
    parsed: argparse.Namespace, rest: list[str], folder: Path | None, command: list[str], console: Console
) -> None:
    from lightleak.data.download import prepare

    for file in prepare(parsed.name, parsed.data, parsed.force):
        checked = "checksum right" if file.verified else "no checksum known"
        console.print(f"{file.path}  sha256 {file.sha256} ({checked})", soft_wrap=True, highlight=False)


def _data_describe(
    parsed: argparse.Namespace, rest: list[str], folder: Path | None, command: list[str], console: Console
) -> None:
    from lightleak.data.datasets import DATASETS, load_dataset
    from lightleak.data.encoder import TableEncoder
    from lightleak.data.user_table import load_table

    if parsed.name in DATASETS:
        table = load_dataset(parsed.name)
    elif Path(parsed.name).suffix:
        if parsed.label is None:
            raise UsageError(f"{parsed.name} is a file: name its label column with --label")
        dropped = [name.strip() for name in parsed.drop.split(",")] if parsed.drop else []
        table = load_table(Path(parsed.name), parsed.label, drop=dropped, missing=parsed.missing)
    else:
        DATASETS.get(parsed.name)
        return
    schema, shares = table.schema, table.train[table.schema.label.name].value_counts(normalize=True)
    console.print(f"{table.card.title}: {len(table.train)} training rows, {len(table.test)} test rows", soft_wrap=True)
    console.print(
        f"{len(schema.categorical)} categorical and {len(schema.numerical)} numerical columns, "
        f"encoded width {TableEncoder(schema).width}"
    )
    grid = Grid("column", "kind", "values", header_style="bold")
    for column in schema.columns:
        values = (
            f"{len(column.categories)} categories"
            if column.categories
            else f"{table.train[column.name].min():g} to {table.train[column.name].max():g}"
        )
        grid.add_row(column.name, str(column.kind), values)
    grid.add_row(
        schema.label.name, "label", ", ".join(f"{c} {shares.get(c, 0):.1%}" for c in schema.label.categories[:6])
    )
    console.print(grid)
    card = table.card
    checksums = [f"{file} sha256 {digest}" for file, digest in card.sha256.items()] or ["no checksum known"]
    for text in (card.notes, card.citation, card.licence, *card.urls, *(checksums if card.files else [])):
        if text:
            console.print(text, soft_wrap=True, highlight=False, markup=False)


def _doctor(
    parsed: argparse.Namespace, rest: list[str], folder: Path | None, command: list[str], console: Console
) -> int:
    from lightleak.audit.doctor import are_findings, examine, has_problem, print_findings, write_findings

    if parsed.json is not None:
        _check_file("--json", parsed.json, (".json",), "findings", are_findings)
    with console.status("examining; imports take the longest"):
        findings = examine(parsed.data, parsed.output)
    print_findings(findings, console)
    if parsed.json is not None:
        write_findings(findings, parsed.json)
    return FAILED if has_problem(findings) else DONE


def _list(
    parsed: argparse.Namespace, rest: list[str], folder: Path | None, command: list[str], console: Console
) -> None:
    if parsed.what == "attacks":
        from lightleak.attacks import ATTACKS
        from lightleak.attacks.model_inversion import INVERSION_ATTACKS
        from lightleak.attacks.property_inference import PROPERTY_ATTACKS
        from lightleak.attacks.property_inference.shadow_models import ShadowModels

        facts = {name: r.facts(name) for r in (ATTACKS, PROPERTY_ATTACKS, INVERSION_ATTACKS) for name in r}
        for name, fact in {**facts, ShadowModels.name: ShadowModels.facts}.items():
            console.print(f"{name:28}{fact.summary}", soft_wrap=True, highlight=False, markup=False)
    elif parsed.what == "defenses":
        from lightleak.defenses.horizontal import TRAINING_DEFENSES, UPDATE_DEFENSES
        from lightleak.defenses.vertical import VERTICAL_DEFENSES

        kinds: dict[str, Any] = {
            "horizontal, what a client sends": UPDATE_DEFENSES,
            "horizontal, how a client trains": TRAINING_DEFENSES,
            "vertical": VERTICAL_DEFENSES,
        }
        for kind, defenses in kinds.items():
            for name in defenses:
                about = ": ".join(filter(None, (kind, defenses.get(name).citation)))
                console.print(f"{name:28}{about}", soft_wrap=True, highlight=False)
    elif parsed.what == "datasets":
        from lightleak.data.datasets import DATASETS

        for name in DATASETS:
            console.print(f"{name:24}{DATASETS.get(name).card.title}", soft_wrap=True, highlight=False)
    elif parsed.what == "targets":
        from lightleak.targets import NETWORKS

        for name in NETWORKS:
            console.print(
                f"{name:24}{(NETWORKS.get(name).__doc__ or '').splitlines()[0]}",
                soft_wrap=True,
                highlight=False,
                markup=False,
            )
    elif parsed.what == "metrics":
        from lightleak.metrics import METRICS
        from lightleak.metrics.images import IMAGE_METRICS
        from lightleak.metrics.inversion import INVERSION_METRICS

        listed = {name: METRICS.get(name) for name in METRICS} | dict(INVERSION_METRICS) | dict(IMAGE_METRICS)
        for name, make in listed.items():
            about = (getattr(make, "func", make).__doc__ or "").splitlines()[0]
            console.print(f"{name:28}{about}", soft_wrap=True, highlight=False, markup=False)
    else:
        from lightleak.audit.reproduce import list_reproductions

        list_reproductions(console)


def _explain(
    parsed: argparse.Namespace, rest: list[str], folder: Path | None, command: list[str], console: Console
) -> None:
    from lightleak.cards import find_cards
    from lightleak.cards.terminal import print_card

    for number, card in enumerate(find_cards(parsed.name)):
        if number:
            console.rule()
        print_card(card, console)


def _check_file(flag: str, path: Path, endings: tuple[str, ...], noun: str, is_ours: Callable[[Path], bool]) -> None:
    """Raise `UsageError` for a file that cannot be written or holds something of another kind, before the work.

    Args:
        flag: that names it.
        path: the file.
        endings: one of them ends its name.
        noun: what it may hold already.
        is_ours: whether a regular file holds that.
    """
    if path.is_dir():
        raise UsageError(f"{flag} must be a file, got the folder {path}")
    if path.suffix.lower() not in endings:
        raise UsageError(f"{flag} must end in {' or '.join(endings)}, got {path}")
    if not path.parent.is_dir():
        raise UsageError(f"{flag} must lie in an existing folder, got {path}")
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise UsageError(f"{flag} must lie in a folder that you may write, got {path}; choose another")
    if os.path.lexists(path) and not (stat.S_ISREG(path.lstat().st_mode) and is_ours(path)):
        raise UsageError(
            f"{flag} {path} is there already and holds no {noun} of LightLeak; name another file, or remove that one"
        )


def _numbers(flag: str, text: str | None) -> tuple[int, ...] | None:
    try:
        return None if text is None else tuple(int(part) for part in text.split(","))
    except ValueError as error:
        raise UsageError(f"{flag} must be whole numbers separated by commas, got {text!r}") from error


def _quiet_lightning() -> None:
    """Lightning announces devices and tips at INFO; the command prints its own progress."""
    from lightleak.targets.trainer import LOGGERS

    for name in LOGGERS:
        logging.getLogger(name).setLevel(logging.ERROR)
