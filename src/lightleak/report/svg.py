"""The few SVG shapes that the charts are made of.

Positions along x are percentages of the plot and positions along y are pixels. Without a ``viewBox`` a chart then takes
the width of the page while its text and marks keep their size, on a phone as on paper. Colours live in the style
sheet; a shape only carries its class.
"""

from collections.abc import Iterable

from markupsafe import Markup, escape

MARKS = {
    "circle": "M-5 0a5 5 0 1 0 10 0a5 5 0 1 0 -10 0Z",
    "square": "M-4.5 -4.5H4.5V4.5H-4.5Z",
    "triangle": "M0 -6L5.5 4.5H-5.5Z",
    "diamond": "M0 -6L6 0L0 6L-6 0Z",
    "wedge": "M0 6L5.5 -4.5H-5.5Z",
    "cross": "M-1.7 -5.5H1.7V-1.7H5.5V1.7H1.7V5.5H-1.7V1.7H-5.5V-1.7H-1.7Z",
    "bar": "M-1.5 -8H1.5V8H-1.5Z",
}
"""Outlines around the origin, all of about the same area, so that series differ without colour."""


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


def across(fraction: float) -> str:
    """A position along x, held inside the plot.

    >>> across(0.25), across(1.2)
    ('25.00%', '100.00%')
    """
    return f"{100 * min(max(fraction, 0.0), 1.0):.2f}%"


def line(x1: float, y1: float, x2: float, y2: float, class_: str) -> Markup:
    """A straight line between two points (x as fractions, y in pixels)."""
    return element("line", x1=across(x1), y1=round(y1, 1), x2=across(x2), y2=round(y2, 1), class_=class_)


def text(label: str, x: float, y: float, class_: str = "tick", anchor: str = "middle", dx: float = 0) -> Markup:
    """A line of text; ``dx`` moves it by pixels."""
    return element("text", label, x=across(x), y=round(y, 1), dx=dx, class_=class_, text_anchor=anchor)


def mark(shape: str, x: float, y: float, class_: str, hover: str = "", children: Iterable[Markup] = ()) -> Markup:
    """A mark with an optional text on hover; ``children`` are drawn beneath it, in pixels around its middle."""
    title = [element("title", hover)] if hover else []
    outline = element("path", d=MARKS[shape], class_="mark")
    return element("svg", *title, *children, outline, x=across(x), y=round(y, 1), class_=class_)


def chart(name: str, height: float, *shapes: str) -> Markup:
    """The whole drawing; ``name`` is what a screen reader says."""
    return element("svg", *shapes, class_="chart", role="img", aria_label=name, width="100%", height=round(height))
