"""``lightleak reproduce --all``: every table that its data allow, each within a budget, and where all of them stand."""

import json
import shlex
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatch
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import Any

from rich.console import Console

from lightleak.core.errors import LightLeakError, UsageError, close_match
from lightleak.core.private_files import private_files
from lightleak.core.records import to_json
from lightleak.core.stored import read_json
from lightleak.data.sources import DATA_DIR_VARIABLE, data_root
from lightleak.experiments.campaign import UpdatePack, pack_name
from lightleak.experiments.engine import Engine, Watch, open_engine
from lightleak.experiments.environment import FILE as ENVIRONMENT_FILE
from lightleak.experiments.installed import installed_version
from lightleak.experiments.pack import Files, Finished, Pack
from lightleak.experiments.probe import Cost
from lightleak.experiments.settings import RunConfig
from lightleak.experiments.unit import Unit, unit_file, write_whole
from lightleak.reproductions.comparison import chance_of_agreement
from lightleak.reproductions.paper.values import PaperTable, load_paper_table, paper_tables
from lightleak.reproductions.reproduce import (
    MEASURED_ON,
    RUN_FILE,
    data_at_hand,
    probe_stages,
    reproduction_of,
    run_reproduction,
)
from lightleak.reproductions.reproduction import STRETCH, Reproduction
from lightleak.reproductions.settings import Selection
from lightleak.reproductions.status import AS_PUBLISHED, STATUS_FILE, Status, TableStatus, write_status_page
from lightleak.reproductions.status import measured as measured_words

TAKEN_OVER = "taken-over.json"
"""Which other table's run the units of a table are of, by the name of the unit's file."""
WITHIN = f"measured within {STRETCH} times the budget: "
LEFT_OUT = "left out, as it failed: "

MINUTES = 8.0
"""Budget of a table unless another is asked for, in minutes of one core."""


def run_every_table(
    pattern: str, folder: Path, where: RunConfig, budget: float, selection: Selection, console: Console
) -> Status:
    """Run every table whose name fits a pattern, and write ``status.json`` and ``status.html`` after each.

    How often a table's cells are measured follows from its budget and short probes (`Reproduction.afforded`), unless
    the selection says how often (`Reproduction.asked`). A table too expensive for its budget is measured in part
    (`run_table`). Each is run into a folder of its own; attacks that an earlier table has run with the same settings on
    the same batches of the same data are taken from there. Tables that have been run with the same selection and the
    same or a larger budget are not run again, unless a part of them failed. What an earlier command has measured is
    kept where a later one cannot be run.

    Args:
        pattern: names of tables, with ``*`` for any characters.
        folder: of all tables.
        where: device, workers and engine.
        budget: minutes of one core (or GPU) for each table.
        selection: what is the same for all tables, such as the folder of the data.
        console: where progress goes.

    Raises:
        UsageError: no table fits the pattern.
        KeyboardInterrupt: passed on; what is finished is kept.
    """
    known = paper_tables()
    names = [name for name in known if fnmatch(name, pattern)]
    if not names:
        raise UsageError(f"no table or figure is called {pattern!r}{close_match(pattern, known)}")
    folder.mkdir(parents=True, exist_ok=True)
    status, costs = Status.load(folder / STATUS_FILE), dict[str, Cost]()
    with open_engine(where) as engine:
        for name in names:
            line, asked = line_name(name, selection), command_of(name, selection)
            said = status.of(line)
            if said is None or not _is_enough(said, budget, asked):
                before = said
                found = run_table(load_paper_table(name), folder, engine, budget, selection, console, costs)
                seconds = found.seconds + (before.seconds if before else 0.0)
                said = replace(_shareable(found, selection), seconds=seconds, asked=asked)
                if before is None or before.state == "not run" or said.state == "run":
                    status = status.updated(said, known)
                with private_files():
                    status.save(folder / STATUS_FILE)
                    write_status_page(status, folder)
            console.print(f"{line:20}{summary_line(said)}", soft_wrap=True, highlight=False, markup=False)
    return status


def _is_enough(before: TableStatus, budget: float, asked: str) -> bool:
    """Return whether a table was run with this selection, within at least this budget, and in whole."""
    is_asked = before.state == "run" and before.asked in (None, asked)
    return is_asked and (before.budget or 0.0) >= budget and not any(one.startswith(LEFT_OUT) for one in before.notes)


def summary_line(table: TableStatus) -> str:
    """One line on a table."""
    if table.state == "not run":
        return f"not run: {table.why}"
    measured = f"{measured_words(table)}, {table.seconds / 60:.1f} min"
    part = f"; {table.why}" if table.why else ""
    return f"{table.agreeing} of {table.judged} judged cells agree ({len(table.cells)} cells, {measured}){part}"


def run_table(
    table: PaperTable,
    folder: Path,
    engine: Engine,
    budget: float,
    selection: Selection,
    console: Console,
    costs: dict[str, Cost],
) -> TableStatus:
    """Run one table within its budget: in whole, or, where one measurement of all cells is beyond it, in part.

    Of a table in part, this project's strongest attack begins (`STRONGEST_SHARE`), then the cells that take least are
    measured until the time is up; none where even the shortest pack, such as a training, would take longer. ``costs``
    holds what the attacks of earlier tables were measured to take, and gets those of this one.
    """
    number = f"Table {table.table}" if table.table is not None else f"Figure {table.figure}"
    status = partial(
        TableStatus,
        name=line_name(table.name, selection),
        title=table.title,
        source=table.source,
        place=f"{number}, {table.page}",
        budget=budget,
    )
    began = time.monotonic()
    try:
        reproduction = reproduction_of(table, selection, engine.device)
        if reproduction.repeats == "seeds" and selection.batches is not None:
            return run_table(table, folder, engine, budget, replace(selection, batches=None), console, costs)
        if (times := reproduction.asked) is None:
            chosen, beyond = _afforded(reproduction, budget, costs)
        else:
            chosen, beyond = reproduction.measured_times(times), WITHIN
        place = folder / line_name(table.name, selection)
        command = command_of(table.name, chosen)
        first = frozenset(reproduction.strongest.values()) if beyond else None
        end, data = time.monotonic() + STRETCH * 60 * budget / engine.slots, data_at_hand(reproduction)
        within = _Budget(engine, end, folder, first, data)
        compared, _ = run_reproduction(table.name, chosen, place, within, shlex.split(command), console.quiet)
    except LightLeakError as error:
        return status(state="not run", why=str(error).partition("\n")[0], seconds=time.monotonic() - began)
    ran, comparison = sum(one.ours.n > 0 for one in compared), json.loads((place / "comparison.json").read_text())
    made, elsewhere = _environment(place, within.seen)
    notes = (*comparison["notes"], *elsewhere, *within.seen.failed)
    first_of_all = "our strongest attack, then those that take least" if chosen.strongest else "those that take least"
    why = f"{beyond}{ran or 'none'}, {first_of_all}" if beyond and within.seen.is_late else ""
    return status(
        state="run" if ran else "not run",
        why=why if ran else "; ".join(filter(None, (why, *notes))),
        measurements=None if reproduction.most == 1 else len(chosen.seeds) * (chosen.batches or 1),
        counted=reproduction.repeats,
        iterations=chosen.iterations,
        seconds=time.monotonic() - began,
        workers=engine.slots,
        command=command,
        date=made["sessions"][-1]["date"],
        versions={
            "python": made["python"],
            **{name: found for name in ("torch", "lightleak") if (found := made["packages"].get(name))},
        },
        cores=made["cores"],
        device=made["device"],
        chance=chance_of_agreement(compared),
        notes=notes,
        rows=tuple(comparison["rows"]),
    )


def _environment(place: Path, seen: "_Seen") -> tuple[dict[str, Any], list[str]]:
    """Return where a table was measured, and what is said of attacks that were taken over from elsewhere.

    A table that ran nothing itself was measured where the others ran.
    """
    file = place / TAKEN_OVER
    taken = {**(json.loads(file.read_text()) if file.is_file() else {}), **seen.origins}
    if taken:
        write_whole(file, json.dumps(taken, indent=1))
    known = {name: place.parent / name / ENVIRONMENT_FILE for name in dict.fromkeys(taken.values())}
    found = [json.loads(path.read_text()) for path in known.values() if path.is_file()]
    own = json.loads((place / ENVIRONMENT_FILE).read_text())
    devices = dict.fromkeys(one["device"] for one in found)
    if len(devices) == 1 and all(unit.name in taken for unit in (place / "units").glob("*.json")):
        return found[0], []
    others = [device for device in devices if device != own["device"]]
    return own, [f"{len(taken)} attacks were taken over from runs on {', '.join(others)}"] if others else []


def _afforded(reproduction: Reproduction, budget: float, costs: dict[str, Cost]) -> tuple[Selection, str]:
    """What short probes say that a budget allows, and what to say of a table that is measured only in part.

    Raises:
        LightLeakError: even the shortest part would take longer.
    """
    # A GPU attacks many updates in little more time than one: there all are probed.
    times = reproduction.most if reproduction.device.type == "cuda" and reproduction.repeats == "batches" else 1
    selection = replace(reproduction.selection, batches=times)
    probed = probe_stages(reproduction_of(reproduction.table, selection, reproduction.device), known=costs)
    each = [[seconds / times for one in stage for seconds in one.durations] for stage in probed]
    cost, most = sum(map(sum, each)), STRETCH * 60 * budget
    if chosen := reproduction.afforded(60 * budget / cost if cost else float(reproduction.most)):
        return chosen, ""
    beyond = (
        f"one measurement of all {len(reproduction.cells)} cells takes about {cost / 60:.0f} min of one core, more "
        f"than {STRETCH} times the budget of {budget:g}; measured: "
    )
    if each[0] and (least := min(each[0])) > most:
        raise LightLeakError(f"{beyond}none, as the shortest part takes about {least / 60:.0f} min")
    return reproduction.in_part(), beyond


def _shareable(table: TableStatus, selection: Selection) -> TableStatus:
    """A status without where data lie on this machine: its page is made to be shown."""

    def said(text: str) -> str:
        return text.replace(str(data_root(selection.data_folder)), f"${DATA_DIR_VARIABLE}")

    return replace(table, why=said(table.why), notes=tuple(said(note) for note in table.notes))


def line_name(name: str, selection: Selection) -> str:
    """Name of the line of a table, and of its folder; a run as published has a line of its own.

    >>> line_name("provfl-table2", Selection(as_published=True))
    'provfl-table2-as-published'
    """
    return name + (AS_PUBLISHED if selection.as_published else "")


def command_of(name: str, selection: Selection) -> str:
    """Return the command that runs a table as it was run here, but for the budget and the folder of the data.

    >>> command_of("tableak-table1", Selection(batches=5, strongest=True, attacks=("audit_max",)))
    'lightleak reproduce tableak-table1 --seeds 1 --batches 5 --strongest --attacks audit_max'
    """
    first, listed = selection.seeds[0], ("attacks", "batch_sizes", "settings")
    words = ["lightleak", "reproduce", name, *(["--seed", str(first)] if first else [])]
    words += ["--seeds", str(len(selection.seeds))]
    for flag in ("batches", "iterations", "strongest", "as_published", "dataset", "attacks", "batch_sizes", "labels",
                  "settings", "search_restarts"):  # fmt: skip
        value = getattr(selection, flag)
        if value is None or value is False:
            continue
        words.append(f"--{flag.replace('_', '-')}")
        if value is not True:
            words.append(",".join(map(str, value)) if flag in listed else str(value))
    return shlex.join(words)


STRONGEST_SHARE = 1 / 3
"""Of the time of a table in part, what this project's strongest attack gets before all others."""


@dataclass
class _Seen:
    """What became of the packs of a table.

    Attributes:
        failed: what is said of those that failed.
        origins: names of the tables that units were taken over from, by the name of the unit's file.
        is_late: some pack was not begun, as the time was up.
    """

    failed: list[str] = field(default_factory=list)
    origins: dict[str, str] = field(default_factory=dict)
    is_late: bool = False


class _Budget(Engine):
    """Takes over what other tables have run, begins no pack after a moment, and continues where one fails.

    Args:
        engine: runs the others.
        end: the moment, in seconds of `time.monotonic`.
        pool: folder of all tables.
        first: of a table in part: attacks that are begun before all others, those on few rows first, until
            `STRONGEST_SHARE` of the time is over; then the packs that take least. None: the order given.
        data: what datasets are measured on, see `data_at_hand`; runs on other data are not taken over.

    Attributes:
        seen: what became of the packs.
    """

    def __init__(
        self, engine: Engine, end: float, pool: Path, first: frozenset[str] | None, data: Mapping[str, str]
    ) -> None:
        self.device, self._engine, self._end, self._pool, self._first = engine.device, engine, end, pool, first
        self._data, self.seen = data, _Seen()
        self._known: dict[str, tuple[Path, str]] = {}
        for folder in sorted(pool.glob("*/units")):
            if not _is_measured_alike(folder.parent, data):
                continue
            file = folder.parent / TAKEN_OVER
            taken = json.loads(file.read_text()) if file.is_file() else {}
            for unit in folder.glob("*.json"):
                self._known[unit.name] = unit, taken.get(unit.name, folder.parent.name)

    @property
    def slots(self) -> int:
        """See `Engine.slots`."""
        return self._engine.slots

    def within(self, share: float) -> Engine:
        """See `Engine.within`."""
        limited = _Budget(self._engine, self._after(share), self._pool, self._first, self._data)
        limited.seen = self.seen
        return limited

    def run(self, packs: Iterable[Pack], folder: Path, watch: Watch = lambda pack, work: None) -> Iterator[Finished]:
        """See `Engine.run`."""
        left = []
        for pack in packs:
            if files := self._taken_over(pack):
                yield Finished(pack, files)
            else:
                left.append(pack)
        ordered = left if self._first is None else self._in_part(left, self._first)
        for finished in self._engine.run(takewhile(self._in_time, ordered), folder, watch):
            if finished.error is None:
                yield finished
            else:
                error = f"{type(finished.error).__name__}: {finished.error}".partition("\n")[0]
                self.seen.failed.append(f"{LEFT_OUT}{pack_name(finished.pack)}: {error}")

    def _in_time(self, pack: Pack) -> bool:
        is_late = time.monotonic() >= self._end
        self.seen.is_late |= is_late
        return not is_late

    def _in_part(self, packs: Sequence[Pack], first: frozenset[str]) -> Iterator[Pack]:
        """Yield the packs of a table in part in the order in which they are begun."""
        ours = [pack for pack in packs if isinstance(pack, UpdatePack) and pack.units[0].attack in first]
        begun, until = set[int](), self._after(STRONGEST_SHARE)
        for pack in sorted(ours, key=lambda pack: pack.units[0].rows):
            if time.monotonic() >= until:
                break
            begun.add(id(pack))
            yield pack
        yield from sorted((pack for pack in packs if id(pack) not in begun), key=lambda pack: pack.cost)

    def _after(self, share: float) -> float:
        """The moment at which a share of the time that is left is over."""
        now = time.monotonic()
        return self._end if share >= 1 else now + share * (self._end - now)

    def _taken_over(self, pack: Pack) -> Files | None:
        """The files of a pack whose units have all been run before, with the same settings on the same updates."""
        if not isinstance(pack, UpdatePack):
            return None
        found: Files = {}
        origins: dict[str, str] = {}
        for unit in pack.units:
            name = unit_file(Path(), unit.id).name
            file, origin = self._known.get(name, (None, ""))
            if file is None or not _is_of(unit, json.loads(content := file.read_bytes())):
                return None
            found[str(unit_file(Path(), unit.id))], origins[name] = content, origin
        self.seen.origins |= origins
        return found

    def close(self) -> None:
        """Leave the workers to the engine."""


def _is_measured_alike(folder: Path, data: Mapping[str, str]) -> bool:
    """Return whether a table was measured on these data, where they are replaced, and by this version of lightleak."""
    run, environment = folder / RUN_FILE, folder / ENVIRONMENT_FILE
    if not (run.is_file() and environment.is_file()):
        return False
    on, made = read_json(run).get(MEASURED_ON, {}), read_json(environment)
    later = (session["differs"].get("packages.lightleak") for session in made["sessions"])
    versions = {made["packages"].get("lightleak"), *(version for _, version in filter(None, later))}
    return versions == {installed_version("lightleak")} and all(on.get(name, of) == of for name, of in data.items())


def _is_of(unit: Unit, row: Mapping[str, Any]) -> bool:
    """Whether a row is what this unit would give."""
    wanted = {**unit.facts, "unit": unit.id, "attack": unit.attack, "seed": unit.seed}
    options = unit.make_attack().options()
    return all(row.get(key) == value for key, value in to_json(wanted).items()) and all(
        row["options"].get(key) == value for key, value in json.loads(json.dumps(to_json(options))).items()
    )
