"""The names of tools and prompts in a bundle, as pure functions: `<alias>__<name>`, within what every client accepts.

Model APIs accept letters, digits, `_` and `-`, at most 64 characters, and clients add their own prefix: Claude Code
shows `mcp__<server>__<name>`, Cursor refuses a server and name of more than 60 characters together.
"""

import base64
import hashlib
import re
from collections.abc import Iterable, Mapping
from typing import Final

#: characters for alias, separator and name together
BUDGET: Final = 48
SEPARATOR: Final = "__"
ALIAS: Final = re.compile(r"(?=.{2,12}\Z)[a-z][a-z0-9]*(?:-[a-z0-9]+)*\Z")
ALIAS_CHARS: Final = 12
_OTHER: Final = re.compile(r"[^A-Za-z0-9_-]")
_SUFFIX: Final = 6
_TWINS: Final = str.maketrans({"0": "o", "1": "l", "i": "l", "-": "_"})

#: server (its uid as text) and original name
Target = tuple[str, str]


def skeleton(name: str) -> str:
    """Equal for names that differ only in case, or in characters that look alike."""
    return name.lower().translate(_TWINS)


def mark(target: Target, chars: int = _SUFFIX) -> str:
    """The mark of one tool of one server: the same in every bundle and at any time."""
    digest = hashlib.sha256("\0".join(target).encode("utf-8", "surrogatepass")).digest()
    return base64.b32encode(digest).decode().lower()[:chars]


def plain(alias: str, original: str) -> str | None:
    """The name without a mark; None if it must be altered."""
    name = f"{alias}{SEPARATOR}{original}"
    return name if original and len(name) <= BUDGET and not _OTHER.search(original) else None


def marked(alias: str, target: Target, chars: int = _SUFFIX) -> str:
    name = _OTHER.sub("_", f"{alias}{SEPARATOR}{target[1]}")
    return f"{name[: BUDGET - chars - 1]}_{mark(target, chars)}"


def assigned(alias: str, target: Target, taken: Mapping[str, Target]) -> str:
    """The name for a target. `taken`: skeletons that have an owner, including retired ones. An altered name carries a
    mark, so it depends on no other name except its twin."""
    name = plain(alias, target[1])
    if name is not None and taken.get(skeleton(name), target) == target:
        return name
    for chars in range(_SUFFIX, BUDGET - len(alias) - len(SEPARATOR) - 1):
        name = marked(alias, target, chars)
        if taken.get(skeleton(name), target) == target:
            return name
    raise ValueError(f"no name is left for {target[1]!r}")  # needs a collision of SHA-256


def pattern_renamed(pattern: str, old: str, new: str) -> str | None:
    """The pattern of a rule that matches the same names and URIs after the alias changed; None if it does not contain
    the old alias."""
    for before, after in (
        (f"{old}{SEPARATOR}", f"{new}{SEPARATOR}"),
        (f"urn:mcp:{old}:", f"urn:mcp:{new}:"),
    ):
        if pattern.startswith(before):
            return after + pattern.removeprefix(before)
    renamed = pattern.replace(f"://{old}.mcp/", f"://{new}.mcp/", 1)
    return renamed if renamed != pattern else None


def remainders(pattern: str, head: str) -> set[str]:
    """What may follow `head` in a text that a pattern with `*` and `?` matches, as patterns. Empty if no such text
    matches."""
    places = _with_empty_stars(pattern, {0})
    for char in head:
        next_places = set()
        for at in places:
            if at < len(pattern) and pattern[at] in (char, "?"):
                next_places.add(at + 1)
            if at < len(pattern) and pattern[at] == "*":
                next_places.add(at)
        places = _with_empty_stars(pattern, next_places)
    # What follows a star is part of what begins with it.
    return {pattern[at:] for at in places if not (at and pattern[at - 1] == "*" and at - 1 in places)}


def _with_empty_stars(pattern: str, places: set[int]) -> set[int]:
    found = set(places)
    for at in places:
        following = at
        while following < len(pattern) and pattern[following] == "*":
            following += 1
            found.add(following)
    return found


def alias_from(slug: str, taken: Iterable[str]) -> str:
    """A proposal for a server's alias that cannot be confused with those taken."""
    skeletons = {skeleton(one) for one in taken}
    words = [word for word in re.split(r"[^a-z0-9]+", slug.lower()) if word]
    base = "-".join(words).lstrip("0123456789-")[:ALIAS_CHARS].rstrip("-")
    base = (
        base if ALIAS.match(base) else f"s{base}"[:ALIAS_CHARS] if ALIAS.match(f"s{base}"[:ALIAS_CHARS]) else "server"
    )
    number, alias = 2, base
    while skeleton(alias) in skeletons:
        tail = f"-{number}"
        alias, number = base[: ALIAS_CHARS - len(tail)].rstrip("-") + tail, number + 1
    return alias


def shown_by_claude_code(server: str, name: str) -> str:
    return f"mcp__{_OTHER.sub('_', server)}__{name}"
