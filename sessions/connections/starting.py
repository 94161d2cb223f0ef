"""What a page shows about a stdio server while it starts: the elapsed time, its stderr, what may delay it."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from django.utils import timezone

from servers.enums import TransportKind
from servers.models import Server
from servers.packages.commands import readable
from servers.validators import asks_before_installing, launcher
from sessions.enums import Desired, SessionState
from sessions.models import McpSession

#: in seconds: a shorter start is not shown, and a longer one than HELD_UP_AFTER gets hints
SHOWN_AFTER: Final = 1.0
HELD_UP_AFTER: Final = 20.0
UNCONFIRMED: Final = (
    "npx without -y may wait for someone to confirm the installation. Add -y before the name of the package."
)
_REGISTRY: Final = (
    "If this machine needs a proxy, a certificate or a package mirror, "
    "name its variables in MCPADMIN_INHERITED_VARIABLES, for example HTTPS_PROXY, NODE_EXTRA_CA_CERTS, SSL_CERT_FILE, "
    "npm_config_registry or UV_DEFAULT_INDEX. Servers get no other variables from the worker."
)
#: what npm, uv, pip and Docker write when they cannot reach their registry
_UNREACHED: Final = re.compile(
    r"certificate|ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ETIMEDOUT|Failed to fetch|dns error|no such host"
    r"|name resolution|Could not resolve|proxyconnect",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Starting:
    since: datetime
    seconds: int
    attempt: int
    stderr: str
    hints: tuple[str, ...] = ()


def starting(server: Server, session: McpSession | None) -> Starting | None:
    """None if nothing is being started."""
    if session is None or server.transport != TransportKind.STDIO or session.desired != Desired.OPEN:
        return None
    age = (timezone.now() - session.state_since).total_seconds()
    if session.state not in (SessionState.CONNECTING, SessionState.INITIALIZING) or age < SHOWN_AFTER:
        return None
    hints = held_up(server.command, server.arguments) if age >= HELD_UP_AFTER else ()
    return Starting(session.state_since, int(age), session.attempts, session.stderr_tail, hints)


def held_up(command: str, arguments: Sequence[str]) -> tuple[str, ...]:
    """Why a launcher that installs its server first may take a long time or hang."""
    program = launcher(command, arguments)
    if not program:
        return ()
    network = f"{program} may still be installing the server. {_REGISTRY}"
    return (unconfirmed(command, arguments), network) if unconfirmed(command, arguments) else (network,)


def unreached(stderr: str) -> tuple[str, ...]:
    """Why a launcher with this stderr ended, if it could not download the server."""
    return (f"The package registry could not be reached. {_REGISTRY}",) if _UNREACHED.search(stderr) else ()


def unconfirmed(command: str, arguments: Sequence[str]) -> str:
    """A hint for npx without -y, if npx does the installing: mcpadmin itself installs packages that can be pinned."""
    pinned = readable(command, arguments) is not None
    return UNCONFIRMED if not pinned and asks_before_installing(command, arguments) else ""
