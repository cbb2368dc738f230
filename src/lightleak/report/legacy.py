"""Pages of the kinds that are not yet drawn by `report.page`; each conversion removes its lines, the last this file."""

from collections.abc import Mapping, Sequence
from functools import cache, partial
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from lightleak.report import wording
from lightleak.report.charts import legend_mark
from lightleak.report.read import Run
from lightleak.report.released.page import FILTERS as RELEASED_FILTERS
from lightleak.report.released.page import TEMPLATE as RELEASED_TEMPLATE
from lightleak.report.released.page import released_context
from lightleak.report.released.run_folder import load_released_run
from lightleak.report.sections.run_facts import flatten
from lightleak.report.vertical.page import FILTERS, TEMPLATE, vertical_context
from lightleak.report.vertical.run_folder import load_vertical_run

_OLD: Mapping[str, tuple[Any, Any, str]] = {
    "vertical": (load_vertical_run, vertical_context, TEMPLATE),
    "released-model": (load_released_run, released_context, RELEASED_TEMPLATE),
}


def legacy_html(runs: Sequence[Run], redact: bool) -> str:
    """The page of runs of a kind that is not yet converted."""
    load = _OLD[runs[0].kind][0]
    return render_old(runs[0].kind, [load(run.path, run.name) for run in runs], redact)


def render_old(kind: str, runs: Sequence[Any], redact: bool = False) -> str:
    """The page of runs as the old reader of that kind gives them."""
    _, context, template = _OLD[kind]
    return _templates().get_template(template).render(context(runs, redact))


render_vertical = partial(render_old, "vertical")
render_released = partial(render_old, "released-model")


@cache
def _templates() -> Environment:
    environment = Environment(
        loader=PackageLoader("lightleak.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "percent": wording.percent,
        "points": wording.points,
        "interval": wording.interval,
        "duration": wording.duration,
        "key": legend_mark,
        "flatten": flatten,
        **FILTERS,
        **RELEASED_FILTERS,
    }
    return environment
