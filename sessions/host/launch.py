"""From a registration to something that can be opened. Secrets are opened here, in a worker, right before a connect."""

import ssl
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache, partial
from importlib.metadata import PackageNotFoundError, version
from typing import Literal, cast
from uuid import UUID

from django.conf import settings
from django.utils import timezone

from servers.audit.writer import AuditUnavailable, writer
from servers.crypto import SealError
from servers.domain import credentials, issuers
from servers.domain.credential_parts import Parts
from servers.domain.drafts import open_draft, vault_of
from servers.domain.form_data import Registration
from servers.domain.issuers import Expected
from servers.domain.launch import Certificate, LaunchValues, NotLaunchable, draft_launch_values, launch_values
from servers.domain.references import has_reference
from servers.enums import ConnectionPolicy, IdentityKind, TransportKind
from servers.models import Server, ServerDraft
from servers.secret import Secret
from sessions.domain import watches
from sessions.domain.lifecycle import Failure
from sessions.host.orders import Roots, roots_of
from sessions.models import McpSession
from sessions.protocol.capabilities import Implementation
from sessions.protocol.limits import KIB, Limits
from sessions.protocol.memory import Remembered, recalled
from sessions.protocol.results import Timeouts
from sessions.transports.egress import Allow, Policy
from sessions.transports.registry import HttpKind, HttpSpec, Spec, StdioSpec, WebSocketSpec
from sessions.transports.tls import client_context

Values = Mapping[str, str | Secret]
#: faults of a launch that no further try can mend: a person has to act first
NEEDS_CREDENTIAL = ("credential_needed", "not_encrypted")
PROBE_SECONDS = 10.0
ON_DEMAND_IDLE_SECONDS = 60.0
EVENT_BURST_SECONDS = 5
#: a peer that hangs is found after one idle time and two unanswered pings
KEEPALIVE_IDLE_SECONDS, KEEPALIVE_ANSWER_SECONDS = 15.0, 10.0
_HTTP_KINDS: dict[str, HttpKind] = {
    TransportKind.AUTO_HTTP: "auto",
    TransportKind.STREAMABLE_HTTP: "streamable_http",
    TransportKind.HTTP_SSE: "http_sse",
}


class LaunchProblem(Exception):
    """The registration cannot be opened as it stands; a person has to change something."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.detail)
        self.failure = failure


@dataclass(frozen=True)
class Launch:
    """Everything that one connection needs. Holds secrets: lives as long as the connection, never in a row or a log."""

    spec: Spec = field(repr=False)
    limits: Limits
    timeouts: Timeouts
    era: Literal["auto", "legacy", "modern"]
    policy: str
    idle_seconds: float
    secrets: tuple[Secret, ...] = field(repr=False)
    identity: int | None = None
    account: Parts | None = field(default=None, repr=False)
    account_row: tuple[int, int] = (0, 0)
    expected: Expected | None = None
    roots: Roots = ()
    remembered: Remembered | None = None
    answers_sampling: bool = True
    answers_elicitation: bool = True
    #: the order to watch (see McpSession.watch_requested) up to which nothing was subscribed; -1 when something was
    unwatched: int = -1

    @property
    def connect_seconds(self) -> float:
        """The longest that opening may take: connecting, then the handshake."""
        return self.timeouts.connect + self.timeouts.initialize + 5.0


@cache
def client_info() -> Implementation:
    try:
        return Implementation("mcpadmin", version("mcpadmin"), "mcpadmin")
    except PackageNotFoundError:  # run from a checkout that was never installed
        return Implementation("mcpadmin", "0", "mcpadmin")


def load(session_id: int) -> Launch:
    """Read a session's server and open its secrets. In a reader thread. Raises LaunchProblem."""
    sessions = McpSession.objects.select_related("server", "identity").annotate(watched=watches.WATCHED)
    session = sessions.get(pk=session_id)
    server = session.server
    try:
        values = launch_values(server, session.identity)
    except (SealError, NotLaunchable) as exc:
        raise _unopened(exc) from exc
    _stamp(values)
    launch = _launch(server, values, recalled(session.remembered))
    identity = None if has_reference(server.url) else session.identity_id
    launch = replace(launch, identity=identity, account=values.account, account_row=values.account_row)
    launch = replace(launch, expected=issuers.expected(server) if server.url else None)
    if session.identity.kind == IdentityKind.PERSONAL:
        launch = replace(launch, idle_seconds=min(launch.idle_seconds, float(server.idle_timeout_seconds)))
    return launch if session.watched else replace(launch, unwatched=session.watch_requested)


def _stamp(values: LaunchValues) -> None:
    """When they were used last: worth a line on a page, never a wait."""
    if values.used or values.used_rows:
        with suppress(AuditUnavailable):
            writer().submit(partial(credentials.used, values.used, values.used_rows, timezone.now()))


def load_draft(uid: UUID) -> Launch:
    """Open a sealed draft. In a reader thread. Raises LaunchProblem."""
    try:
        draft = ServerDraft.objects.get(uid=uid)
        registration, vault = open_draft(draft), vault_of(draft)
        values = draft_launch_values(registration, vault)
    except (SealError, NotLaunchable) as exc:
        raise _unopened(exc) from exc
    _stamp(values)
    identity = vault.identity if vault.signed_in and not has_reference(registration.url) else None
    launch = _launch(registration, values)
    return replace(launch, identity=identity, account=values.account, account_row=values.account_row)


def _unopened(exc: SealError | NotLaunchable) -> LaunchProblem:
    fault = exc.fault if isinstance(exc, NotLaunchable) else "secret_unreadable"
    return LaunchProblem(Failure(fault, str(exc), step="resolve"))


def _launch(source: Server | Registration, values: LaunchValues, remembered: Remembered | None = None) -> Launch:
    limits = limits_of(source.limits)
    connect = float(source.connect_timeout_seconds)
    timeouts = Timeouts(
        connect=connect,
        probe=min(PROBE_SECONDS, connect),
        probe_cap=connect,
        initialize=connect,
        request=float(source.request_timeout_seconds),
        tool=float(source.request_timeout_seconds),
        total=float(source.total_timeout_seconds),
        keepalive_idle=KEEPALIVE_IDLE_SECONDS * settings.TIME_SCALE,
        keepalive_answer=KEEPALIVE_ANSWER_SECONDS * settings.TIME_SCALE,
    )
    return Launch(
        spec=_spec(source, values, limits, connect),
        limits=limits,
        timeouts=timeouts,
        era=cast(Literal["auto", "legacy", "modern"], str(source.era)),
        policy=str(source.connection_policy),
        idle_seconds=_idle_seconds(source),
        secrets=_secrets(values),
        roots=roots_of(source),
        remembered=remembered,
        answers_sampling=source.answers_sampling,
        answers_elicitation=source.answers_elicitation,
    )


def _secrets(values: LaunchValues) -> tuple[Secret, ...]:
    given = (*values.environment.values(), *values.headers.values(), *values.secrets)
    return tuple(value for value in given if isinstance(value, Secret))


def limits_of(overrides: Mapping[str, int]) -> Limits:
    """The instance's limits with those of one server. What carries a message is never smaller than the message."""
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
    """How long a session may be unused before it is closed; infinite for one that is always on, which only that of the
    shared identity is."""
    if source.connection_policy == ConnectionPolicy.ON_DEMAND:
        return ON_DEMAND_IDLE_SECONDS
    if source.connection_policy == ConnectionPolicy.IDLE_TIMEOUT:
        return float(source.idle_timeout_seconds)
    return float("inf")


def _spec(source: Server | Registration, values: LaunchValues, limits: Limits, connect: float) -> Spec:
    if source.transport == TransportKind.STDIO:
        return StdioSpec(
            command=source.command,
            args=values.reached.arguments,
            cwd=values.reached.working_directory or None,
            env=lambda: _revealed(values.environment),
            limits=limits,
        )
    headers, policy, tls = partial(_revealed, values.headers), egress_policy(), _tls(values.certificate)
    if source.transport == TransportKind.WEBSOCKET:
        return WebSocketSpec(values.reached.url, headers, policy, limits, connect, tls)
    kind = _HTTP_KINDS[source.transport]
    return HttpSpec(values.reached.url, headers, policy, limits, connect, tls, kind=kind)


def _tls(given: Certificate | None) -> ssl.SSLContext | None:
    """None: the context that the process shares."""
    if given is None:
        return None
    try:
        return client_context(given.certificate.reveal(), given.key.reveal(), given.ca)
    except (ssl.SSLError, OSError) as exc:
        words = f"The client certificate cannot be used ({type(exc).__name__}). Replace it under Credentials."
        raise LaunchProblem(Failure("secret_unreadable", words, step="resolve")) from None


def _revealed(values: Values) -> dict[str, str]:
    return {name: value.reveal() if isinstance(value, Secret) else value for name, value in values.items()}


def egress_policy() -> Policy:
    allow = tuple(map(Allow.parsed, settings.ALLOWED_NETWORKS))
    return Policy(allow_loopback=settings.ALLOW_LOOPBACK, allow=allow)
