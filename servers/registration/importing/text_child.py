"""The process that reads a configuration: text on stdin, one JSON line on stdout. Run as a file.

Arguments: this project's folder, the folders of the parsers' libraries (colon-separated), JSON with CPU `seconds`,
`memory_mib` and the bounds of text.py. The kernel enforces both bounds. The process has an empty environment.
Out: {"parts": [{"value": …, "beside": …}]} or {"words": …, "code": …, "limit": …}. An object is {"o": [[name, value], …]},
with {"d": […]} for duplicate names; {} stands for a value that JSON cannot represent.
"""

import json
import resource
import signal
import sys
from typing import Any

sys.path += [sys.argv[1], *sys.argv[2].split(":")]
from servers.registration.importing import text  # found by the line above


def main() -> None:
    asked = json.loads(sys.argv[3])
    memory = asked["memory_mib"] << 20
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    given = sys.stdin.buffer.read().decode("utf-8", "surrogatepass")
    signal.setitimer(signal.ITIMER_PROF, asked["seconds"])  # the signal kills the process
    sys.stdout.write(json.dumps(_answer(given, text.Bounds(**asked["bounds"]))))


def _answer(given: str, bounds: text.Bounds) -> dict[str, Any]:
    try:
        found = list(text.parts(given, bounds))
        return {"parts": [{"value": _plain(part.value), "beside": part.beside} for part in found]}
    except text.Unreadable as problem:
        return {"words": problem.words, "code": problem.code, "limit": problem.limit}
    except MemoryError:
        return {
            "words": "Reading this configuration took too much memory.",
            "code": "memory",
            "limit": "import_memory_mib",
        }


def _plain(value: Any) -> Any:
    """Recursive: the depth is already bounded."""
    if isinstance(value, dict):
        pairs = {"o": [[name, _plain(inner)] for name, inner in value.items()]}
        doubles = getattr(value, "doubles", ())
        return {**pairs, "d": doubles} if doubles else pairs
    if isinstance(value, list):
        return [_plain(inner) for inner in value]
    return value if isinstance(value, str | int | float | bool) or value is None else {}


if __name__ == "__main__":
    main()
