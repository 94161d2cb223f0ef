"""Why a package cannot be installed, in words for a page."""

import re
from typing import Final

from servers.packages.commands import PackageCommand
from servers.packages.pins import Pin
from sessions.mcp.core.errors import Fault, LaunchError
from sessions.mcp.transports.stdio.refusals import REFUSAL_MARK

#: lines of a package manager that are kept as the reason
_LINES, _CHARS = 12, 1_500
#: a line of a package manager's stack trace
_FRAME: Final = re.compile(r"(?:npm (?:error|ERR!) )?\s*at \S.*\d+:\d+\)?(?: \{)?")


class PackageChanged(LaunchError):
    """The registry offers other content under a pinned version. Nothing of it was run."""

    def __init__(self, detail: str, name: str, integrity: str) -> None:
        super().__init__(Fault.PACKAGE_CHANGED, detail)
        self.name = name
        self.integrity = integrity


class PackageUnavailable(LaunchError):
    """`failed`: what could not be done, without what that means for a start."""

    def __init__(self, failed: str, missing: str, reason: str) -> None:
        super().__init__(Fault.PACKAGE_UNAVAILABLE, f"{failed} {missing} {reason}".strip())
        self.failed = f"{failed} {reason}".strip()


def changed(command: PackageCommand, pin: Pin | None, name: str, version: str, integrity: str) -> PackageChanged:
    wanted = f" Pinned: {pin.integrity}." if pin is not None and name == pin.name else ""
    offered = f" Offered now: {integrity}." if integrity else ""
    needed = f", which {command.name} needs" if name != command.name else ""
    words = (
        f"The registry now offers different content for {name} {version}{needed}.{wanted}{offered} Nothing was run."
        if pin is not None
        else f"The registry sent content for {name} that does not match the hash in its own list. Nothing was run."
    )
    return PackageChanged(words.replace("  ", " "), name, integrity)


def unavailable(command: PackageCommand, pin: Pin | None, code: str, text: str) -> PackageUnavailable:
    what = f"{pin.name} {pin.version}" if pin else " ".join(command.requirements)
    step = "fetched from" if pin else "looked up in"
    reason = f" ({code})" if code else ""
    missing = "It is pinned, but not installed on this worker yet." if pin else "It is not pinned yet."
    words = f"{what} could not be {step} the {command.registry}{reason}."
    return PackageUnavailable(words, missing, _excerpt(text))


def failed(words: str, text: str = "") -> LaunchError:
    return LaunchError(Fault.PACKAGE_FAILED, f"{words} {_excerpt(text)}".strip())


def not_readable(command: PackageCommand, what: str) -> LaunchError:
    return failed(f"The information that {what} gives about {command.name} cannot be read.")


def is_refused(text: str) -> bool:
    """Whether the confinement kept the package manager from the registry, which is not at its usual address."""
    return f"{REFUSAL_MARK} refused to connect" in text or f"{REFUSAL_MARK} refused to look up" in text


def _excerpt(text: str) -> str:
    """The first meaningful lines."""
    lines = [
        line
        for line in map(str.strip, text.splitlines())
        if line and "complete log of this run" not in line and not _FRAME.fullmatch(line)
    ]
    return " · ".join(lines[:_LINES])[:_CHARS]
