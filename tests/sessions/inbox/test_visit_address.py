"""An address that a server wants visited is shown as it will be opened, or it is not opened."""

import pytest

from sessions.domain.visit_address import read_address


def test_an_address_is_opened_exactly_as_it_is_shown() -> None:
    address = read_address("HTTPS://Login.Example.com:8443/a/b?c=d#e")
    assert (address.scheme, address.host, address.port, address.rest) == (
        "https",
        "login.example.com",
        ":8443",
        "/a/b?c=d#e",
    )
    assert address.href == "https://login.example.com:8443/a/b?c=d#e"
    assert (address.refused, address.warnings, address.spelled) == ("", (), "")


@pytest.mark.parametrize("url", ["https://аpple.com/login", "https://xn--pple-43d.com/login"], ids=["letters", "ascii"])
def test_a_name_in_other_letters_is_spelled_both_ways_and_warned_of(url: str) -> None:
    address = read_address(url)
    assert (address.host, address.spelled) == ("xn--pple-43d.com", "аpple.com")
    assert address.href == "https://xn--pple-43d.com/login"
    assert "letters" in address.warnings[0]


REFUSED = {
    "javascript": ("javascript:alert(1)", "Only https"),
    "data": ("data:text/html,<script>alert(1)</script>", "Only https"),
    "file": ("file:///etc/passwd", "Only https"),
    "no-scheme": ("//evil.example/", "Only https"),
    "no-slashes": ("https:evil.example", "Only https"),
    "three-slashes": ("https:///evil.example/", "Only https"),
    "plain-http": ("http://example.com/", "not encrypted"),
    "user": ("https://good.example@evil.example/", "user name"),
    "user-and-password": ("https://good.example:443@evil.example/", "user name"),
    "backslash": ("https://good.example\\@evil.example/", "backslashes"),
    "space": ("https://good.example /", "spaces"),
    "leading-space": (" https://good.example/", "spaces"),
    "newline": ("https://good.exa\nmple/", "control"),
    "nul": ("https://good.example/\x00", "control"),
    "percent": ("https://%65vil.example/", "not a valid name"),
    "port": ("https://good.example:99999/", "cannot be read"),
    "two-ports": ("https://good.example:1:2/", "cannot be read"),
    "decimal-ip": ("https://2130706433/", "unusual spelling"),
    "hexadecimal-ip": ("https://0x7f.1/", "unusual spelling"),
    "octal-ip": ("https://0177.0.0.1/", "unusual spelling"),
    "short-ip": ("https://127.1/", "unusual spelling"),
    "bad-ipv6": ("https://[::g]/", "cannot be read"),
    "bidi-host": ("https://exam\u202eple.com/", "not a valid name"),
    "empty": ("", "named no address"),
    "no-text": (["https://example.com/"], "named no address"),
    "endless": ("https://example.com/" + "a" * 9_000, "longer than"),
}


@pytest.mark.parametrize(("url", "words"), REFUSED.values(), ids=REFUSED.keys())
def test_what_a_browser_could_read_in_another_way_is_refused_with_the_reason(url: object, words: str) -> None:
    address = read_address(url)
    assert words in address.refused
    assert address.href == ""


WARNED = {
    "http-loopback": ("http://localhost:8080/x", "unencrypted"),
    "http-loopback-ip": ("http://127.0.0.1/x", "unencrypted"),
    "https-loopback-6": ("https://[::1]/x", "computer on which you open it"),
    "private-ip": ("https://192.168.0.1/x", "private network"),
    "public-ip": ("https://1.1.1.1/x", "IP address instead of a site"),
}


@pytest.mark.parametrize(("url", "words"), WARNED.values(), ids=WARNED.keys())
def test_an_unusual_place_is_opened_with_a_warning(url: str, words: str) -> None:
    address = read_address(url)
    assert address.href == url
    assert words in " ".join(address.warnings)
