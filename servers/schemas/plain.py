"""Most tool schemas are a few typed properties: values that satisfy such a schema are recognized in this process.

A check in the child costs two process and thread switches, a millisecond of every call. It is needed if a check may
not terminate: regular expressions, references, `uniqueItems` and whatever walks a value again. Without these, the work
is at most the parts of the schema times the parts of the value, and both are counted first.
"""

import json
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import Any, Final

import jsonschema_rs

from servers.json.text import Json, children
from servers.schemas.bounds import too_large
from servers.schemas.shapes import Schema

MAX_TEXT: Final = 64 * 1024
#: parts of the schema times parts of the value: about a millisecond
MAX_STEPS: Final = 20_000
#: this many characters of text cost as much as one part
_TEXT_PART: Final = 64
_WORDS = {"$schema", "$comment", "title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly"}
_BOUNDS = {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "minLength", "maxLength"}
_BOUNDS |= {"minItems", "maxItems", "minProperties", "maxProperties"}
_WITHOUT_PARTS = _WORDS | _BOUNDS | {"type", "const"}
_ONE, _MANY, _LISTS = {"items", "additionalProperties", "not"}, {"anyOf", "allOf", "oneOf"}, {"enum", "required"}
_DIALECTS = {
    "": jsonschema_rs.Draft202012Validator,
    "https://json-schema.org/draft/2020-12/schema": jsonschema_rs.Draft202012Validator,
    "http://json-schema.org/draft-07/schema#": jsonschema_rs.Draft7Validator,
}


class _NotPlain(Exception):
    pass


def surely_valid(schema: Schema, value: Json) -> bool:
    """False means unknown: the child must be asked, which also describes what is wrong."""
    try:
        if _parts(schema, _inner) * _parts(value, children) > MAX_STEPS or too_large(schema, value):
            return False
        text = json.dumps(schema)
        validator = _validator(text) if len(text) <= MAX_TEXT else None
        return validator is not None and bool(validator.is_valid(value))
    except (_NotPlain, ValueError, TypeError, RecursionError):  # also if a library does not accept it as JSON
        return False


@lru_cache(maxsize=256)
def _validator(text: str) -> Any:
    schema = json.loads(text)
    dialect = _DIALECTS.get(str(schema.get("$schema", "")) if isinstance(schema, dict) else "")
    return None if dialect is None else dialect(schema)


def _parts(root: Any, inner: Callable[[Any], Iterable[Any]]) -> int:
    """The number of parts, counted without recursion and only up to the limit."""
    found, waiting = 0, [root]
    while waiting:
        part = waiting.pop()
        waiting += inner(part)
        found += 1 + (len(part) // _TEXT_PART if isinstance(part, str) else 0)
        if found > MAX_STEPS:
            raise _NotPlain
    return found


def _inner(schema: Schema) -> Iterator[Any]:
    """The direct parts of a schema, and one for each entry of its lists. Raises _NotPlain for every other keyword."""
    if schema is True or schema is False:
        return
    if not isinstance(schema, dict):
        raise _NotPlain
    for key, part in schema.items():
        if key in _WITHOUT_PARTS or key.startswith("x-"):
            continue
        if key == "properties" and isinstance(part, dict):
            yield from part.values()
        elif key in _ONE:
            yield part
        elif key in _MANY and isinstance(part, list):
            yield from part
        elif key in _LISTS and isinstance(part, list):
            yield from (True,) * len(part)
        else:
            raise _NotPlain
