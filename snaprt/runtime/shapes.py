"""What an answer has to be, for whoever has to give it: a JSON Schema in short, and answers to begin with.

The short form is written as the answer itself would be, as in `"left" or "right"` and in
`{"approved": boolean, "cents"?: integer 0 to 10000}`. It leaves out what it can't say in a few words; an
answer that doesn't fit is refused with the reason. Pure functions; a schema is taken as it comes, since it
was made elsewhere, maybe by another version.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

_MOST = 300
"""Characters of a short form; beyond that nobody takes it in at a glance."""

_DEEPEST = 4
"""Levels of nesting that are told; a schema may hold itself."""

_CHOICES = 4
"""So many answers to choose from are each shown as a command."""


def short(schema: Mapping[str, Any]) -> str:
    """The schema in a few words."""
    text = _short(schema, schema, 0)
    return text if len(text) <= _MOST else text[: _MOST - 1] + "…"


def samples(schema: Mapping[str, Any]) -> list[str]:
    """Answers as JSON, to be typed as they are or changed: every choice where there are few, else one."""
    found = _resolved(schema, schema)
    choices = _choices(found)
    if choices is None and found.get("type") == "boolean":
        choices = [True, False]
    if not choices or len(choices) > _CHOICES:
        choices = [_sample(found, schema, 0)]
    return [json.dumps(each, ensure_ascii=False) for each in choices]


def _short(schema: Any, root: Mapping[str, Any], depth: int) -> str:
    schema = _resolved(schema, root)
    choices = _choices(schema)
    if choices is not None:
        return " or ".join(json.dumps(each, ensure_ascii=False) for each in choices)
    among = _among(schema)
    if among:
        return " or ".join(dict.fromkeys(_short(each, root, depth) for each in among))
    kind = schema.get("type")
    if isinstance(kind, list):
        return " or ".join(map(str, kind))
    if kind == "object":
        return _object(schema, root, depth)
    if kind == "array":
        items = schema.get("items")
        inner = _short(items, root, depth + 1) if items and depth < _DEEPEST else ""
        return f"[{inner}, …]" if inner else "array"
    if not isinstance(kind, str):
        return "anything"
    return " ".join(filter(None, (kind, _limits(schema))))


def _object(schema: Mapping[str, Any], root: Mapping[str, Any], depth: int) -> str:
    inner = schema.get("properties")
    if not isinstance(inner, Mapping) or not inner or depth >= _DEEPEST:
        return "object"
    needed = schema.get("required") or ()
    parts = [
        f"{json.dumps(name, ensure_ascii=False)}{'' if name in needed else '?'}: "
        f"{_short(each, root, depth + 1)}"
        for name, each in inner.items()
    ]
    return "{" + ", ".join(parts) + "}"


def _limits(schema: Mapping[str, Any]) -> str:
    """How large or long, and of which form."""
    over, under = schema.get("exclusiveMinimum"), schema.get("exclusiveMaximum")
    said = _range(schema.get("minimum"), schema.get("maximum"))
    said += [] if over is None else [f"more than {over}"]
    said += [] if under is None else [f"less than {under}"]
    said += [f"of {long} characters" for long in _range(schema.get("minLength"), schema.get("maxLength"))]
    said += [f"({schema['format']})"] if "format" in schema else []
    said += [f"like /{schema['pattern']}/"] if "pattern" in schema else []
    return " ".join(said)


def _range(least: Any, most: Any) -> list[str]:
    if least is not None and most is not None:
        return [f"{least} to {most}"]
    return [f"{least} or more"] if least is not None else [f"up to {most}"] if most is not None else []


def _sample(schema: Any, root: Mapping[str, Any], depth: int) -> Any:
    schema = _resolved(schema, root)
    if isinstance(schema.get("examples"), list) and schema["examples"]:
        return schema["examples"][0]
    choices = _choices(schema)
    if choices:
        return choices[0]
    among = _among(schema)
    if among:
        return _sample(among[0], root, depth)
    match schema.get("type"):
        case "boolean":
            return True
        case "integer" | "number":
            least = schema.get("minimum", schema.get("exclusiveMinimum", -1) + 1)
            return least if "maximum" not in schema else min(least, schema["maximum"])
        case "string":
            return "…"
        case "array":
            items = schema.get("items")
            return [_sample(items, root, depth + 1)] if items and depth < _DEEPEST else []
        case "object" if depth < _DEEPEST:
            inner = schema.get("properties") or {}
            return {name: _sample(inner.get(name), root, depth + 1) for name in schema.get("required") or ()}
        case "object":
            return {}
    return None


def _choices(schema: Mapping[str, Any]) -> list[Any] | None:
    if isinstance(schema.get("enum"), list):
        return list(schema["enum"])
    return [schema["const"]] if "const" in schema else None


def _among(schema: Mapping[str, Any]) -> list[Any]:
    for name in ("anyOf", "oneOf"):
        if isinstance(schema.get(name), list):
            return list(schema[name])
    return []


def _resolved(schema: Any, root: Mapping[str, Any]) -> Mapping[str, Any]:
    """What a `$ref` within the schema stands for; what can't be followed says nothing."""
    for _ in range(_DEEPEST):
        if not isinstance(schema, Mapping):
            return {}
        reference = schema.get("$ref")
        if not isinstance(reference, str):
            return schema
        schema = root if reference.startswith("#") else None
        for part in reference.split("/")[1:]:
            schema = schema.get(part) if isinstance(schema, Mapping) else None
    return {}
