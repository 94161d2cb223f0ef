"""Only the guarded transports can open a connection to a user-supplied address. Every other module that could is
listed with its reason; a module without an HTTP client cannot fetch icons, documents or pictures."""

import ast
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[4]
#: a module that imports one of these could open a connection
OPENERS = {"aiohttp", "httpx", "httpx_aiohttp", "requests", "websockets", "urllib.request", "urllib3", "http.client",
           "ftplib", "smtplib", "telnetlib", "socket", "xmlrpc.client"}  # fmt: skip
#: calls that open a connection, or create something that does
OPENING = {"open_connection", "create_connection", "create_datagram_endpoint", "urlopen", "ClientSession", "AsyncClient",
           "urlretrieve"}  # fmt: skip
#: no module does either without one of these words, which stand on the line of their `import` or `from`
FIRST_NAMES = {name.partition(".")[0] for name in OPENERS}
WORDS = re.compile(rf"\b(?:from|import)\b.*\b(?:{'|'.join(FIRST_NAMES)})\b|\b(?:{'|'.join(OPENING)})\b")
WRITTEN = {
    "mcpadmin/command_line/connecting.py": "writes the request that the guarded engine sends",
    "mcpadmin/up/preflight.py": "listens",
    "mcpadmin/up/supervisor.py": "listens, asks for the name of this machine",
    "servers/accounts/mail.py": "sends links through the operator's mail server",
    "sessions/host/fetching.py": "asks the guarded engine",
    "sessions/housekeeping/machine.py": "asks for the name of this machine",
    "sessions/host/subscriptions/webhook_sender.py": "writes the request that the guarded engine sends",
    "sessions/host/sending/http.py": "writes the request that the guarded engine sends",
    "sessions/host/sending/s3.py": "writes the request that the guarded engine sends",
    "sessions/host/sending/syslog.py": "writes to a socket that the guard opened",
}


@cache
def openings() -> dict[str, tuple[bool, set[str]]]:
    """Of each module: whether it imports an opener, and its calls that open a connection. Only modules with the words are
    parsed, and no tree stays: each later collection of garbage in this process would look at a million of its nodes."""
    files = [path for package in ("mcpadmin", "servers", "sessions") for path in (ROOT / package).rglob("*.py")]
    found = {}
    for path in files:
        text = path.read_text()
        if WORDS.search(text):
            tree = ast.parse(text)
            found[str(path.relative_to(ROOT))] = any(map(can_open, imported(tree))), called(tree) & OPENING
    return found


def imported(tree: ast.AST) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


def called(tree: ast.AST) -> set[str]:
    calls = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return {call.attr if isinstance(call, ast.Attribute) else getattr(call, "id", "") for call in calls}


def can_open(name: str) -> bool:
    return any(name == opener or name.startswith(f"{opener}.") for opener in OPENERS)


def test_only_transports_can_open_a_connection_to_what_someone_wrote() -> None:
    able = {path for path, (imports_an_opener, _) in openings().items() if imports_an_opener}
    assert {path for path in able if not path.startswith("sessions/mcp/transports/")} == set(WRITTEN)


def test_connections_are_made_in_the_guarded_engine_and_on_guarded_sockets_only() -> None:
    assert {path: calls for path, (_, calls) in openings().items() if calls} == {
        "sessions/mcp/transports/engine.py": {"ClientSession"},
        "sessions/mcp/transports/dialing.py": {"create_connection"},  # TLS on a socket that is already connected
        "sessions/mcp/transports/stdio/names.py": {"open_connection"},  # to the machine's name servers
        "sessions/mcp/transports/egress.py": {"create_connection"},  # the same on a tunnel to a judged address
    }
