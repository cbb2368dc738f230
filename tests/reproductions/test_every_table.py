"""Every table within a budget: what is run, taken over, left out and resumed, and the status page."""

import io
import json
import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from lightleak.cli.parser import build_parser
from lightleak.core.errors import UsageError
from lightleak.core.results import ValueRow
from lightleak.core.seeds import CPU
from lightleak.data.sources import data_root
from lightleak.experiments import campaign
from lightleak.experiments.campaign import UpdatePack
from lightleak.experiments.engine import Engine, LocalEngine
from lightleak.experiments.pack import Finished
from lightleak.experiments.settings import RunConfig
from lightleak.experiments.unit import Unit
from lightleak.reproductions import every_table as module
from lightleak.reproductions import reproduce, status
from lightleak.reproductions.every_table import command_of, run_every_table
from lightleak.reproductions.paper.values import PaperCell, PaperTable, load_paper_table
from lightleak.reproductions.settings import Selection
from lightleak.reproductions.status import Status, verdict
from lightleak.reproductions.tableak.fedsgd import UpdateAttacks
from lightleak.reproductions.tableak.prior_search import PriorSearch

HERE = RunConfig(device="cpu", workers=1)
COMMON: dict[str, Any] = {"dataset": "synthetic-d1-c1", "network": "mlp-3", "labels": "true"}


def cell(attack: str, batch_size: int, **more: Any) -> PaperCell:
    return PaperCell("cell_accuracy", "percent", 60.0, 5.0, attack=attack, batch_size=batch_size, **COMMON | more)


def table(name: str, *cells: PaperCell, **changes: Any) -> PaperTable:
    made = PaperTable(name, "Nobody, 2026", "p. 1", f"Made {name}", "cell_accuracy", "percent", cells, table=1)
    return replace(made, run="tableak.fedsgd.GradientAttacks", **changes)


SHORT: dict[str, Any] = {"restarts": 2, "steps": 5}
TABLES = {
    one.name: one
    for one in (
        table("tableak-made1", cell("tableak", 2, **SHORT), cell("random", 2)),
        table("tableak-made2", cell("tableak", 2, **SHORT), cell("random", 3)),
        table("tableak-missing", cell("random", 2, dataset="mimic_iv")),
    )
}


@pytest.fixture(autouse=True)
def made_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "paper_tables", lambda: tuple(TABLES))
    monkeypatch.setattr(module, "load_paper_table", TABLES.__getitem__)
    monkeypatch.setattr(reproduce, "load_paper_table", TABLES.__getitem__)
    monkeypatch.setattr(status, "load_paper_table", lambda name: TABLES.get(name) or load_paper_table(name))
    monkeypatch.setattr(UpdateAttacks, "most", 6)


@pytest.fixture
def attacked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Ids of the units that are run, in their order."""
    ids: list[str] = []
    run_pack = campaign.run_pack

    def counted(pack: Any, *rest: Any) -> None:
        ids.extend(unit.id for unit in pack)
        run_pack(pack, *rest)

    monkeypatch.setattr(campaign, "run_pack", counted)
    return ids


@pytest.fixture
def at_a_cost(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Sets what a probe says that one measurement of all cells takes, in seconds."""

    def cost(seconds: float) -> None:
        estimate = type("Estimate", (), {"durations": [0.99 * seconds, 0.01 * seconds]})()
        monkeypatch.setattr(module, "probe_stages", lambda reproduction, known: [[estimate]])

    return cost


def test_every_table_is_run_once_and_shares_its_attacks(
    tmp_path: Path, silent: Console, attacked: list[str], at_a_cost: Any
) -> None:
    at_a_cost(0.01)
    status = run_every_table("*", tmp_path, HERE, 1.0, Selection(), silent)
    first, second, missing = status.tables
    assert (first.state, first.measurements, first.counted) == ("run", 6, "batches")
    assert [row.n for row in first.cells] == [6, 6] == [row.n for row in second.cells]
    assert sorted(attacked) == sorted(set(attacked)) and len(attacked) == 18  # 2 cells, then only the other baseline
    assert first.cells[0].value == second.cells[0].value
    assert missing.state == "not run" and "$LIGHTLEAK_DATA_DIR/mimic_iv" in missing.why
    assert str(data_root()) not in (tmp_path / "status.json").read_text()  # nothing of this machine in what is shown
    assert Status.load(tmp_path / "status.json") == status
    assert "Made tableak-made1" in (tmp_path / "status.html").read_text()
    assert (tmp_path / "status.html").stat().st_mode & 0o077 == 0

    del attacked[:]
    assert run_every_table("*", tmp_path, HERE, 1.0, Selection(), silent).tables[:2] == (first, second)
    assert attacked == []


def test_a_larger_budget_adds_measurements(tmp_path: Path, silent: Console, at_a_cost: Any) -> None:
    at_a_cost(60.0)
    few = run_every_table("tableak-made1", tmp_path, HERE, 1.0, Selection(), silent).tables[0]
    assert few.measurements == 3  # three times the budget, and still not judged
    assert few.judged == 0 and verdict(few.cells[0]) == "not judged"
    more = run_every_table("tableak-made1", tmp_path, HERE, 6.0, Selection(), silent).tables[0]
    assert more.measurements == 6 and more.seconds > few.seconds
    assert more.command == "lightleak reproduce tableak-made1 --seeds 1 --batches 6"


def test_another_selection_is_run_again_and_the_same_one_is_not(
    tmp_path: Path, silent: Console, attacked: list[str]
) -> None:
    asked = Selection(batches=2)
    for selection, n, runs in ((asked, 2, True), (asked, 2, False), (replace(asked, batches=3), 3, True)):
        del attacked[:]
        (found,) = run_every_table("tableak-made1", tmp_path, HERE, 1.0, selection, silent).tables
        assert [row.n for row in found.cells] == [n, n] and bool(attacked) is runs
    (narrow,) = run_every_table(
        "tableak-made1", tmp_path, HERE, 1.0, replace(asked, attacks=("random",)), silent
    ).tables
    assert len(narrow.cells) == 1
    assert "--batches 2 --attacks random" in str(narrow.asked)


def test_a_table_that_was_not_run_is_tried_again(tmp_path: Path, silent: Console, at_a_cost: Any) -> None:
    at_a_cost(120_000.0)
    assert run_every_table("tableak-made1", tmp_path, HERE, 3.0, Selection(), silent).tables[0].state == "not run"
    at_a_cost(0.01)
    assert run_every_table("tableak-made1", tmp_path, HERE, 1.0, Selection(), silent).tables[0].state == "run"


def test_what_was_measured_is_kept_where_a_later_command_cannot_be_run(tmp_path: Path, at_a_cost: Any) -> None:
    said = Console(file=io.StringIO())
    run_every_table("tableak-made1", tmp_path, HERE, 1.0, Selection(batches=2), said)
    other = Selection(batches=2, seeds=(7,))  # the folder of the table is another seed's
    assert run_every_table("tableak-made1", tmp_path, HERE, 1.0, other, said).tables[0].state == "run"
    assert "holds another reproduction" in said.file.getvalue()


def test_a_table_beyond_its_budget_is_measured_in_part_cheapest_cells_first(
    tmp_path: Path, silent: Console, attacked: list[str], at_a_cost: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_a_cost(600.0)

    def clock() -> float:
        return 200.0 * len(attacked)  # three times the budget is over after three attacks, in the first pack

    monkeypatch.setattr(module.time, "monotonic", clock)
    table = run_every_table("tableak-made1", tmp_path, HERE, 3.0, Selection(), silent).tables[0]
    assert table.state == "run" and table.measurements == 5
    assert [row.n for row in table.cells] == [0, 5] and all("random" in id for id in attacked)
    assert "all 2 cells takes about 10 min" in table.why and "measured: 1, those" in table.why
    assert "about 10 min" in (tmp_path / "status.html").read_text()


def test_as_many_batches_as_asked_are_measured_without_a_probe(
    tmp_path: Path, silent: Console, attacked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "probe_stages", lambda *_, **__: pytest.fail("nothing is to be probed"))
    table = run_every_table("tableak-made1", tmp_path, HERE, 1.0, Selection(batches=2), silent).tables[0]
    assert [row.n for row in table.cells] == [2, 2] and len(attacked) == 4 and table.why == ""
    del attacked[:]
    monkeypatch.setattr(module.time, "monotonic", lambda: 100.0 * len(attacked))  # over after the first pack
    cut = run_every_table("tableak-made1", tmp_path / "cut", HERE, 1.0, Selection(batches=2), silent).tables[0]
    assert [row.n for row in cut.cells] == [0, 2]
    assert cut.why == "measured within 3 times the budget: 1, those that take least"


@pytest.mark.parametrize(
    ("name", "selection", "times"),
    [
        ("thesis-table5.3", Selection(seeds=(3, 4)), 2),
        ("thesis-table5.3", Selection(batches=7), None),
        ("tableak-table18", Selection(seeds=(3, 4)), None),
        ("tableak-table18", Selection(seeds=(3, 4), batches=7), 7),
    ],
)
def test_what_a_table_repeats_says_how_often_it_is_asked_for(name: str, selection: Selection, times: int) -> None:
    assert reproduce.reproduction_of(load_paper_table(name), selection, CPU).asked == times


def test_a_table_of_which_all_was_run_before_says_where_that_was(tmp_path: Path, silent: Console) -> None:
    asked = Selection(batches=2)
    first = run_every_table("tableak-made1", tmp_path, HERE, 1.0, asked, silent).tables[0]
    made = tmp_path / "tableak-made1" / "environment.json"
    made.write_text(made.read_text().replace('"device": "cpu"', '"device": "a card"'))
    narrow = run_every_table("tableak-made2", tmp_path, HERE, 1.0, replace(asked, attacks=("tableak",)), silent)
    assert (first.device, narrow.of("tableak-made2").device) == ("cpu", "a card")
    whole = run_every_table("tableak-made2", tmp_path, HERE, 2.0, asked, silent).of("tableak-made2")
    assert whole.device == "cpu" and "2 attacks were taken over from runs on a card" in whole.notes


@pytest.mark.parametrize("changed", ["data", "version", "version of a later session"])
def test_attacks_on_other_data_or_by_another_version_are_not_taken_over(
    tmp_path: Path, silent: Console, attacked: list[str], monkeypatch: pytest.MonkeyPatch, changed: str
) -> None:
    name = COMMON["dataset"]
    monkeypatch.setattr(reproduce, "WHOLE", {name: "whole.csv"})
    asked = Selection(batches=2, attacks=("tableak",))
    with monkeypatch.context() as files:
        if changed == "data":
            files.setattr(reproduce, "replaced_by", lambda dataset, folder: f"{dataset} (part of its rows)")
        run_every_table("tableak-made1", tmp_path, HERE, 1.0, asked, silent)
    environment = tmp_path / "tableak-made1" / "environment.json"
    made = json.loads(environment.read_text())
    if changed == "version":
        made["packages"]["lightleak"] = "0.0.1"
    elif changed != "data":
        made["sessions"].append({**made["sessions"][0], "differs": {"packages.lightleak": ["0.1.0", "0.2.0"]}})
    environment.write_text(json.dumps(made))
    del attacked[:]
    run_every_table("tableak-made2", tmp_path, HERE, 1.0, asked, silent)
    assert len(attacked) == 2
    assert not (tmp_path / "tableak-made2" / "taken-over.json").exists()


def test_a_table_of_which_nothing_fits_the_budget_says_so(
    tmp_path: Path, silent: Console, at_a_cost: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_a_cost(600.0)
    monkeypatch.setattr(module.time, "monotonic", iter(range(0, 10**6, 600)).__next__)
    table = run_every_table("tableak-made1", tmp_path, HERE, 3.0, Selection(), silent).tables[0]
    assert table.state == "not run" and "all 2 cells takes about 10 min" in table.why and "measured: none" in table.why


def test_a_pack_that_fails_is_named_and_the_rest_of_the_table_counts(
    tmp_path: Path, silent: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = module.UpdatePack.run

    def run(pack: UpdatePack, *arguments: Any) -> None:
        if "random" not in pack.ids[0]:
            raise ValueError("singular")
        made(pack, *arguments)

    monkeypatch.setattr(module.UpdatePack, "run", run)
    table = run_every_table("tableak-made1", tmp_path, HERE, 1.0, Selection(batches=2), silent).tables[0]
    assert table.state == "run" and [row.n for row in table.cells] == [0, 2]
    assert any("left out, as it failed: " in note and note.endswith("ValueError: singular") for note in table.notes)
    assert table.why == "" and not any("/" in note for note in table.notes if "singular" in note)
    monkeypatch.setattr(module.UpdatePack, "run", made)  # a rerun tries again
    again = run_every_table("tableak-made1", tmp_path, HERE, 1.0, Selection(batches=2), silent).tables[0]
    assert [row.n for row in again.cells] == [2, 2] and not any("left out" in note for note in again.notes)


def test_a_table_whose_shortest_part_is_beyond_three_budgets_is_not_begun(
    tmp_path: Path, silent: Console, attacked: list[str], at_a_cost: Any
) -> None:
    at_a_cost(120_000.0)
    table = run_every_table("tableak-made1", tmp_path, HERE, 3.0, Selection(), silent).tables[0]
    assert attacked == [] and table.state == "not run"
    assert "about 2000 min" in table.why and "measured: none, as the shortest part takes about 20 min" in table.why


def in_order(
    packs: list[Any], first: frozenset[str] | None, seconds: float = 0.0, shares: Sequence[float] = (1.0,)
) -> list[str]:
    """What a budget of 30 seconds begins, stage by stage with such shares, where every pack takes so many."""
    clock = [0.0]

    class Recorder(Engine):
        device, slots = CPU, 1

        def run(self, packs: Any, folder: Path, watch: Any = None) -> Any:
            for pack in packs:
                clock[0] += seconds
                yield Finished(pack)

        def close(self) -> None:
            pass

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module.time, "monotonic", lambda: clock[0])
        budget = module._Budget(Recorder(), 30.0, Path("no such folder"), first, {})
        begun = [budget.within(share).run(packs, Path("no such folder")) for share in shares]
        return [done.pack.ids[0] for stage in begun for done in stage]


def attacks(name: str, rows: int) -> UpdatePack:
    options = {"restarts": 1, "steps": rows} if name == "tableak" else {}
    return UpdatePack([Unit(f"{name}-{rows}", name, options, lambda: None, {"batch_size": rows}, 0)], "nothing")


def test_our_strongest_attack_begins_within_a_third_of_the_time_of_a_table_in_part() -> None:
    packs = [attacks(*one) for one in (("audit_max", 8), ("tableak", 9), ("audit_max", 2), ("tableak", 3))]
    ours = frozenset({"audit_max"})
    assert in_order(packs, ours) == ["audit_max-2", "audit_max-8", "tableak-3", "tableak-9"]
    assert in_order(packs, ours, 10.0) == ["audit_max-2", "tableak-3", "tableak-9"]
    assert in_order(packs, frozenset(), 10.0) == ["tableak-3", "tableak-9", "audit_max-2"]
    assert in_order(packs, None) == [pack.ids[0] for pack in packs]


def test_a_search_gets_its_share_of_the_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.time, "monotonic", lambda: 0.0)
    budget = module._Budget(LocalEngine(CPU), 30.0, tmp_path, frozenset(), {})
    table = PriorSearch(replace(TABLES["tableak-made1"], run="tableak.prior_search.PriorSearch"), Selection())
    shares = [stage.share for stage in table.stages()]
    assert [budget.within(share)._end for share in shares] == [10.0, 30.0]
    packs = [attacks("tableak", rows) for rows in (1, 2)]
    # The search is late after 10 of 30 seconds; what is reported still begins.
    assert in_order(packs, None, 10.0, shares) == ["tableak-1", "tableak-1", "tableak-2"]
    assert table.in_part() == Selection(batches=5, search_restarts=1)


def test_a_command_says_all_that_narrows_a_run() -> None:
    selection = Selection(
        dataset="adult",
        batches=5,
        batch_sizes=(8, 16),
        attacks=("audit_max",),
        labels="true",
        seeds=(3, 4),
        as_published=True,
        settings=("1x1", "10x4"),
        search_restarts=2,
        strongest=True,
    )
    words = shlex.split(command_of("tableak-table2", selection))
    parsed = build_parser().parse_args(words[1:])
    assert (parsed.name, parsed.dataset, parsed.batches, parsed.batch_sizes) == ("tableak-table2", "adult", 5, "8,16")
    assert (parsed.attacks, parsed.labels, parsed.seed, parsed.seeds) == ("audit_max", "true", 3, 2)
    assert (parsed.as_published, parsed.settings, parsed.search_restarts) == (True, "1x1,10x4", 2)
    assert parsed.strongest and parsed.iterations is None
    assert command_of("tableak-table2", Selection()) == "lightleak reproduce tableak-table2 --seeds 1"


def test_a_run_as_published_has_a_line_and_a_folder_of_its_own(tmp_path: Path, silent: Console, at_a_cost: Any) -> None:
    at_a_cost(0.01)
    for published in (False, True):
        found = run_every_table("tableak-made1", tmp_path, HERE, 1.0, Selection(as_published=published), silent)
    assert [table.name for table in found.tables] == ["tableak-made1", "tableak-made1-as-published"]
    assert "--as-published" in found.tables[1].command and "--as-published" not in found.tables[0].command
    assert (tmp_path / "tableak-made1-as-published" / "comparison.json").is_file()


def test_no_pack_begins_after_three_budgets(
    tmp_path: Path, silent: Console, attacked: list[str], at_a_cost: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_a_cost(0.01)
    monkeypatch.setattr(module.time, "monotonic", iter(range(0, 10**6, 200)).__next__)
    table = run_every_table("tableak-made1", tmp_path, HERE, 1.0, Selection(), silent).tables[0]
    assert attacked == [] and table.state == "not run"


def test_our_strongest_attack_stands_beside_the_papers() -> None:
    made = TABLES["tableak-made1"]
    assert [c.attack for c in _cells(made, Selection(strongest=True))] == ["tableak", "random", "audit_max"]


def _cells(made: PaperTable, selection: Selection) -> list[PaperCell]:
    from lightleak.reproductions.tableak.fedsgd import GradientAttacks

    return GradientAttacks(made, replace(selection, batches=1)).cells


def test_unknown_names_are_refused(tmp_path: Path, silent: Console) -> None:
    with pytest.raises(UsageError, match=r"'tableak-mode1' \(did you mean 'tableak-made1'"):
        run_every_table("tableak-mode1", tmp_path, HERE, 1.0, Selection(), silent)


def test_a_damaged_status_is_named(tmp_path: Path) -> None:
    (tmp_path / "status.json").write_text("[]")
    with pytest.raises(UsageError, match=r"status\.json: expected the status of reproductions"):
        Status.load(tmp_path / "status.json")


def test_verdicts() -> None:
    def row(**facts: Any) -> ValueRow:
        return ValueRow(metric="cell_accuracy", value_unit="percent", printed=79.3, **facts)

    rows = [
        row(value=79.0, n=9, agrees=True),
        row(value=75.0, n=9, agrees=False),
        row(value=75.0, n=1),
        row(value=75.0, n=9, measured_on="digits"),
        row(n=0),
    ]
    assert [verdict(one) for one in rows] == ["agrees", "differs by -4.3", "not judged", "stand-in", "not run"]
