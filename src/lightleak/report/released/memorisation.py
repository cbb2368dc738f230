"""Whether made-up rows lie nearer to rows the target was trained on than to private rows it never saw."""

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from lightleak.report.estimate import Estimate, estimate
from lightleak.report.released.charts import Dot, Reference, dot_chart
from lightleak.report.released.entries import Entry, Memorisation
from lightleak.report.released.topics import Topic
from lightleak.report.vertical.charts import Axis


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
    axis = Axis.around([*ends, 0.45, 0.55])
    drawing = dot_chart(name, dots, (Reference("chance 50%", 0.5, "guess"),), axis) if dots else None
    return MemorySection(rows, drawing)
