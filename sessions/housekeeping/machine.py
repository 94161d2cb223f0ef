"""Identifies this machine and process, and checks whether another process of this machine is still alive."""

import hashlib
import os
import socket
import uuid
from pathlib import Path

from sessions.housekeeping.heartbeats import Incarnation
from sessions.models import Worker

_MACHINE_ID = Path("/etc/machine-id")
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_PID_NAMESPACE = Path("/proc/self/ns/pid")


def incarnation(
    uid: uuid.UUID, node: str, labels: list[str], isolation: str, confinement: str = "", reason: str = ""
) -> Incarnation:
    pid = os.getpid()
    return Incarnation(
        uid=uid,
        node=node[:200],
        machine=machine_id(),
        pid=pid,
        process_started=process_started(pid),
        isolation=isolation[:40],
        confinement=confinement[:20],
        confinement_reason=reason[:1000],
        labels=labels,
    )


def machine_id() -> str:
    """Where process ids can be compared: this machine and, after a slash, its boot and the container. Two containers
    with the same host name differ."""
    try:
        found = _MACHINE_ID.read_text().strip()
    except OSError:
        found = ""
    name, container = found or socket.gethostname(), _pid_namespace()
    return f"{name[:51]}/{container}" if container else name[:64]


def _pid_namespace() -> str:
    """Empty if the system has no PID namespaces."""
    try:
        unique = f"{_BOOT_ID.read_text()}{os.stat(_PID_NAMESPACE).st_ino}"
    except OSError:
        return ""
    return hashlib.sha256(unique.encode()).hexdigest()[:12]


def process_started(pid: int) -> str:
    """The start time of a process in clock ticks since boot: a reused pid has another one. Empty if unknown."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return ""
    return stat.rpartition(")")[2].split()[19]


def is_gone(worker: Worker) -> bool:
    """Whether the process of a worker on this machine is gone. A zombie counts as gone, because it no longer holds
    anything."""
    if not Path("/proc/self/stat").exists():
        return not _answers(worker.pid)
    return process_started(worker.pid) != worker.process_started or _is_zombie(worker.pid)


def _is_zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in ("Z", "X")
    except OSError:
        return True


def _answers(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
