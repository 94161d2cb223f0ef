"""All settings, read from the environment once. docs/configuration.md explains each for operators."""

import secrets
import ssl
import sys
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from mcpadmin import __version__, hardening, installation, keys, variables
from mcpadmin.up import valkey
from mcpadmin.variables import in_host_header

BASE_DIR = installation.ROOT
env = variables.Environment()
PRIVATE_VARIABLES = hardening.private  # secrets that were removed from the environment

# --- where things live -------------------------------------------------------------------------------------------
DATA_DIR = Path(env.str("MCPADMIN_DATA_DIR", default=str(installation.default_data_dir()))).resolve()
PUBLIC_URL = env.address("MCPADMIN_PUBLIC_URL", default="http://127.0.0.1:8000").rstrip("/")
VERSION = __version__
PROGRAM = installation.PROGRAM
INSTANCE_NAME = env.str("MCPADMIN_INSTANCE_NAME", default="mcpadmin")

# --- keys --------------------------------------------------------------------------------------------------------
KEYRING_FILE = env.file("MCPADMIN_KEYRING_FILE", default=DATA_DIR / "keyring.json")
KEYRING = env.str("MCPADMIN_KEYRING", default="")  # the key ring itself, where no file can be kept
KEYRING_COMMAND = env.str("MCPADMIN_KEYRING_COMMAND", default="")  # prints the key ring: for a KMS or a secret manager
# Signs the checkpoints of the audit log. The further away from the database it is kept, the better.
CHECKPOINT_KEY_FILE = env.file("MCPADMIN_CHECKPOINT_KEY_FILE", default=DATA_DIR / "checkpoint_key.json")
KEY_PROBLEM = ""  # read by mcpadmin.checks and `up`, which turn it into one clear line
try:
    SECRET_KEY = env.str("MCPADMIN_SECRET_KEY", default="") or keys.read_or_create_secret_key(DATA_DIR / "secret_key")
    if not (KEYRING or KEYRING_COMMAND):
        keys.ensure_keyring(KEYRING_FILE)
    keys.ensure_checkpoint_key(CHECKPOINT_KEY_FILE, urlsplit(PUBLIC_URL).netloc.rpartition("@")[2] or "mcpadmin")
except OSError as problem:
    SECRET_KEY = secrets.token_urlsafe(48)
    KEY_PROBLEM = f"a key file cannot be read or created ({problem.strerror}: {problem.filename or DATA_DIR})"

# --- web ---------------------------------------------------------------------------------------------------------
DEBUG = env.bool("MCPADMIN_DEBUG", default=False)
_public = urlsplit(PUBLIC_URL)
_https = _public.scheme == "https"
ALLOWED_HOSTS = [
    in_host_header(_public.hostname or "127.0.0.1"),
    "127.0.0.1",
    "localhost",
    "[::1]",
    *map(in_host_header, env.list("MCPADMIN_ALLOWED_HOSTS", default=[])),
]
CSRF_TRUSTED_ORIGINS = [f"{_public.scheme}://{_public.netloc}", *env.list("MCPADMIN_TRUSTED_ORIGINS", default=[])]
TRUSTED_PROXIES = env.int("MCPADMIN_TRUSTED_PROXIES", default=0)
if _https and TRUSTED_PROXIES:
    SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
SECURE_SSL_REDIRECT = _https
SECURE_HSTS_SECONDS = 31_536_000 if _https else 0
# For this host alone: covering subdomains, or the browsers' preload list, is an explicit choice of the operator.
SECURE_HSTS_INCLUDE_SUBDOMAINS = env.bool("MCPADMIN_HSTS_SUBDOMAINS", default=False) and _https
SILENCED_SYSTEM_CHECKS = ["security.W005", "security.W021"]  # which require both for everybody
SECURE_HSTS_PRELOAD = env.bool("MCPADMIN_HSTS_PRELOAD", default=False) and _https
# Not "no-referrer": Chromium then sends "Origin: null" with forms, which the CSRF check refuses.
SECURE_REFERRER_POLICY = "same-origin"
SECURE_CROSS_ORIGIN_OPENER_POLICY = "same-origin"
# Load balancers and `up` ask for these over plain http.
SECURE_REDIRECT_EXEMPT = [r"^healthz$", r"^readyz$"]
_loopback = _public.hostname in {"127.0.0.1", "localhost", "::1"}
# Safari rejects Secure cookies over http, even on loopback. If PUBLIC_URL is http, mcpadmin.middleware still marks the
# cookies of every request that came over TLS.
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = _https
SESSION_COOKIE_NAME = "__Host-session" if SESSION_COOKIE_SECURE else "mcpadmin_session"
CSRF_COOKIE_NAME = "__Host-csrf" if CSRF_COOKIE_SECURE else "mcpadmin_csrf"
KNOWN_BROWSER_COOKIE_NAME = "__Host-browser" if SESSION_COOKIE_SECURE else "mcpadmin_browser"
MESSAGES_COOKIE_NAME = "__Host-messages" if SESSION_COOKIE_SECURE else "mcpadmin_messages"
MESSAGE_STORAGE = "mcpadmin.messages.Messages"
SESSION_COOKIE_SAMESITE = CSRF_COOKIE_SAMESITE = "Lax"
SESSION_COOKIE_AGE = env.int("MCPADMIN_SESSION_SECONDS", default=8 * 3600)
SESSION_SAVE_EVERY_REQUEST = False
CSRF_FAILURE_VIEW = "mcpadmin.accounts.csrf_failure"
X_FRAME_OPTIONS = "DENY"
DATA_UPLOAD_MAX_MEMORY_SIZE = 2_621_440
# An uploaded file may contain secrets: it stays in memory and is never written to disk unencrypted.
FILE_UPLOAD_HANDLERS = ["django.core.files.uploadhandler.MemoryFileUploadHandler"]
# What strangers may hold open: how long a request may take to arrive, and how many connections one web process keeps.
REQUEST_SECONDS = env.float("MCPADMIN_REQUEST_SECONDS", default=30.0)
CONNECTIONS = env.int("MCPADMIN_CONNECTIONS", default=4_096)
CONNECTIONS_PER_ADDRESS = env.int("MCPADMIN_CONNECTIONS_PER_ADDRESS", default=1_024)
# Reading one configuration in an import, in a separate process.
IMPORT_SECONDS = env.float("MCPADMIN_IMPORT_SECONDS", default=3.0)
DATA_UPLOAD_MAX_NUMBER_FIELDS = 5_000  # a generated tool form of 2,000 nodes with its "send" boxes

INSTALLED_APPS = [
    "mcpadmin",
    "servers",
    "sessions",
    "channels",
    "allauth",
    "allauth.account",
    "allauth.usersessions",
    "django_htmx",
    "csp",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
]
MIDDLEWARE = [
    "mcpadmin.middleware.RequestContextMiddleware",
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "csp.middleware.CSPMiddleware",
    "mcpadmin.middleware.SecureCookieMiddleware",
    "mcpadmin.middleware.CompressedPages",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "mcpadmin.accounts.SignInRequired",
    "mcpadmin.accounts.BrowserSessionMiddleware",
    "mcpadmin.accounts.UncountedAttempts",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
    "allauth.account.middleware.AccountMiddleware",
    "mcpadmin.errors.NoNullCharacters",
    "mcpadmin.errors.FormsOnly",
    "mcpadmin.errors.KeyRingMiddleware",
    "mcpadmin.errors.DeletedMeanwhile",
    "mcpadmin.errors.ReplacedMeanwhile",
]
ROOT_URLCONF = "mcpadmin.urls"
ASGI_APPLICATION = "mcpadmin.asgi.application"
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [installation.SHARED / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "mcpadmin.context.instance",
            ],
            # A feature's tags live in the feature's folder, not in a `templatetags` package.
            "libraries": {
                "kit": "servers.kit.tags",
                "calls": "sessions.calls.tags",
                "catalog": "sessions.catalog.tags",
                "inbox": "sessions.inbox.tags",
                "looks": "sessions.calls.looks",
                "connection": "sessions.overview.tags",
                "packages": "servers.packages.tags",
                "registration": "servers.registration.tags",
                "subscriptions": "sessions.subscriptions.tags",
                "wire": "sessions.wire.tags",
            },
        },
    },
]
CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": ["'none'"],
        "script-src": ["'self'"],
        "style-src": ["'self'"],
        "img-src": ["'self'", "data:"],
        "media-src": ["'self'", "data:"],
        "font-src": ["'self'"],
        "connect-src": ["'self'"],
        "form-action": ["'self'"],
        "base-uri": ["'none'"],
        "frame-ancestors": ["'none'"],
        "report-uri": ["/browser-reports/"],
    }
}

# --- static files ------------------------------------------------------------------------------------------------
STATIC_URL = "/static/"
STATICFILES_DIRS = [installation.SHARED / "static"]
STATIC_ROOT = DATA_DIR / "static"
# `up` collects once after an upgrade; without a collection (tests, plain manage.py) files come from their source.
STATIC_COLLECTED = (STATIC_ROOT / "staticfiles.json").exists()
WHITENOISE_USE_FINDERS = not STATIC_COLLECTED
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {
        "BACKEND": "mcpadmin.static_files.HashedStorage"
        if STATIC_COLLECTED
        else "django.contrib.staticfiles.storage.StaticFilesStorage"
    },
}

# --- database ----------------------------------------------------------------------------------------------------
_sqlite = {
    "ENGINE": "django.db.backends.sqlite3",
    "NAME": str(DATA_DIR / "mcpadmin.sqlite3"),
    "OPTIONS": {
        # IMMEDIATE: a deferred read-then-write transaction fails with "database is locked" whatever the time-out.
        "transaction_mode": "IMMEDIATE",
        "timeout": 20,
        # FULL: the audit log must survive a power cut, not only a crash.
        # A call writes some 60 pages, most of them the same ones each time: by default every 20 calls or so would wait
        # for all of them to be copied into the database file. 8,000 pages are 32 MB. The audit writers copy them every two
        # seconds beside their work: servers/audit/sqlite.py.
        "init_command": "PRAGMA journal_mode=WAL;PRAGMA synchronous=FULL;PRAGMA foreign_keys=ON;"
        "PRAGMA wal_autocheckpoint=8000;"
        # 16 MB at most a connection: a search reads thousands of scattered pages, and the default keeps 500 of them.
        "PRAGMA cache_size=-16000;"
        # The triggers of the audit events also refuse INSERT OR REPLACE.
        "PRAGMA recursive_triggers=ON;"
        # What is erased leaves the file. It is the default of Debian's SQLite, but not of every Python's.
        "PRAGMA secure_delete=ON;",
    },
}
# A server that loses its power or its network closes no connection: without these, a thread that waits for its answer
# would wait for up to a quarter of an hour. The query of DATABASE_URL may set others.
_postgres_options = {
    "connect_timeout": 5,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 15_000,
}
DATABASES: dict[str, Any] = {"default": env.database("DATABASE_URL", default=_sqlite)}
DATABASE_CONNECTIONS = env.int("MCPADMIN_DATABASE_CONNECTIONS", default=16)
if DATABASES["default"]["ENGINE"].endswith("postgresql"):
    from mcpadmin.pooled_connection import PooledConnection  # SQLite needs no driver

    # A socket directory comes percent-encoded; the writer keeps one connection of the pool for good.
    DATABASES["default"]["HOST"] = unquote(DATABASES["default"].get("HOST") or "")
    # Where the server is away, each that waits is told after `timeout`. By default, attempts to connect would come ever more
    # rarely for five minutes, and an outage that has ended would go on for as long again.
    _pool = {"min_size": 2, "max_size": DATABASE_CONNECTIONS, "timeout": 3, "reconnect_timeout": 5}
    _pool["connection_class"] = PooledConnection
    DATABASES["default"]["OPTIONS"] = _postgres_options | DATABASES["default"].get("OPTIONS", {}) | {"pool": _pool}
    # One round trip for each connection that is taken from the pool. Without it, each that was open while the server
    # restarted would fail the page that gets it.
    DATABASES["default"]["CONN_HEALTH_CHECKS"] = True
# Asynchronous requests have threads of their own: a kept connection would be a leaked descriptor. Those of the pages keep
# theirs: mcpadmin/web/handler.py.
DATABASES["default"]["CONN_MAX_AGE"] = 0
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

# --- Redis: broker, channel layer, cache -------------------------------------------------------------------------
VALKEY_DIR = DATA_DIR / "valkey"
VALKEY_SOCKET = Path(env.str("MCPADMIN_VALKEY_SOCKET", default=str(valkey.recorded_socket(VALKEY_DIR))))
REDIS_URL = env.address("REDIS_URL")
# The addresses of individual parts, by name: `up` passes each part its own as REDIS_URL.
REDIS_URLS = {name: env.address(name) for name in hardening.variables if name.startswith("REDIS_URL_")}
REDIS_WITHOUT_PASSWORD = env.bool("MCPADMIN_REDIS_WITHOUT_PASSWORD", default=False)
_valkey_login = hardening.variables.get(valkey.LOGIN_VARIABLE) or valkey.login_of_commands(VALKEY_DIR)
_valkey_url = f"unix://{_valkey_login}@{VALKEY_SOCKET}" if _valkey_login else f"unix://{VALKEY_SOCKET}"
_redis_url = REDIS_URL or _valkey_url
# kombu spells the address of a unix socket in its own way; both spellings name the transport of mcpadmin/broker.py
CELERY_BROKER_TRANSPORT = "mcpadmin"
CELERY_BROKER_URL = _redis_url.replace("unix://", "mcpadmin+socket://", 1).replace("?db=", "?virtual_host=", 1)
if urlsplit(_redis_url).scheme == "rediss":  # unless the address says otherwise (ssl_cert_reqs=none)
    CELERY_BROKER_USE_SSL = {"ssl_cert_reqs": ssl.CERT_REQUIRED}
_layer_url = REDIS_URL or f"{_valkey_url}?db=1"
CHANNEL_LAYERS: dict[str, dict[str, Any]] = {
    "default": {
        "BACKEND": "channels_redis.pubsub.RedisPubSubChannelLayer",
        "CONFIG": {"hosts": [_layer_url], "prefix": valkey.LAYER},
    }
}
CACHES: dict[str, dict[str, Any]] = {
    "default": {
        "BACKEND": "mcpadmin.cache.SignedRedisCache",
        "LOCATION": REDIS_URL or f"{_valkey_url}?db=2",
        "KEY_PREFIX": valkey.CACHE,
        "OPTIONS": {"socket_timeout": 1, "socket_connect_timeout": 1},
    }
}

# --- Celery ------------------------------------------------------------------------------------------------------
CELERY_TASK_IGNORE_RESULT = True
CELERY_TASK_ACKS_LATE = False
CELERY_TASK_SERIALIZER = "json"
CELERY_ACCEPT_CONTENT = ["json"]
CELERY_WORKER_POOL = "threads"
CELERY_WORKER_CONCURRENCY = 4
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
# Nothing of ours controls or watches workers through the broker, where anyone who reaches it could do the same.
CELERY_WORKER_ENABLE_REMOTE_CONTROL = False
CELERY_WORKER_SEND_TASK_EVENTS = False
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
# Concerns only tasks that are acknowledged late, of which there are none. Without it, Celery warns at each reconnect.
CELERY_WORKER_CANCEL_LONG_RUNNING_TASKS_ON_CONNECTION_LOSS = True
CELERY_BROKER_CONNECTION_MAX_RETRIES = None  # by default, 46 minutes without Redis end a worker and its sessions
CELERY_BEAT_SCHEDULE = {
    "housekeeping": {"task": "sessions.housekeeping", "schedule": 300.0, "options": {"expires": 240}},
    "call-statistics": {"task": "sessions.count_calls", "schedule": 60.0, "options": {"expires": 50}},
    "package-checks": {"task": "sessions.check_packages", "schedule": 600.0, "options": {"expires": 500}},
    "retention": {"task": "sessions.retention", "schedule": 600.0, "options": {"expires": 500}},
    "exports": {"task": "servers.run_export_schedules", "schedule": 60.0, "options": {"expires": 50}},
    # Daily jobs: each hourly message checks whether a day has passed, so a lost message costs an hour and not a day.
    "audit-verification": {"task": "servers.verify_audit_log", "schedule": 3600.0, "options": {"expires": 3000}},
}
# Measured by default: a dead Redis blocks a publish for 6 s, a hung one forever. A publish is a hint, so it fails fast.
CELERY_BROKER_TRANSPORT_OPTIONS = {
    "global_keyprefix": valkey.QUEUE,
    "socket_timeout": 1,
    "socket_connect_timeout": 1,
    "max_retries": 1,
    "interval_start": 0,
    "interval_step": 0,
    "interval_max": 0,
}

# --- sign-in -----------------------------------------------------------------------------------------------------
AUTHENTICATION_BACKENDS = ["mcpadmin.accounts.Backend"]
PASSWORD_HASHERS = ["django.contrib.auth.hashers.Argon2PasswordHasher"]
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.UserAttributeSimilarityValidator"},
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator", "OPTIONS": {"min_length": 10}},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
    {"NAME": "django.contrib.auth.password_validation.NumericPasswordValidator"},
]
LOGIN_URL = "account_login"
LOGIN_REDIRECT_URL = "overview"
ACCOUNT_FORMS = {
    "login": "mcpadmin.account_forms.SignInForm",
    "change_password": "mcpadmin.account_forms.PasswordForm",
}
ACCOUNT_ADAPTER = "mcpadmin.accounts.ClosedSignup"
ACCOUNT_LOGIN_METHODS = {"username"}
ACCOUNT_SIGNUP_FIELDS = ["username*", "password1*", "password2*"]
ACCOUNT_EMAIL_VERIFICATION = "none"
# How long an invitation link works.
INVITATION_DAYS = env.float("MCPADMIN_INVITATION_DAYS", default=7.0)
# Invitations and password links are mailed too where a mail server is named: smtp+tls://user:password@host:587
EMAIL_URL = env.str("MCPADMIN_EMAIL_URL", default="")
_mail = env.mail("MCPADMIN_EMAIL_URL")
EMAIL_BACKEND = _mail["EMAIL_BACKEND"]
EMAIL_HOST, EMAIL_PORT = _mail["EMAIL_HOST"] or "localhost", _mail["EMAIL_PORT"] or 25
EMAIL_HOST_USER, EMAIL_HOST_PASSWORD = _mail["EMAIL_HOST_USER"] or "", _mail["EMAIL_HOST_PASSWORD"] or ""
EMAIL_USE_TLS, EMAIL_USE_SSL = _mail.get("EMAIL_USE_TLS", False), _mail.get("EMAIL_USE_SSL", False)
EMAIL_TIMEOUT = 10
DEFAULT_FROM_EMAIL = env.str("MCPADMIN_EMAIL_FROM", default=f"mcpadmin@{_public.hostname or 'localhost'}")
ACCOUNT_LOGOUT_REDIRECT_URL = "account_login"
ACCOUNT_RATE_LIMITS = {"login": "30/m/ip", "login_failed": "10/m/ip,5/5m/key"}

# --- sessions with MCP servers -----------------------------------------------------------------------------------
TIME_SCALE = env.float("MCPADMIN_TIME_SCALE", default=1.0)  # 0.1: everything below that waits, ten times faster
HEARTBEAT_SECONDS = TIME_SCALE * env.float("MCPADMIN_HEARTBEAT_SECONDS", default=3.0)
STALE_SECONDS = TIME_SCALE * env.float("MCPADMIN_STALE_SECONDS", default=10.0)
# How many workers start together: each leaves the others their share of the sessions.
WORKERS = env.int("MCPADMIN_WORKERS", default=1)
DRAIN_SECONDS = env.float("MCPADMIN_DRAIN_SECONDS", default=30.0)
# Questions of servers in the inbox: how long a person has, how many of one server wait at once, how many a minute.
INBOX_SECONDS = env.float("MCPADMIN_INBOX_SECONDS", default=600.0)
INBOX_OPEN = env.int("MCPADMIN_INBOX_OPEN", default=4)
INBOX_PER_MINUTE = env.int("MCPADMIN_INBOX_PER_MINUTE", default=10)
# How often to read a subscribed resource whose server does not report changes; 0: never.
RESOURCE_POLL_SECONDS = TIME_SCALE * env.float("MCPADMIN_RESOURCE_POLL_SECONDS", default=60.0)
# What one stdio server may use, with all its children, before it is stopped and restarted; 0: no limit.
STDIO_MEMORY_MIB = env.int("MCPADMIN_STDIO_MEMORY_MIB", default=4096)
STDIO_PROCESSES = env.int("MCPADMIN_STDIO_PROCESSES", default=300)
# Largest file that a stdio server may write, what its own folders may take, and how many files each process may hold open.
STDIO_FILE_MIB = env.int("MCPADMIN_STDIO_FILE_MIB", default=1024)
STDIO_DISK_MIB = env.int("MCPADMIN_STDIO_DISK_MIB", default=10_240)
STDIO_OPEN_FILES = env.int("MCPADMIN_STDIO_OPEN_FILES", default=4096)
# Hosts that every stdio server can reach besides what its registration grants: package mirrors.
STDIO_HOSTS = env.list("MCPADMIN_STDIO_HOSTS", default=[])
# Run stdio servers in containers: the command line of a runtime, and an image instead of the machine's own programs.
CONTAINER_RUNTIME = env.command_line("MCPADMIN_CONTAINER_RUNTIME")
CONTAINER_IMAGE = env.str("MCPADMIN_CONTAINER_IMAGE", default="")
# Run stdio servers without confinement, with all that mcpadmin itself may do.
STDIO_UNCONFINED = env.bool("MCPADMIN_STDIO_UNCONFINED", default=False)
# What is kept of the wire of each server: the newest messages by size, and how much of each message.
WIRE_MIB = env.float("MCPADMIN_WIRE_MIB", default=16.0)
# Only read by the migration that moved it to the limits of the Storage page; a check warns of it.
WIRE_DAYS = env.float("MCPADMIN_WIRE_DAYS", default=None)
WIRE_BODY_KIB = env.int("MCPADMIN_WIRE_BODY_KIB", default=64)
WORKER_LABELS = env.list("MCPADMIN_WORKER_LABELS", default=[])
# How often a pinned package is compared with its registry, in hours; 0: only when a person asks.
PACKAGE_CHECK_HOURS = env.float("MCPADMIN_PACKAGE_CHECK_HOURS", default=24.0)
# For how long nothing may reach a sink before pages warn of it and the audit log has an event.
FORWARDING_ALERT_SECONDS = TIME_SCALE * env.float("MCPADMIN_FORWARDING_ALERT_SECONDS", default=300.0)
# How long the file of an export can be downloaded.
EXPORT_HOURS = env.float("MCPADMIN_EXPORT_HOURS", default=24.0)
# Where scheduled exports may be written to: folders that exist on the workers. Each schedule chooses one.
EXPORT_DIRECTORIES = env.folders("MCPADMIN_EXPORT_DIRECTORIES")
# How many addresses one person may have tried in a minute: connection tests, sign-ins, tests of webhooks. An import
# counts each of its servers; the next one waits.
TRIES_PER_MINUTE = env.int("MCPADMIN_TRIES_PER_MINUTE", default=10)
SOCKETS_PER_USER = env.int("MCPADMIN_SOCKETS_PER_USER", default=10)
INLINE_PAYLOAD_BYTES = 64 * 1024
RECONNECT_EARLY_CEILING_SECONDS = TIME_SCALE * env.float("MCPADMIN_RECONNECT_EARLY_CEILING_SECONDS", default=8.0)
RECONNECT_EARLY_MINUTES = TIME_SCALE * env.float("MCPADMIN_RECONNECT_EARLY_MINUTES", default=5.0)
RECONNECT_CEILING_SECONDS = TIME_SCALE * env.float("MCPADMIN_RECONNECT_CEILING_SECONDS", default=60.0)
ALLOW_LOOPBACK = env.bool("MCPADMIN_ALLOW_LOOPBACK", default=_loopback)
ALLOWED_NETWORKS = env.list("MCPADMIN_ALLOWED_NETWORKS", default=[])
OUTBOUND_PROXY = env.address("MCPADMIN_OUTBOUND_PROXY")
OUTBOUND_PROXY_EXCEPT = env.list("MCPADMIN_OUTBOUND_PROXY_EXCEPT", default=[])
# Hosts (host:port) to which credentials may be sent over plain http. Loopback is always allowed.
#: own identities of people at one server, hence sessions beside the shared one
PERSONAL_SESSIONS = env.int("MCPADMIN_PERSONAL_SESSIONS", default=100)
AGENT_REQUESTS_PER_SECOND = env.int("MCPADMIN_AGENT_REQUESTS_PER_SECOND", default=10)
AGENT_REQUESTS_PER_PERSON = env.int("MCPADMIN_AGENT_REQUESTS_PER_PERSON", default=30)
AGENT_CALLS_IN_FLIGHT = env.int("MCPADMIN_AGENT_CALLS_IN_FLIGHT", default=20)
AGENT_PERSON_IN_FLIGHT = env.int("MCPADMIN_AGENT_PERSON_IN_FLIGHT", default=60)
PLAIN_HTTP_HOSTS = env.list("MCPADMIN_PLAIN_HTTP_HOSTS", default=[])
# What ${NAME} and ${file:/path} in headers and variables may name: patterns of variables of the worker, and folders.
REFERENCE_VARIABLES = env.list("MCPADMIN_REFERENCE_VARIABLES", default=["MCP_*"])
REFERENCE_FOLDERS = env.folders("MCPADMIN_REFERENCE_FOLDERS", "/run/secrets")
# Variables of the worker, by pattern, that every stdio server gets: proxies, certificates, package managers.
INHERITED_VARIABLES = env.list("MCPADMIN_INHERITED_VARIABLES", default=[])

# What a server may send. The names are those of sessions/mcp/core/limits.py, whose defaults these are; a registration
# may set its own.
_KIB, _MIB = 1024, 1024 * 1024
LIMITS = {
    "message_bytes": env.int("MCPADMIN_LIMIT_MESSAGE_BYTES", default=12 * _MIB),
    "message_values": env.int("MCPADMIN_LIMIT_MESSAGE_VALUES", default=500_000),
    "batch_messages": env.int("MCPADMIN_LIMIT_BATCH_MESSAGES", default=1_000),
    "depth": env.int("MCPADMIN_LIMIT_DEPTH", default=64),
    "inflated_bytes": env.int("MCPADMIN_LIMIT_INFLATED_BYTES", default=12 * _MIB),
    "inflated_ratio": env.int("MCPADMIN_LIMIT_INFLATED_RATIO", default=100),
    "stream_bytes": env.int("MCPADMIN_LIMIT_STREAM_BYTES", default=16 * _MIB),
    "line_bytes": env.int("MCPADMIN_LIMIT_LINE_BYTES", default=128 * _MIB),
    "header_count": env.int("MCPADMIN_LIMIT_HEADER_COUNT", default=200),
    "header_bytes": env.int("MCPADMIN_LIMIT_HEADER_BYTES", default=100 * _KIB),
    "list_items": env.int("MCPADMIN_LIMIT_LIST_ITEMS", default=10_000),
    "list_pages": env.int("MCPADMIN_LIMIT_LIST_PAGES", default=500),
    "list_bytes": env.int("MCPADMIN_LIMIT_LIST_BYTES", default=32 * _MIB),
    "pending_requests": env.int("MCPADMIN_LIMIT_PENDING_REQUESTS", default=1_024),
    "open_server_requests": env.int("MCPADMIN_LIMIT_OPEN_SERVER_REQUESTS", default=32),
    "server_requests_per_minute": env.int("MCPADMIN_LIMIT_SERVER_REQUESTS_PER_MINUTE", default=120),
    "rounds": env.int("MCPADMIN_LIMIT_ROUNDS", default=8),
    "request_state_bytes": env.int("MCPADMIN_LIMIT_REQUEST_STATE_BYTES", default=64 * _KIB),
    "events_per_second": env.int("MCPADMIN_LIMIT_EVENTS_PER_SECOND", default=1_000),
}

# Run by the interpreter of the worker, from the folder that holds this package.
DEMO_COMMAND = [sys.executable, str(BASE_DIR / "mcpadmin" / "demo_server")]

# --- audit log -----------------------------------------------------------------------------------------------------
# Signed checkpoints: at the latest so many seconds, or so many events, after an event.
CHECKPOINT_SECONDS = TIME_SCALE * env.float("MCPADMIN_CHECKPOINT_SECONDS", default=60.0)
CHECKPOINT_EVENTS = env.int("MCPADMIN_CHECKPOINT_EVENTS", default=1_000)
CHECKPOINT_FILE = env.file("MCPADMIN_CHECKPOINT_FILE", default=DATA_DIR / "checkpoints.jsonl")
# Where else checkpoints go: https://, syslog:// and s3:// addresses (servers/audit/proof/witnesses.py).
WITNESSES = env.list("MCPADMIN_WITNESSES", default=[])
WITNESS_S3_ACCESS_KEY = env.str("MCPADMIN_WITNESS_S3_ACCESS_KEY", default="")
WITNESS_S3_SECRET_KEY = env.str("MCPADMIN_WITNESS_S3_SECRET_KEY", default="")

# --- language, time, logs ----------------------------------------------------------------------------------------
LANGUAGE_CODE = "en"
TIME_ZONE = "UTC"
USE_TZ = True
USE_I18N = False
LOG_LEVEL = env.choice("MCPADMIN_LOG_LEVEL", "INFO", "DEBUG", "WARNING", "ERROR")
LOG_FORMAT = env.choice("MCPADMIN_LOG_FORMAT", "auto", "plain", "json")  # auto: words on a terminal, JSON elsewhere
LOGGING_CONFIG = "mcpadmin.logging.configure"
LOGGING = {"configured": True}  # Django asks LOGGING_CONFIG only when there is something in it

# --- what was read ------------------------------------------------------------------------------------------------
VARIABLES = variables.VARIABLES
VARIABLES_READ = env.read
VARIABLES_SET_BY_UP = variables.set_by_up()
SECRET_VARIABLES = frozenset(one.name for known in VARIABLES.values() for one in known if hardening.is_secret(one.name))
