"""Which of a server's tools, resources and prompts a bundle offers: patterns, of which those that begin with ! take away."""

import re
from collections.abc import Collection, Sequence
from fnmatch import fnmatchcase
from typing import Final

EVERYTHING: Final = ("*",)
_MAGIC: Final = re.compile(r"([*?[])")


def offers(patterns: Sequence[str], name: str) -> bool:
    """The name itself, given or taken away, counts more than patterns that match it."""
    own = exactly(name)
    if f"!{own}" in patterns:
        return False
    if own in patterns:
        return True
    gives = any(fnmatchcase(name, one) for one in patterns if not one.startswith("!"))
    return gives and not any(fnmatchcase(name, one[1:]) for one in patterns if one.startswith("!"))


def exactly(name: str) -> str:
    """A pattern of this name alone."""
    escaped = _MAGIC.sub(r"[\1]", name)
    return f"[]!]{escaped[1:]}" if escaped.startswith("!") else escaped  # a leading ! would take away


def chosen(patterns: Sequence[str], known: Collection[str], wanted: Collection[str]) -> list[str]:
    """The patterns after a person ticked `wanted` among `known`. What is not known yet stays as the patterns say."""
    found, ticked = dict.fromkeys(patterns), set(wanted)
    exact = {exactly(name) for name in known}
    others = [one for one in found if one.removeprefix("!") not in exact]  # an exact one concerns its own name alone

    def offered(name: str) -> bool:
        own = exactly(name)
        return f"!{own}" not in found and (own in found or offers(others, name))

    for name in known:
        if name in ticked and not offered(name):
            found.pop(f"!{exactly(name)}", None)
            if not offered(name):
                found[exactly(name)] = None
    for name in known:
        if name not in ticked and offered(name):
            found.pop(exactly(name), None)
            if offered(name):
                found[f"!{exactly(name)}"] = None
    return list(found)
