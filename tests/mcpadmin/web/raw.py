"""A connection to a site without an HTTP client in between, so that a request can be as bad as it likes."""

import contextlib
import socket
from dataclasses import dataclass
from http.client import HTTPResponse

from tests.sessions.live.site import Site

SECONDS = 20.0


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    text: str


class Raw:
    def __init__(self, site: Site) -> None:
        self.socket = socket.create_connection(("127.0.0.1", site.port), timeout=SECONDS)

    def __enter__(self) -> "Raw":
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, data: bytes, times: int = 1) -> int:
        """Returns how many bytes were taken before the other side closed."""
        taken = 0
        with contextlib.suppress(OSError):
            for _ in range(times):
                self.socket.sendall(data)
                taken += len(data)
        return taken

    def answer(self) -> Answer:
        response = HTTPResponse(self.socket)
        response.begin()
        headers = {name.lower(): value for name, value in response.getheaders()}
        return Answer(response.status, headers, response.read().decode())

    def until(self, end: bytes) -> bytes:
        """What arrives up to and with these bytes."""
        found = b""
        while not found.endswith(end):
            piece = self.socket.recv(1)
            assert piece, f"closed after {found!r}"
            found += piece
        return found

    def is_closed(self) -> bool:
        """Waits for the end; whatever arrives before it is read."""
        try:
            while self.socket.recv(65_536):
                pass
        except ConnectionError:
            return True
        except TimeoutError:
            return False
        return True


def head(method: str, path: str, **headers: str) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: 127.0.0.1"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode()
