"""Packs: what one worker runs in one call, and how a pack travels to a worker and its results come back.

A pack runs in a scratch folder of its own that holds the files it reads, and leaves its results there; they return to
the driver, the only process that writes the run folder. So a worker needs no file system in common with the driver.
"""

import io
import os
import pickle
import sysconfig
import traceback
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from lightleak.core.devices import one_thread
from lightleak.core.errors import UsageError
from lightleak.core.plugins import PLUGINS, load_plugins
from lightleak.core.private_files import private_files
from lightleak.core.records import to_json
from lightleak.core.stored import write_json
from lightleak.experiments.unit import finished_files, unit_file
from lightleak.targets.own import trust_network, trusted_networks

PACKAGE = str(Path(__file__).parents[1])
"""The folder of this package."""

Report = Callable[[float], None]
"""Called with work done, in the measure of `Pack.cost`."""

Files = dict[str, bytes]
"""Content of files by their path below a folder."""

Result = tuple[Files, Exception | None]
"""Files that a pack wrote, and why it failed."""


class Pack(ABC):
    """Work that one worker does in one call; picklable."""

    @property
    @abstractmethod
    def ids(self) -> Sequence[str]:
        """Ids of its units; each leaves a file (`lightleak.experiments.unit.unit_file`)."""

    @property
    def kind(self) -> str:
        """What packs have in common whose costs can be compared."""
        return type(self).__name__

    @property
    def facts(self) -> Mapping[str, Mapping[str, Any]]:
        """What the current plan says of rows, by unit id; a row kept by an earlier command may say otherwise."""
        return {}

    @property
    @abstractmethod
    def cost(self) -> float:
        """Relative work, above 0."""

    @abstractmethod
    def run(self, folder: Path, device: torch.device, report: Report) -> None:
        """Do the work and write the results.

        Args:
            folder: scratch folder. Whatever lies in it afterwards is moved to the same place in the run folder. A pack
                that was interrupted on this machine finds here what it had written.
            device: where to compute.
            report: called with work done.
        """

    def inputs(self, folder: Path) -> Mapping[str, Path]:
        """Files and folders that `run` reads, by their path in the scratch folder.

        Args:
            folder: the run folder.
        """
        return {}

    def shipped(self) -> "Pack":
        """Return the same work with the data it reads from elsewhere, for a machine that may not have them."""
        return self


@dataclass(frozen=True)
class Place:
    """Where a pack is computed: the scratch folder, the device, and a function to report progress to."""

    folder: Path
    device: torch.device
    report: Report


@dataclass(frozen=True)
class Task(Pack):
    """A pack whose units one function computes.

    Attributes:
        units: ids of its units.
        compute: returns what is kept of each unit.
        effort: relative work; the total that ``compute`` reports.
        reads: see `Pack.inputs`.
    """

    units: Sequence[str]
    compute: Callable[[Place], Iterable[Any]]
    effort: float = 1.0
    reads: Mapping[str, Path] = field(default_factory=dict)

    @property
    def ids(self) -> Sequence[str]:
        """Its units."""
        return self.units

    @property
    def kind(self) -> str:
        """The name of the function."""
        function = getattr(self.compute, "func", self.compute)
        return str(getattr(function, "__qualname__", type(function)))

    @property
    def cost(self) -> float:
        """Its effort."""
        return self.effort

    def inputs(self, folder: Path) -> Mapping[str, Path]:
        """See `Pack.inputs`."""
        return self.reads

    def run(self, folder: Path, device: torch.device, report: Report) -> None:
        """Compute, and write the files of units that are not there yet."""
        contents = self.compute(Place(folder, device, report))
        present = finished_files(folder)
        for id, content in zip(self.ids, contents, strict=True):
            if unit_file(folder, id).name not in present:
                write_json(unit_file(folder, id), to_json(content))


class Shared:
    """Base of objects that many packs refer to, such as a table: they are sent once, not with every pack."""


@dataclass(frozen=True)
class Finished:
    """A pack that has ended.

    Attributes:
        pack: the pack.
        files: what it wrote.
        error: why it failed; None where it did not.
    """

    pack: Pack
    files: Mapping[str, bytes] = field(default_factory=dict)
    error: Exception | None = None


class Parcels:
    """Packs made ready for sending, with every `Shared` object stored once.

    Args:
        store: stores bytes for all workers and returns a handle.
    """

    def __init__(self, store: Callable[[bytes], Any]) -> None:
        self._store = store
        self._stored: dict[int, tuple[object, str, Any]] = {}  # the object is kept: its id must not be used again

    def pack_up(self, pack: Pack) -> tuple[bytes, dict[str, Any]]:
        """Return the pickled pack, and the handles of the shared objects in it by their keys."""
        handles: dict[str, Any] = {}

        class Pickler(pickle.Pickler):
            def persistent_id(pickler, value: object) -> str | None:  # `self` is the parcels
                if not isinstance(value, Shared):
                    return None
                if id(value) not in self._stored:
                    self._stored[id(value)] = value, uuid.uuid4().hex, self._store(pickle.dumps(value))
                _, key, handles[key] = self._stored[id(value)]
                return key

        buffer = io.BytesIO()
        Pickler(buffer).dump(pack)
        return buffer.getvalue(), handles


def unpack(parcel: bytes, handles: Mapping[str, Any], fetch: Callable[[Any], bytes]) -> Pack:
    """Return the pack of a parcel; ``fetch`` returns the bytes that were stored under a handle."""
    for key in _received.keys() - handles.keys():
        del _received[key]

    class Unpickler(pickle.Unpickler):
        def persistent_load(self, key: str) -> object:
            if key not in _received:
                _received[key] = pickle.loads(fetch(handles[key]))
            return _received[key]

    return Unpickler(io.BytesIO(parcel)).load()


_received: dict[str, object] = {}
"""Shared objects of the last pack of this worker, by key."""


def run_in(
    scratch: Path, pack: Pack, inputs: Mapping[str, Path | bytes], device: torch.device, report: Report
) -> Result:
    """Run a pack on one thread and return the files it wrote, and the error if it failed.

    Args:
        scratch: its scratch folder; created.
        pack: the pack.
        inputs: what it reads, by its path in the scratch folder: content, or a file or folder of this machine.
        device: where to compute.
        report: called with work done.
    """
    with private_files(), one_thread():
        (scratch / "units").mkdir(parents=True, exist_ok=True)
        for name, source in inputs.items():
            place = scratch / name
            place.parent.mkdir(parents=True, exist_ok=True)
            if isinstance(source, bytes):
                place.write_bytes(source)
            elif not place.is_symlink():
                place.symlink_to(source.resolve())
        try:
            pack.run(scratch, device, report)
        except Exception as error:
            return {}, portable(error)
    return {name: content for name, content in files_of(scratch).items() if name not in inputs}, None


def files_of(folder: Path) -> Files:
    """Return the files below a folder, without links."""
    found = (path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    return {str(path.relative_to(folder)): path.read_bytes() for path in found}


def contents(inputs: Mapping[str, Path]) -> Files:
    """Return the files below the inputs of a pack with their content."""
    found = {}
    for name, source in inputs.items():
        for path in (path for path in (source, *source.rglob("*")) if path.is_file()):
            found[str(Path(name) / path.relative_to(source))] = path.read_bytes()
    return found


@dataclass(frozen=True)
class Knowledge:
    """What a worker process must load before it can unpickle a pack.

    Attributes:
        networks: networks of the user's own that may be imported.
        plugins: value of `PLUGINS`.
    """

    networks: tuple[str, ...] = field(default_factory=trusted_networks)
    plugins: str = field(default_factory=lambda: os.environ.get(PLUGINS, ""))

    def load(self) -> None:
        """Load it in this process; a pack that needs a network which is missing here says so when it runs."""
        os.environ[PLUGINS] = self.plugins
        load_plugins()
        for name in self.networks:
            with suppress(UsageError):
                trust_network(name)


def portable(error: Exception) -> Exception:
    """Return the error with its place and its traceback as notes; another error where it cannot be pickled."""
    notes = _place(error), "".join(traceback.format_exception(error))
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # whatever its class does when it is pickled
        error = RuntimeError(f"{type(error).__name__}: {error}")
    for note in notes:
        error.add_note(note)
    return error


def _place(error: Exception) -> str:
    """Return file and line of the last call in code of the user's own; of the last call where there is none."""
    installed = (*map(sysconfig.get_path, ("stdlib", "purelib", "platlib")), PACKAGE, "<")
    frames = traceback.extract_tb(error.__traceback__)
    last = ([frame for frame in frames if not frame.filename.startswith(installed)] or frames)[-1]
    return f"{last.filename}:{last.lineno}"
