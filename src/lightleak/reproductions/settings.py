"""Select cells of a paper's table by the flags of the command line."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from lightleak.core.errors import UsageError
from lightleak.experiments.settings import require_limits
from lightleak.reproductions.paper.values import PaperCell, PaperTable

TRIALS = 10
"""Root seeds of a ProVFL reproduction: the paper's trials."""


@dataclass(frozen=True)
class Selection:
    """Flags that narrow a reproduction; ``None`` means everything.

    Attributes:
        dataset: one dataset.
        batches: batches per cell.
        batch_sizes: these only.
        attacks: these only.
        labels: ``true`` or ``restored`` only.
        seeds: root seeds, each a full repetition on other batches and networks.
        data_folder: where raw files lie.
        as_published: do what the published code does where it departs from its paper.
        settings: these settings only, as `setting_name` names them.
        iterations: iterations of a generator; None: the thesis's.
        search_restarts: restarts of the search for the weight of FedAvg's epoch prior; None: the table's default.
        strongest: also run this project's strongest attack on every cell of the paper's own.
    """

    dataset: str | None = None
    batches: int | None = None
    batch_sizes: tuple[int, ...] | None = None
    attacks: tuple[str, ...] | None = None
    labels: str | None = None
    seeds: tuple[int, ...] = (0,)
    data_folder: str | None = None
    as_published: bool = False
    settings: tuple[str, ...] | None = None
    iterations: int | None = None
    search_restarts: int | None = None
    strongest: bool = False

    def __post_init__(self) -> None:
        """Raise `UsageError` for a value out of range."""
        for name in ("batches", "iterations", "search_restarts"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise UsageError(f"--{name.replace('_', '-')} must be at least 1, got {value}")
            require_limits(f"--{name.replace('_', '-')}", value)
        if not self.seeds:
            raise UsageError("--seeds must be at least 1")

    @property
    def allowed(self) -> dict[str, tuple[object, ...] | None]:
        """Values that are selected, by the word for them in messages; None means all."""
        return {
            "dataset": None if self.dataset is None else (self.dataset,),
            "batch sizes": self.batch_sizes,
            "attacks": self.attacks,
            "labels": None if self.labels is None else (self.labels,),
            "settings": self.settings,
        }

    def chosen(self) -> str:
        """Describe the selection for messages.

        >>> Selection(dataset="adult", batch_sizes=(8, 16)).chosen()
        'dataset adult, batch sizes 8,16'
        """
        return ", ".join(f"{word} {','.join(map(str, of))}" for word, of in self.allowed.items() if of is not None)

    def keeps(self, cell: PaperCell) -> bool:
        """Return whether the selection contains this cell."""
        found = (cell.dataset, cell.batch_size, cell.attack, cell.labels, setting_name(cell))
        return all(of is None or one in (None, *of) for one, of in zip(found, self.allowed.values(), strict=True))


def with_seeds(selection: Selection, number: int) -> Selection:
    """The selection with this many root seeds, counted up from its first.

    >>> with_seeds(Selection(seeds=(3,)), 2).seeds
    (3, 4)
    """
    return replace(selection, seeds=tuple(range(selection.seeds[0], selection.seeds[0] + number)))


def setting_name(cell: PaperCell) -> str | None:
    """What ``--settings`` calls the setting of a cell, where its table has named ones.

    That is a setting of the thesis's Table 4.3, or the local epochs of a FedAvg client x its batches (TabLeak) or the
    size of its batches (Dimitrov et al.).

    >>> setting_name(PaperCell("cell_accuracy", "percent", 72.8, local_epochs=10, local_batches=4))
    '10x4'
    """
    if cell.option == "setting":
        return str(cell.value)
    batches = cell.local_batches or cell.local_batch_size
    return None if cell.local_epochs is None or batches is None else f"{cell.local_epochs}x{batches}"


def check_settings(cells: Iterable[PaperCell], selection: Selection) -> None:
    """Raise `UsageError` for a selected setting that no cell has."""
    known = list(dict.fromkeys(name for cell in cells if (name := setting_name(cell)) is not None))
    for name in selection.settings or ():
        if name not in known:
            raise UsageError(f"--settings must be among {', '.join(known)}, got {name!r}")


def offered(cells: Iterable[PaperCell]) -> str:
    """List what can be selected among these cells, for messages.

    >>> offered([PaperCell("cell_accuracy", "percent", 90.0, dataset="adult", attack="tableak", batch_size=8)])
    'it has datasets adult; attacks tableak; batch sizes 8'
    """
    cells = list(cells)
    named = {"datasets": "dataset", "attacks": "attack", "batch sizes": "batch_size", "labels": "labels"}
    found = {word: dict.fromkeys(getattr(cell, name) for cell in cells) for word, name in named.items()}
    texts = [f"{word} {', '.join(str(v) for v in values if v is not None)}" for word, values in found.items()]
    return f"it has {'; '.join(text for text in texts if not text.endswith(' '))}"


def selected(
    table: PaperTable, cells: Sequence[PaperCell], selection: Selection, asked: Selection | None = None
) -> list[PaperCell]:
    """Return the selected cells of a table; messages name the user's own selection, ``asked``, where it differs.

    Raises:
        UsageError: none is.
    """
    kept = [cell for cell in cells if selection.keeps(cell)]
    if not kept:
        chosen = (asked or selection).chosen()
        raise UsageError(f"nothing of {table.name} is left to run with {chosen}; {offered(cells)}")
    return kept
