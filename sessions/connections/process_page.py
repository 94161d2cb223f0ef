"""What a server's process uses, as *Connection info* shows it."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.conf import settings

from servers import limits
from servers.enums import IdentityKind
from sessions.enums import LogSource, SessionState
from sessions.models import LogLine, McpSession

WARN_BYTES, WARN_PROCESSES = 1024**3, 100
STDERR_LINES = 20
#: how children are prevented from outliving their worker (sessions.mcp.transports.stdio.lifetime)
ISOLATION = {
    "pid_namespace": "PID namespace",
    "pid_namespace_user": "PID namespace",
    "parent_death": "Parent-death signal",
    "none": "None",
}


#: for a worker that an operator configured not to confine anything
UNCONFINED = "unconfined"
#: Worker.confinement_reason begins with this if an operator named a runtime that does not work
RUNTIME_NOT_USED = "MCPADMIN_CONTAINER_RUNTIME has no effect."
#: Worker.confinement in words
CONFINEMENT = {
    "container": "Container and seccomp",
    "landlock": "Landlock and seccomp",
    "bubblewrap": "bubblewrap and seccomp",
    "none": "None: commands are refused",
    UNCONFINED: "None: commands can do everything that mcpadmin can",
}


@dataclass(frozen=True)
class ProcessPage:
    at: datetime | None
    node: str
    rss: int
    cpu: float
    count: int
    threads: int
    files: int | None
    started: str
    restarts: int
    isolation: str
    confinement: str
    rows: list[Mapping[str, Any]]
    more: int
    stderr: list[LogLine]

    @property
    def warnings(self) -> list[str]:
        return list(warnings(self.rss, self.count).values())


def excess(rss: int, count: int) -> str:
    """Why the process must be stopped; empty while it stays within its limits."""
    most, many = settings.STDIO_MEMORY_MIB, settings.STDIO_PROCESSES
    if most and rss > most * 1024**2:
        return f"The server used {rss / 1024**2:,.0f} MiB of memory; {most:,} are allowed."
    if many and count > many:
        return f"The server ran {count:,} processes; {many:,} are allowed."
    return ""


def disk_excess(size: int, home: str) -> str:
    """`size` is in bytes; if it is within the limit, there are too many files. `home` is the first of the folders."""
    most, advice = settings.STDIO_DISK_MIB, f"Delete what it does not need in {os.path.dirname(home)} on its worker, or"
    if size > most * 1024**2:
        taken = f"take {size / 1024**2:,.0f} MiB of disk; {most:,} are allowed."
        return f"The server's own folders {taken} {advice} raise MCPADMIN_STDIO_DISK_MIB."
    limit = limits.stated("stdio_files")
    return f"The server's own folders hold too many files. {limit} {advice} set MCPADMIN_STDIO_DISK_MIB to 0 to turn off the limit."


def warnings(rss: int, count: int) -> dict[str, str]:
    """A sentence for each limit that is exceeded."""
    found = {}
    if rss >= WARN_BYTES:
        found["memory"] = f"The server uses {rss / WARN_BYTES:.1f} GiB of memory."
    if count >= WARN_PROCESSES:
        found["processes"] = f"The server runs {count} processes."
    return found


def process_page(session: McpSession | None) -> ProcessPage | None:
    """None without a child process, or before its first sample."""
    if session is None or not session.process or session.state != SessionState.READY:
        return None
    found, rows = session.process, session.process.get("rows", [])
    return ProcessPage(
        at=session.process_at,
        node=session.owner.node if session.owner else "",
        rss=found["rss"],
        cpu=found["cpu"],
        count=found["count"],
        threads=found["threads"],
        files=found["files"],
        started=found["started"],
        restarts=session.restarts,
        isolation=ISOLATION.get(session.owner.isolation if session.owner else "", ""),
        confinement=CONFINEMENT.get(session.owner.confinement if session.owner else "", "not known"),
        rows=rows,
        more=found["count"] - len(rows),
        stderr=_stderr(session),
    )


def _stderr(session: McpSession) -> list[LogLine]:
    """The newest STDERR_LINES lines, oldest first."""
    own = session.identity if session.identity.kind == IdentityKind.PERSONAL else None
    lines = LogLine.objects.filter(server_id=session.server_id, source=LogSource.STDERR).order_by("-seq")
    lines = lines.filter(identity=None) if own is None else lines.filter(identity=own)
    return list(lines[:STDERR_LINES])[::-1]
