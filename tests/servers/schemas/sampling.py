"""Values for any schema. A draft of a value is only a guess: `samples` returns those that the checker finds valid."""

import base64
import math
import re
from functools import cache
from typing import Any

from hypothesis import Phase, find, settings
from hypothesis import strategies as st

from servers.json.text import dumps
from servers.schemas.checker import Checker
from servers.schemas.references import References, Unresolvable

MAX_DEPTH = 24
#: minimal, then everything, with the first, second and third choice wherever there is one
VARIANTS = 4
_TEXTS = ["a", 'a b\n<c> & "d"', "\u202eגד {{x}} 🙂", "é" * 3]
_FORMATS = {
    "date-time": "2026-11-26T10:20:30Z",
    "date": "2026-11-26",
    "time": "10:20:30Z",
    "duration": "PT1H",
    "email": "ada@example.com",
    "idn-email": "ada@example.com",
    "hostname": "example.com",
    "ipv4": "192.0.2.7",
    "ipv6": "2001:db8::7",
    "uri": "https://example.com/a?b=c&d",
    "iri": "https://example.com/a?b=c&d",
    "uri-reference": "/a?b=c&d",
    "uuid": "8c1f2f5e-9a43-4c55-8a3e-0d6d1f7c2b11",
    "regex": "^a+$",
    "json-pointer": "/a/b",
    "byte": base64.b64encode(b"any").decode(),
}


def samples(checker: Checker, schema: Any) -> list[Any]:
    """Distinct valid values, the smallest first."""
    drafts = (_Sampler(schema, variant).value(schema) for variant in range(VARIANTS))
    distinct = {dumps(draft): draft for draft in drafts}
    return [draft for draft in distinct.values() if checker.check(schema, draft).state == "valid"]


@cache
def matching_text(pattern: str, least: int) -> str:
    """Ready-made texts first: a search for one costs a second."""
    texts = ("a", "1", "AB-1", "2026-11-26", "ABC123", "192.0.2.7", "2026-11-26T10:20:30Z", "A1:B2", "a" * least)
    for text in (*texts, "A", "=", "192.0.2.0/24", "SlicerStyleLight1"):
        if len(text) >= least and re.search(pattern, text):
            return text
    quick = settings(phases=[Phase.generate], database=None, derandomize=True)
    return find(st.from_regex(pattern), lambda text: len(text) >= least, settings=quick)


class _Sampler:
    def __init__(self, root: Any, variant: int) -> None:
        self._references = References(root, lambda: None)
        self._full, self._turn = variant > 0, max(0, variant - 1)

    def _pick(self, choices: list[Any]) -> Any:
        return choices[self._turn % len(choices)]

    def value(self, schema: Any, depth: int = 0) -> Any:
        flat = self._flat(schema, depth)
        if "const" in flat:
            return flat["const"]
        if flat.get("enum"):
            return self._pick(flat["enum"])
        types = flat.get("type", _implied(flat))
        kind = self._pick(types) if isinstance(types, list) else types
        if depth > MAX_DEPTH:
            return None
        if kind == "object":
            return self._object(flat, depth)
        if kind == "array":
            return self._array(flat, depth)
        if kind == "string":
            return self._text(flat)
        if kind in {"number", "integer"}:
            return _number(flat, kind)
        return {"boolean": self._full, "null": None}.get(kind, {"any": [1, "x"]} if self._full else "x")

    def _flat(self, schema: Any, depth: int) -> dict[str, Any]:
        """With references followed, allOf merged and one branch chosen; wrong where schemas are subtle."""
        if not isinstance(schema, dict):
            return {}
        flat = {key: part for key, part in schema.items() if key not in {"$ref", "allOf", "anyOf", "oneOf"}}
        parts = list(schema.get("allOf", ()))
        if "$ref" in schema and depth <= MAX_DEPTH:
            try:
                parts.append(self._references.target(schema["$ref"], schema))
            except Unresolvable:
                return {}
        parts += [self._pick(schema[key]) for key in ("anyOf", "oneOf") if schema.get(key)]
        for part in parts:
            more = self._flat(part, depth + 1)
            joined = {
                "properties": {**more.get("properties", {}), **flat.get("properties", {})},
                "required": [*more.get("required", []), *flat.get("required", [])],
            }
            flat = {**more, **flat, **{key: both for key, both in joined.items() if both}}
        return flat

    def _object(self, flat: dict[str, Any], depth: int) -> dict[str, Any]:
        known, required = flat.get("properties", {}), flat.get("required", [])
        wanted = self._full and depth < 5
        names = [key for key in known if known[key] is not False and (key in required or wanted)]
        made = {key: self.value(known.get(key, True), depth + 1) for key in [*names, *required]}
        extra = flat.get("additionalProperties")
        missing = max(int(wanted and isinstance(extra, dict)), flat.get("minProperties", 0) - len(made))
        return made | {f"key {number}": self.value(extra, depth + 1) for number in range(missing)}

    def _array(self, flat: dict[str, Any], depth: int) -> list[Any]:
        leading = flat.get("prefixItems", [])
        leading, rest = (flat["items"], True) if isinstance(flat.get("items"), list) else (leading, flat.get("items"))
        made = [self.value(item, depth + 1) for item in leading]
        more = max(flat.get("minItems", 0), int(self._full and depth < 5)) - len(made)
        return made + [self.value(rest, depth + 1) for _ in range(more if rest is not False else 0)]

    def _text(self, flat: dict[str, Any]) -> str:
        if isinstance(flat.get("pattern"), str):
            return matching_text(flat["pattern"], flat.get("minLength", 0))
        text = _FORMATS.get(flat.get("format", ""), _TEXTS[self._turn] if self._full else "a")
        text = text * math.ceil(flat.get("minLength", 0) / len(text) or 1)
        return text[: flat.get("maxLength", len(text))]


def _implied(flat: dict[str, Any]) -> str:
    return "object" if {"properties", "required", "additionalProperties"} & flat.keys() else "any"


def _number(flat: dict[str, Any], kind: str) -> Any:
    low = flat.get("minimum", flat.get("exclusiveMinimum"))
    high = flat.get("maximum", flat.get("exclusiveMaximum"))
    step = flat.get("multipleOf", 1)
    if low is not None and not isinstance(low, bool):
        first = math.ceil(low / step) * step
        return first + step if first == flat.get("exclusiveMinimum") else first
    if high is not None and not isinstance(high, bool):
        return math.floor(high / step) * step - step
    return step if kind == "integer" or "multipleOf" in flat else 2.5
