"""The listening socket belongs to `up`: a busy port shows before anything starts, a web restart refuses no one."""

import errno
import socket
from typing import Any

from mcpadmin.up.problems import StartProblem

BACKLOG = 512


def listen(host: str, port: int) -> socket.socket:
    family, address = _resolve(host, port)
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(address)
        listener.listen(BACKLOG)
    except OSError as problem:
        listener.close()
        raise _explain(problem, host, port) from problem
    listener.setblocking(False)
    return listener


def _resolve(host: str, port: int) -> tuple[socket.AddressFamily, Any]:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as problem:
        raise StartProblem(
            f"the host {host!r} has no address on this machine",
            "Give --host 127.0.0.1, 0.0.0.0 or an address of this machine.",
        ) from problem
    return found[0][0], found[0][4]


def _explain(problem: OSError, host: str, port: int) -> StartProblem:
    match problem.errno:
        case errno.EADDRINUSE:
            return StartProblem(
                f"port {port} on {host} is in use", f"Stop what uses it, or choose another: --port {port + 1}"
            )
        case errno.EACCES:
            return StartProblem(
                f"port {port} needs rights that this user lacks", "Choose a port above 1023, such as --port 8000"
            )
        case errno.EADDRNOTAVAIL:
            return StartProblem(
                f"{host} is no address of this machine", "Give --host 127.0.0.1, 0.0.0.0 or an address of this machine."
            )
        case _:
            return StartProblem(
                f"cannot listen on {host}:{port} ({problem.strerror})", "Choose another --host or --port."
            )
