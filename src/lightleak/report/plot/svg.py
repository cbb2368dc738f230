"""A chart as SVG.

Positions along x are percentages of the plot and positions along y are pixels. Without a ``viewBox`` a chart takes the
width of the page while its text and marks keep their size, on a phone and on paper. Colors live in the style sheet; a
shape only carries its class.
"""

import math
from collections.abc import Iterable, Sequence

from markupsafe import Markup, escape

from lightleak.report.plot.axis import Axis
from lightleak.report.plot.chart import Ends, Line, Mark, Plot, Points, Row, Style
from lightleak.report.plot.labels import place_labels

MARKS = {
    "circle": "M-5 0a5 5 0 1 0 10 0a5 5 0 1 0 -10 0Z",
    "square": "M-4.5 -4.5H4.5V4.5H-4.5Z",
    "triangle": "M0 -6L5.5 4.5H-5.5Z",
    "diamond": "M0 -6L6 0L0 6L-6 0Z",
    "wedge": "M0 6L5.5 -4.5H-5.5Z",
    "cross": "M-1.7 -5.5H1.7V-1.7H5.5V1.7H1.7V5.5H-1.7V1.7H-5.5V-1.7H-1.7Z",
    "bar": "M-1.5 -8H1.5V8H-1.5Z",
    "dot": "M-3.5 0a3.5 3.5 0 1 0 7 0a3.5 3.5 0 1 0 -7 0Z",
}
"""Outlines around the origin, all but the dot of about the same area, so that series differ without color."""

LINES = ("having", "lacking")
"""Classes of lines that a legend names."""

ROW, BESIDE_ROW, HEADING = 46, 27, 30
"""Pixels of a row with its label above, of one with its label at the left, and of a line of text above a row."""

LONGEST_LABEL = 20
"""Characters that fit at the left of a plot on a phone; the whole label is shown on hover."""

RULE_LABEL = 17
"""Pixels of height for the label of one vertical rule."""

EDGE = 0.16
"""The label of a rule that is nearer to an end of the plot is aligned with that end."""

RING, FOOT, BAR = 9, 30, 18
"""Radius of a ring, and heights of the strip for marks without a value and of a bar, in pixels."""


def draw(plot: Plot) -> Markup:
    """The chart as one SVG element; all text is escaped, and values that are not finite are not drawn."""
    frame = _Frame(plot)
    shapes = [*frame.grid(), *frame.rules(), *frame.rows()]
    labeled: list[Mark] = []
    for layer in plot.layers:
        if isinstance(layer, Line):
            shapes.append(frame.line(layer))
            continue
        known = [one for one in layer.marks if frame.has(one)]
        labeled += [] if layer.as_bars else known
        parts = [part for one in known for part in (frame.bar(one) if layer.as_bars else frame.point(layer, one))]
        shapes += [element("g", *parts, transform=f"translate({layer.dx:g} 0)")] if layer.dx else parts
    shapes += frame.labels(labeled)
    return element(
        "svg", *shapes, class_="chart", role="img", aria_label=plot.name, width="100%", height=round(frame.end)
    )


def legend_key(look: Style | str) -> Markup:
    """The mark of a series for a legend, or the line or ring of a class."""
    if isinstance(look, str):
        if look in LINES:
            return _key(22, element("path", d="M1 8H21", class_=look))
        return _key(22, element("circle", cx=11, cy=8, r=RING, class_=look))
    return _key(16, _mark(look.shape, "50.00%", 8, ""), look.css)


def element(tag: str, *children: str, **attributes: str | float) -> Markup:
    """One element; text and attribute values are escaped, `Markup` children are kept.

    A trailing underscore of an attribute's name is dropped and inner ones become hyphens.

    >>> element("text", "<b>", class_="tick", text_anchor="end")
    Markup('<text class="tick" text-anchor="end">&lt;b&gt;</text>')
    """
    written = Markup("").join(
        Markup(' {}="{}"').format(name.rstrip("_").replace("_", "-"), value) for name, value in attributes.items()
    )
    content = Markup("").join(escape(child) for child in children)
    return Markup("<{0}{1}>{2}</{0}>").format(Markup(tag), written, content)


class _Frame:
    """Where things stand: the plot runs from ``top`` down to ``base``, its strip for missing values to ``bottom``."""

    def __init__(self, plot: Plot) -> None:
        self.plot = plot
        self.row_ends: list[float] = []
        n_labels = sum(bool(rule.label) and rule.along == "x" for rule in plot.rules)
        self.top = RULE_LABEL * n_labels + 10.0
        self.listed: Sequence[Row] = () if plot.y is None or isinstance(plot.y, Axis) else plot.y
        end = self.top
        for row in self.listed:
            end += (BESIDE_ROW if plot.labels_beside else ROW) + (HEADING if row.heading else 0)
            self.row_ends.append(end)
        self.base = end
        if isinstance(plot.y, Axis):
            self.base += plot.height
        elif plot.y is not None:
            self.base += 4
        marks = [one for layer in plot.layers if not isinstance(layer, Line) for one in layer.marks]
        self.bottom = self.base + (FOOT if plot.foot and any(one.y is None for one in marks) else 0)
        self.end = self.bottom + (50 if plot.x.title else 26)

    def has(self, mark: Mark) -> bool:
        """Whether a mark can be drawn."""
        return math.isfinite(mark.x) and (self.bottom > self.base if mark.y is None else math.isfinite(mark.y))

    def x(self, value: float) -> float:
        return self.plot.x.at(value)

    def y(self, value: float | None) -> float:
        """Pixels from the top of a value, of a row, or of the foot."""
        if value is None or self.plot.y is None:
            return self.base + FOOT / 2 + 3
        if isinstance(self.plot.y, Axis):
            return self.base - self.plot.height * self.plot.y.at(value)
        return self.row_ends[int(value)] - (9 if self.plot.labels_beside else 11)

    def grid(self) -> list[Markup]:
        """Grid lines, the base line, tick labels and titles."""
        plot = self.plot
        shapes = []
        if "x" in plot.grid:
            places = (self.x(value) for value, _ in plot.x.ticks)
            shapes += [_line(at, self.top, at, self.base, "grid") for at in places]
        shapes += self._x_labels()
        if isinstance(plot.y, Axis) and "y" in plot.grid:
            for value, label in plot.y.ticks:
                y = self.y(value)
                shapes += [_line(0, y, 1, y, "grid"), _text(label, 0, y + 4, anchor="end", dx=-8)]
        if isinstance(plot.y, Axis) or plot.y is None:
            shapes.append(_line(0, self.base, 1, self.base, "axis-line"))
        if self.bottom > self.base:
            shapes.append(_text(plot.foot, 0, self.y(None) + 4, anchor="end", dx=-8))
        return [*shapes, _text(plot.x.title, 0.5, self.bottom + 41, "axis")] if plot.x.title else shapes

    def _x_labels(self) -> list[Markup]:
        """Tick labels; where they lack room, categories are shortened and every second number is left out."""
        ticks, y, longest = self.plot.x.ticks, self.bottom + 18, math.inf
        if self.plot.room and sum(len(label) + 2 for _, label in ticks) > self.plot.room:
            if self.plot.x.scale == "category":
                longest = max(3, self.plot.room // len(ticks))
            else:
                ticks = ticks[::2]
        shapes = []
        for index, (value, label) in enumerate(ticks):
            # Next to labels of rows, a phone has room for every second number only.
            css = "tick roomy" if self.plot.labels_beside and index % 2 else "tick"
            hover = label if len(label) > longest else ""
            shapes.append(_text(shorten(label, longest), self.x(value), y, css, hover=hover))
        return shapes

    def rules(self) -> list[Markup]:
        """Reference lines and bands; the labels of vertical ones stand above the plot, one below the other."""
        shapes, y = [], 0.0
        for rule in self.plot.rules:
            if not math.isfinite(rule.value):
                continue
            if rule.along == "y":
                here = self.y(rule.value)
                shapes += [_line(0, here, 1, here, rule.css), _text(rule.label, 1, here + 4, "tick", "start", 6)]
                continue
            y += RULE_LABEL if rule.label else 0
            at = self.x(rule.value)
            if (ends := _known(rule.ends)) is not None:
                low, high = map(self.x, ends)
                shapes.append(_rectangle(low, self.top, high, self.base - self.top, "band"))
            shapes.append(_line(at, y + 3, at, self.base, rule.css))
            anchor = "start" if at < EDGE else "end" if at > 1 - EDGE else "middle"
            shapes += [_text(rule.label, at, y - 2, "tick strong halo", anchor)] if rule.label else []
        return shapes

    def rows(self) -> list[Markup]:
        """Labels, notes and headings of rows."""
        shapes = []
        for index, row in enumerate(self.listed):
            y = self.y(index)
            if row.heading:
                shapes.append(_text(row.heading, 0, self.row_ends[index] - ROW - 8, "label strong halo", "start"))
            if self.plot.labels_beside:
                shown = shorten(row.label, LONGEST_LABEL)
                shapes.append(_text(shown, 0, y + 4, "label", "end", -12, row.label))
            else:
                shapes.append(_text(row.label, 0, y - 15, "label halo", "start"))
            shapes += [_text(row.note, 1, y + 4, "value", "start", 12)] if row.note else []
        return shapes

    def line(self, layer: Line) -> Markup:
        """Straight lines; a path is stretched to the width of the plot, but its stroke keeps its own width."""
        at = [(self.x(x), self.y(y)) for x, y in layer.points if math.isfinite(x) and math.isfinite(y)]
        if len(at) < 2:
            return Markup("")
        if len(at) == 2 and not layer.is_area:
            drawn = _line(*at[0], *at[1], layer.css)
        else:
            corners = "L".join(f"{round(100 * x, 2):g} {_pixels(y)}" for x, y in at)
            kept = {} if layer.is_area else {"fill": "none", "vector_effect": "non-scaling-stroke"}
            path = element("path", d=f"M{corners}{'Z' * layer.is_area}", class_=layer.css, **kept)
            height = round(self.end)
            box = {"viewBox": f"0 0 100 {height}", "preserveAspectRatio": "none"}
            drawn = element("svg", path, width="100%", height=height, **box)
        moved = {"transform": f"translate({layer.dx:g} 0)"} if layer.dx else {}
        return element("g", drawn, class_=layer.color, **moved) if layer.color or moved else drawn

    def point(self, layer: Points, mark: Mark) -> list[Markup]:
        """A mark over its intervals."""
        x, y = self.x(mark.x), self.y(mark.y)
        lines = []
        if (ends := _known(mark.x_ends)) is not None:
            low, high = map(self.x, ends)
            lines.append(_line(low, y, high, y, layer.interval))
        if (ends := _known(mark.y_ends)) is not None:
            low, high = map(self.y, ends)
            lines.append(_line(x, high, x, low, layer.interval))
        ring = [element("circle", r=RING, class_=mark.ring)] if mark.ring else []
        css = f"{layer.css} {mark.style.css}".strip()
        drawn = _mark(mark.style.shape, _across(x), y + mark.shift, css, mark.hover, ring)
        return [element("g", *lines, class_=mark.style.css), drawn] if lines else [drawn]

    def bar(self, mark: Mark) -> list[Markup]:
        """A bar with its interval between short strokes, and its label at the end."""
        end, y = self.x(mark.x), self.y(mark.y)
        shapes = [_rectangle(self.x(0), y - BAR / 2, end, BAR, f"bar {mark.style.css}")]
        if (ends := _known(mark.x_ends)) is not None:
            low, end = map(self.x, ends)
            shapes += [
                _line(low, y, end, y, "whisker"),
                *(_line(at, y - 5, at, y + 5, "whisker") for at in (low, end)),
            ]
        return [*shapes, _text(mark.label, end, y + 5, "value halo", "start", 8)]

    def labels(self, marks: Sequence[Mark]) -> list[Markup]:
        """Labels where they cover no mark and no other label."""
        ordered = sorted(marks, key=lambda one: one.rank)
        if not any(one.label for one in ordered):
            return []
        boxes = [(self.x(one.x), self.y(one.y) + one.shift, one.label) for one in ordered]
        shapes = []
        for mark, (x, y, label), place in zip(ordered, boxes, place_labels(boxes, self.base), strict=True):
            if place is not None:
                css = "tick halo" + " strong" * mark.is_strong + " roomy" * place.wide_only
                shapes.append(_text(label, x, y + place.dy, css, place.anchor, place.dx))
        return shapes


def shorten(label: str, longest: float) -> str:
    """A label of at most so many characters.

    >>> shorten("native-country", 8)
    'native-…'
    """
    return label if len(label) <= longest else label[: int(longest) - 1] + "…"


def _known(ends: Ends) -> tuple[float, float] | None:
    low, high = ends
    return None if low is None or high is None or math.isnan(low) or math.isnan(high) else (low, high)


def _across(fraction: float) -> str:
    """A position or width along x, clipped to the plot."""
    return f"{round(100 * min(max(fraction, 0.0), 1.0), 2):g}%"


def _pixels(y: float) -> str:
    return f"{round(y, 1):g}"


def _line(x1: float, y1: float, x2: float, y2: float, class_: str) -> Markup:
    return element("line", x1=_across(x1), y1=_pixels(y1), x2=_across(x2), y2=_pixels(y2), class_=class_)


def _rectangle(left: float, top: float, right: float, height: float, class_: str) -> Markup:
    sizes = {"width": _across(right - left), "height": _pixels(height)}
    return element("rect", x=_across(left), y=_pixels(top), **sizes, class_=class_)


def _text(
    label: str, x: float, y: float, class_: str = "tick", anchor: str = "middle", dx: float = 0, hover: str = ""
) -> Markup:
    title = [element("title", hover)] if hover else []
    kept = {name: value for name, value in (("dx", f"{dx:g}"), ("text_anchor", anchor)) if value not in ("0", "start")}
    return element("text", label, *title, x=_across(x), y=_pixels(y), class_=class_, **kept)


def _mark(shape: str, x: str, y: float, class_: str, hover: str = "", children: Iterable[Markup] = ()) -> Markup:
    title = [element("title", hover)] if hover else []
    outline = element("path", d=MARKS[shape], class_="mark")
    return element("svg", *title, *children, outline, x=x, y=_pixels(y), class_=class_)


def _key(width: int, drawn: Markup, css: str = "") -> Markup:
    return element("svg", drawn, class_=f"key {css}".strip(), width=width, height=16, aria_hidden="true")
