"""One row or card of the list of servers: everything that it shows as plain values, and its HTML.

The HTML depends only on these values, so it is cached: when a page is opened again, only changed rows are rendered.
"""

from dataclasses import dataclass, fields
from datetime import datetime
from functools import lru_cache
from typing import Final, NamedTuple
from urllib.parse import quote_plus
from uuid import UUID

from django.template.loader import render_to_string
from django.urls import reverse
from django.utils.safestring import SafeString

from servers.enums import IdentityKind
from servers.kit.tags import duration_ms, slug_url, transport_name
from servers.kit.words import Look
from servers.models import Server
from sessions.connections import icons
from sessions.connections.diagnosis import Explanation, explain
from sessions.enums import Desired, SessionCondition, SessionState
from sessions.models import McpSession
from sessions.overview.activity import FAILED_CALLS, LastDay
from sessions.overview.shown import shown

#: rows in the cache, at about 3 kB each: a few pages for a few readers
KEPT: Final = 2_000


class Fix(NamedTuple):
    """The link for fixing a failed session. `needs`: the style sheet (css/tools.css) sends users without it to the
    diagnosis instead, because everyone gets the same HTML."""

    url: str
    icon: str
    words: str
    needs: str = ""


class Reason(NamedTuple):
    """Why a session that should be open is not."""

    in_one_line: str
    cause: str
    fix: Fix
    diagnose: Fix


@dataclass(frozen=True, slots=True)
class ServerRow:
    """`calls_url`, `errors_url`: the last day's calls and errors in the explorer, empty if there are none. `picks`: the
    row can be selected."""

    uid: UUID
    slug: str
    name: str
    tags: tuple[str, ...]
    picture: str
    look: Look
    reason: Reason | None
    transport: str
    endpoint: str
    tools: int
    calls: int
    errors: int
    error_percent: float | None
    p95: str
    calls_path: str
    errors_path: str
    calls_url: str
    errors_url: str
    environment: str
    owner: str
    used: datetime | None
    picks: bool

    @property
    def table_row(self) -> SafeString:
        return _html("servers/_row.html", self)

    @property
    def card(self) -> SafeString:
        return _html("servers/_card.html", self)


@lru_cache(KEPT)
def _html(template: str, row: ServerRow) -> SafeString:
    return render_to_string(template, {field.name: getattr(row, field.name) for field in fields(row)})


def row_of(server: Server, session: McpSession | None, tools: int, day: LastDay, *, picks: bool) -> ServerRow:
    """`session`: the one of the reader's identity; None before the first connection. Needs `icons.load`."""
    numbers = day.numbers
    return ServerRow(
        uid=server.uid,
        slug=server.slug,
        name=server.name,
        tags=tuple(server.tags),
        picture=icons.address(server, session.server_info.get("icons")) if session and session.server_info else "",
        look=shown(server, session).look,
        reason=reason(session),
        transport=transport_name(server, session),
        endpoint=server.endpoint,
        tools=tools,
        calls=numbers.calls,
        errors=numbers.errors,
        error_percent=numbers.error_percent,
        p95=duration_ms(numbers.p95),
        calls_path=day.calls_path if numbers.calls else "",
        errors_path=day.errors_path if numbers.errors else "",
        calls_url=explorer_url(server.slug) if numbers.calls else "",
        errors_url=explorer_url(server.slug, FAILED_CALLS) if numbers.errors else "",
        environment=server.get_environment_display(),
        owner=server.owner.username if server.owner else "",
        used=session.last_used_at if session else None,
        picks=picks,
    )


def explorer_url(slug: str, *conditions: str) -> str:
    """The calls of the last day to a server."""
    query = " ".join(("last:24h", "in:calls", f"server:{slug}", *conditions))
    return f"{_explorer()}?q={quote_plus(query)}"


@lru_cache(1)
def _explorer() -> str:
    return reverse("explorer:page")


# --- why a session failed, and how to fix it ----------------------------------------------------------------------
def reason(session: McpSession | None) -> Reason | None:
    explanation = why(session)
    if session is None or explanation is None:
        return None
    diagnose = Fix(slug_url("servers:info", session.server.slug), "stethoscope", "Diagnose")
    return Reason(explanation.in_one_line, explanation.cause, fix(session.server, session) or diagnose, diagnose)


def why(session: McpSession | None) -> Explanation | None:
    if session is None or not session.fault or session.paused or session.desired != Desired.OPEN:
        return None
    if session.state == SessionState.READY or not session.server.enabled:
        return None
    return explain(session.fault, session.fault_detail, session.server)


def fix(server: Server, session: McpSession) -> Fix | None:
    """None if no page can fix it. Needs `identity`."""
    personal = session.identity.kind == IdentityKind.PERSONAL
    if session.fault == "package_changed":
        return Fix(slug_url("servers:package", server.slug), "lock", "Review and pin again")
    if session.fault == "key_needed":
        own, shared = slug_url("servers:identity", server.slug), slug_url("servers:settings", server.slug)
        if personal:
            return Fix(own, "key", "Add a credential", "call-tool")
        return Fix(f"{shared}#credentials", "key", "Add a credential", "change-server")
    if session.condition == SessionCondition.NEEDS_AUTH and session.identity.challenge:
        url = slug_url("servers:own_sign_in" if personal else "servers:sign_in", server.slug)
        words = "Sign in again" if session.shown_condition == "sign_in_again" else "Sign in"
        return Fix(url, "key", words, "call-tool" if personal else "sign-in")
    return None
