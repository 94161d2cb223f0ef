"""Every environment variable that mcpadmin reads: what it does, its default, and what this process read.

docs/configuration.md and the page *Settings* are generated from this. No Django here: the settings import it.
"""

import shlex
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import ip_address
from math import isfinite
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

import environ
from environ.compat import ImproperlyConfigured

from mcpadmin import hardening

T = TypeVar("T")

#: names of the variables that `up` itself wrote into the environment of its parts, separated by commas
SET_BY_UP = "MCPADMIN_SET_BY_UP"


@dataclass(frozen=True)
class Variable:
    """All texts are Markdown. `default` is for variables whose default is not fixed in the code. `see` is used only in
    the documentation, where its links work."""

    name: str
    about: str
    default: str = ""
    see: str = ""


@dataclass(frozen=True)
class Read:
    """What a process read: `value` is the default if the variable was not `given`."""

    default: Any
    value: Any
    given: bool


_WORDS: Final = dict.fromkeys(("true", "on", "ok", "yes", "y", "1"), True) | dict.fromkeys(
    ("false", "off", "no", "n", "0"), False
)
_CORRECT: Final = "Correct it, or unset it to use the default."
#: not "sqlite": the settings of SQLite that the audit log needs are those of the file in the data directory
_DATABASES: Final = ("postgres", "postgresql", "pgsql", "psql")


class Environment(environ.Env):
    """Keeps what was read, so that nothing has to list the settings a second time.

    django-environ alone reads "10m" as 10, an unknown word as false, and a value that begins with `$` as the name of
    another variable. Here, a value that cannot be read is refused, naming its variable. A variable without a value
    counts as not set; for a list it is the empty list.
    """

    def __init__(self) -> None:
        super().__init__()
        self.ENVIRON = hardening.variables
        self.read: dict[str, Read] = {}

    def get_value(self, var: str, cast: Any = str, default: Any = None, parse_default: bool = False) -> Any:
        text = self.ENVIRON.get(var, "")
        given = bool(text.strip()) or (cast is list and var in self.ENVIRON)
        value = _parsed(var, text, cast) if given else default
        self.read[var] = Read(default, value, given)
        return value

    def choice(self, name: str, *words: str) -> str:
        """One of the words, in any case; the first is the default."""
        found: str = self.str(name, default=words[0])
        known = {word.lower(): word for word in words}
        if found.strip().lower() not in known:
            raise ImproperlyConfigured(f"{name} is {found[:100]!r}, but must be one of {', '.join(words)}. {_CORRECT}")
        return known[found.strip().lower()]

    def address(self, name: str, default: str = "") -> str:
        found: str = self.str(name, default=default)
        _unquoted(name, lambda: urlsplit(found).port)
        return found

    def file(self, name: str, default: Path) -> Path:
        return Path(_absolute(name, self.str(name, default=str(default))))

    def folders(self, name: str, *default: str) -> list[str]:
        return [_absolute(name, folder) for folder in self.list(name, default=list(default))]

    def database(self, name: str, default: dict[str, Any]) -> dict[str, Any]:
        url: str = self.str(name, default="")
        if not url:
            return default
        if url.partition(":")[0] not in _DATABASES:
            raise ImproperlyConfigured(
                f"{name} must begin with postgres://. Correct it, or unset it to use SQLite in the data directory."
            )
        return _unquoted(name, lambda: self.db_url_config(url))

    def mail(self, name: str) -> dict[str, Any]:
        url: str = self.str(name, default="") or "dummymail://"
        if url.partition(":")[0] not in self.EMAIL_SCHEMES:
            raise ImproperlyConfigured(f"{name} must begin with smtp+tls://, smtp+ssl:// or smtp://. {_CORRECT}")
        return _unquoted(name, lambda: self.email_url_config(url))

    def command_line(self, name: str) -> list[str]:
        try:
            return shlex.split(self.str(name, default=""))
        except ValueError as problem:
            raise ImproperlyConfigured(f"{name} is not a command line ({problem}). {_CORRECT}") from problem


def in_host_header(name: str) -> str:
    """The host as requests name it: an IPv6 address in brackets and in its shortest spelling."""
    try:
        address = ip_address(name.strip("[]"))
    except ValueError:
        return name
    return f"[{address}]" if address.version == 6 else name


def _unquoted(name: str, work: Callable[[], T]) -> T:
    """The result of `work` on an address. Its own error message would quote the address, with part of a password."""
    try:
        return work()
    except ValueError:
        raise ImproperlyConfigured(
            f"{name} is not a valid URL. Percent-encode special characters in its user name and password, "
            "such as / (%2F), # (%23) and @ (%40)."
        ) from None


def _absolute(name: str, path: str) -> str:
    """A relative path would mean a different file for each command, depending on the folder in which it is started."""
    if not Path(path).is_absolute():
        raise ImproperlyConfigured(f"{name} is {path[:100]!r}, but must be an absolute path. {_CORRECT}")
    return path


def _parsed(name: str, text: str, cast: type) -> Any:
    """Raises ImproperlyConfigured."""
    if cast is str:
        return text
    if cast is list:
        return [part.strip() for part in text.split(",") if part.strip()]
    if cast is bool:
        if text.strip().lower() not in _WORDS:
            raise ImproperlyConfigured(f"{name} is {text[:100]!r}, but must be true or false. {_CORRECT}")
        return _WORDS[text.strip().lower()]
    kind = "a whole number" if cast is int else "a number"
    try:
        value = cast(text)
    except ValueError:
        raise ImproperlyConfigured(f"{name} is {text[:100]!r}, which is not {kind}. {_CORRECT}") from None
    if not (isfinite(value) and value >= 0):
        raise ImproperlyConfigured(f"{name} is {text[:100]!r}, but must be 0 or greater. {_CORRECT}")
    return value


def set_by_up() -> frozenset[str]:
    return frozenset(filter(None, hardening.variables.get(SET_BY_UP, "").split(",")))


#: by section of the page
VARIABLES: dict[str, tuple[Variable, ...]] = {
    "Where things live": (
        Variable(
            "MCPADMIN_DATA_DIR",
            "Holds the database, keys, embedded Valkey, collected static files, and in `servers/` the private "
            "folders of stdio servers. Back it up as a whole. Same as `--data-dir`. Its mode is 700, and that of "
            "the files in it 600; `up` tightens the mode of an existing directory and reports it, and refuses one that contains "
            "something else. mcpadmin serves the static files itself. If another web server must serve them, copy "
            "`static/` to a directory that it can read, after each upgrade.",
            default="`data` in the checkout; a per-user folder for a [package](command-line.md#good-to-know)",
        ),
        Variable(
            "MCPADMIN_PUBLIC_URL",
            "The address that browsers use: scheme, host and port, without a path, because mcpadmin needs a host name of "
            "its own. With `https://`, cookies are Secure and get the `__Host-` prefix,"
            " responses carry HSTS, and plain http redirects to https. With `http://`, cookies are Secure "
            "only if the request came over TLS (according to its scheme, `Origin` or a proxy header) or used "
            "another host name. This lets Safari, which rejects Secure cookies on plain http loopback, sign "
            "in. If unset, `up` derives it from `--host` and `--port`.",
        ),
        Variable(
            "MCPADMIN_INSTANCE_NAME",
            "Name shown in the page title and sidebar, to tell installations apart.",
        ),
        Variable(
            "MCPADMIN_HOST",
            "Default of `--host`.",
            default="`127.0.0.1`",
        ),
        Variable(
            "MCPADMIN_WEB_PROCESSES",
            "Default of `--web-processes`.",
            default="`1`",
        ),
        Variable(
            "MCPADMIN_USER",
            "Default of `--user`.",
            default="the owner of the data directory, else `mcpadmin`, else a number",
            see="See *Started by root* below.",
        ),
    ),
    "Keys": (
        Variable(
            "MCPADMIN_SECRET_KEY",
            "Django's secret key: browser sign-ins, agent state, and the recognition of repeated agent calls "
            "and erased resource versions depend on it. A new one signs everyone out; calls that agents repeat run "
            "again, and erased contents that a server still sends are stored again.",
            default="`secret_key` in the data directory, created at first start",
        ),
        Variable(
            "MCPADMIN_KEYRING_FILE",
            "The keys that encrypt credentials. Without them, encrypted values are lost: keep a copy, "
            "separate from the database backups.",
            default="`keyring.json` in the data directory, created at first start",
        ),
        Variable(
            "MCPADMIN_KEYRING",
            'The key ring as JSON, instead of a file: `{"current": "k1", "keys": {"k1": "<32 bytes in '
            'base64>"}}`. Read when a process starts.',
        ),
        Variable(
            "MCPADMIN_KEYRING_COMMAND",
            "A command that prints that JSON, for a KMS or secret manager: the recommended choice for production. "
            "mcpadmin uses a result for at most a minute.",
            see="See *Keys* below.",
        ),
    ),
    "Proof of the audit log": (
        Variable(
            "MCPADMIN_CHECKPOINT_KEY_FILE",
            "The key that signs checkpoints of the audit log. With this file and the database, the log can be"
            " forged: keep it on another volume, and a copy in a safe place. With workers on several "
            "machines, copy it to each.",
            default="`checkpoint_key.json` in the data directory, created at first start",
        ),
        Variable(
            "MCPADMIN_CHECKPOINT_FILE",
            "Where signed checkpoints are appended. Use a file outside the data directory, ideally one that can only "
            "be appended to.",
            default="`checkpoints.jsonl` in the data directory",
        ),
        Variable(
            "MCPADMIN_CHECKPOINT_SECONDS",
            "A checkpoint covers each event within this time.",
        ),
        Variable(
            "MCPADMIN_CHECKPOINT_EVENTS",
            "A checkpoint is written after at most this many events.",
        ),
        Variable(
            "MCPADMIN_WITNESSES",
            "Other places that get each checkpoint: `https://witness.example.com/path` (POST), "
            "`syslog://logs.example.com:6514` (RFC 5424 over TLS), "
            "`s3://s3.example.com/bucket/prefix?region=eu-central-1&days=365` (one object per checkpoint, with an "
            "object lock of that many days). The outbound guard applies.",
        ),
        Variable(
            "MCPADMIN_WITNESS_S3_ACCESS_KEY",
            "Access key of the S3 witness. It needs only permission to put objects.",
        ),
        Variable(
            "MCPADMIN_WITNESS_S3_SECRET_KEY",
            "Secret key of the S3 witness.",
        ),
    ),
    "Database and Redis": (
        Variable(
            "DATABASE_URL",
            "`postgres://user:password@host:5432/name` uses PostgreSQL, 14 or newer, with the encoding UTF8. Python's SQLite "
            "must be 3.35 or newer.",
            default="SQLite in the data directory",
        ),
        Variable(
            "MCPADMIN_DATABASE_CONNECTIONS",
            "Maximum number of PostgreSQL connections per web process or worker, from 10 to 500. Work that finds none free waits up "
            "to 3 s for one.",
            see="See *As a service* below.",
        ),
        Variable(
            "REDIS_URL",
            "`redis://:password@host:6379/0` uses your Redis (7.0 or newer) or Valkey (`rediss://` for TLS, "
            "`unix:///path?db=0` for a socket). It needs `maxmemory-policy noeviction` and a password.",
            default="an embedded Valkey",
            see="See below.",
        ),
        Variable(
            "REDIS_URL_WEB",
            "The Redis address with the ACL user of the web processes. Read by `up`, as is the next one.",
            default="`REDIS_URL`",
        ),
        Variable(
            "REDIS_URL_WORKER",
            "The Redis address with the ACL user of the workers, the first of which runs beat.",
            default="`REDIS_URL`",
        ),
        Variable(
            "MCPADMIN_REDIS_WITHOUT_PASSWORD",
            "Start even if a Redis on another host has no password. Use it only where nothing but mcpadmin can reach that Redis.",
        ),
        Variable(
            "MCPADMIN_VALKEY_SOCKET",
            "Socket of the embedded Valkey. `up` sets it for its processes, and `manage.py` commands find the socket "
            "through the data directory, so you need not set it.",
            default="chosen by `up`",
        ),
    ),
    "Web": (
        Variable(
            "MCPADMIN_ALLOWED_HOSTS",
            "Additional host names that mcpadmin serves.",
            default="the public URL's host and loopback",
        ),
        Variable(
            "MCPADMIN_TRUSTED_ORIGINS",
            "Additional origins (`https://name`) from which mcpadmin accepts forms and sockets.",
            default="the public URL",
        ),
        Variable(
            "MCPADMIN_HSTS_SUBDOMAINS",
            "With an `https://` public URL: HSTS also covers all subdomains (`includeSubDomains`). Set it "
            "only if all of them serve https.",
        ),
        Variable(
            "MCPADMIN_HSTS_PRELOAD",
            "With an `https://` public URL: allows browsers to add this name to their built-in HSTS list "
            "(`preload`). Hard to undo. The list also requires `MCPADMIN_HSTS_SUBDOMAINS`.",
        ),
        Variable(
            "MCPADMIN_TRUSTED_PROXIES",
            "Number of proxies in front of mcpadmin. If above 0, mcpadmin takes the client address from "
            "`X-Forwarded-For`, and with an https public URL the scheme from `X-Forwarded-Proto`.",
        ),
        Variable(
            "MCPADMIN_REQUEST_SECONDS",
            "How long a request (headers and body) may take to arrive, and how long a connection may wait for the "
            "next one. A slower request gets 408, and its connection is closed. Live connections are not "
            "affected.",
        ),
        Variable(
            "MCPADMIN_CONNECTIONS",
            "How many connections one web process keeps. At the limit, the connection that has been idle "
            "longest is closed. Lower if the process can open fewer files: each web process raises its own limit at "
            "startup as far as the system allows (`ulimit -Hn`).",
        ),
        Variable(
            "MCPADMIN_CONNECTIONS_PER_ADDRESS",
            "How many connections one client address may have to one web process (an IPv6 /64 counts as one "
            "address). Not applied if `MCPADMIN_TRUSTED_PROXIES` is set, because all connections then come from "
            "the proxy: limit them there. `0`: no limit.",
        ),
        Variable(
            "MCPADMIN_IMPORT_SECONDS",
            "How much processor time mcpadmin can use to read one configuration in an import. Plain JSON is not "
            "affected.",
        ),
        Variable(
            "MCPADMIN_SESSION_SECONDS",
            "How long a user stays signed in.",
        ),
        Variable(
            "MCPADMIN_INVITATION_DAYS",
            "How many days an invitation link works. Password links work for 24 hours.",
        ),
        Variable(
            "MCPADMIN_EMAIL_URL",
            "Mail server for invitations and password links: `smtp+tls://user:password@host:587` (STARTTLS), "
            "`smtp+ssl://…:465` or `smtp://host:25`. Without it, the administrator passes the link on. The web "
            "process waits up to 10 s for the mail server.",
        ),
        Variable(
            "MCPADMIN_EMAIL_FROM",
            "Sender of these emails.",
            default="`mcpadmin@` and the public host",
        ),
        Variable(
            "MCPADMIN_TRIES_PER_MINUTE",
            "How many addresses one user can try per minute through connection tests, server sign-ins "
            "and webhook tests. Each server in an import counts toward the next import, never toward the current one."
            " `0`: no limit.",
        ),
        Variable(
            "MCPADMIN_SOCKETS_PER_USER",
            "How many live connections (open tabs) one user can have across all web processes. Further tabs "
            "work without live updates.",
        ),
        Variable(
            "MCPADMIN_DEBUG",
            "Django's debug pages. Never enable it on a machine that others can reach.",
        ),
    ),
    "Sessions with MCP servers": (
        Variable(
            "MCPADMIN_HEARTBEAT_SECONDS",
            "How often a worker writes its heartbeat.",
        ),
        Variable(
            "MCPADMIN_STALE_SECONDS",
            "A worker silent for this long counts as dead: other workers take over its sessions, and its calls "
            "become *outcome unknown*. At least twice the heartbeat.",
        ),
        Variable(
            "MCPADMIN_TIME_SCALE",
            "Scales all recovery times: heartbeat, stale period, reconnect delays, circuit breaker, keep-alive, "
            "process sampling, resource polling, checkpoints, retries of webhooks, sinks and witnesses, the "
            "forwarding alert, and the first scheduled tasks after a start. `0.1` makes all of them ten times "
            "faster, for fault tests; from 0.01 to 10. Server timeouts and the drain time are not scaled.",
        ),
        Variable(
            "MCPADMIN_DRAIN_SECONDS",
            "How long a stopping worker waits for calls in flight, and a stopping web process for the requests of agents. "
            "`up` sets it to 7.",
        ),
        Variable(
            "MCPADMIN_WORKERS",
            "How many workers start together (`up --workers` sets it). During the stale period after its start, a "
            "worker leaves the others their share of the sessions.",
        ),
        Variable(
            "MCPADMIN_WORKER_LABELS",
            "Labels of the workers started with this environment (`up --label gpu` sets them too). Only "
            "workers with a server's label connect to that server.",
        ),
        Variable(
            "MCPADMIN_WIRE_MIB",
            "How much recorded protocol is kept per server, in MiB, for all its sessions together, including those "
            "of personal identities. The oldest messages are removed first.",
        ),
        Variable(
            "MCPADMIN_WIRE_DAYS",
            "Replaced by the limit *Protocol messages* on the *Storage* page (initially 7 days). The upgrade copies "
            "the value of this variable, rounded up to whole days. After that it has no effect and `up` says so: "
            "unset it.",
        ),
        Variable(
            "MCPADMIN_WIRE_BODY_KIB",
            "How much of one recorded message is kept, in KiB. Only the beginning of a longer message is kept, as "
            "text; the call still has the complete arguments and results.",
        ),
        Variable(
            "MCPADMIN_PACKAGE_CHECK_HOURS",
            "How often each [pinned package](packages.md) is compared with its registry, to offer updates. Checks "
            "are spread over a fifth of that time, at most 20 every ten minutes. `0`: only on request.",
        ),
        Variable(
            "MCPADMIN_EXPORT_DIRECTORIES",
            "Directories on the workers to which [scheduled exports](forwarding.md) may be written, separated by "
            "commas. They cannot be `exports` or `static` in the data directory, because mcpadmin removes files there.",
        ),
        Variable(
            "MCPADMIN_EXPORT_HOURS",
            "How long an export file can be downloaded, in hours.",
        ),
        Variable(
            "MCPADMIN_FORWARDING_ALERT_SECONDS",
            "How long a [sink](forwarding.md#forwarding) may receive nothing before administrators are warned and an "
            "audit event is recorded.",
        ),
        Variable(
            "MCPADMIN_INBOX_SECONDS",
            "How long a server request waits in the inbox, and how much *Extend deadline* adds, up to ten "
            "times. A request that belongs to a call never waits longer than the call's total timeout "
            "allows.",
        ),
        Variable(
            "MCPADMIN_INBOX_OPEN",
            "How many requests of one server can wait at once. Further requests are refused.",
        ),
        Variable(
            "MCPADMIN_INBOX_PER_MINUTE",
            "How many inbox requests one server can send per minute. Further requests are refused.",
        ),
        Variable(
            "MCPADMIN_RECONNECT_EARLY_CEILING_SECONDS",
            "Longest delay between reconnect attempts in the first minutes of an outage. It is short, so "
            "restarted servers reconnect quickly. It grows if hundreds of sessions of one worker fail at once. A call "
            "that waits for the session triggers an attempt immediately.",
        ),
        Variable(
            "MCPADMIN_RECONNECT_EARLY_MINUTES",
            "Length of these first minutes of an outage. After that, the longest delay doubles with each attempt.",
        ),
        Variable(
            "MCPADMIN_RECONNECT_CEILING_SECONDS",
            "Longest delay between reconnect attempts, however long the outage. mcpadmin never gives up on its own.",
        ),
        Variable(
            "MCPADMIN_RESOURCE_POLL_SECONDS",
            "How often to read a subscribed resource if its server does not report changes (it refuses "
            "subscriptions, or its stream ended). `0`: never.",
        ),
        Variable(
            "MCPADMIN_STDIO_MEMORY_MIB",
            "Memory limit of one stdio server with all its children. A server that exceeds it is stopped and "
            "restarted with the usual delays. Checked every 5 s. `0`: no limit.",
        ),
        Variable(
            "MCPADMIN_STDIO_PROCESSES",
            "Limit on the processes of one stdio server with all its children. A server that exceeds it is "
            "stopped and restarted with the usual delays. Checked every 5 s. `0`: no limit. In addition, if the "
            "kernel counts threads per server, it refuses more than four times as many threads.",
        ),
        Variable(
            "MCPADMIN_STDIO_FILE_MIB",
            "Largest file that a stdio server can write.",
        ),
        Variable(
            "MCPADMIN_STDIO_DISK_MIB",
            "How much disk space the private folders of one stdio server (home, temporary folder, working directory) "
            "can use. A server that exceeds it is stopped and restarted with the usual delays. Measured "
            "when the disk gets fuller, at most every 5 s. `0`: no limit.",
        ),
        Variable(
            "MCPADMIN_STDIO_OPEN_FILES",
            "How many files each process of a stdio server can hold open.",
        ),
        Variable(
            "MCPADMIN_STDIO_HOSTS",
            "Hosts that every stdio server can reach unless its network is *none*, even on a private network:"
            " package mirrors and proxies, for example "
            "`mirror.corp.example,*.pypi.corp.example,10.0.0.5:8080`. Public package registries need no "
            "entry, unless a server is limited to listed hosts.",
        ),
        Variable(
            "MCPADMIN_CONTAINER_RUNTIME",
            "Runs every stdio server in a container of this runtime: `podman`, a path, or a command line with"
            " options such as `podman --storage-driver=overlay`. The worker tests it at startup; if it does not "
            "work, *Sessions* says why, and the worker confines commands without it.",
            see="See [Containers](architecture.md#containers).",
        ),
        Variable(
            "MCPADMIN_CONTAINER_IMAGE",
            "An image on the worker's machine that replaces the machine's `/usr`, `/bin`, `/lib` and `/etc` in "
            "these containers. It needs `python3` (3.8 or newer) and the programs that servers run; it is never "
            "pulled. Without it, servers run the machine's own programs, mounted read-only. Runtimes that can "
            "only run images, such as Docker, need it.",
        ),
        Variable(
            "MCPADMIN_STDIO_UNCONFINED",
            "Runs stdio servers without confinement: each can then do everything that mcpadmin can. Every page "
            "warns administrators while it is set. Without it, a worker that cannot confine commands does not "
            "start any.",
            see="See *Confinement of commands* in [architecture.md](architecture.md).",
        ),
        Variable(
            "MCPADMIN_ALLOW_LOOPBACK",
            "Whether HTTP connections to this machine's own addresses are allowed. Sign-ins go there only for servers that are there.",
            default="true when the public URL is on loopback",
        ),
        Variable(
            "MCPADMIN_PERSONAL_SESSIONS",
            "How many users can have a personal identity, and thus their own session, on one server.",
        ),
        Variable(
            "MCPADMIN_AGENT_REQUESTS_PER_SECOND",
            "How many requests per second one token can make at the [endpoint for agents](agents.md), averaged over "
            "4 s.",
        ),
        Variable(
            "MCPADMIN_AGENT_REQUESTS_PER_PERSON",
            "How many requests per second all tokens of one user can make together, in bursts of up to 4 s' "
            "worth. Raise it for a service account that many agents share.",
        ),
        Variable(
            "MCPADMIN_AGENT_CALLS_IN_FLIGHT",
            "How many requests of one token can run at once.",
        ),
        Variable(
            "MCPADMIN_AGENT_PERSON_IN_FLIGHT",
            "How many requests of all tokens of one user can run at once.",
        ),
        Variable(
            "MCPADMIN_PLAIN_HTTP_HOSTS",
            "Hosts (`host:port`) to which credentials may be sent without TLS. Loopback is always allowed.",
        ),
        Variable(
            "MCPADMIN_REFERENCE_VARIABLES",
            "Patterns of worker variables that `${NAME}` can refer to: in headers, variables, arguments, the "
            "working directory, the path and query of a URL, and the tokens of workload identity and "
            "enterprise-managed authorization. In arguments and the working directory, variables of the "
            "server take precedence, whatever the patterns say. `$${` is a literal `${`. People can use only the names "
            "that were granted to them under *Credentials*, *References* or with `manage.py grant_reference`; "
            "superusers can use all.",
        ),
        Variable(
            "MCPADMIN_REFERENCE_FOLDERS",
            "Directories on the workers whose files `${file:/path}` can refer to.",
        ),
        Variable(
            "MCPADMIN_INHERITED_VARIABLES",
            "Patterns of worker variables passed to every stdio server: what a machine needs to reach the "
            "internet and its package mirrors, for example "
            "`HTTP_PROXY,HTTPS_PROXY,NO_PROXY,http_proxy,https_proxy,no_proxy,SSL_CERT_FILE,NODE_EXTRA_CA_CERTS,npm_config_*,UV_*,PIP_*`. "
            "The form of a stdio server lists the names. Variables of the server take precedence. mcpadmin's "
            "own variables and `PGPASS*` are never passed on. Without this setting, a server gets the worker's `PATH`, `LANG` "
            "and `TZ`, a private home, and its own variables. Servers can reach the hosts of URLs in these "
            "variables (a proxy can lead them further) and read the files that they name.",
        ),
        Variable(
            "MCPADMIN_ALLOWED_NETWORKS",
            "Private networks (`10.1.0.0/16`) to which HTTP and WebSocket connections are allowed. Add a port"
            " to allow only that one (`10.1.0.5:8080`, `[fd00::5]:8080`). `64:ff9b::/96` opens private networks "
            "behind a NAT64 gateway only if they are listed too. Cloud metadata services stay blocked.",
        ),
        Variable(
            "MCPADMIN_OUTBOUND_PROXY",
            "An HTTP proxy (`http://user:password@proxy.example:3128`) for every outbound connection of the "
            "workers: to servers over HTTP, HTTP+SSE and WebSocket, to authorization servers, webhooks, sinks, "
            "witnesses and stores. Each connection is a `CONNECT` tunnel, even for plain `http://`. mcpadmin "
            "resolves the name, checks the addresses as without a proxy, and passes the address and port to the "
            "proxy, so the proxy cannot be sent elsewhere; TLS and the `Host` header carry the name. Workers "
            "therefore need DNS that resolves the servers, and the proxy must allow `CONNECT` to their addresses "
            "and ports. The proxy's own address is not checked. Local (stdio) servers have their own environment.",
        ),
        Variable(
            "MCPADMIN_OUTBOUND_PROXY_EXCEPT",
            "What to reach without the proxy: host names, each including its subdomains (`corp.example`), and "
            "networks (`10.0.0.0/8`). Loopback never uses the proxy.",
        ),
    ),
    "Limits on what a server may send": (
        Variable(
            "MCPADMIN_LIMIT_MESSAGE_BYTES",
            "One JSON-RPC message, in both directions. Larger messages are not read.",
        ),
        Variable(
            "MCPADMIN_LIMIT_MESSAGE_VALUES",
            "Members, elements, arrays and objects of one message in total.",
        ),
        Variable(
            "MCPADMIN_LIMIT_BATCH_MESSAGES",
            "Messages of one batch (revision 2025-03-26 only).",
        ),
        Variable(
            "MCPADMIN_LIMIT_DEPTH",
            "Depth of nested arrays and objects.",
        ),
        Variable(
            "MCPADMIN_LIMIT_INFLATED_BYTES",
            "One HTTP response or WebSocket message after decompression. Never below the message size.",
        ),
        Variable(
            "MCPADMIN_LIMIT_INFLATED_RATIO",
            "Maximum ratio of decompressed to compressed size of a response, checked beyond 1 MiB.",
        ),
        Variable(
            "MCPADMIN_LIMIT_STREAM_BYTES",
            "An event stream between two messages: comments, ids, other events.",
        ),
        Variable(
            "MCPADMIN_LIMIT_LINE_BYTES",
            "One line on stdout. Bytes beyond the message size are read and discarded; beyond this limit the "
            "connection ends.",
        ),
        Variable(
            "MCPADMIN_LIMIT_HEADER_COUNT",
            "Header lines of one HTTP response.",
        ),
        Variable(
            "MCPADMIN_LIMIT_HEADER_BYTES",
            "All headers of one HTTP response.",
        ),
        Variable(
            "MCPADMIN_LIMIT_LIST_ITEMS",
            "Entries of one list (tools, resources, prompts). A longer list is truncated; the entries read so far are kept.",
        ),
        Variable(
            "MCPADMIN_LIMIT_LIST_PAGES",
            "Pages of one list.",
        ),
        Variable(
            "MCPADMIN_LIMIT_LIST_BYTES",
            "All pages of one list in total.",
        ),
        Variable(
            "MCPADMIN_LIMIT_PENDING_REQUESTS",
            "Our own requests in flight in one session.",
        ),
        Variable(
            "MCPADMIN_LIMIT_OPEN_SERVER_REQUESTS",
            "Server requests waiting for an answer. Further requests get an error.",
        ),
        Variable(
            "MCPADMIN_LIMIT_SERVER_REQUESTS_PER_MINUTE",
            "Requests that the server can send per minute.",
        ),
        Variable(
            "MCPADMIN_LIMIT_ROUNDS",
            "Rounds in which one call can ask for more input.",
        ),
        Variable(
            "MCPADMIN_LIMIT_REQUEST_STATE_BYTES",
            "State that the client returns to the server from round to round.",
        ),
        Variable(
            "MCPADMIN_LIMIT_EVENTS_PER_SECOND",
            "Events (log messages, notifications) handled per second; the rest are counted and dropped. Bursts of "
            "up to five times as many are allowed.",
        ),
    ),
    "Logs": (
        Variable(
            "MCPADMIN_LOG_LEVEL",
            "`DEBUG`, `INFO`, `WARNING` or `ERROR`.",
        ),
        Variable(
            "MCPADMIN_LOG_FORMAT",
            "`plain` (text), `json`, or `auto`: text on a terminal, JSON elsewhere.",
        ),
    ),
}
