"""The address that a server asks a person to visit, taken apart as a browser would, or refused.

Stricter than any browser: what could be read in two ways is refused, so that the page shows the very host that a click
opens (security O13). Nothing here looks a name up or fetches anything.
"""

import ipaddress
import re
from dataclasses import dataclass

import idna
from django.http.request import split_domain_port

MOST_CHARS = 8_192
_SHAPE = re.compile(r"(?P<scheme>https?)://(?P<authority>[^/?#]+)(?P<rest>[/?#].*)?", re.IGNORECASE | re.DOTALL)
_HOST = re.compile(r"(?P<host>\[[0-9a-fA-F:.]+\]|[^:\[\]]+)(?P<port>:[0-9]{1,5})?")
_AMBIGUOUS = re.compile(r"[\x00-\x20\x7f-\x9f\\\u2028\u2029]")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
_IP = ipaddress.IPv4Address | ipaddress.IPv6Address


@dataclass(frozen=True)
class VisitAddress:
    """`refused` says why the address is not opened; then everything but `text` is empty.

    `host` is what the browser asks for (ASCII); `spelled` the same name in its own letters, where that differs.
    """

    text: str
    refused: str = ""
    scheme: str = ""
    host: str = ""
    spelled: str = ""
    port: str = ""
    rest: str = ""
    warnings: tuple[str, ...] = ()

    @property
    def href(self) -> str:
        return "" if self.refused else f"{self.scheme}://{self.host}{self.port}{self.rest}"


class _Refused(Exception):
    pass


def read_address(value: object) -> VisitAddress:
    text = value if isinstance(value, str) else ""
    try:
        return _taken_apart(text)
    except _Refused as problem:
        return VisitAddress(text[:MOST_CHARS], refused=str(problem))


def _taken_apart(text: str) -> VisitAddress:
    scheme, authority, rest = _parts(text)
    found = _HOST.fullmatch(authority)
    if found is None or int((found["port"] or ":0")[1:]) > 65_535:
        raise _Refused("Its host cannot be read.")
    host, spelled = _names(found["host"])
    address = _ip(host)
    return VisitAddress(
        text=text,
        scheme=scheme,
        host=host,
        spelled=spelled,
        port=found["port"] or "",
        rest=rest,
        warnings=tuple(_warnings(scheme, host, spelled, address)),
    )


def shares_cookies(address: VisitAddress, own_host: str) -> bool:
    """Whether a browser that shows us at `own_host` sends our cookies there: they know no port (RFC 6265, 8.5)."""
    return address.host.rstrip(".") == split_domain_port(own_host)[0].lower()


def _parts(text: str) -> tuple[str, str, str]:
    if not text:
        raise _Refused("The server named no address.")
    if len(text) > MOST_CHARS:
        raise _Refused(f"It is longer than {MOST_CHARS:,} characters.")
    if _AMBIGUOUS.search(text):
        raise _Refused("It holds spaces, backslashes or control characters, which hide where it leads.")
    found = _SHAPE.fullmatch(text)
    if found is None:
        raise _Refused("Only https addresses are opened.")
    if "@" in found["authority"]:
        raise _Refused("It carries a user name or password, which makes one site look like another.")
    return found["scheme"].lower(), found["authority"], found["rest"] or ""


def _names(host: str) -> tuple[str, str]:
    """The name as the browser asks for it, and in its own letters where it has other than ASCII ones."""
    if host.startswith("["):
        return f"[{_ipv6(host[1:-1])}]", ""
    try:
        ascii_name = idna.encode(host, uts46=True).decode().lower()
        spelled = idna.decode(ascii_name)
    except (idna.IDNAError, UnicodeError) as problem:
        raise _Refused("Its host is not a valid name.") from problem
    _demand_plain_number(ascii_name)
    return ascii_name, "" if spelled == ascii_name else spelled


def _ipv6(text: str) -> str:
    try:
        return str(ipaddress.IPv6Address(text))
    except ValueError as problem:
        raise _Refused("Its host cannot be read.") from problem


def _demand_plain_number(host: str) -> None:
    """A name that ends in a number is an IP address to a browser, in spellings that nobody recognises."""
    if not _NUMBER.fullmatch(host.rstrip(".").rpartition(".")[2]):
        return
    try:
        ipaddress.IPv4Address(host)
    except ValueError as problem:
        raise _Refused("Its host is an IP address in an unusual spelling.") from problem


def _ip(host: str) -> _IP | None:
    try:
        return ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return None


def _warnings(scheme: str, host: str, spelled: str, address: _IP | None) -> list[str]:
    local = _is_loopback(host, address)
    if scheme == "http" and not local:
        raise _Refused("It is not encrypted (http). Only https addresses are opened.")
    found = []
    if local:
        found.append("It leads to the computer on which you open it" + (", unencrypted." if scheme == "http" else "."))
    elif address is not None:
        found.append(
            "It names an IP address instead of a site" + ("." if address.is_global else ", in a private network.")
        )
    if spelled:
        found.append("Its name has letters that can look like others. Compare both spellings.")
    return found


def _is_loopback(host: str, address: _IP | None) -> bool:
    if address is not None:
        return address.is_loopback
    return host.rstrip(".") == "localhost" or host.rstrip(".").endswith(".localhost")
