"""Attack meets bound: how often the best attack on one DP-SGD release wins a guess, and what the guarantee allows."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from lightleak.core.grouping import by_key
from lightleak.core.records import json_field
from lightleak.report.blocks import Block, Column, Page, Section
from lightleak.report.charts import BASELINE_STYLE, Series, Style, line_figure, series_style, spaced_axis
from lightleak.report.format import percent, points
from lightleak.report.intervals import Estimate
from lightleak.report.page import cells_table, fill, folded, render, table_of
from lightleak.report.sections.summary import interval_cell

FILE_NAME = "games.json"
SCHEMA_VERSION = 1


@dataclass(frozen=True, kw_only=True)
class Game:
    """One guessing game against DP-SGD at one noise multiplier, over sets of candidates.

    Attributes:
        game: what is guessed.
        noise: noise multiplier.
        max_norm: clipping norm.
        sets: sets of candidates, each with a network of its own.
        trials: releases over all sets.
        prior: how often the best guess without a release is right.
        won: share of trials that the best attack wins; no attack does better in this game.
        low: lower end of its 95% interval over sets; None for one set.
        high: upper end.
        bound: what the guarantee allows any attack, for any gradients.
        nearer_bound: what it allows for the distances of these candidates' gradients.
        exceeds_bound: whether more trials were won than the bound explains: something is wrong.
        delta: of the epsilons.
        release_epsilon: epsilon of the attacked release, whose batch is known; for one row added or removed.
        epsilon_rdp: epsilon of the whole training, by Rényi accounting.
        epsilon_prv: the same by numerical composition, which is tighter; where RDP's is above 50, that one.
    """

    game: str
    noise: float = json_field(low=0)
    max_norm: float = json_field(low=0)
    sets: int = json_field(low=1)
    trials: int = json_field(low=1)
    prior: float = json_field(low=0, high=1)
    won: float = json_field(low=0, high=1)
    low: float | None = json_field(low=0, high=1, default=None)
    high: float | None = json_field(low=0, high=1, default=None)
    bound: float = json_field(low=0, high=1)
    nearer_bound: float = json_field(low=0, high=1)
    exceeds_bound: bool
    delta: float
    release_epsilon: float
    epsilon_rdp: float
    epsilon_prv: float

    @property
    def best(self) -> Estimate:
        """`won` with its interval."""
        return Estimate(self.won, self.sets, self.low, self.high)


LINES: tuple[tuple[str, Style, Callable[[Game], Estimate]], ...] = (
    ("what the guarantee allows", series_style(0), lambda game: Estimate(game.bound)),
    ("what it allows for these gradients", series_style(1), lambda game: Estimate(game.nearer_bound)),
    ("what the best attack does", series_style(2), lambda game: game.best),
    ("guessing without a message", BASELINE_STYLE, lambda game: Estimate(game.prior)),
)


def gap_section(games: Sequence[Game]) -> Section | None:
    """Draw every game over the noise, with a table and the epsilons; None where no game was played."""
    if not games:
        return None
    blocks: list[Block] = [fill("sections", "gap", games)]
    for game, played in by_key(games, lambda one: (one.game, one.max_norm)).items():
        drawn = _drawn(sorted(played, key=lambda one: one.noise))
        blocks += folded(game[0].capitalize(), drawn, when=game[0].endswith("of a known row"))
    return Section("bound", "What the guarantee allows and what the best attack does", (*blocks, *_tables(games)))


def gap_page(games: Sequence[Game]) -> str:
    """Return a page with nothing but these games."""
    return render(Page("Attack meets bound", "DP-SGD", [gap_section(games)], genre="measurement"))


def _drawn(played: Sequence[Game]) -> Block:
    series = [Series(label, tuple((i, of(one)) for i, one in enumerate(played)), style) for label, style, of in LINES]
    x = spaced_axis([(i, f"{one.noise:g}") for i, one in enumerate(played)], "noise multiplier")
    name = f"{played[0].game.capitalize()}: share of right guesses"
    return line_figure(name, series, x, f"{name} (clipping norm {played[0].max_norm:g})")


def _tables(games: Sequence[Game]) -> list[Block]:
    won: list[Column[Game]] = [
        Column("Noise multiplier", lambda one: f"{one.noise:g}"),
        Column("Guessing", lambda one: percent(one.prior)),
        Column("Best attack", lambda one: interval_cell(one.best)),
        Column("Allowed, these gradients", lambda one: percent(one.nearer_bound)),
        Column("Allowed, any gradients", lambda one: percent(one.bound)),
        Column("Gap, points", lambda one: points(one.bound - one.won)),
    ]
    by_game = by_key(games, lambda one: f"{one.game}, clipping norm {one.max_norm:g}")
    settings = [same[0] for same in by_key(games, lambda one: one.noise).values()]
    epsilons = [
        (f"{one.noise:g}", *(f"{epsilon:.3g}" for epsilon in (one.release_epsilon, one.epsilon_rdp, one.epsilon_prv)))
        for one in settings
    ]
    head = ("Noise multiplier", "Epsilon, one update", "Epsilon, training (RDP)", "Epsilon, training (PRV)")
    table = table_of("Games won", won, by_game.items(), css="stack")
    by_noise = cells_table("Epsilon by noise", head, [("", epsilons)], css="stack")
    return [by_noise, *folded("All games as a table", table)]
