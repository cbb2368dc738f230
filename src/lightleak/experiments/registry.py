"""The kinds of audit, by the ``kind`` of a config; a new kind is one entry here."""

from typing import Any

from lightleak.experiments.kind import Kind
from lightleak.experiments.kinds.frontier.kind import FrontierKind
from lightleak.experiments.kinds.released.kind import ReleasedKind
from lightleak.experiments.kinds.updates.kind import UpdatesKind
from lightleak.experiments.kinds.vertical.kind import VerticalKind

KINDS: dict[str, Kind[Any, Any]] = {
    kind.name: kind for kind in (FrontierKind(), UpdatesKind(), ReleasedKind(), VerticalKind())
}
