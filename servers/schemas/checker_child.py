"""The checker's child: reads a JSON line, answers with another. Run as a file with an empty environment.

It imports nothing from the product. Lines in: {"schema": text, "value": any}. Lines out: {"ready": true}
once at start, {"started": true} when a request has been read (the budget starts then), then
{"violations": [...]} (empty if valid) or {"unable": sentence}.
"""

import json
import resource
import sys
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

sys.path.append(sys.argv[1])  # where the parent found the library; -I leaves out everything but the standard library
import jsonschema_rs

MEMORY_BYTES = 1 << 30
MAX_VIOLATIONS = 50
MAX_CONTEXT = 3
_VALIDATORS = {
    "//json-schema.org/draft-04/schema": jsonschema_rs.Draft4Validator,
    "//json-schema.org/draft-06/schema": jsonschema_rs.Draft6Validator,
    "//json-schema.org/draft-07/schema": jsonschema_rs.Draft7Validator,
    "//json-schema.org/draft/2019-09/schema": jsonschema_rs.Draft201909Validator,
    "//json-schema.org/draft/2020-12/schema": jsonschema_rs.Draft202012Validator,
    "//json-schema.org/schema": jsonschema_rs.Draft202012Validator,
}


class Refused(Exception):
    pass


def refuse(uri: str) -> Any:
    raise Refused(uri)


def main() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    say({"ready": True})
    for line in sys.stdin.buffer:
        request = json.loads(line)
        say({"started": True})
        say(answer(request["schema"], request["value"]))


def say(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def answer(schema_text: str, value: Any) -> dict[str, Any]:
    try:
        validator = compiled(schema_text)
        return {"violations": violations(validator.iter_errors(value), 0)}
    except Refused as problem:
        return {"unable": str(problem)}
    except (ValueError, jsonschema_rs.ReferencingError) as problem:
        return {"unable": reason(problem)}
    except MemoryError:
        return {"unable": "The check needs too much memory."}


@lru_cache(maxsize=32)
def compiled(schema_text: str) -> Any:
    schema = json.loads(schema_text)
    return dialect(schema)(schema, retriever=refuse, mask="value")


def dialect(schema: Any) -> Any:
    declared = schema.get("$schema") if isinstance(schema, dict) else None
    if declared is None:
        return jsonschema_rs.Draft202012Validator
    # Servers use http:// or https://, with or without the empty fragment.
    uri = str(declared).rstrip("#")
    found = _VALIDATORS.get(uri.removeprefix("https:").removeprefix("http:"))
    if found is None:
        raise Refused(f"The schema is written in a dialect that is not supported: {uri[:200]}.")
    return found


def reason(problem: Exception) -> str:
    first = str(problem).partition("\n")[0]
    if "surrogates not allowed" in first:
        return "The schema or the value contains an unpaired surrogate, which cannot be checked."
    if "retriev" in first or "not present in a registry" in first:
        return "The schema refers to another document, which is never fetched."
    return f"The schema is not valid: {first[:300]}"


def violations(errors: Any, level: int) -> list[dict[str, Any]]:
    found = []
    for error in errors:
        found.append(described(error, level))
        if len(found) >= MAX_VIOLATIONS:
            break
    return found


def described(error: Any, level: int) -> dict[str, Any]:
    words = error.kind.as_dict()
    context = words.pop("context", None) if level < MAX_CONTEXT else None
    return {
        "path": error.instance_path,
        "keyword": error.kind.name,
        "where": str(error.schema_path[-1]) if error.schema_path else "",
        "words": dict(plain(words)),
        "message": error.message[:300],
        "context": [violations(branch, level + 1) for branch in (context or [])[:20]],
    }


def plain(words: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Omit what JSON cannot represent and what would repeat a large part of the schema."""
    for key, value in words.items():
        if isinstance(value, str | int | float | bool) or value is None:
            yield key, value
        elif isinstance(value, list):
            yield key, value[:50]


if __name__ == "__main__":
    main()
