"""Runs tests/peers/thief.py as a confined server beside what it goes for, and prints what it got as JSON.

    python -m tests.sessions.mcp.transports.robbery TIER VIEW FOLDER

For the tier `container`, VIEW is the command line of the runtime.

A program of its own, so that a test can run it as another user. FOLDER is empty and belongs to that user.
"""

import asyncio
import contextlib
import json
import os
import shlex
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from sessions.mcp.core.errors import McpError
from sessions.mcp.transports.registry import StdioSpec, open_transport
from sessions.mcp.transports.stdio import (
    Confinement,
    Host,
    MachineConfinement,
    Network,
    Runtime,
    Tier,
    confines,
    isolation,
    prepare_loop,
    tiers,
    user,
)

THIEF = Path(__file__).parents[3] / "peers" / "thief.py"
CANARY = "canary-of-another-process"
MIB = 1024 * 1024
PROCESSES, MEMORY, FILE = 60, 512 * MIB, 8 * MIB
#: an interpreter that every user can execute
INTERPRETER = "/usr/bin/python3" if os.path.exists("/usr/bin/python3") else sys.executable
SIGNALLED = (
    "import pathlib, os, signal, sys, time\n"
    "signal.signal(signal.SIGWINCH, lambda *_: pathlib.Path(sys.argv[1], str(os.getpid())).touch())\n"
    "print('up', flush=True)\n"
    "time.sleep(600)"
)


class Receiver:
    shedding = False

    def __init__(self) -> None:
        self.report: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self.lines: list[str] = []

    def message(self, data: bytes, *_: object) -> None:
        if not self.report.done():
            self.report.set_result(json.loads(data)["params"])

    def line(self, stream: str, text: str) -> None:
        self.lines.append(f"{stream}: {text}")

    def broken(self, error: McpError, head: bytes, *, unfinished: bool = False) -> bool:
        self.lost(error)
        return True

    def lost(self, error: McpError) -> None:
        if not self.report.done():
            self.report.set_exception(RuntimeError("\n".join([error.detail, *self.lines])))


def laid_out(folder: Path) -> dict[str, Any]:
    """Everything that a thief would like, readable for all: the confinement alone must hold."""
    data, home = folder / "data", folder / "root"
    aims: dict[str, Any] = {"data": str(data), "canary": CANARY, "signals": str(folder / "signals")}
    aims["ipc"] = os.readlink("/proc/self/ns/ipc")
    for name, path in {
        "keyring": data / "keyring.json",
        "secret_key": data / "secret_key",
        "database": data / "mcpadmin.sqlite3",
        "wal": data / "mcpadmin.sqlite3-wal",
        "log": data / "worker.log",
        "sibling_file": data / "servers" / "sibling" / "home" / "notes",
        "ssh_key": home / ".ssh" / "id_ed25519",
        "environment_file": folder / "app" / ".env",
        "given": folder / "given" / "file",
    }.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("canary")
        path.chmod(0o666)
        aims[name] = str(path)
    Path(aims["signals"]).mkdir()
    for place in (data, Path(aims["signals"])):
        place.chmod(0o777)
    return aims


@contextlib.contextmanager
def neighbours(folder: Path, aims: dict[str, Any]) -> Any:
    """Sockets that really listen, and two processes with a secret in their environment."""
    with contextlib.ExitStack() as stack:
        ports = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(4)]
        aims["ports"] = [opened.getsockname()[1] for opened in ports[:3]]
        aims["open_port"] = ports[3].getsockname()[1]
        for name in ("broker_socket", "docker_socket", "bus_socket"):
            opened = stack.enter_context(socket.socket(socket.AF_UNIX))
            aims[name] = str(folder / "data" / name)
            opened.bind(aims[name])
            os.chmod(aims[name], 0o777)  # noqa: S103  # the mode shall not be what protects it
            opened.listen()
        abstract = stack.enter_context(socket.socket(socket.AF_UNIX))
        aims["abstract_socket"] = f"mcpadmin-test-{os.getpid()}"
        abstract.bind("\0" + aims["abstract_socket"])
        abstract.listen()
        others = []
        for _ in range(2):
            command = [sys.executable, "-I", "-c", SIGNALLED, aims["signals"], CANARY]
            other = subprocess.Popen(command, env={"SECRET": CANARY}, stdout=subprocess.PIPE)
            stack.callback(other.wait)
            stack.callback(other.kill)
            assert other.stdout is not None
            assert other.stdout.readline() == b"up\n"
            others.append(other)
        aims["pids"] = [os.getpid(), *(other.pid for other in others)]
        yield


def confinement(folder: Path, aims: dict[str, Any]) -> Confinement:
    own = folder / "data" / "servers" / "thief"
    uid = user(os.getpid())  # that no robbery beside this one has
    for name in ("home", "tmp", "view"):
        (own / name).mkdir(parents=True, mode=0o700)
        if uid and name != "view":
            os.chown(own / name, uid, uid)
    limits = {"NPROC": PROCESSES, "DATA": MEMORY, "FSIZE": FILE, "CORE": 0, "NOFILE": 256}
    aims |= {"processes": PROCESSES, "memory": MEMORY, "file_bytes": FILE}
    return Confinement(
        str(own / "home"),
        str(own / "tmp"),
        str(own / "view"),
        read=(str(folder / "given"),),
        protected=(str(folder / "data"),),
        uid=uid,
        network=Network.PUBLIC,
        hosts=(Host("127.0.0.1", aims["open_port"]),),
        limits=limits,
    )


async def robbed(folder: Path, runtime: Runtime | None = None) -> dict[str, Any]:
    prepare_loop(asyncio.get_running_loop())
    await isolation()  # decides whose user the server gets
    found = await confines(runtime)
    if runtime is not None and found.tier is not Tier.CONTAINER:
        sys.exit(found.reason)
    aims = laid_out(folder)
    with neighbours(folder, aims):
        confined = confinement(folder, aims)
        spec = StdioSpec(INTERPRETER, ("-I", str(THIEF), json.dumps(aims)), confinement=confined)
        transport, receiver = await open_transport(spec), Receiver()
        try:
            await transport.connect(receiver)  # type: ignore[arg-type]  # the part of a receiver that is called
            async with asyncio.timeout(60):
                report = await receiver.report
        except McpError as problem:
            await asyncio.sleep(0.2)  # for what the helper programs wrote
            raise RuntimeError("\n".join([problem.detail, *receiver.lines])) from problem
        finally:
            await transport.close()
        report["stolen"]["outlive_its_server"] = await asyncio.to_thread(_still_written, Path(confined.home) / "alive")
        report["stolen"]["damage"] = _damaged(aims)
        return report | {"lines": receiver.lines}


def _still_written(heartbeat: Path) -> bool:
    if not heartbeat.exists():
        raise RuntimeError("The process that was to outlive its server never ran.")
    for _ in range(10):  # a namespace ends a moment after its first process
        before = heartbeat.read_text()
        time.sleep(0.3)
        if heartbeat.read_text() == before:
            return False
    return True


def _damaged(aims: dict[str, Any]) -> bool:
    paths = [Path(aims[name]) for name in ("keyring", "secret_key", "database", "wal", "log")]
    return any(not path.exists() or path.read_text() != "canary" for path in paths)


def main(tier: str, view: str, folder: str) -> None:
    os.umask(0o022)
    alone = tier == "bubblewrap" or bool(shutil.which("unshare"))
    runtime = Runtime(tuple(shlex.split(view))) if tier == "container" else None
    if runtime is None:
        tiers._found = MachineConfinement(Tier(tier), view == "view", alone=alone, counted=os.geteuid() != 0)
    print(json.dumps(asyncio.run(robbed(Path(folder), runtime))))


if __name__ == "__main__":
    main(*sys.argv[1:])
