"""What a stdio server may access: paths and hosts; and the networks that an operator allows."""

import ipaddress
import re
from collections.abc import Callable, Sequence

from django.core.exceptions import ValidationError

from servers.validators.characters import CONTROL

MAX_PATHS, MAX_HOSTS, MAX_PATH_LENGTH = 50, 100, 1_000
_LABEL = r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?"
_NAME = re.compile(rf"(?:\*\.)?{_LABEL}(?:\.{_LABEL})*", re.IGNORECASE)
_HOST = re.compile(r"(?:\[(?P<six>[^\]]*)\]|(?P<name>[^:\[\]]*))(?::(?P<port>[0-9]{1,5}))?")
_NETWORK = re.compile(r"(?:\[(?P<six>[^\]]+)\]|(?P<four>[^:\[\]]+)):(?P<port>[0-9]{1,5})")
#: kernel interfaces and devices; every server gets the harmless ones
_NEVER = ("/proc", "/sys", "/dev")
_METADATA = (
    *("169.254.169.254", "169.254.170.2", "169.254.170.23", "168.63.129.16", "100.100.100.200", "192.0.0.192"),
    *("fd00:ec2::254", "fd00:ec2::23", "fd20:ce::254"),
)
#: gateways reach the IPv4 address in the last 32 bits (RFC 6052, RFC 8215)
_NAT64 = (ipaddress.IPv6Network("64:ff9b::/96"), ipaddress.IPv6Network("64:ff9b:1::/48"))


def validate_path(path: str) -> None:
    if not path.startswith("/") or ".." in path.split("/"):
        raise ValidationError(f"Enter an absolute path without “..”: {path[:100]}", code="path")
    if len(path) > MAX_PATH_LENGTH or CONTROL.search(path):
        raise ValidationError("A path must be one line of at most 1,000 characters.", code="path")
    plain = "/" + "/".join(part for part in path.split("/") if part not in ("", "."))
    if plain == "/" or plain in _NEVER or plain.startswith(tuple(f"{place}/" for place in _NEVER)):
        raise ValidationError(
            f"{path[:100]} cannot be granted. Name the folder that the server works with.", code="path"
        )


def validate_host(host: str) -> None:
    found = _HOST.fullmatch(host)
    six = found["six"] if found else host
    name = found["name"] if found else None
    if six is not None:
        _validate_address(six, host)
    elif not name or len(name) > 253 or not _NAME.fullmatch(name) or _is_metadata(name):
        _refuse(host)
    if found and found["port"] and not 0 < int(found["port"]) < 65_536:
        _refuse(host)


def _validate_address(text: str, host: str) -> None:
    try:
        ipaddress.IPv6Address(text)
    except ValueError:
        _refuse(host)
    if "%" in text or _is_metadata(text):
        _refuse(host)


def _is_metadata(text: str) -> bool:
    """Whether it is a metadata address in any notation, including through a gateway (NAT64, 6to4)."""
    try:
        found = ipaddress.ip_address(text)
    except ValueError:
        return False
    spelled: list[object] = [found]
    if isinstance(found, ipaddress.IPv6Address):
        spelled += [found.ipv4_mapped, found.sixtofour]
        spelled += [ipaddress.IPv4Address(int(found) & 0xFFFFFFFF) for network in _NAT64 if found in network]
    return any(str(address) in _METADATA for address in spelled)


def validate_network(text: str) -> None:
    """Accepts `10.1.0.0/16`, `10.1.0.5:8080`, `fd00::/8` and `[fd00::5]:8080`, like the outbound guard."""
    found = _NETWORK.fullmatch(text)
    try:
        ipaddress.ip_network(text if found is None else found["six"] or found["four"], strict=False)
        good = found is None or 0 < int(found["port"]) < 65_536
    except ValueError:
        good = False
    if not good:
        raise ValidationError(f"{text[:100]} is not a network or address.", code="network")


def _refuse(host: str) -> None:
    words = (
        f"{host[:100]} is not a host. Enter a name or address, with a port if you like: api.example.com, 10.0.0.5:5432."
    )
    raise ValidationError(words, code="host")


def validate_paths(paths: Sequence[str]) -> None:
    _validate_each(paths, validate_path, MAX_PATHS, "paths")


def validate_hosts(hosts: Sequence[str]) -> None:
    _validate_each(hosts, validate_host, MAX_HOSTS, "hosts")


def _validate_each(items: Sequence[str], rule: Callable[[str], None], most: int, noun: str) -> None:
    if len(items) > most:
        raise ValidationError(f"At most {most} {noun}.", code="count")
    for item in items:
        rule(item)
