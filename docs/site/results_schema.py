"""The JSON Schema of ``results.json``, read off the dataclasses of its rows."""

import re
import types
from collections.abc import Mapping
from dataclasses import is_dataclass
from inspect import getdoc
from typing import Any, Literal, Union, get_args, get_origin

from lightleak.core.people import KEY as PEOPLE
from lightleak.core.people import People
from lightleak.core.records import record_fields
from lightleak.core.results import SCHEMA_VERSION, Row, UpdateRow, ValueRow, row_kinds

PAGE = "results.schema.json"

TYPES = {float: "number", int: "integer", str: "string", bool: "boolean"}

ENTRY = re.compile(r"^ {4}(\w+): (.*(?:\n {8}\S.*)*)", re.MULTILINE)
"""One entry of the section ``Attributes`` of a class's docstring, with its further lines."""


def results_schema() -> dict[str, Any]:
    """Return the schema of ``results.json``."""
    kinds = {kind.KIND: kind for kind in row_kinds().values()}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "results.json of LightLeak",
        "type": "object",
        "required": ["schema_version", "rows"],
        "properties": {
            "schema_version": {"const": SCHEMA_VERSION},
            "rows": {"type": "array", "items": {"anyOf": [{"$ref": f"#/$defs/{name}"} for name in kinds]}},
            "summary": {"type": "array", "description": "Mean, deviation and 95% interval of every score by group."},
            "left_out": {"type": "object", "description": "Why attacks that were chosen do not apply, by name."},
            "study": {"type": "object", "description": "What a tuning study searched."},
            PEOPLE: {
                "type": "array",
                "description": "What each attack revealed of every person, where whole epochs or rounds were captured.",
                "items": schema_of(People),
            },
        },
        "$defs": {name: _row_schema(kind) for name, kind in kinds.items()},
    }


def _row_schema(kind: type[Row]) -> dict[str, Any]:
    found = schema_of(kind)
    names = {"enum": [kind.KIND, *kind.ALIASES]}
    scores = {name: {"type": "number"} | limits(*ends) for name, ends in kind.METRICS.items()}
    properties = {"kind": names} | found["properties"] | scores
    required = [*found["required"], *([] if kind in (UpdateRow, ValueRow) else ["kind"])]
    return found | {"properties": {key: _or_null(one) for key, one in properties.items()}, "required": required}


def _or_null(entry: dict[str, Any]) -> dict[str, Any]:
    words = {"description": entry["description"]} if "description" in entry else {}
    known = {name: value for name, value in entry.items() if name != "description"}
    return {"anyOf": [known, {"type": "null"}]} | words if known else words


def schema_of(kind: type) -> dict[str, Any]:
    """Return the schema of a record; descriptions are those of the class's docstring."""
    described: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        described |= {name: " ".join(words.split()) for name, words in ENTRY.findall(getdoc(base) or "")}
    properties = {}
    for one in record_fields(kind):
        entry = _schema(one.annotation) | limits(one.low, one.high)
        properties[one.key] = entry | ({"description": described[one.name]} if one.name in described else {})
    found: dict[str, Any] = {"type": "object", "properties": properties}
    required = [one.key for one in record_fields(kind) if one.is_required]
    return found | ({"required": required} if required else {})


def limits(low: float | None, high: float | None) -> dict[str, float]:
    """Return the range of a number as a JSON Schema states it."""
    found = {"minimum": low, "maximum": high}
    return {name: limit for name, limit in found.items() if limit is not None}


def _schema(annotation: Any) -> dict[str, Any]:
    origin, of = get_origin(annotation), get_args(annotation)
    if origin in (Union, types.UnionType):
        inner = [_schema(one) for one in of if one is not type(None)]
        return inner[0] if len(inner) == 1 else {"anyOf": inner}
    if origin is Literal:
        return {"enum": list(of)}
    if origin is tuple:
        if of[1:] == (...,):
            return {"type": "array", "items": _schema(of[0])}
        return {"type": "array", "prefixItems": [_schema(one) for one in of]}
    if origin is not None and issubclass(origin, Mapping):
        return {"type": "object"} | ({} if of[1] is Any else {"additionalProperties": _schema(of[1])})
    if is_dataclass(annotation):
        assert isinstance(annotation, type)
        return schema_of(annotation)
    return {"type": TYPES[annotation]} if annotation in TYPES else {}
