"""Which of a server's tools, resources and prompts a bundle offers: patterns; those that start with ! exclude."""

import re
from collections.abc import Collection, Sequence
from fnmatch import fnmatchcase
from typing import Final

EVERYTHING: Final = ("*",)
_MAGIC: Final = re.compile(r"([*?[])")


def offers(patterns: Sequence[str], name: str) -> bool:
    """The exact name, included or excluded, takes precedence over patterns that match it."""
    own = exactly(name)
    if f"!{own}" in patterns:
        return False
    if own in patterns:
        return True
    gives = any(fnmatchcase(name, one) for one in patterns if not one.startswith("!"))
    return gives and not any(fnmatchcase(name, one[1:]) for one in patterns if one.startswith("!"))


def exactly(name: str) -> str:
    """A pattern that matches only this name."""
    escaped = _MAGIC.sub(r"[\1]", name)
    return f"[]!]{escaped[1:]}" if escaped.startswith("!") else escaped  # a leading ! would exclude


def chosen(patterns: Sequence[str], known: Collection[str], wanted: Collection[str]) -> list[str]:
    """The patterns after a person ticked `wanted` among `known`. Names that are not known yet stay as the patterns
    say."""
    found, ticked = dict.fromkeys(patterns), set(wanted)
    exact = {exactly(name) for name in known}
    others = [one for one in found if one.removeprefix("!") not in exact]  # an exact pattern concerns only its own name

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
