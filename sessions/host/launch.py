"""From a registration to something that can be opened. Secrets are opened here, in a worker, right before
connecting."""

import hashlib
import re
import ssl
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal, cast
from uuid import UUID

from django.conf import settings
from django.utils import timezone

from servers.audit.writer import AuditUnavailable, writer
from servers.configuration import Registration
from servers.credentials import issuers
from servers.credentials import vault as credentials
from servers.credentials.issuers import Expected
from servers.credentials.kinds import Parts
from servers.credentials.references import has_reference
from servers.crypto import SealError
from servers.enums import ConnectionPolicy, IdentityKind, TransportKind
from servers.models import Server, ServerDraft
from servers.registration.drafts import open_draft, vault_of
from servers.registration.inherited import inherited, secrets_of
from servers.registration.resolved_values import (
    Certificate,
    LaunchValues,
    NotLaunchable,
    draft_launch_values,
    launch_values,
)
from servers.secret import Secret
from servers.validators import launcher
from sessions.connections.lifecycle import Failure
from sessions.connections.starting import held_up
from sessions.host import directories
from sessions.host.child_confinement import confinement_of, with_working_directory
from sessions.host.desired_state import Roots, roots_of
from sessions.host.launch_problem import LaunchProblem
from sessions.host.outbound import egress_policy
from sessions.host.packages.start import PackageStart, package_of
from sessions.mcp.core.capabilities import Implementation
from sessions.mcp.core.limits import KIB, Limits
from sessions.mcp.core.memory import Remembered, recalled
from sessions.mcp.core.results import Timeouts
from sessions.mcp.transports import stdio
from sessions.mcp.transports.registry import HttpKind, HttpSpec, Spec, StdioSpec, WebSocketSpec
from sessions.mcp.transports.tls import client_context, trusting
from sessions.models import McpSession
from sessions.subscriptions import watches

Values = Mapping[str, str | Secret]
#: faults of a launch that no retry can fix: a person has to act first
NEEDS_CREDENTIAL = ("credential_needed", "not_encrypted", "value_needed", "variable_refused")
#: After this time without an answer to the probe, the client sends `initialize` as well (not over HTTP). That does no
#: harm, and a server that never answers unknown requests costs this wait at each start.
PROBE_SECONDS = 5.0
#: the minimum connect timeout for a launcher that installs its server first
INSTALL_SECONDS = 120.0
ON_DEMAND_IDLE_SECONDS = 60.0
EVENT_BURST_SECONDS = 5
#: between two updates of a credential's time of last use
STAMP_SECONDS = 600.0
#: a hanging peer is detected after one idle time and two unanswered pings
KEEPALIVE_IDLE_SECONDS, KEEPALIVE_ANSWER_SECONDS = 15.0, 10.0
#: headers that carry a credential even if not marked as secret
_CREDENTIAL_HEADER = re.compile(r"auth|key|token|cookie|secret", re.IGNORECASE)
_HTTP_KINDS: dict[str, HttpKind] = {
    TransportKind.AUTO_HTTP: "auto",
    TransportKind.STREAMABLE_HTTP: "streamable_http",
    TransportKind.HTTP_SSE: "http_sse",
}


@dataclass(frozen=True)
class Launch:
    """Everything that one connection needs. Contains secrets: lives as long as the connection, never in a row or a
    log."""

    spec: Spec = field(repr=False)
    limits: Limits
    timeouts: Timeouts
    era: Literal["auto", "legacy", "modern"]
    policy: str
    idle_seconds: float
    secrets: tuple[Secret, ...] = field(repr=False)
    #: digest of the values that were read from files; empty: there are none
    files: str = field(default="", repr=False)
    identity: int | None = None
    #: for its authorization server, if that is at another origin; None: the shared context
    tls_elsewhere: ssl.SSLContext | None = field(default=None, repr=False)
    account: Parts | None = field(default=None, repr=False)
    account_row: tuple[int, int] = (0, 0)
    expected: Expected | None = None
    roots: Roots = ()
    remembered: Remembered | None = None
    answers_sampling: bool = True
    answers_elicitation: bool = True
    #: of a stdio server: reasons why it may be slow to start
    hints: tuple[str, ...] = ()
    #: what a launcher would fetch: resolved and installed by us before the server starts
    package: PackageStart | None = None
    #: no resource was subscribed up to this number of McpSession.watch_requested; -1 if one was
    unwatched: int = -1

    @property
    def is_child(self) -> bool:
        return isinstance(self.spec, StdioSpec)

    @property
    def connect_seconds(self) -> float:
        """The longest time that opening may take: connecting, then the handshake."""
        return self.timeouts.connect + self.timeouts.initialize + 5.0


def client_info() -> Implementation:
    return Implementation("mcpadmin", settings.VERSION, "mcpadmin")


def load(session_id: int) -> Launch:
    """Read a session's server and open its secrets. Call in a reader thread. Raises LaunchProblem."""
    sessions = McpSession.objects.select_related("server__references_by", "identity").annotate(watched=watches.WATCHED)
    session = sessions.get(pk=session_id)
    server = session.server
    try:
        values = launch_values(server, session.identity)
    except (SealError, NotLaunchable) as exc:
        raise _unopened(exc) from exc
    person = session.identity.uid if session.identity.kind == IdentityKind.PERSONAL else None
    private = directories.work_of_session(server.uid, person)
    values = with_working_directory(server, values, private)
    folders = partial(directories.confined, server.uid, person)
    confinement = confinement_of(server, values, private, folders, session.identity_id)
    launch = _launch(server, values, recalled(session.remembered), confinement)
    identity = None if has_reference(server.url) else session.identity_id
    launch = replace(launch, identity=identity, account=values.account, account_row=values.account_row)
    launch = replace(launch, expected=issuers.expected(server) if server.url else None)
    packages = directories.packages_of(private)
    launch = replace(launch, package=package_of(server, launch.spec, packages, launch.timeouts.connect, server))
    if session.identity.kind == IdentityKind.PERSONAL:
        launch = replace(launch, idle_seconds=min(launch.idle_seconds, float(server.idle_timeout_seconds)))
    return launch if session.watched else replace(launch, unwatched=session.watch_requested)


class Stamp:
    """Records when the credentials of a connection were last sent. It never waits, since the time is only shown on a
    page.

    Called for each request with whether a token was sent too; writes at most once in STAMP_SECONDS."""

    def __init__(self, values: LaunchValues) -> None:
        self._values = values
        self._next: dict[bool, float] = {}

    def __call__(self, token: bool) -> None:
        now = time.monotonic()
        used = (*self._values.used, *(self._values.used_for_tokens if token else ()))
        if now < self._next.get(token, 0.0) or not (used or self._values.used_rows):
            return
        self._next[token] = now + STAMP_SECONDS
        with suppress(AuditUnavailable):
            writer().submit(partial(credentials.used, used, self._values.used_rows, timezone.now()))


def load_draft(uid: UUID) -> Launch:
    """Open a sealed draft. Call in a reader thread. Raises LaunchProblem."""
    try:
        draft = ServerDraft.objects.select_related("user").get(uid=uid)
        registration, vault = open_draft(draft), vault_of(draft)
        values = draft_launch_values(registration, vault, draft.user)
    except (SealError, NotLaunchable) as exc:
        raise _unopened(exc) from exc
    identity = vault.identity if vault.signed_in and not has_reference(registration.url) else None
    private = directories.work_of_draft(uid)
    values = with_working_directory(registration, values, private)
    folders = partial(directories.confined_draft, uid)
    confinement = confinement_of(registration, values, private, folders, draft.pk, draft=True)
    launch = _launch(registration, values, confinement=confinement)
    launch = replace(launch, identity=identity, account=values.account, account_row=values.account_row)
    saved = Server.objects.filter(identities=vault.identity or 0).first()
    packages = directories.packages_of(private)
    return replace(launch, package=package_of(registration, launch.spec, packages, launch.timeouts.connect, saved))


def _unopened(exc: SealError | NotLaunchable) -> LaunchProblem:
    fault = exc.fault if isinstance(exc, NotLaunchable) else "secret_unreadable"
    return LaunchProblem(Failure(fault, str(exc), step="resolve"))


def _launch(
    source: Server | Registration,
    values: LaunchValues,
    remembered: Remembered | None = None,
    confinement: stdio.Confinement | None = None,
) -> Launch:
    limits = limits_of(source.limits)
    connect = connect_seconds(source)
    timeouts = Timeouts(
        connect=connect,
        probe=min(PROBE_SECONDS, connect),
        silence=connect,
        initialize=connect,
        request=float(source.request_timeout_seconds),
        tool=float(source.request_timeout_seconds),
        total=float(source.total_timeout_seconds),
        keepalive_idle=KEEPALIVE_IDLE_SECONDS * settings.TIME_SCALE,
        keepalive_answer=KEEPALIVE_ANSWER_SECONDS * settings.TIME_SCALE,
    )
    return Launch(
        spec=_spec(source, values, limits, connect, confinement),
        limits=limits,
        timeouts=timeouts,
        era=cast(Literal["auto", "legacy", "modern"], str(source.era)),
        policy=str(source.connection_policy),
        idle_seconds=_idle_seconds(source),
        secrets=(*_secrets(values), *secrets_of(inherited())),
        files=_digest(values.files),
        tls_elsewhere=tls_of(values.certificate)[1],
        roots=roots_of(source),
        remembered=remembered,
        answers_sampling=source.answers_sampling,
        answers_elicitation=source.answers_elicitation,
        hints=held_up(source.command, source.arguments) if source.transport == TransportKind.STDIO else (),
    )


def connect_seconds(source: Server | Registration) -> float:
    seconds = float(source.connect_timeout_seconds)
    installs = source.transport == TransportKind.STDIO and launcher(source.command, source.arguments)
    return max(seconds, INSTALL_SECONDS) if installs else seconds


def _secrets(values: LaunchValues) -> tuple[Secret, ...]:
    given = (*values.environment.values(), *values.headers.values(), *values.secrets)
    return tuple(value for value in given if isinstance(value, Secret))


def _digest(files: Iterable[Secret]) -> str:
    contents = "\0".join(content.reveal() for content in files)
    return hashlib.sha256(contents.encode()).hexdigest() if contents else ""


def limits_of(overrides: Mapping[str, int]) -> Limits:
    """The instance's limits with the overrides of one server. Whatever carries a message is never smaller than the
    message."""
    given = {**settings.LIMITS, **overrides}
    size = given["message_bytes"]
    given["inflated_bytes"] = max(given["inflated_bytes"], size)
    given["line_bytes"] = max(given["line_bytes"], size)
    return Limits(
        **given,
        sse_event_bytes=size + 64 * KIB,
        events_burst=EVENT_BURST_SECONDS * given["events_per_second"],
    )


def _idle_seconds(source: Server | Registration) -> float:
    """How long a session may stay unused before it is closed. Infinite for one that is always on; `load` allows that
    for the shared identity only."""
    if source.connection_policy == ConnectionPolicy.ON_DEMAND:
        return ON_DEMAND_IDLE_SECONDS
    if source.connection_policy == ConnectionPolicy.IDLE_TIMEOUT:
        return float(source.idle_timeout_seconds)
    return float("inf")


def _spec(
    source: Server | Registration,
    values: LaunchValues,
    limits: Limits,
    connect: float,
    confinement: stdio.Confinement | None = None,
) -> Spec:
    stamp = Stamp(values)
    if source.transport == TransportKind.STDIO:

        def environment() -> dict[str, str]:
            stamp(False)
            return inherited() | _revealed(values.environment)

        return StdioSpec(
            command=source.command,
            args=values.reached.arguments,
            cwd=values.reached.working_directory,
            env=environment,
            limits=limits,
            confinement=confinement,
        )
    headers, policy, (tls, _) = partial(_revealed, values.headers), egress_policy(), tls_of(values.certificate)
    carries = values.carries_secret or any(_CREDENTIAL_HEADER.search(name) for name in values.headers)
    if source.transport == TransportKind.WEBSOCKET:
        return WebSocketSpec(values.reached.url, headers, policy, limits, connect, tls, carries, sent=stamp)
    kind = _HTTP_KINDS[source.transport]
    return HttpSpec(values.reached.url, headers, policy, limits, connect, tls, carries, sent=stamp, kind=kind)


def tls_of(given: Certificate | None) -> tuple[ssl.SSLContext | None, ssl.SSLContext | None]:
    """The contexts for the server itself and for its authorization server elsewhere, which usually has a certificate of
    the same private authority. None selects the process's shared context."""
    if given is None:
        return None, None
    try:
        own = client_context(given.certificate.reveal(), given.key.reveal(), given.ca)
        return own, trusting(given.ca) if given.ca else None
    except (ssl.SSLError, OSError) as exc:
        words = f"The client certificate cannot be used ({type(exc).__name__}). Replace it under Credentials."
        raise LaunchProblem(Failure("secret_unreadable", words, step="resolve")) from None


def _revealed(values: Values) -> dict[str, str]:
    return {name: value.reveal() if isinstance(value, Secret) else value for name, value in values.items()}
