"""What a confined server may connect to: its `connect` calls arrive here and are made on its behalf.

The kernel stops the calling thread and hands the call over (seccomp user notification). The address is read once, judged,
and connected on a duplicate of the caller's socket, so the caller cannot swap the address after the check. A connection
to a name server ends at `names.Forwarder`, which sees the names and learns their addresses.
"""

import asyncio
import contextlib
import errno
import fcntl
import ipaddress
import os
import select
import socket
import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from ..egress import IS_METADATA, OutboundPolicy, embedded, is_metadata, refusal_reason
from . import names, processes

_RECEIVE, _RESPOND, _IS_VALID = 0xC0502100, 0xC0182101, 0x40082102
_NOTIFICATION: Final = struct.Struct("QIIiIQ6Q")
#: numbers of the system calls that the filter hands over besides connect (see runner.CALLS)
_CHMOD, _FCHMODAT, _UTIMENSAT, _LISTEN = {"x86_64": (90, 268, 280, 50), "aarch64": (-1, 53, 88, 201)}.get(
    os.uname().machine, (-1, -1, -1, -1)
)
_HERE: Final = -100
_RESPONSE: Final = struct.Struct("QqiI")
#: the two times of utimensat, and its flag for links themselves
_TIMES: Final = struct.Struct("qqqq")
_NO_FOLLOW: Final = 0x100
#: connections judged per second, and burst; a server that tries more has to wait
_RATE, _BURST, _PAUSE = 200.0, 1_000.0, 0.25
#: of one connection: installing a package changes thousands of files
_OF_A_FILE: Final = 0.1
#: connections of one server that wait for their peer at the same time
_WAITING: Final = 256
#: addresses of listed hosts that are remembered for one server: what a name server answers is in the hands of a stranger
_MOST_LEARNED: Final = 4_096
#: tried by each name lookup of the C library
_EXPECTED: Final = ("/var/run/nscd/socket", "/run/nscd/socket")


class Network(StrEnum):
    NONE = "none"
    LISTED = "listed"
    PUBLIC = "public"


@dataclass(frozen=True, slots=True)
class Host:
    """A host that a server may reach wherever its name leads, even on this machine or a private network. `port` None:
    any port."""

    name: str
    port: int | None = None

    @classmethod
    def parsed(cls, text: str) -> "Host":
        """`api.example.com`, `db.internal:5432`, `10.0.0.5`, `[fd00::5]:8080`, `*.example.com`. ValueError otherwise."""
        text = text.strip().lower()
        name, port = text, None
        if text.startswith("["):
            name, end, rest = text[1:].partition("]")
            if not end:
                raise ValueError(f"{text!r} is not an address.")
            port = _port(rest[1:]) if rest.startswith(":") else None
            if rest and port is None:
                raise ValueError(f"{text!r} names no port.")
        elif text.count(":") == 1:
            name, _, rest = text.partition(":")
            port = _port(rest)
        literal = _address(name)
        if literal is None:
            names.check(name)
        elif is_metadata(literal):
            raise ValueError("Cloud metadata services are never reachable.")
        return cls(str(literal or name), port)

    def matches(self, name: str) -> bool:
        name = name.rstrip(".").lower()
        return name.endswith(self.name[1:]) if self.name.startswith("*.") else name == self.name

    def __str__(self) -> str:
        name = f"[{self.name}]" if ":" in self.name else self.name
        return name if self.port is None else f"{name}:{self.port}"


def _port(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 0 < int(text) < 65536:
        raise ValueError(f"{text!r} is not a port.")
    return int(text)


Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def _address(text: str) -> Address | None:
    try:
        found = ipaddress.ip_address(text)
    except ValueError:
        return None
    return found.ipv4_mapped or found if isinstance(found, ipaddress.IPv6Address) else found


def _own_address(address: str) -> str | None:
    """The reason to refuse a public address of this machine, behind which its firewall does not stand. The kernel
    answers: the source of a packet to an own address is that address."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as opened:
            opened.connect((address, 9))
            return "it is this machine itself" if opened.getsockname()[0] == address else None
    except OSError:
        return None  # there is no way to it, as the connection will show


class AddressRules:
    """Judges addresses for one server. Learns from the name server's answers which addresses its hosts have."""

    def __init__(
        self, network: Network, hosts: Iterable[Host] = (), on_refused: Callable[[str], None] = lambda _: None
    ) -> None:
        self.network = network
        self._on_refused = on_refused
        self._hosts = tuple(hosts) if network is not Network.NONE else ()
        self._learned: dict[Address, set[int | None]] = {}
        for address, known in names.fixed():
            for name in known:
                self.learn(name, [address])

    def may_ask_for(self, name: str) -> bool:
        if self.network is Network.PUBLIC or any(host.matches(name) for host in self._hosts):
            return True
        self._on_refused(f"refused to look up {name}: it is not one of the listed hosts")
        return False

    def learn(self, name: str, addresses: Iterable[str]) -> None:
        """The answer to a question of the server."""
        ports = {host.port for host in self._hosts if host.matches(name)}
        if not ports:
            return
        for text in addresses:
            found = _address(text)
            if found is not None and not is_metadata(found):
                self._learned[found] = self._learned.pop(found, set()) | ports
        while len(self._learned) > _MOST_LEARNED:
            del self._learned[next(iter(self._learned))]  # the one that was not answered for the longest time

    def refusal(self, text: str, port: int) -> str | None:
        """The reason why this address may not be reached; None if it may."""
        address = _address(text.partition("%")[0])
        if address is None:
            return "it is not a plain IP address"
        if is_metadata(address):  # also of a host that was listed before its spelling was refused
            return IS_METADATA
        if any(host.name == str(address) and host.port in (None, port) for host in self._hosts):
            return None
        learned = self._learned.get(address, set())
        if None in learned or port in learned:
            return None
        if self.network is Network.PUBLIC:
            refused = refusal_reason(str(address), port, OutboundPolicy())
            ends = (address, *embedded(address))
            return refused or next(filter(None, (_own_address(str(end)) for end in ends)), None)
        return "this server has no network" if self.network is Network.NONE else "it is not one of the listed hosts"


class Gate:
    """Answers the `connect` calls of one server's processes. `on_refused(what)` is called with each new refusal, in
    words. `folders`: those that it may write; UNIX sockets elsewhere are out of reach."""

    def __init__(
        self,
        listener: int,
        reach: AddressRules,
        folders: tuple[str, ...],
        uid: int | None,
        on_refused: Callable[[str], None],
    ) -> None:
        self._listener = listener
        self._reach = reach
        self._folders = folders
        self._uid = uid
        self._on_refused = on_refused
        self._loop = asyncio.get_running_loop()
        self._credit, self._at = _BURST, self._loop.time()
        self._open, self._over = True, False
        #: without the zones of link-local ones, which the kernel keeps apart from the address
        self._name_servers = {_address(text.partition("%")[0]) for text in names.servers()} - {None}
        self._waiting: dict[int, tuple[int, socket.socket, bool]] = {}
        self._poll = select.poll()
        self._poll.register(listener, select.POLLIN)
        self._loop.add_reader(listener, self._on_readable)

    def close(self) -> None:
        if self._open:
            self._open = False
            self._loop.remove_reader(self._listener)
            os.close(self._listener)
            for number, (_, duplicate, _) in list(self._waiting.items()):
                self._loop.remove_writer(number)
                duplicate.close()
            self._waiting.clear()

    # -- one call

    def _on_readable(self) -> None:
        events = dict(self._poll.poll(0)).get(self._listener, 0)
        if not events & select.POLLIN:  # without a call to answer, receiving would block
            if events:
                self._quit_reading()
            return
        buffer = bytearray(_NOTIFICATION.size)
        try:
            fcntl.ioctl(self._listener, _RECEIVE, buffer, True)
        except InterruptedError:
            return
        except OSError as problem:
            if problem.errno != errno.ENOENT:  # else: the caller is gone already
                self._quit_reading()
            return
        call, thread, _, number, _, _, *arguments = _NOTIFICATION.unpack(buffer)
        self._limit(_OF_A_FILE if number in (_CHMOD, _FCHMODAT, _UTIMENSAT) else 1.0)
        first, second, third, fourth = arguments[:4]
        folder = (first & 0xFFFFFFFF ^ 1 << 31) - (1 << 31)
        try:
            if number == _CHMOD:
                answer: int | None = self._change_file(call, thread, _HERE, first, mode=second)
            elif number == _FCHMODAT:
                answer = self._change_file(call, thread, folder, second, mode=third)
            elif number == _UTIMENSAT:
                answer = self._change_file(call, thread, folder, second, times=third, follow=not fourth & _NO_FOLLOW)
            elif number == _LISTEN:
                answer = self._listen(call, thread, first & 0xFFFFFFFF, second)
            else:
                answer = self._decide(call, thread, first & 0xFFFFFFFF, second, third & 0xFFFFFFFF)
        except (OSError, TypeError, ValueError):  # a caller that got no answer would wait forever
            answer = errno.EACCES
        if answer is not None:
            self._respond(call, answer)

    def _quit_reading(self) -> None:
        """All processes of the server are gone."""
        self._over = True
        if self._open:
            self._loop.remove_reader(self._listener)

    def _limit(self, cost: float) -> None:
        now = self._loop.time()
        self._credit = min(_BURST, self._credit + (now - self._at) * _RATE) - cost
        self._at = now
        if self._credit < 0:
            self._loop.remove_reader(self._listener)
            self._loop.call_later(_PAUSE, self._read_on)

    def _read_on(self) -> None:
        if self._open and not self._over:
            self._loop.add_reader(self._listener, self._on_readable)

    def _respond(self, call: int, error: int) -> None:
        if self._open:
            with contextlib.suppress(OSError):  # the caller was interrupted or is gone
                fcntl.ioctl(self._listener, _RESPOND, _RESPONSE.pack(call, 0, -error, 0))

    def _is_valid(self, call: int) -> bool:
        try:
            fcntl.ioctl(self._listener, _IS_VALID, struct.pack("Q", call))
        except OSError:
            return False
        return True

    def _decide(self, call: int, thread: int, descriptor: int, pointer: int, size: int) -> int | None:
        """An errno, 0 for success; None: answered later."""
        if not 2 <= size <= 128:
            return errno.EINVAL
        with processes.opened(thread, self._uid) as caller:
            if not self._is_valid(call):
                return errno.ESRCH
            raw = caller.memory(pointer, size)
            family = int.from_bytes(raw[:2], "little")
            if family == socket.AF_UNIX:
                return self._connect_unix(caller, descriptor, raw)
            if family == socket.AF_UNSPEC:
                return 0
            target = _inet(family, raw)
            if target is None:
                return errno.EACCES
            host, port = target[0], target[1]
            named = port == 53 and _address(host.partition("%")[0]) in self._name_servers
            by_name = named and self._reach.network is not Network.NONE
            reason = None if by_name else self._reach.refusal(host, port)
            if reason is not None:
                shown = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
                self._on_refused(f"refused to connect to {shown}: {reason}")
                return errno.EACCES
            duplicate = caller.socket(descriptor)
        if by_name:
            self._loop.create_task(self._connect_to_forwarder(call, duplicate))
            return None
        return self._connect(call, duplicate, target)

    def _connect(
        self, call: int, duplicate: socket.socket, target: tuple[str, int] | tuple[str, int, int, int]
    ) -> int | None:
        blocking = not fcntl.fcntl(duplicate, fcntl.F_GETFL) & os.O_NONBLOCK
        if duplicate.family not in (socket.AF_INET, socket.AF_INET6) or duplicate.type != socket.SOCK_STREAM:
            duplicate.close()
            return errno.EACCES
        if duplicate.family != (socket.AF_INET if len(target) == 2 else socket.AF_INET6):
            duplicate.close()
            return errno.EAFNOSUPPORT
        duplicate.setblocking(False)
        result = duplicate.connect_ex(target)
        if result == errno.EINPROGRESS and blocking and len(self._waiting) < _WAITING:
            self._waiting[duplicate.fileno()] = (call, duplicate, blocking)
            self._loop.add_writer(duplicate.fileno(), self._on_connected, duplicate.fileno())
            return None
        if blocking:
            duplicate.setblocking(True)
        duplicate.close()
        return result

    def _on_connected(self, number: int) -> None:
        call, duplicate, _ = self._waiting.pop(number)
        self._loop.remove_writer(number)
        result = duplicate.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        duplicate.setblocking(True)
        duplicate.close()
        self._respond(call, result)

    async def _connect_to_forwarder(self, call: int, duplicate: socket.socket) -> None:
        try:
            answer = self._connect(call, duplicate, await names.forwarder().address(duplicate, self._reach))
        except OSError as problem:
            duplicate.close()
            answer = problem.errno or errno.EACCES
        if answer is not None:
            self._respond(call, answer)

    def _listen(self, call: int, thread: int, descriptor: int, backlog: int) -> int:
        """On UNIX sockets only."""
        with processes.opened(thread, self._uid) as caller:
            if not self._is_valid(call):
                return errno.ESRCH
            with caller.socket(descriptor) as duplicate:
                if duplicate.family != socket.AF_UNIX:
                    self._on_refused("refused to listen on a port")
                    return errno.EACCES
                duplicate.listen(min(backlog & 0xFFFFFFFF, 4096))
        return 0

    def _change_file(
        self,
        call: int,
        thread: int,
        folder: int,
        pointer: int,
        *,
        mode: int | None = None,
        times: int = 0,
        follow: bool = True,
    ) -> int:
        """The mode, or else the times, of a file in the folders that it may write."""
        with processes.opened(thread, self._uid) as caller:
            if not self._is_valid(call):
                return errno.ESRCH
            path = os.fsdecode(caller.text(pointer))
            given = caller.memory(times, _TIMES.size) if times else None
            whole = os.path.join(caller.directory(None if folder == _HERE else folder), path)
            try:
                with caller.path(whole, links=True, follow=follow) as target:
                    real = os.readlink(f"/proc/self/fd/{target}")
                    if not any(real == place or real.startswith(place + "/") for place in self._folders):
                        self._on_refused(f"refused access to {whole}")
                        return errno.EPERM
                    with processes.acting_as(self._uid):
                        if mode is None:
                            processes.set_times(target, given)
                        else:
                            os.chmod(f"/proc/self/fd/{target}", mode & 0o777)
            except OSError as problem:
                return problem.errno or errno.EPERM
        return 0

    def _connect_unix(self, caller: processes.Caller, descriptor: int, raw: bytes) -> int:
        """Only to sockets in its own folders, and through no symbolic link."""
        path = raw[2:].split(b"\0", 1)[0].decode("utf-8", "surrogateescape")
        whole = os.path.normpath(path if path.startswith("/") else os.path.join(caller.directory(), path))
        if not path or not any(whole == folder or whole.startswith(folder + "/") for folder in self._folders):
            if path not in _EXPECTED:
                self._on_refused(f"refused to connect to the UNIX socket {path or '@' + raw[3:40].decode('latin1')}")
            return errno.EACCES
        with caller.socket(descriptor) as duplicate, caller.path(whole) as target:
            if duplicate.family != socket.AF_UNIX:
                return errno.EACCES
            blocking = not fcntl.fcntl(duplicate, fcntl.F_GETFL) & os.O_NONBLOCK
            duplicate.setblocking(False)
            try:
                with processes.acting_as(self._uid):  # the peer sees the server's user, not ours
                    return duplicate.connect_ex(f"/proc/self/fd/{target}")
            finally:
                duplicate.setblocking(blocking)


def _inet(family: int, raw: bytes) -> tuple[str, int] | tuple[str, int, int, int] | None:
    if family == socket.AF_INET and len(raw) >= 8:
        return socket.inet_ntop(family, raw[4:8]), int.from_bytes(raw[2:4], "big")
    if family == socket.AF_INET6 and len(raw) >= 24:
        scope = int.from_bytes(raw[24:28], "little") if len(raw) >= 28 else 0
        return socket.inet_ntop(family, raw[8:24]), int.from_bytes(raw[2:4], "big"), 0, scope
    return None
