"""Records of one epoch, written step by step: in memory within a bound, in files beyond it."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from lightleak.core.errors import UsageError

FILE_MODE = 0o600
CHUNK_ROWS = 1 << 16  # rows moved at once where a whole kind must not be in memory

Gather = Callable[[Tensor], Tensor]
"""``[...]`` to ``[ranks, ...]``, of a tensor that has one shape on every rank."""


class EpochRecords:
    """One vector per record and name, and the record's id; filled by `add`, closed by `finish`.

    Vectors are copied into a preallocated window, which grows up to a limit; from there on a full window is appended to
    one file per name. Ids are always in memory, 8 bytes per record.

    Args:
        parts: names of the vectors of each tensor that `add` takes.
        width: width of a vector.
        dtype: their type.
        window: records that memory is set aside for.
        limit: records that memory may hold; default: ``window``.
        file: path of the files but for their suffix ``.<name>``; ``None``: a full window is an error.
        keep: what never filled the window stays in memory.
    """

    def __init__(
        self,
        parts: Sequence[Sequence[str]],
        width: int,
        dtype: torch.dtype,
        window: int,
        limit: int | None = None,
        file: Path | None = None,
        keep: bool = True,
    ) -> None:
        self.parts = tuple(map(tuple, parts))
        self.width, self.dtype, self.file, self.keep = width, dtype, file, keep
        self.limit = window if limit is None else limit
        self._windows = [torch.empty(len(names), window, width, dtype=dtype) for names in self.parts]
        self._ids = torch.empty(window, dtype=torch.int64)
        self._spilled_ids: list[Tensor] = []
        self._used = 0
        self._ordered: dict[str, Tensor] | None = None

    def __len__(self) -> int:
        return sum(map(len, self._spilled_ids)) + self._used

    @property
    def names(self) -> tuple[str, ...]:
        """All names in order."""
        return tuple(name for names in self.parts for name in names)

    @property
    def on_disk(self) -> bool:
        """Some records are in files."""
        return bool(self._spilled_ids)

    @property
    def ids(self) -> Tensor:
        """Ids in the order they were added, ascending after `finish`; LongTensor ``[n]``."""
        return torch.cat([*self._spilled_ids, self._ids[: self._used]])

    def add(self, ids: Tensor, *parts: Tensor) -> None:
        """Append records: ids ``[batch]`` and, per part, ``[names, batch, width]``.

        Raises:
            UsageError: the window is full and there is no file, or a file cannot be written.
        """
        if self._used + len(ids) > len(self._ids):
            self._make_room(len(ids))
        start, self._used = self._used, self._used + len(ids)
        self._ids[start : self._used] = ids
        for window, values in zip(self._windows, parts, strict=True):
            window[:, start : self._used] = values

    def rows(self, start: int, stop: int) -> tuple[Tensor, list[Tensor]]:
        """Records from ``start`` to ``stop`` in the form that `add` takes."""
        vectors = self.vectors()
        return self.ids[start:stop], [
            torch.stack([vectors[name][start:stop] for name in names]) for names in self.parts
        ]

    def vectors(self) -> dict[str, Tensor]:
        """Vectors by name, ``[n, width]``; those in files are mapped, and a change to them stays in memory."""
        if self._ordered is not None:
            return self._ordered
        if not self.on_disk:
            return self._held()
        self._spill()
        return {name: self._mapped(name) for name in self.names}

    def finish(self, steps: Tensor | None = None) -> None:
        """Order by id and keep, of an id that came more than once, the record of the earliest step.

        Args:
            steps: LongTensor ``[n]``, larger for later records; default: the order of `add`.
        """
        if not self.keep:
            self._spill()
        ids = self.ids
        keys = (np.arange(len(ids)) if steps is None else steps.numpy(), ids.numpy())
        order = torch.from_numpy(np.lexsort(keys))
        first = torch.ones(len(ids), dtype=torch.bool)
        first[1:] = ids[order][1:] != ids[order][:-1]
        order = order[first]
        vectors = self.vectors()
        if not torch.equal(order, torch.arange(len(ids))):
            ids = ids[order]
            for name in self.names:
                old = vectors.pop(name)
                vectors[name] = self._reordered_file(name, old, order) if self.on_disk else old[order]
        self._ordered, self._windows = vectors, []
        if self.on_disk:
            self._spilled_ids, self._used = [ids], 0
        else:
            self._ids, self._used = ids, len(ids)

    def remove(self) -> None:
        """Delete the files, if any."""
        if self.on_disk:
            for name in self.names:
                self._path(name).unlink(missing_ok=True)

    def _held(self) -> dict[str, Tensor]:
        flat = (values for window in self._windows for values in window[:, : self._used])
        return dict(zip(self.names, flat, strict=True))

    def _make_room(self, n_new: int) -> None:
        if self._used + n_new > self.limit:
            if self.file is None:
                raise UsageError(
                    f"capture holds {len(self)} records, its memory budget allows {self.limit}, and a step brings "
                    f"{n_new} more; give a folder to write them to, or a larger memory_bytes"
                )
            self._spill()
        if self._used + n_new > len(self._ids):
            rows = max(self._used + n_new, min(2 * len(self._ids), self.limit))
            self._windows = [_grown(window, rows, 1) for window in self._windows]
            self._ids = _grown(self._ids, rows, 0)

    def _spill(self) -> None:
        if not self._used:
            return
        for name, values in self._held().items():
            _append(self._path(name), values, new=not self.on_disk)
        self._spilled_ids.append(self._ids[: self._used].clone())
        self._used = 0

    def _reordered_file(self, name: str, old: Tensor, order: Tensor) -> Tensor:
        path = self._path(name)
        ordered = path.with_name(f"{path.name}.ordered")
        for start in range(0, len(order), CHUNK_ROWS):
            _append(ordered, old[order[start : start + CHUNK_ROWS]], new=start == 0)
        ordered.replace(path)
        return self._mapped(name, len(order))

    def _mapped(self, name: str, n: int | None = None) -> Tensor:
        n = len(self) if n is None else n
        path = str(self._path(name))
        return torch.from_file(path, shared=False, size=n * self.width, dtype=self.dtype).view(n, self.width)

    def _path(self, name: str) -> Path:
        assert self.file is not None  # nothing is spilled without one
        return self.file.with_name(f"{self.file.name}.{name}")


def gather_records(local: EpochRecords, merged: EpochRecords, gather: Gather) -> None:
    """Append the records of every rank to ``merged`` and finish it; every rank ends up with the same.

    Args:
        local: this rank's records.
        merged: empty records of the same parts.
        gather: stacks a tensor over ranks.
    """
    lengths = gather(torch.tensor(len(local))).tolist()
    steps: list[Tensor] = []
    for start in range(0, max(lengths), CHUNK_ROWS):
        rows = min(CHUNK_ROWS, max(lengths) - start)
        ids, parts = local.rows(start, start + rows)
        every_id = gather(_grown(ids, rows, 0))
        every_part = [gather(_grown(part, rows, 1)) for part in parts]
        for rank, length in enumerate(lengths):
            held = max(0, min(rows, length - start))
            merged.add(every_id[rank, :held], *(part[rank, :, :held] for part in every_part))
            # Ranks go side by side: of two with the same record, the one that met it earlier is kept.
            steps.append(torch.arange(start, start + held) * len(lengths) + rank)
    merged.finish(torch.cat(steps))


def _grown(values: Tensor, rows: int, dim: int) -> Tensor:
    """``values`` with so many rows along ``dim``, new ones zero."""
    shape = list(values.shape)
    shape[dim] = rows - shape[dim]
    return torch.cat([values, values.new_zeros(shape)], dim)


def _append(path: Path, values: Tensor, new: bool) -> None:
    # Plain writes, not a writable mapping: on a full disk a mapping ends the process, a write raises.
    try:
        flags = os.O_WRONLY | os.O_CREAT | (os.O_TRUNC if new else os.O_APPEND)
        with os.fdopen(os.open(path, flags, FILE_MODE), "wb") as file:
            file.write(values.contiguous().view(torch.uint8).numpy().data)
    except OSError as error:
        raise UsageError(f"capture cannot write {path}: {error.strerror or error}") from error
