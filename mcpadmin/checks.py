"""System checks of an installation (`manage.py check --tag mcpadmin`); `up` refuses to start on an error."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, parse_qsl, urlsplit

from django.conf import settings
from django.core.checks import CheckMessage, Error, Warning, register
from django.core.exceptions import ValidationError

from mcpadmin.installation import document
from servers.audit.proof.witnesses import WitnessKind
from servers.audit.proof.witnesses import parsed as parsed_witness
from servers.validators import LIMITS, validate_host, validate_network

TAG = "mcpadmin"
#: the first one with RETURNING, which every call needs; Django alone would accept an older one
NEEDED_SQLITE = (3, 35)
LOOPBACK = {"127.0.0.1", "localhost", "::1", "[::1]", ""}
#: with 0, these would refuse or end everything
ABOVE_ZERO = {
    "MCPADMIN_REQUEST_SECONDS": "REQUEST_SECONDS",
    "MCPADMIN_CONNECTIONS": "CONNECTIONS",
    "MCPADMIN_IMPORT_SECONDS": "IMPORT_SECONDS",
    "MCPADMIN_SESSION_SECONDS": "SESSION_COOKIE_AGE",
    "MCPADMIN_INVITATION_DAYS": "INVITATION_DAYS",
    "MCPADMIN_HEARTBEAT_SECONDS": "HEARTBEAT_SECONDS",
    "MCPADMIN_INBOX_SECONDS": "INBOX_SECONDS",
    "MCPADMIN_STDIO_FILE_MIB": "STDIO_FILE_MIB",
    "MCPADMIN_STDIO_OPEN_FILES": "STDIO_OPEN_FILES",
    "MCPADMIN_AGENT_REQUESTS_PER_SECOND": "AGENT_REQUESTS_PER_SECOND",
    "MCPADMIN_AGENT_REQUESTS_PER_PERSON": "AGENT_REQUESTS_PER_PERSON",
    "MCPADMIN_AGENT_CALLS_IN_FLIGHT": "AGENT_CALLS_IN_FLIGHT",
    "MCPADMIN_AGENT_PERSON_IN_FLIGHT": "AGENT_PERSON_IN_FLIGHT",
    "MCPADMIN_RECONNECT_EARLY_CEILING_SECONDS": "RECONNECT_EARLY_CEILING_SECONDS",
    "MCPADMIN_RECONNECT_CEILING_SECONDS": "RECONNECT_CEILING_SECONDS",
    "MCPADMIN_EXPORT_HOURS": "EXPORT_HOURS",
}

#: folders of the data directory in which files are removed
EMPTIED = ("exports", "static")


@register(TAG)
def check_installation(app_configs: Any, **_options: Any) -> list[CheckMessage]:
    addresses = {"REDIS_URL": settings.REDIS_URL} | settings.REDIS_URLS
    redis = (problem for name, address in addresses.items() for problem in _redis(name, address))
    return [
        *redis,
        *_database(),
        *_exposure(),
        *_names(),
        *_keys(),
        *_consistency(),
        *_limits(),
        *_replaced(),
        *_outbound_proxy(),
        *_reached(),
        *_witnesses(),
        *_written_files(),
    ]


def _redis(name: str, address: str) -> Iterator[CheckMessage]:
    url = _split(address)
    if address and not (address.startswith(("redis://", "rediss://")) or (address.startswith("unix://") and url.path)):
        yield Error(  # without its value, which may hold a password
            f"{name} is not a Redis or Valkey URL.",
            hint="Write it as redis://user:password@host:6379/0, rediss://… for TLS, or unix:///path?db=0 for a socket.",
            id="mcpadmin.E018",
        )
    if unknown := [option for option, _ in parse_qsl(url.query, keep_blank_values=True) if not _is_option(url, option)]:
        yield Error(
            f"{name} has options that cannot be used: {', '.join(unknown)[:200]}.",
            hint="Supported options: ssl_… for rediss://, and db for a socket. Otherwise, put the database number in the path: redis://user:password@host:6379/0",
            id="mcpadmin.E018",
        )
    if url.scheme not in ("redis", "rediss") or (url.hostname or "") in LOOPBACK:
        return
    if not url.password:
        refusal = Warning if settings.REDIS_WITHOUT_PASSWORD else Error
        yield refusal(
            f"{name} has no password for {url.hostname}: anyone who can reach that Redis can read and change its data.",
            hint=f"Create ACL users there ({document('configuration.md')}) and use one in {name} (rediss://user:password@host:6379/0). If only mcpadmin can reach that host, set MCPADMIN_REDIS_WITHOUT_PASSWORD=true.",
            id="mcpadmin.E001",
        )
    if url.scheme == "redis":
        yield Warning(
            f"{name} connects to {url.hostname} without TLS.",
            hint="Use rediss://, or a network that no one else can listen on.",
            id="mcpadmin.W001",
        )


def _is_option(url: SplitResult, name: str) -> bool:
    """Whether both the cache and the broker's library understand the option."""
    return name.startswith("ssl_") if url.scheme == "rediss" else url.scheme == "unix" and name == "db"


def _database() -> Iterator[CheckMessage]:
    uses_sqlite = settings.DATABASES["default"]["ENGINE"].endswith("sqlite3")
    if uses_sqlite and sqlite3.sqlite_version_info < NEEDED_SQLITE:
        yield Error(
            f"This Python has SQLite {sqlite3.sqlite_version}, but mcpadmin needs 3.35 or newer.",
            hint="Use a Python with a newer SQLite, such as one installed by uv, or PostgreSQL (DATABASE_URL).",
            id="mcpadmin.E023",
        )


def _exposure() -> Iterator[CheckMessage]:
    public = _split(settings.PUBLIC_URL)
    if public.scheme not in ("http", "https") or not public.hostname:
        yield Error(
            f"MCPADMIN_PUBLIC_URL is not an http or https URL: {settings.PUBLIC_URL!r}.",
            hint="Set it to the address that browsers use, such as https://mcp.example.org",
            id="mcpadmin.E002",
        )
        return
    if public.path or public.query or public.fragment or public.username:
        yield Error(  # without its value, which may hold a password
            "MCPADMIN_PUBLIC_URL contains more than a host: mcpadmin must be served at the root of its own host name.",
            hint="Set only the scheme, host and port, such as https://mcp.example.org",
            id="mcpadmin.E002",
        )
    local = public.hostname in LOOPBACK
    if settings.DEBUG and not (local and set(settings.ALLOWED_HOSTS) <= LOOPBACK):
        yield Error(
            "DEBUG shows settings and source to visitors, and this installation can be reached from other machines.",
            hint="Unset MCPADMIN_DEBUG, or keep MCPADMIN_PUBLIC_URL and MCPADMIN_ALLOWED_HOSTS on this machine.",
            id="mcpadmin.E003",
        )
    yield from _transport_security(public, local)


def _transport_security(public: SplitResult, local: bool) -> Iterator[CheckMessage]:
    if public.scheme == "http" and not local:
        yield Warning(
            f"{settings.PUBLIC_URL} sends passwords and secrets over the network unencrypted.",
            hint="Put a TLS proxy in front of mcpadmin and set MCPADMIN_PUBLIC_URL=https://… and MCPADMIN_TRUSTED_PROXIES=1.",
            id="mcpadmin.W002",
        )
    if public.scheme == "https" and settings.TRUSTED_PROXIES < 1:
        yield Warning(
            "MCPADMIN_PUBLIC_URL is https, but no proxy is trusted: every request would be redirected to https in an endless loop.",
            hint="Set MCPADMIN_TRUSTED_PROXIES to the number of proxies in front of mcpadmin (usually 1).",
            id="mcpadmin.W003",
        )


def _names() -> Iterator[CheckMessage]:
    for name in settings.ALLOWED_HOSTS:
        if "/" in name or (":" in name and not (name.startswith("[") and name.endswith("]"))):
            yield Error(
                f"MCPADMIN_ALLOWED_HOSTS contains {name[:100]!r}, which is not a host name.",
                hint="Enter only host names, without a scheme or port: mcp.example.org",
                id="mcpadmin.E020",
            )
    for origin in settings.CSRF_TRUSTED_ORIGINS[1:]:  # the first is that of the public URL
        found = _split(origin)
        if not found.netloc or origin != f"{found.scheme}://{found.netloc}" or "@" in found.netloc:
            yield Error(
                f"MCPADMIN_TRUSTED_ORIGINS contains {origin[:100]!r}, which is not an origin.",
                hint="Write scheme and host, with a port if it has one: https://mcp.example.org",
                id="mcpadmin.E020",
            )


def _keys() -> Iterator[CheckMessage]:
    if settings.KEY_PROBLEM:
        yield Error(
            settings.KEY_PROBLEM,
            hint="Make it readable, and its folder writable, for the user that runs mcpadmin. Restore an empty file from your backup.",
            id="mcpadmin.E004",
        )
    elif settings.KEYRING or settings.KEYRING_COMMAND:
        return  # `up` reads it and says what is wrong with it
    elif not Path(settings.KEYRING_FILE).is_file():
        yield Error(
            f"The key ring {settings.KEYRING_FILE} is missing: encrypted credentials cannot be decrypted.",
            hint="Restore it from your backup, or point MCPADMIN_KEYRING_FILE at it.",
            id="mcpadmin.E005",
        )


def _consistency() -> Iterator[CheckMessage]:
    if not 0.01 <= settings.TIME_SCALE <= 10:
        yield Error(
            f"MCPADMIN_TIME_SCALE is {settings.TIME_SCALE:g}: it must be between 0.01 and 10.",
            hint="Leave it at 1; smaller values are for fault tests.",
            id="mcpadmin.E013",
        )
    if settings.STALE_SECONDS < 2 * settings.HEARTBEAT_SECONDS:
        yield Error(
            f"A worker counts as dead after {settings.STALE_SECONDS:g} s and sends a heartbeat every {settings.HEARTBEAT_SECONDS:g} s.",
            hint="Set MCPADMIN_STALE_SECONDS to at least twice MCPADMIN_HEARTBEAT_SECONDS (three times is usual).",
            id="mcpadmin.E006",
        )
    if settings.CELERY_ACCEPT_CONTENT != ["json"] or settings.CELERY_TASK_SERIALIZER != "json":
        yield Error(
            "Celery must speak JSON only: other serializers can run code from the queue.",
            hint="Restore the setting.",
            id="mcpadmin.E007",
        )
    if settings.CELERY_TASK_ACKS_LATE:
        yield Error(
            "Late acknowledgement delivers a task twice after a crash.", hint="Restore the setting.", id="mcpadmin.E008"
        )
    if not 0 <= settings.TRUSTED_PROXIES <= 10:
        yield Error(
            "MCPADMIN_TRUSTED_PROXIES must be between 0 and 10.",
            hint="Set it to the number of proxies in front of mcpadmin.",
            id="mcpadmin.E009",
        )
    if not 10 <= settings.DATABASE_CONNECTIONS <= 500:  # a worker keeps nine
        yield Error(
            f"MCPADMIN_DATABASE_CONNECTIONS is {settings.DATABASE_CONNECTIONS}: it must be between 10 and 500.",
            hint="Correct it, or unset it to use the default.",
            id="mcpadmin.E021",
        )


def _limits() -> Iterator[CheckMessage]:
    for variable, setting in ABOVE_ZERO.items():
        if getattr(settings, setting) <= 0:
            yield Error(
                f"{variable} must be greater than 0.",
                hint="Correct it, or unset it to use the default.",
                id="mcpadmin.E017",
            )
    for name, limit in LIMITS.items():
        if not limit.least <= limit.default <= limit.most:
            yield Error(
                f"MCPADMIN_LIMIT_{name.upper()} is {limit.default}: it must be between {limit.least} and {limit.most}.",
                hint="Correct it, or unset it to use the default.",
                id="mcpadmin.E010",
            )


def _replaced() -> Iterator[CheckMessage]:
    if settings.WIRE_DAYS is not None:
        yield Warning(
            "MCPADMIN_WIRE_DAYS no longer has an effect: the upgrade copied its value to a limit on the Storage page.",
            hint="Unset it. Change the limit on Storage, Protocol messages.",
            id="mcpadmin.W004",
        )


def _outbound_proxy() -> Iterator[CheckMessage]:
    proxy = _split(settings.OUTBOUND_PROXY)
    more = proxy.path not in ("", "/") or proxy.query or proxy.fragment
    if settings.OUTBOUND_PROXY and (proxy.scheme != "http" or not proxy.hostname or more):
        yield Error(  # without its value, which may hold a password
            "MCPADMIN_OUTBOUND_PROXY is not the address of an HTTP proxy.",
            hint="Write it as http://host:port or http://user:password@host:port",
            id="mcpadmin.E014",
        )


def _reached() -> Iterator[CheckMessage]:
    lists = {
        "MCPADMIN_ALLOWED_NETWORKS": (settings.ALLOWED_NETWORKS, validate_network, "10.1.0.0/16 or 10.1.0.5:8080"),
        "MCPADMIN_STDIO_HOSTS": (settings.STDIO_HOSTS, validate_host, "mirror.example.com or 10.0.0.5:8080"),
    }
    for variable, (entries, rule, example) in lists.items():
        for entry in entries:
            try:
                rule(entry)
            except ValidationError as problem:
                yield Error(
                    f"{variable} cannot be used. {problem.message}",
                    hint=f"Separate entries with commas, and write each as {example}.",
                    id="mcpadmin.E019",
                )


def _witnesses() -> Iterator[CheckMessage]:
    known: dict[str, str] = {}
    for address in settings.WITNESSES:
        try:
            place = parsed_witness(address)
        except ValueError as problem:
            yield Error(
                f"MCPADMIN_WITNESSES contains an invalid address. {problem}",
                hint=f"{document('audit-proof.md')} lists the kinds of witnesses.",
                id="mcpadmin.E015",
            )
            continue
        if known.setdefault(place.name, address) != address:
            yield Error(
                f"Two witnesses are {place.name}. Only one of them would get each checkpoint.",
                hint="Give them different hosts, ports or paths: a query string alone does not distinguish them.",
                id="mcpadmin.E015",
            )
        if place.kind is WitnessKind.S3 and not (settings.WITNESS_S3_ACCESS_KEY and settings.WITNESS_S3_SECRET_KEY):
            yield Error(
                f"The witness {place.name} needs an access key.",
                hint="Set MCPADMIN_WITNESS_S3_ACCESS_KEY and MCPADMIN_WITNESS_S3_SECRET_KEY.",
                id="mcpadmin.E015",
            )
    if settings.CHECKPOINT_SECONDS <= 0 or settings.CHECKPOINT_EVENTS <= 0:
        yield Error(
            "MCPADMIN_CHECKPOINT_SECONDS and MCPADMIN_CHECKPOINT_EVENTS must be greater than 0.",
            hint="Correct them, or unset them to use the defaults.",
            id="mcpadmin.E016",
        )


def _written_files() -> Iterator[CheckMessage]:
    """Files that must be kept cannot be in folders where mcpadmin removes files."""
    written = [(Path(directory), "MCPADMIN_EXPORT_DIRECTORIES") for directory in settings.EXPORT_DIRECTORIES]
    written.append((Path(settings.CHECKPOINT_FILE), "MCPADMIN_CHECKPOINT_FILE"))
    for path, variable in written:
        for folder in (Path(settings.DATA_DIR) / name for name in EMPTIED):
            if path.resolve().is_relative_to(folder.resolve()):
                yield Error(
                    f"{path} ({variable}) is in a folder that mcpadmin removes files from.",
                    hint="Choose another folder, preferably outside the data directory.",
                    id="mcpadmin.E022",
                )


def _split(url: str) -> SplitResult:
    """Without any part if `url` is not an address."""
    try:
        parts = urlsplit(url)
        _ = parts.port  # the only part that is read when it is asked for
    except ValueError:
        return urlsplit("")
    return parts
