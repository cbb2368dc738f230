"""The registry of datasets: a card of facts, a loader, and where its files are downloaded from."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

from lightleak.core.errors import UsageError
from lightleak.core.registry import Registry
from lightleak.data.sources import dataset_folder, verify_checksums
from lightleak.data.table import DatasetCard, Table

Loader = Callable[..., Table]


@dataclass(frozen=True)
class Download:
    """One official file.

    Attributes:
        url: its address.
        file: name under which it is kept in the dataset's folder.
        members: what to unpack from it (zip or tar), paths inside the archive, kept in the folder; empty: no archive,
            or one that is read without unpacking.
    """

    url: str
    file: str
    members: tuple[str, ...] = ()

    @property
    def provides(self) -> tuple[str, ...]:
        """The files that loading needs once this download is there."""
        return self.members or (self.file,)


@dataclass(frozen=True)
class Dataset:
    """An entry of the registry.

    Attributes:
        card: facts.
        load: ``(folder, seed, *, option=...) -> Table``; keyword-only parameters are the options of the dataset.
        downloads: official files that need no login; empty where a person must fetch them.
    """

    card: DatasetCard
    load: Loader
    downloads: tuple[Download, ...] = ()

    @property
    def options(self) -> dict[str, inspect.Parameter]:
        """The loader's options with their defaults, by name."""
        parameters = inspect.signature(self.load).parameters.values()
        return {p.name: p for p in parameters if p.kind is inspect.Parameter.KEYWORD_ONLY}

    def check_options(self, options: Mapping[str, Any]) -> None:
        """Refuse an option the loader does not have, or a value of the wrong type.

        Raises:
            UsageError: names the option, what is allowed and what was got.
        """
        hints = get_type_hints(self.load)
        for name, value in options.items():
            where = f"option {name!r} of dataset {self.card.name!r}"
            if name not in self.options:
                raise UsageError(f"{where} does not exist; options: {', '.join(self.options) or 'none'}")
            hint = hints[name]
            if get_origin(hint) is Literal:
                if value not in get_args(hint):
                    raise UsageError(f"{where} must be one of {', '.join(map(repr, get_args(hint)))}, got {value!r}")
            elif hint in (bool, int) and type(value) is not hint:
                raise UsageError(f"{where} must be of type {hint.__name__}, got {value!r}")


DATASETS: Registry[Dataset] = Registry("dataset")


def dataset(card: DatasetCard, *downloads: Download) -> Callable[[Loader], Loader]:
    """File a loader in the registry under the name on its card."""

    def add(load: Loader) -> Loader:
        DATASETS.register(card.name)(Dataset(card, load, downloads))
        return load

    return add


def load_dataset(
    name: str, data_dir: Path | str | None = None, seed: int = 0, verify: bool = True, **options: Any
) -> Table:
    """Load a dataset from its official files.

    Args:
        name: name in the registry, such as ``"adult"``.
        data_dir: folder with one subfolder per dataset; default: `lightleak.data.sources.data_root`.
        seed: root seed of the split into training and test rows, where the dataset has no official one.
        verify: compare the checksums that are known.
        **options: the options of that dataset (see its loader); an unknown one is refused.

    Raises:
        UsageError: unknown dataset or option.
        DataError: a file is missing, damaged or not the one it should be.

    >>> from lightleak.data.datasets import load_dataset
    >>> table = load_dataset("synthetic", n_discrete=2, n_continuous=2, n_rows=100)
    >>> len(table.train), len(table.test), table.schema.n_classes
    (80, 20, 2)
    """
    entry = DATASETS.get(name)
    entry.check_options(options)
    folder = dataset_folder(name, data_dir)
    if verify:
        verify_checksums(entry.card, folder)
    return entry.load(folder, seed, **options)
