"""ProVFL's tables and figures by name."""

from collections.abc import Callable

from lightleak.reproductions.vertical.attack_seconds import seconds
from lightleak.reproductions.vertical.grid import Result, vertical_table
from lightleak.reproductions.vertical.norm_studies import norm_study, refined_norms
from lightleak.reproductions.vertical.table_facts import correlations, facts
from lightleak.reproductions.vertical.worlds import two_worlds

VERTICAL: dict[str, Callable[..., Result]] = {
    **dict.fromkeys(
        (*(f"provfl-table{n}" for n in (5, 8, 9, 11, 12, 13, 14, 15, 16, 17)), "provfl-fig5"), vertical_table
    ),
    "provfl-table2": norm_study,
    "provfl-fig2": norm_study,
    "provfl-fig4": refined_norms,
    "provfl-table3": facts,
    "provfl-table4": facts,
    "provfl-table6": correlations,
    "provfl-table7": two_worlds,
    "provfl-table10": seconds,
}
"""What runs each table or figure."""
