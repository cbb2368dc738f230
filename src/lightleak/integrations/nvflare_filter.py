"""NVFlare (Roth et al. 2022): what the server of a job receives, recorded by a filter on its own side.

``CaptureFilter`` is built of NVFlare's ``Filter`` when it is first asked for: nothing of NVFlare is imported before.
"""

import re
import warnings
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Any

from lightleak.core.errors import UsageError
from lightleak.core.optional import import_optional
from lightleak.integrations.round_recorder import RoundRecorder
from lightleak.integrations.server_view import ServerView

SENT = "lightleak_sent_to_"
"""Prefix of the private property of a job in which a client's weights wait for its answer."""

KINDS = {"WEIGHTS": ("weights",), "WEIGHT_DIFF": ("delta", "gradient")}
"""NVFlare's kinds of data, and what a view may say that clients of this kind send."""


class _Recording:
    """The filter's work, apart from the class of NVFlare that it is joined with.

    It stands among the server's filters of task data and of task results; each chain may have an instance of its own,
    as NVFlare builds them from a job's configuration. What passes is not changed.
    """

    def __init__(
        self,
        view: str,
        root: str,
        rounds: Sequence[int],
        clients: Sequence[str] = (),
        rows_key: str = "n_rows",
        n_rows: Mapping[str, int] | None = None,
        max_captures: int = 100,
        overwrite: bool = False,
    ) -> None:
        """Settings that a job's JSON can hold.

        Args:
            view: folder that `ServerView.save` wrote.
            root: captures are written here.
            rounds: rounds to capture, as NVFlare counts them, from 0.
            clients: names of the clients whose updates are recorded, in the order of their numbers; none: all, by the
                number at the end of their names (``site-2``).
            rows_key: entry of a result's ``meta`` that counts the client's rows.
            n_rows: rows of every client by name, where no result counts them.
            max_captures: no more than these.
            overwrite: see `RoundRecorder`; needed where a server that was restarted resumes a job.

        Raises:
            UsageError: settings that cannot work together, a view that cannot be read, or a folder with captures of an
                earlier training.
        """
        super().__init__()
        self.view, self.root, self.rounds, self.max_captures = view, root, list(rounds), max_captures
        self.clients, self.rows_key, self.n_rows = list(clients), rows_key, dict(n_rows or {})
        self.overwrite = overwrite
        self._recorder = RoundRecorder(
            ServerView.load(Path(view)), rounds=self.rounds, root=root, max_captures=max_captures, overwrite=overwrite
        )
        self._lock = Lock()  # the server answers its clients in threads

    def process(self, shareable: Any, fl_ctx: Any) -> Any:
        """Note what a client is sent, record what it sends back, and pass both on unchanged."""
        from nvflare.apis.dxo import from_shareable
        from nvflare.apis.fl_constant import FilterKey, FLContextKey, ReturnCode
        from nvflare.app_common.app_constant import AppConstants

        peer = fl_ctx.get_peer_context()
        name = "" if peer is None else peer.get_identity_name()
        if shareable.get_return_code() != ReturnCode.OK or (self.clients and name not in self.clients):
            return shareable
        try:
            dxo = from_shareable(shareable)
        except ValueError:  # a task of another sort, such as one of statistics
            return shareable
        if dxo.data_kind not in KINDS:
            return shareable
        if fl_ctx.get_prop(FLContextKey.FILTER_DIRECTION) == FilterKey.OUT:
            sent = (shareable.get_header(AppConstants.CURRENT_ROUND, 0), dict(dxo.data))
            fl_ctx.set_prop(SENT + name, sent, private=True, sticky=True)
        else:
            self._receive(name, fl_ctx.get_prop(SENT + name), dxo)
        return shareable

    def _receive(self, name: str, sent: tuple[int, Mapping[str, Any]] | None, dxo: Any) -> None:
        with self._lock:
            try:
                if sent is None:
                    raise UsageError("what it was sent is not known: put the filter among those of task data, too")
                sends = self._recorder.view.sends
                if sends not in KINDS[dxo.data_kind]:
                    raise UsageError(f"it sends {dxo.data_kind}, the view says {sends!r}")
                n_rows = dxo.get_meta_prop(self.rows_key, self.n_rows.get(name, 0))
                self._recorder.receive(sent[0], self._number(name), sent[1], dxo.data, n_rows)
            except UsageError as error:
                warnings.warn(f"client {name!r} was not captured: {error}", stacklevel=3)

    def _number(self, name: str) -> int:
        if self.clients:
            return self.clients.index(name)
        digits = re.search(r"\d+$", name)
        if digits is None:
            raise UsageError(f"its name {name!r} ends in no number: give clients=[...], the names in order")
        return int(digits.group())


@cache
def _capture_filter() -> type:
    filters = import_optional("nvflare.apis.filter", "the NVFlare filter needs NVFlare (nvflare)", "nvflare")
    return type("CaptureFilter", (_Recording, filters.Filter), {"__module__": __name__, "__doc__": _Recording.__doc__})


def __getattr__(name: str) -> Any:
    """``CaptureFilter``.

    Raises:
        UnsupportedError: NVFlare is not installed.
    """
    if name == "CaptureFilter":
        return _capture_filter()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
