"""Two worlds told apart (Table VII), beside Theorem 1's bound on how well that can be done."""

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch

from lightleak.attacks.property_inference.shadow_models import ShadowConfig, ShadowModels, TaskKnowledge
from lightleak.attacks.property_inference.two_worlds import nearest_world, two_world_accuracy
from lightleak.core.seeds import derive_seed
from lightleak.experiments.kinds.vertical.choices import attack_named
from lightleak.experiments.kinds.vertical.config import AuxiliaryConfig
from lightleak.experiments.kinds.vertical.job import plan_jobs
from lightleak.experiments.unit import file_name, write_whole
from lightleak.metrics.summary import Summary, summarize
from lightleak.report.estimate import Estimate
from lightleak.report.vertical.bound import bound_page
from lightleak.reproductions.paper.values import PaperCell
from lightleak.reproductions.provfl.settings import audit_of, training_of
from lightleak.reproductions.reproduction import Report, Reproduction, Rows, Stage, Work
from lightleak.reproductions.settings import Selection

WORLD_ROWS, WORLD_AUXILIARY = 7000, 400
"""Rows of a world: Adult has 6,973 that are not White, and a world with 5% of Whites needs 6,650 of them. The published
code takes 200 auxiliary rows of either kind there."""

SHADOWS = ShadowConfig()


class TwoWorlds(Reproduction):
    """Table VII: SM-PIA and ProVFL-B name the one of two fractions a target was trained at."""

    def stages(self) -> Sequence[Stage]:
        """The games."""
        return [Stage(self.packs, "trainings")]

    def packs(self, folder: Path, device: torch.device) -> list[Work]:
        """One game per pair of worlds, seed and world that is true."""
        games = dict.fromkeys((str(cell.property_name), str(cell.value)) for cell in self.cells)
        return [
            Work([file_name(f"{name}-{index}-s{seed}")], partial(self.play, name, worlds, index, seed))
            for name, worlds in games
            for seed in self.selection.seeds
            for index in (0, 1)
        ]

    def play(
        self,
        name: str,
        worlds: str,
        index: int,
        seed: int,
        folder: Path,
        device: torch.device,
        report: Report,
    ) -> list[Rows]:
        """Rows of both attacks on one target."""
        fractions = [float(part) for part in worlds.split(" vs ")]
        rows = _game(name, fractions, index, seed, self.selection, device)
        return [[row | {"worlds": worlds} for row in rows]]

    def measured(self, cell: PaperCell, rows: Rows) -> Summary:
        """See `_score`."""
        return _score(rows, str(cell.property_name), str(cell.value), str(cell.attack))

    def leave(self, rows: Rows, folder: Path) -> None:
        """Theorem 1's bound beside what was measured."""
        _draw_bound(folder, rows)

    def notes(self, rows: Rows) -> list[str]:
        """How games are played."""
        return [
            f"Targets are trained on {WORLD_ROWS} rows at the world's fraction, with {WORLD_AUXILIARY} auxiliary rows; "
            f"half of the games are played in either world. SM-PIA trains {SHADOWS.n_shadows} shadow models per world. "
            "Intervals are Wilson's. theorem1.html draws Theorem 1's bound beside these accuracies."
        ]


def _score(rows: Rows, name: str, said: str, attack: str) -> Summary:
    """Share of games in which an attack named the right world, with Wilson's interval."""
    mine = [row for row in rows if (row["property"], row["worlds"], row["attack"]) == (name, said, attack)]
    if not mine:
        return summarize([])
    played = [[row for row in mine if row["world"] == world] for world in (0, 1)]
    score = two_world_accuracy(lambda row: int(row["answer"]), *played)
    return Summary(score.accuracy, math.nan, score.n, score.low, score.high)


def _game(
    name: str, worlds: Sequence[float], index: int, seed: int, selection: Selection, device: torch.device
) -> Rows:
    cell = PaperCell(
        "absolute_error", "fraction", math.nan, dataset="adult", property_name=name, adversary="C1", attack="provfl_b"
    )
    config = audit_of(training_of(cell, False), [cell], False, (seed,), selection.data_folder)
    config = replace(
        config,
        data=replace(config.data, fraction=worlds[index], rows=WORLD_ROWS),
        auxiliary=AuxiliaryConfig(size=WORLD_AUXILIARY),
        attacks={"provfl_b": {"sample_size": WORLD_AUXILIARY // 2}},
    )
    done = plan_jobs(config)[0].train(device, lambda _: None)
    seen = done.observations[0]
    comparison = attack_named("provfl_b", config.attacks["provfl_b"])
    found = comparison.run(seen, derive_seed(seed, name), device)
    at = done.world.positions(seen.auxiliary.ids)
    with torch.no_grad():
        module = done.module.cpu()
        logits = module(done.world.train.inputs[at].float())
    task = TaskKnowledge(done.world.train.labels[at], logits.reshape(len(at), -1))
    shadow = ShadowModels((worlds[0], worlds[1]), SHADOWS).decide(
        seen, task, derive_seed(seed, "shadows", name), device
    )
    common = {"dataset": "adult", "property": name, "world": index, "seed": seed, "adversary": "C1"}
    return [
        common
        | {
            "attack": "provfl_b",
            "estimated_fraction": found.fraction,
            "answer": nearest_world(found.fraction, worlds),
            "seconds": found.seconds,
        },
        common
        | {
            "attack": "sm_pia",
            "shadow_accuracy": shadow.shadow_accuracy,
            "answer": shadow.world,
            "seconds": shadow.seconds,
            "warnings": list(shadow.warnings),
        },
    ]


def _draw_bound(folder: Path, rows: Rows) -> None:
    """Theorem 1's bound over the gap, with what was measured, as a page of its own."""
    games = dict.fromkeys((str(row["attack"]), str(row["property"]), str(row["worlds"])) for row in rows)
    measured: dict[str, list[tuple[float, Estimate]]] = {}
    for attack, name, said in games:
        found = _score(rows, name, said, attack)
        low, high = sorted(float(part) for part in said.split(" vs "))
        measured.setdefault(attack, []).append((high - low, Estimate(found.mean, found.n, found.low, found.high)))
    for points in measured.values():
        points.sort(key=lambda point: point[0])
    write_whole(folder / "theorem1.html", bound_page(measured))
