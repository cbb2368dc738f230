"""Whether made-up rows lie nearer to rows the target was trained on than to private rows it never saw."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from markupsafe import Markup

from lightleak.report.estimate import Estimate, estimate
from lightleak.report.intervals import difference
from lightleak.report.plot.axis import axis
from lightleak.report.released.charts import Dot, Reference, dot_chart
from lightleak.report.released.entries import Entry, Memorisation
from lightleak.report.released.group import Group
from lightleak.report.released.topics import Topic, belongs

HALF = 0.5
"""Share that lies nearer to a training row where nothing is copied."""

TOO_WIDE = 0.2
"""Width from which an interval around one half is no sign of anything."""

Copied = Literal["unknown", "too few", "none", "as public", "may be", "traces"]


@dataclass(frozen=True)
class MemorySection:
    """Attacks and baselines side by side: titles with their distances, and the shares drawn around one half."""

    rows: tuple[tuple[str, bool, Memorisation], ...]
    drawing: Markup | None


def pooled(entries: Sequence[Entry]) -> Memorisation | None:
    """One finding for several seeds: means, and an interval over the seeds where there are at least two."""
    found = [entry.memorisation for entry in entries if entry.memorisation is not None]
    if len(found) < 2:
        return found[0] if found else None
    share = estimate(one.share for one in found)
    train, heldout = estimate(one.train_mean for one in found), estimate(one.heldout_mean for one in found)
    sizes = [one.n for one in found if one.n is not None]
    return Memorisation(
        train_mean=train.mean if train else None,
        heldout_mean=heldout.mean if heldout else None,
        share=share.mean if share else None,
        low=share.low if share else None,
        high=share.high if share else None,
        n=sum(sizes) if sizes else None,
    )


def memory_of(group: Group, entries: Sequence[Entry]) -> Memorisation | None:
    """What was found of one attack or baseline."""
    return pooled([entry for entry in entries if belongs(entry, group)])


def share_of(memory: Memorisation | None) -> Estimate | None:
    """Share of made-up rows that lie nearer to a training row; None where it was not measured."""
    return None if memory is None or memory.share is None else Estimate(memory.share, 1, memory.low, memory.high)


def highest_share(public: Sequence[Memorisation | None]) -> Estimate | None:
    """The highest share among those of public data, which are no copies."""
    return max((one for one in map(share_of, public) if one), key=lambda one: one.mean, default=None)


def copied(memory: Memorisation | None, public: Sequence[Memorisation | None]) -> Copied:
    """Whether single training rows come through, as far as this was measured.

    Returns:
        ``unknown`` (not measured, or without an interval), ``too few`` (rows held out to tell), ``none``, ``as public``
        (rows from public data are as near), ``may be`` (nothing to compare with) or ``traces``.
    """
    share, highest = share_of(memory), highest_share(public)
    if share is None or share.low is None or share.high is None:
        return "unknown"
    if share.low <= HALF:
        return "too few" if share.high - share.low > TOO_WIDE else "none"
    beyond = difference(share, highest)
    if beyond is None:
        return "may be"
    return "traces" if beyond.low is not None and beyond.low > 0 else "as public"


def memory_section(topics: Sequence[Topic]) -> MemorySection | None:
    """All that was measured; None where nothing was."""
    rows = tuple(
        (topic.title, topic.is_baseline, found) for topic in topics if (found := pooled(topic.entries)) is not None
    )
    if not rows:
        return None
    dots = [
        Dot(title, Estimate(one.share, 1, one.low, one.high), is_baseline=baseline)
        for title, baseline, one in rows
        if one.share is not None
    ]
    ends = [end for dot in dots for end in (dot.value.mean, dot.value.low, dot.value.high) if end is not None]
    name = "Share of made-up rows that lie nearer to a training row than to a held-out one"
    x = axis([min(max(end, 0.0), 1.0) for end in (*ends, 0.45, 0.55)], ends="round", percent=True)
    drawing = dot_chart(name, dots, (Reference("chance 50%", 0.5, "guess"),), x) if dots else None
    return MemorySection(rows, drawing)
