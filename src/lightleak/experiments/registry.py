"""The kinds of audit, by the ``kind`` of a config: every subclass of `Kind` in a module of ``kinds/`` or a plug-in."""

from collections.abc import Iterator, Mapping
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

from lightleak.experiments import kinds
from lightleak.experiments.kind import Kind

for _found in iter_modules(kinds.__path__, f"{kinds.__name__}."):
    import_module(f"{_found.name}.kind" if _found.ispkg else _found.name)


class _Kinds(Mapping[str, Kind[Any, Any]]):
    """Kinds that are defined by now, in the order of their definition."""

    def __init__(self) -> None:
        self._made: dict[type[Kind[Any, Any]], Kind[Any, Any]] = {}

    def _by_name(self) -> dict[str, Kind[Any, Any]]:
        for kind in Kind.__subclasses__():
            if kind not in self._made:
                self._made[kind] = kind()
        return {kind.name: kind for kind in self._made.values()}

    def __getitem__(self, name: str) -> Kind[Any, Any]:
        return self._by_name()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_name())

    def __len__(self) -> int:
        return len(self._by_name())


KINDS: Mapping[str, Kind[Any, Any]] = _Kinds()
