"""The FedAvg paper's tables and figures by name."""

from collections.abc import Callable

from lightleak.reproductions.fedavg_study.figures import FIGURES, picture_grid
from lightleak.reproductions.fedavg_study.network_facts import network_facts
from lightleak.reproductions.fedavg_study.tables import Result, defended_attacks, image_attacks, label_counts

FEDAVG: dict[str, Callable[..., Result]] = {
    **dict.fromkeys((f"fedavg-table{n}" for n in (1, 3, 4, 7, 8, 9, 10, 11)), image_attacks),
    "fedavg-table2": label_counts,
    "fedavg-table5": network_facts,
    "fedavg-table6": defended_attacks,
    **dict.fromkeys(FIGURES, picture_grid),
}
"""What runs each table or figure."""
