"""Parses the URL that a server asks a person to visit, as a browser would, or refuses it.

Stricter than any browser: an ambiguous URL is refused, so that the page shows exactly the host that a click opens
(security O13). Nothing here resolves a name or fetches anything.
"""

import ipaddress
import re
import unicodedata
from dataclasses import dataclass

import idna
from django.http.request import split_domain_port

MOST_CHARS = 8_192
_SHAPE = re.compile(r"(?P<scheme>https?)://(?P<authority>[^/?#]+)(?P<rest>[/?#].*)?", re.IGNORECASE | re.DOTALL)
_HOST = re.compile(r"(?P<host>\[[0-9a-fA-F:.]+\]|[^:\[\]]+)(?P<port>:[0-9]{1,5})?")
_AMBIGUOUS = re.compile(r"[\x00-\x20\x7f-\x9f\\]")
#: categories of invisible characters, and of those that change the reading order of others
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Zs", "Zl", "Zp"})
#: invisible characters of other categories: joiners, fillers, variation selectors
_BLANK = re.compile("[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]")
#: scripts that one name may mix (Unicode UTS 39, "highly restrictive")
_TOGETHER = (
    frozenset({"LATIN", "CJK", "HIRAGANA", "KATAKANA"}),
    frozenset({"LATIN", "CJK", "BOPOMOFO"}),
    frozenset({"LATIN", "CJK", "HANGUL"}),
)
#: a label of an ASCII name, as browsers accept it: with underscores, and with hyphens anywhere but at the ends
_LABEL = re.compile(r"(?!xn--)[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
_IP = ipaddress.IPv4Address | ipaddress.IPv6Address


@dataclass(frozen=True)
class VisitAddress:
    """`refused` says why the URL is not opened; then everything but `text` is empty.

    `host` is what the browser requests (ASCII); `spelled` is the same name in Unicode, if that differs.
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
        raise _Refused("Its host is not valid.")
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
    """Whether a browser that shows us at `own_host` sends our cookies there: cookies ignore the port (RFC 6265,
    8.5)."""
    return address.host.rstrip(".") == split_domain_port(own_host)[0].lower()


def _parts(text: str) -> tuple[str, str, str]:
    if not text:
        raise _Refused("The request contains no URL.")
    if len(text) > MOST_CHARS:
        raise _Refused(f"It is longer than {MOST_CHARS:,} characters.")
    if _AMBIGUOUS.search(text):
        raise _Refused("It contains spaces, backslashes or control characters, which can hide where it leads.")
    if hidden := _hidden(text):
        raise _Refused(f"It contains a hidden character ({hidden}), which hides where it leads.")
    found = _SHAPE.fullmatch(text)
    if found is None:
        raise _Refused(f"{_named_scheme(text)}Only https addresses are opened.")
    if "@" in found["authority"]:
        raise _Refused("It contains a username or password, which can make one site look like another.")
    return found["scheme"].lower(), found["authority"], found["rest"] or ""


def _hidden(text: str) -> str:
    """The first invisible character, by its number and name; empty if there is none."""
    if text.isascii():
        return ""
    for char in text:
        if unicodedata.category(char) in _HIDDEN or _BLANK.match(char):
            return f"U+{ord(char):04X} {unicodedata.name(char, '')}".rstrip()
    return ""


def _named_scheme(text: str) -> str:
    scheme = re.match(r"[A-Za-z][A-Za-z0-9+.-]{0,30}(?=:)", text)
    return "" if scheme is None or scheme[0].lower() in ("http", "https") else f"It is a {scheme[0].lower()}: address. "


def _names(host: str) -> tuple[str, str]:
    """The name as the browser requests it, and in Unicode if it has non-ASCII letters."""
    if host.startswith("["):
        return f"[{_ipv6(host[1:-1])}]", ""
    if host.isascii() and all(map(_LABEL.fullmatch, host.lower().removesuffix(".").split("."))):
        _demand_plain_number(host.lower())
        return host.lower(), ""
    try:
        ascii_name = idna.encode(host, uts46=True).decode().lower()
        spelled = idna.decode(ascii_name)
    except (idna.IDNAError, UnicodeError) as problem:
        raise _Refused("Its host is not a valid name.") from problem
    _demand_plain_number(ascii_name)
    for label in spelled.split("."):
        _demand_one_script(label, ascii_name)
    return ascii_name, "" if spelled == ascii_name else spelled


def _demand_one_script(label: str, ascii_name: str) -> None:
    """A name with look-alike letters of another script is made to deceive; browsers show it in ASCII."""
    scripts = {_script(char) for char in label if char.isalpha()} - {""}
    if len(scripts) > 1 and not any(scripts <= together for together in _TOGETHER):
        names = " and ".join(sorted(script.title() for script in scripts))
        raise _Refused(f"Its host {ascii_name} mixes letters of several scripts ({names}) that look alike.")


def _script(char: str) -> str:
    """The script of a letter, from its name. Empty for marks that Japanese writes in several of its scripts."""
    script = unicodedata.name(char, "").partition(" ")[0]
    return "" if script in ("KATAKANA-HIRAGANA", "IDEOGRAPHIC", "MODIFIER") else script


def _ipv6(text: str) -> str:
    try:
        return str(ipaddress.IPv6Address(text))
    except ValueError as problem:
        raise _Refused("Its host is not valid.") from problem


def _demand_plain_number(host: str) -> None:
    """To a browser, a name that ends in a number is an IP address, often in a spelling that people do not recognize."""
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
        found.append("It points to the computer you open it on" + (", unencrypted." if scheme == "http" else "."))
    elif address is not None:
        found.append(
            "It uses an IP address instead of a domain name" + ("." if address.is_global else ", in a private network.")
        )
    if spelled:
        found.append("Its domain contains letters that look like others. Compare both spellings.")
    return found


def _is_loopback(host: str, address: _IP | None) -> bool:
    if address is not None:
        return address.is_loopback
    return host.rstrip(".") == "localhost" or host.rstrip(".").endswith(".localhost")
