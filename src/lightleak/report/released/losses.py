"""The training curves of the generator (thesis Fig. A.3-A.12)."""

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from lightleak.report.plot.axis import axis
from lightleak.report.released.charts import curve_chart
from lightleak.report.released.entries import LOSSES, Entry
from lightleak.report.released.topics import Topic

LOGARITHMIC = ("discriminator", "conditioning")
"""Drawn on a logarithmic scale in the thesis."""

TITLES = {
    "generator": ("Generator", "how well it passes for real; no absolute meaning"),
    "discriminator": ("Discriminator", "how well made-up rows are told from public ones"),
    "inversion": ("Inversion", "how far the model is from taking the rows for their class"),
    "conditioning": ("Conditioning", "how far the rows are from the class asked for"),
}


@dataclass(frozen=True)
class LossPanel:
    """One curve."""

    title: str
    note: str
    drawing: Markup


@dataclass(frozen=True)
class LossSection:
    """The curves of one training; ``seed`` is its seed, None where it is the only one and not stated."""

    title: str
    seed: str
    panels: tuple[LossPanel, ...]


def loss_sections(topics: Sequence[Topic]) -> tuple[LossSection, ...]:
    """One section for each training configuration, of its first seed; searches share their training."""
    found: dict[str, LossSection] = {}
    for topic in topics:
        if topic.fit_title in found:
            continue
        for entry in topic.entries:
            panels = tuple(panel for name in LOSSES if (panel := _panel(entry, name, topic.fit_title)) is not None)
            if panels:
                found[topic.fit_title] = LossSection(topic.fit_title, str(entry.seed), panels)
                break
    return tuple(found.values())


def _panel(entry: Entry, name: str, title: str) -> LossPanel | None:
    values = entry.losses.get(name, ())
    steps = entry.losses.get("iteration") or tuple(float(step) for step in range(len(values)))
    known = [
        (step, value) for step, value in zip(steps, values, strict=False) if step is not None and value is not None
    ]
    if len(known) < 2:
        return None
    where, what = [step for step, _ in known], [value for _, value in known]
    scale = axis(what, "log" if name in LOGARITHMIC else "linear", "round")
    heading, note = TITLES[name]
    if name in LOGARITHMIC:
        note += "; logarithmic scale" + (", linear around 0" if scale.scale == "symlog" else "")
    drawing = curve_chart(f"{heading} loss of {title} by iteration", where, what, scale)
    return LossPanel(f"{heading} loss", note, drawing)
