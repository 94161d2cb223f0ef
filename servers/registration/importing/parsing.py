"""Reads the text of a configuration within bounded time and memory: plain JSON here, everything else in a child process
that is killed at its limit."""

import json
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import json5
import structlog
import yaml
from django.core.exceptions import ValidationError

from servers import limits
from servers.registration.importing.text import (
    JsonPart,
    OtherValue,
    Pairs,
    Unreadable,
    is_json,
    no_constant,
    pairs_of,
    require_depth,
    too_deep,
)

log = structlog.get_logger(__name__)

_CHILD = Path(__file__).with_name("text_child.py")
_PROJECT = Path(__file__).resolve().parents[3]
#: folders that the child imports from; one folder has both libraries unless an operator installed them separately
_LIBRARIES = {str(Path(str(library.__file__)).resolve().parent.parent) for library in (json5, yaml)}
#: extra time for its start and its input, on top of its own limit
START_SECONDS = 10.0
#: most children that this process runs at once
CHILDREN = 4
_room = threading.BoundedSemaphore(CHILDREN)
_SHORTER = "Paste only the servers, as plain JSON if you can."


def parts(given: str) -> list[JsonPart]:
    """The values in the text that may be configurations. Raises ValidationError with messages for people, which quote
    nothing from the text except names."""
    try:
        found = _plain_json(given)
        return _by_child(given) if found is None else found
    except Unreadable as problem:
        words = f"{problem.words} {limits.stated(problem.limit)} {_SHORTER}" if problem.limit else problem.words
        raise ValidationError(words, code=problem.code) from None


def _plain_json(given: str) -> list[JsonPart] | None:
    """Returns None unless the whole text is strict JSON, whose parser takes linear time."""
    if not is_json(given):
        return None
    try:
        value = json.loads(given, object_pairs_hook=pairs_of, parse_constant=no_constant)
    except ValueError:
        return None
    except RecursionError:
        raise too_deep() from None
    require_depth([value], limits.number("import_depth"))
    return [JsonPart(value)]


def _by_child(given: str) -> list[JsonPart]:
    seconds = limits.value("import_seconds")
    if not _room.acquire(timeout=seconds):
        raise Unreadable("Several other configurations are being read. Try again in a moment.", "busy")
    try:
        done = subprocess.run(  # noqa: S603  # fixed command line, no shell; the text goes over a pipe
            _command(seconds),
            input=given.encode("utf-8", "surrogatepass"),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={"LC_ALL": "C.UTF-8"},
            cwd="/",
            timeout=seconds + START_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise _too_slow() from None
    except OSError as problem:
        log.warning("no process could be started to read a configuration", problem=str(problem))
        raise Unreadable("The configuration could not be read because no process could be started.", "start") from None
    finally:
        _room.release()
    if done.returncode in (-signal.SIGPROF, -signal.SIGXCPU):
        raise _too_slow()
    if done.returncode != 0:  # a parser crashed, or there was not even enough memory for the answer
        raise Unreadable("Reading this configuration took too much memory.", "memory", "import_memory_mib")
    answer = json.loads(done.stdout)
    if "parts" not in answer:
        raise Unreadable(answer["words"], answer["code"], answer["limit"])
    return [JsonPart(_restored(part["value"]), part["beside"]) for part in answer["parts"]]


def _command(seconds: float) -> list[str]:
    names = ("import_yaml_bytes", "import_json5_bytes", "import_depth")
    asked = {
        "seconds": seconds,
        "memory_mib": limits.number("import_memory_mib"),
        "bounds": {name: limits.number(name) for name in names},
    }
    return [sys.executable, "-I", "-B", str(_CHILD), str(_PROJECT), ":".join(sorted(_LIBRARIES)), json.dumps(asked)]


def _too_slow() -> Unreadable:
    return Unreadable("Reading this configuration took too long, so it was stopped.", "time", "import_seconds")


def _restored(value: Any) -> Any:
    if value == {}:
        return OtherValue()
    if isinstance(value, dict):
        found = Pairs((name, _restored(inner)) for name, inner in value["o"])
        found.doubles = tuple(value.get("d", ()))
        return found
    return [_restored(inner) for inner in value] if isinstance(value, list) else value
