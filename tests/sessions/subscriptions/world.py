"""Notes that change, servers of both SDKs that announce changes, and helpers that wait for rows."""

import itertools
import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

from servers.audit import payloads
from servers.audit.record import Actor
from servers.enums import ConnectionPolicy, EraChoice, TransportKind
from servers.models import Server
from sessions.enums import SubscriptionState
from sessions.models import ResourceVersion, Subscription
from sessions.subscriptions import subscribing
from tests.peers.peers import closed_port, peer_python
from tests.sessions.host.harness import eventually

HERE = Path(__file__).resolve().parent
#: era, then the SDK whose servers speak it
ERAS = {"legacy": "sdk1", "modern": "sdk2"}
PATIENCE = 30.0
_numbers = itertools.count(1)


class Notes:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, text: str, name: str = "one") -> None:
        """Replace the file atomically, so that a reader never sees half a note."""
        draft = self.folder / f".{name}.{next(_numbers)}"
        draft.write_text(text)
        os.replace(draft, self.folder / name)

    @property
    def server_pids(self) -> list[int]:
        """The pid of every server process started, newest last."""
        path = self.folder / ".pids"
        return [int(line) for line in path.read_text().split()] if path.exists() else []

    @property
    def reads(self) -> int:
        """How often a note was read by a client."""
        path = self.folder / ".reads"
        return len(path.read_text().split()) if path.exists() else 0

    def kill_server(self) -> None:
        os.kill(self.server_pids[-1], signal.SIGKILL)


class NoteServer:
    """The registration of a note server. Over HTTP also its process, which the test can stop and restart."""

    def __init__(self, notes: Notes) -> None:
        self.notes = notes
        self._process: subprocess.Popen[bytes] | None = None
        self._command: list[str] = []
        self._env: dict[str, str] = {}

    def register(self, era: str, transport: str, **environment: str) -> Server:
        self._env = {"NOTES": str(self.notes.folder), **environment}
        python, script = str(peer_python(ERAS[era])), str(HERE / f"watched_{ERAS[era]}.py")
        fields: dict[str, Any] = {"slug": "notes", "name": "Notes", "era": EraChoice(era)}
        fields["connection_policy"] = ConnectionPolicy.ON_DEMAND
        if transport == "stdio":
            fields |= {"transport": TransportKind.STDIO, "command": python, "arguments": [script, "stdio"]}
            fields |= {"writable_paths": [str(self.notes.folder)]}
        else:
            port = str(closed_port())
            self._command = [python, script, "http", port]
            fields |= {"transport": TransportKind.STREAMABLE_HTTP, "url": f"http://127.0.0.1:{port}/mcp"}
            self.start()
        server = Server.objects.create(**fields)
        if transport == "stdio":
            for name, value in self._env.items():
                server.values.create(kind="environment", name=name, plain=value)
        return server

    def start(self) -> None:
        self._process = subprocess.Popen(self._command, env=os.environ | self._env, stderr=subprocess.DEVNULL)

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait(10)

    def restart(self) -> None:
        """Over stdio, kill the server; the worker restarts it."""
        lives = len(self.notes.server_pids)
        if self._process is None:
            os.kill(self.child_pid(), signal.SIGKILL)
        else:
            self.stop()
            self.start()
        eventually(lambda: len(self.notes.server_pids) > lives, PATIENCE)

    def child_pid(self) -> int:
        """Found in /proc, because a process in a PID namespace knows itself by another number."""
        found = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit() and self._is_child(entry)]
        assert found, "the server does not run"
        return found[0]

    def _is_child(self, process: Path) -> bool:
        program, *arguments = _read(process / "cmdline").split(b"\0")
        mine = str(self.notes.folder).encode() in _read(process / "environ")
        return mine and b"python" in program and any(b"watched_" in argument for argument in arguments)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def actor(user: Any) -> Actor:
    return Actor.of_user(user)


def subscribe(user: Any, server: Server, uri: str = "note://one", interval: int = 0) -> Subscription:
    """`interval` is the seconds between two reads; the settings page allows no less than one."""
    row = subscribing.subscribe(actor(user), user, server, uri)
    Subscription.objects.filter(pk=row.pk).update(min_interval_seconds=interval)
    return row


def text_of(version: ResourceVersion) -> str:
    return str(json.loads(payloads.read(version.contents) or "")[0]["text"])


def texts(subscription: Subscription) -> list[str]:
    """The texts of all versions, oldest first."""
    rows = ResourceVersion.objects.filter(subscription=subscription).select_related("contents").order_by("number")
    return [text_of(row) for row in rows]


def await_text(subscription: Subscription, text: str, seconds: float = PATIENCE) -> ResourceVersion:
    """The newest version, once it has this text."""

    def look() -> ResourceVersion | None:
        row = subscription.versions.select_related("contents").first()
        return row if row is not None and text_of(row) == text else None

    return eventually(look, seconds, f"{text!r} never came; there are {texts(subscription)}: {now(subscription)}")


def now(subscription: Subscription) -> dict[str, Any]:
    return Subscription.objects.filter(pk=subscription.pk).values("state", "reason", "newest", "read_detail").get()


def await_state(subscription: Subscription, state: SubscriptionState, seconds: float = PATIENCE) -> Subscription:
    rows = Subscription.objects.filter(pk=subscription.pk, state=state)
    return eventually(rows.first, seconds, f"never {state}: {now(subscription)}")
