"""What the confinement of a stdio server refused, as listed in *Connection info*, each with the entry to allow it."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from django.conf import settings

from servers import limits
from servers.enums import IdentityKind, NetworkAccess, TransportKind
from sessions.enums import LogSource
from sessions.models import LogLine, McpSession

#: lines of stderr looked through, and refusals shown
_LINES, _SHOWN = 500, 20
_FILE = re.compile(r"\[mcpadmin\] refused access to (?P<path>/.*)")
_SOCKET = re.compile(r"\[mcpadmin\] refused to connect to the UNIX socket (?P<path>.*)")
_NAME = re.compile(r"\[mcpadmin\] refused to look up (?P<name>\S+): .*")
#: what the kernel refuses, as programs report it -> the limit
_EXCEEDED: Final = (
    (re.compile(r"EFBIG|File too large", re.IGNORECASE), "Write a larger file", "stdio_file_mib"),
    (re.compile(r"EMFILE|Too many open files", re.IGNORECASE), "Open more files", "stdio_open_files"),
)
_HOST = re.compile(r"\[mcpadmin\] refused to connect to (?P<host>\S+): (?P<reason>.*)")


@dataclass(frozen=True)
class Refusal:
    """`field`: the field of the registration form; empty if nothing can allow it. `entry`: what to add there."""

    what: str
    why: str
    field: str = ""
    entry: str = ""


def refusals(session: McpSession | None) -> list[Refusal]:
    """Newest first, without those that the registration now allows."""
    if session is None or session.server.transport != TransportKind.STDIO:
        return []
    own = session.identity if session.identity.kind == IdentityKind.PERSONAL else None
    lines = LogLine.objects.filter(server_id=session.server_id, identity=own, source=LogSource.STDERR)
    texts = lines.order_by("-seq").values_list("text", flat=True)[:_LINES]
    found = dict.fromkeys(filter(None, map(_refusal, texts)))
    return [refusal for refusal in found if not _is_allowed(session, refusal)][:_SHOWN]


def _refusal(text: str) -> Refusal | None:
    if match := _SOCKET.fullmatch(text):
        return Refusal(f"Connect to {match['path']}", "UNIX sockets outside its own folders are out of reach.")
    if match := _HOST.fullmatch(text):
        why = f"{match['reason'][:1].upper()}{match['reason'][1:]}."
        if match["reason"] == "this server has no network":
            return Refusal(f"Connect to {match['host']}", f"{why} Choose another network under Access.")
        if "metadata" in match["reason"]:
            return Refusal(f"Connect to {match['host']}", why)
        return Refusal(f"Connect to {match['host']}", why, "network_hosts", match["host"])
    if match := _NAME.fullmatch(text):
        why = "It is not one of the listed hosts."
        return Refusal(f"Look up {match['name']}", why, "network_hosts", match["name"])
    if match := _FILE.fullmatch(text):
        if _is_ours(Path(match["path"])):
            return Refusal(
                f"Open {match['path']}", "It belongs to mcpadmin itself. No server can be allowed to use it."
            )
        why = "It is not one of the files that this server is allowed to use."
        return Refusal(f"Open {match['path']}", why, "readable_paths", match["path"])
    return next((Refusal(what, limits.stated(name)) for mark, what, name in _EXCEEDED if mark.search(text)), None)


def _is_ours(path: Path) -> bool:
    """Whether the path contains, or is inside, a directory or file that no registration can grant."""
    ours = (Path(settings.DATA_DIR), Path(settings.KEYRING_FILE))
    return any(path.is_relative_to(place) or place.is_relative_to(path) for place in ours)


def _is_allowed(session: McpSession, refusal: Refusal) -> bool:
    server = session.server
    if refusal.field == "network_hosts":
        return refusal.entry in server.network_hosts and server.network_access != NetworkAccess.NONE
    granted = (*server.readable_paths, *server.writable_paths)
    return any(refusal.entry == path or refusal.entry.startswith(path.rstrip("/") + "/") for path in granted)
