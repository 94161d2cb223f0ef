"""Every limit whose refusal a person sees: its value, who may change it, and where. One table.

A refusal takes its words from here (`stated`), so that it names the limit, the value and the way to change it.
docs/configuration.md shows the table. Limits that a person never meets (buffers, lengths of log lines) are not in it.
"""

from dataclasses import dataclass
from typing import Protocol

from django.conf import settings

from servers.validators import LIMITS as SERVER_LIMITS
from servers.validators.characters import MAX_VALUE_LENGTH
from servers.validators.commands import MAX_ARGUMENTS
from servers.validators.roots import MAX_ROOTS

KIB = 1024
MIB = 1024 * KIB


class WithLimits(Protocol):
    """A registered server."""

    limits: dict[str, int]


@dataclass(frozen=True)
class ProductLimit:
    """`unit` follows the number: bytes, seconds, or words. `fixed` or `setting` (a name in settings) has the value;
    `variable`: the environment variable of the setting; `of_server`: a registration may override it."""

    name: str
    area: str
    about: str
    unit: str
    fixed: float | None = None
    setting: str = ""
    variable: str = ""
    of_server: bool = False

    @property
    def value(self) -> float:
        if self.fixed is not None:
            return self.fixed
        if self.of_server:
            return int(settings.LIMITS[self.name])
        return getattr(settings, self.setting)

    def in_words(self, server: "WithLimits | None" = None) -> str:
        """The value with its unit, for `server` where it may override it."""
        overrides = server.limits if server is not None and self.of_server else {}
        return self.words_of(overrides.get(self.name, self.value))

    def words_of(self, value: float) -> str:
        """2621440 -> 2.5 MiB, 30 -> 30 s."""
        if self.unit == "bytes":
            return size(int(value))
        return f"{value:,g} {self.unit}" if value != int(value) else f"{int(value):,} {self.unit}"


def size(number: int) -> str:
    """2621440 -> 2.5 MiB."""
    if number >= MIB:
        return f"{number / MIB:,.1f} MiB".replace(".0 ", " ")
    return f"{number / KIB:,g} KiB" if number >= KIB else f"{number:,} bytes"


def _fixed(name: str, area: str, value: float, unit: str, about: str) -> ProductLimit:
    return ProductLimit(name, area, about, unit, fixed=value)


def _set(name: str, area: str, unit: str, about: str) -> ProductLimit:
    """A setting whose variable has its name."""
    return ProductLimit(name, area, about, unit, setting=name.upper(), variable=f"MCPADMIN_{name.upper()}")


_WEB, _SIGN_IN, _IMPORT, _LIVE = "Requests", "Sign-in", "Import", "Live connection"
_PEOPLE, _SERVERS, _REGISTRATION, _AUDIT = "People", "Servers", "Registration", "Audit log"
_AGENTS = "Agents"
#: what a server may send: the words that follow the number
_OF_SERVERS = {
    "message_bytes": "per message",
    "message_values": "per message",
    "batch_messages": "per batch",
    "depth": "of nested arrays and objects",
    "inflated_bytes": "per response after decompression",
    "inflated_ratio": "the compressed size",
    "stream_bytes": "of a stream between two messages",
    "line_bytes": "per line on stdout",
    "header_count": "of headers per response",
    "header_bytes": "of headers per response",
    "list_items": "per list",
    "list_pages": "per list",
    "list_bytes": "per list",
    "pending_requests": "per session",
    "open_server_requests": "of this server's requests at once",
    "server_requests_per_minute": "from this server",
    "rounds": "of input per call",
    "request_state_bytes": "of state carried from round to round",
    "events_per_second": "from this server",
}
_UNITS = {
    "pending_requests": "requests in flight",
    "server_requests_per_minute": "requests a minute",
    "events_per_second": "events a second",
}

LIMITS: dict[str, ProductLimit] = {
    limit.name: limit
    for limit in (
        _fixed("body_anonymous_bytes", _WEB, 16 * KIB, "bytes", "per request without a sign-in"),
        _fixed("body_form_bytes", _WEB, MIB, "bytes", "per form"),
        _fixed("body_arguments_bytes", _WEB, 5 * MIB // 2, "bytes", "per form with the arguments of a call"),
        _fixed("body_import_bytes", _WEB, 5 * MIB // 2, "bytes", "per import request"),
        _fixed("request_head_bytes", _WEB, 16 * KIB, "bytes", "of address and headers per request"),
        _fixed("request_headers", _WEB, 500, "header lines", "per request"),
        _fixed("form_fields", _WEB, 5_000, "fields", "per form"),
        _fixed("form_files", _WEB, 100, "files", "per form"),
        _set("request_seconds", _WEB, "s", "to send a whole request"),
        _set("connections", _WEB, "connections", "per web process"),
        _set("connections_per_address", _WEB, "connections", "per address and web process"),
        _fixed("sign_in_failures", _SIGN_IN, 5, "failed sign-ins", "per username in 5 minutes"),
        _fixed("sign_in_failures_per_address", _SIGN_IN, 10, "failed sign-ins", "per address in a minute"),
        _fixed("sign_in_requests_per_address", _SIGN_IN, 30, "sign-in requests", "per address in a minute"),
        _fixed("setup_attempts", _SIGN_IN, 20, "requests", "of setup and account links per address in 10 minutes"),
        _fixed("import_bytes", _IMPORT, MIB, "bytes", "per configuration"),
        _fixed("import_yaml_bytes", _IMPORT, 64 * KIB, "bytes", "per configuration in YAML or TOML"),
        _fixed("import_json5_bytes", _IMPORT, 16 * KIB, "bytes", "per configuration that only JSON5 can read"),
        _fixed("import_depth", _IMPORT, 64, "levels", "of nested objects, lists and tables"),
        _fixed("import_servers", _IMPORT, 200, "servers", "per import"),
        _set("import_seconds", _IMPORT, "s", "to read one configuration"),
        _fixed("import_memory_mib", _IMPORT, 512, "MiB", "of memory to read one configuration"),
        _set("sockets_per_user", _LIVE, "live connections", "(open tabs) per user"),
        _fixed("socket_message_bytes", _LIVE, 64 * KIB, "bytes", "per message of a page"),
        _fixed("socket_call_bytes", _LIVE, MIB, "bytes", "per call sent over the live connection"),
        _fixed("socket_messages_per_second", _LIVE, 20, "messages a second", "per page"),
        _fixed("socket_topics", _LIVE, 100, "topics", "per page"),
        _fixed("socket_calls_in_flight", _LIVE, 100, "calls in flight", "per page"),
        _set("tries_per_minute", _PEOPLE, "connection tests, sign-ins and webhook tests a minute", "per user"),
        _set("personal_sessions", _PEOPLE, "personal identities", "per server"),
        _fixed("own_credentials", _PEOPLE, 20, "credentials of one user", "per server"),
        _fixed("subscriptions", _PEOPLE, 500, "subscriptions", "per server and identity"),
        _fixed("session_calls", _SERVERS, 16, "calls in flight", "per session"),
        _set("inbox_open", _SERVERS, "requests waiting in the inbox", "per server"),
        _set("inbox_per_minute", _SERVERS, "inbox requests a minute", "per server"),
        _set("inbox_seconds", _SERVERS, "s", "to answer a request in the inbox"),
        _set("stdio_memory_mib", _SERVERS, "MiB", "of memory per stdio server with its children"),
        _set("stdio_processes", _SERVERS, "processes", "per stdio server with its children"),
        _set("stdio_disk_mib", _SERVERS, "MiB", "on disk in the folders of a stdio server"),
        _fixed("stdio_files", _SERVERS, 1_000_000, "files", "in the folders of a stdio server"),
        _set("stdio_file_mib", _SERVERS, "MiB", "per file of a stdio server"),
        _set("stdio_open_files", _SERVERS, "open files", "per process of a stdio server"),
        _fixed("arguments", _REGISTRATION, MAX_ARGUMENTS, "arguments", "per command"),
        _fixed("value_chars", _REGISTRATION, MAX_VALUE_LENGTH, "characters", "per argument, header or variable"),
        _fixed("roots", _REGISTRATION, MAX_ROOTS, "roots", "per server"),
        _fixed("pem_bytes", _REGISTRATION, 64 * KIB, "bytes", "per certificate or key"),
        _fixed("agent_tokens", _AGENTS, 50, "tokens and grants", "per user"),
        _fixed("oauth_registrations", _AGENTS, 10, "client registrations", "per address in 10 minutes"),
        _fixed("oauth_token_requests", _AGENTS, 600, "token requests", "per address in 10 minutes"),
        _fixed("agent_body_bytes", _AGENTS, 4 * MIB, "bytes", "per request of an agent"),
        _fixed("agent_body_values", _AGENTS, 100_000, "JSON values", "per request of an agent"),
        _set("agent_calls_in_flight", _AGENTS, "requests in flight", "per token"),
        _set("agent_person_in_flight", _AGENTS, "requests in flight", "of all tokens of a user"),
        _set(
            "agent_requests_per_second",
            _AGENTS,
            "requests a second",
            "per token, averaged over 4 s",
        ),
        _set(
            "agent_requests_per_person",
            _AGENTS,
            "requests a second",
            "of all tokens of a user, averaged over 4 s",
        ),
        _fixed("agent_streams", _AGENTS, 4, "open streams", "per token"),
        _fixed("agent_person_streams", _AGENTS, 12, "open streams", "of all tokens of a user"),
        _fixed("agent_streams_in_all", _AGENTS, 1_000, "open streams of agents", "per web process"),
        _fixed("agent_approvals", _AGENTS, 20, "calls", "of one token waiting for approval"),
        _fixed("agent_approval_seconds", _AGENTS, 900, "s", "to approve a call of an agent"),
        _fixed("open_exports", _AUDIT, 3, "exports", "waiting or running at once"),
        _fixed("audit_queue", _AUDIT, 2_000, "changes", "waiting to be written to the audit log"),
        *(
            ProductLimit(
                limit.name,
                "What a server may send",
                _OF_SERVERS[limit.name],
                "bytes" if limit.unit == "KiB" else _UNITS.get(limit.name, limit.unit),
                variable=f"MCPADMIN_LIMIT_{limit.name.upper()}",
                of_server=True,
            )
            for limit in SERVER_LIMITS.values()
        ),
    )
}


def value(name: str) -> float:
    return LIMITS[name].value


def number(name: str) -> int:
    return int(LIMITS[name].value)


def in_words(name: str) -> str:
    return LIMITS[name].in_words()


def stated(*names: str, server: "WithLimits | None" = None) -> str:
    """For a refusal: the limits, their values, who may change them and where. "Limit: 10 live connections (open tabs)
    per user. An operator can change it with MCPADMIN_SOCKETS_PER_USER." """
    found = [LIMITS[name] for name in names]
    values = ", ".join(f"{limit.in_words(server)} {limit.about}" for limit in found)
    return f"{'Limit' if len(found) == 1 else 'Limits'}: {values}. {who(*names)}"


def who(*names: str) -> str:
    """Who may change them, and where. All of them are of one kind."""
    first, variables = LIMITS[names[0]], " and ".join(LIMITS[name].variable for name in names)
    it, default = ("it", "the default") if len(names) == 1 else ("them", "the defaults")
    if first.of_server:
        return f"Change {it} for this server under Settings, Limits; an operator sets {default} with {variables}."
    if first.variable:
        return f"An operator can change {it} with {variables}."
    return f"{'It' if len(names) == 1 else 'They'} cannot be changed."
