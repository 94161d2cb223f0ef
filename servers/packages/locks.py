"""What a lock file says: which packages, in which versions, with which hashes."""

import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from packaging.utils import canonicalize_name

from servers.enums import Ecosystem

#: at most this many differences between two locks are listed on a page
MOST_SHOWN = 200


@dataclass(frozen=True)
class Locked:
    """`hashes`: of each file that may be installed; empty if the package is bundled with another one or comes from a
    repository."""

    name: str
    version: str
    hashes: tuple[str, ...] = ()


@dataclass(frozen=True)
class LockDifference:
    """(name, old version, new version); `rebuilt`: other content under the same version."""

    added: list[tuple[str, str, str]]
    removed: list[tuple[str, str, str]]
    changed: list[tuple[str, str, str]]
    rebuilt: list[tuple[str, str, str]]

    @property
    def count(self) -> int:
        return len(self.added) + len(self.removed) + len(self.changed) + len(self.rebuilt)

    @property
    def lines(self) -> list[tuple[str, str, str, str]]:
        """The differences to show, as (what, name, old, new)."""
        kinds = (("Added", self.added), ("Removed", self.removed), ("Changed", self.changed), ("Rebuilt", self.rebuilt))
        return list(islice(((word, *line) for word, lines in kinds for line in lines), MOST_SHOWN))

    @property
    def more(self) -> int:
        return max(0, self.count - MOST_SHOWN)


def locked(ecosystem: str, text: str) -> list[Locked]:
    """All packages of a lock file. Raises ValueError if `text` is not one."""
    if ecosystem == Ecosystem.NPM:
        return _of_npm(text)
    return _of_pylock(text) if ecosystem == Ecosystem.PYPI else []


def _of_npm(text: str) -> list[Locked]:
    packages = json.loads(text).get("packages")
    if not isinstance(packages, dict):
        raise ValueError("no packages")
    found = []
    for place, entry in packages.items():
        if place and isinstance(entry, dict):
            name = str(entry.get("name") or place.rpartition("node_modules/")[2])
            integrity = entry.get("integrity")
            found.append(Locked(name, str(entry.get("version", "")), (str(integrity),) if integrity else ()))
    return found


def _of_pylock(text: str) -> list[Locked]:
    try:
        packages = tomllib.loads(text).get("packages", [])
    except tomllib.TOMLDecodeError as problem:
        raise ValueError(str(problem)) from problem
    found = []
    for entry in packages:
        hashes = tuple(f"sha256:{file['hashes']['sha256']}" for file in files(entry))
        found.append(Locked(str(entry["name"]), str(entry.get("version", "")), hashes))
    return found


def files(entry: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The files of a package in pylock.toml, wheels first."""
    found = [*entry.get("wheels", []), *([entry["sdist"]] if "sdist" in entry else [])]
    return [file for file in found if file.get("hashes", {}).get("sha256")]


def difference(ecosystem: str, before: str, after: str, main: str) -> LockDifference:
    """The differences between two locks, without the package `main` itself."""
    old, new = (_by_place(ecosystem, text, main) for text in (before, after))
    return LockDifference(
        added=[(name, "", one.version) for name, one in new.items() if name not in old],
        removed=[(name, one.version, "") for name, one in old.items() if name not in new],
        changed=[
            (name, old[name].version, one.version)
            for name, one in new.items()
            if name in old and old[name].version != one.version
        ],
        rebuilt=[
            (name, one.version, one.version)
            for name, one in new.items()
            if name in old
            and old[name].version == one.version
            and set(old[name].hashes).isdisjoint(one.hashes)
            and (old[name].hashes or one.hashes)
        ],
    )


def has_same(ecosystem: str, before: str, after: str, name: str) -> bool:
    """Whether every version of a package that is in both locks has the same content. False if no version is in both."""
    try:
        old, new = ([one for one in locked(ecosystem, text) if one.name == name] for text in (before, after))
    except ValueError:
        return False
    both = [(one, other) for one in old for other in new if one.version == other.version]
    return bool(both) and not any(set(one.hashes).isdisjoint(other.hashes) for one, other in both)


def _by_place(ecosystem: str, text: str, main: str) -> dict[str, Locked]:
    """The packages by name; if there are several versions of one, the last: enough for a page."""
    try:
        found = locked(ecosystem, text) if text else []
    except ValueError:
        return {}
    main = canonicalize_name(main) if ecosystem == Ecosystem.PYPI else main
    return {one.name: one for one in found if one.name != main}


def unverified(ecosystem: str, text: str) -> int:
    """The number of packages without a hash that are not bundled in another package's file."""
    if ecosystem != Ecosystem.NPM or not text:
        return 0
    packages = json.loads(text).get("packages", {})
    return sum(
        1
        for place, entry in packages.items()
        if place and not entry.get("integrity") and not entry.get("inBundle") and not entry.get("link")
    )
