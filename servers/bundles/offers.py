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
    found = list(patterns)
    for name in known:
        if name in wanted and not offers(found, name):
            found = [one for one in found if one != f"!{exactly(name)}"]
            if not offers(found, name):
                found.append(exactly(name))
    for name in known:
        if name not in wanted and offers(found, name):
            found = [one for one in found if one != exactly(name)]
            if offers(found, name):
                found.append(f"!{exactly(name)}")
    return found
