"""A URL that a server wants visited is shown exactly as it will be opened, or not opened."""

import pytest

from sessions.inbox.visit_address import read_address


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


@pytest.mark.parametrize(
    "host",
    [
        "my_app.example.com",
        "_a.example.com",
        "qa--shop.example.app",
        "r3---sn-abc.example.com",
        "example.com.",
        "intranet",
    ],
)
def test_a_plain_name_is_opened_as_a_browser_takes_it(host: str) -> None:
    address = read_address(f"https://{host.upper()}/a")
    assert (address.refused, address.href, address.warnings) == ("", f"https://{host}/a", ())


OTHER_LETTERS = {
    "whole": ("https://аррӏе.com/login", "аррӏе.com"),
    "ascii": ("https://xn--80ak6aa92e.com/login", "аррӏе.com"),
    "umlaut": ("https://bücher.example/login", "bücher.example"),
    "japanese": ("https://東京タワーabc.jp/login", "東京タワーabc.jp"),
}


@pytest.mark.parametrize(("url", "spelled"), OTHER_LETTERS.values(), ids=OTHER_LETTERS.keys())
def test_a_name_in_other_letters_is_spelled_both_ways_and_warned_of(url: str, spelled: str) -> None:
    address = read_address(url)
    assert address.spelled == spelled
    assert address.host.startswith("xn--")
    assert address.href == f"https://{address.host}/login"
    assert "letters" in address.warnings[0]


REFUSED = {
    "javascript": ("javascript:alert(1)", "Only https"),
    "data": ("data:text/html,<script>alert(1)</script>", "Only https"),
    "file": ("file:///etc/passwd", "Only https"),
    "no-scheme": ("//evil.example/", "Only https"),
    "no-slashes": ("https:evil.example", "Only https"),
    "three-slashes": ("https:///evil.example/", "Only https"),
    "plain-http": ("http://example.com/", "not encrypted"),
    "user": ("https://good.example@evil.example/", "username"),
    "user-and-password": ("https://good.example:443@evil.example/", "username"),
    "backslash": ("https://good.example\\@evil.example/", "backslashes"),
    "space": ("https://good.example /", "spaces"),
    "leading-space": (" https://good.example/", "spaces"),
    "newline": ("https://good.exa\nmple/", "control"),
    "nul": ("https://good.example/\x00", "control"),
    "percent": ("https://%65vil.example/", "not a valid name"),
    "empty-label": ("https://a..example/", "not a valid name"),
    "outer-hyphen": ("https://-a.example/", "not a valid name"),
    "long-label": (f"https://{'a' * 64}.example/", "not a valid name"),
    "bad-punycode": ("https://xn--.example/", "not a valid name"),
    "underscore-in-punycode": ("https://xn--a_b.example/", "not a valid name"),
    "port": ("https://good.example:99999/", "not valid"),
    "two-ports": ("https://good.example:1:2/", "not valid"),
    "decimal-ip": ("https://2130706433/", "unusual spelling"),
    "hexadecimal-ip": ("https://0x7f.1/", "unusual spelling"),
    "octal-ip": ("https://0177.0.0.1/", "unusual spelling"),
    "short-ip": ("https://127.1/", "unusual spelling"),
    "bad-ipv6": ("https://[::g]/", "not valid"),
    "vbscript": ("vbscript:msgbox(1)", "It is a vbscript: address. Only https"),
    "blob": ("blob:https://example.com/1", "It is a blob: address. Only https"),
    "custom": ("ms-word:ofe|u|https://evil.example/x", "It is a ms-word: address. Only https"),
    "view-source": ("view-source:https://example.com", "It is a view-source: address"),
    "intent": ("intent://x#Intent;end", "It is a intent: address"),
    "bidi-host": ("https://exam\u202eple.com/", "U+202E RIGHT-TO-LEFT OVERRIDE"),
    "bidi-path": ("https://example.com/\u202egpj.exe", "U+202E RIGHT-TO-LEFT OVERRIDE"),
    "isolate": ("https://example.com/\u2066x", "hidden character (U+2066"),
    "zero-width": ("https://exam\u200bple.com/", "hidden character (U+200B ZERO WIDTH SPACE)"),
    "zero-width-joiner": ("https://example.com/a\u200d", "hidden character (U+200D"),
    "soft-hyphen": ("https://exam\u00adple.com/", "hidden character (U+00AD"),
    "byte-order-mark": ("https://example.com/\ufeff", "hidden character (U+FEFF"),
    "tag": ("https://example.com/\U000e0041", "hidden character (U+E0041"),
    "variation-selector": ("https://example.com/\ufe0f", "hidden character (U+FE0F"),
    "filler": ("https://example.com/\u3164", "hidden character (U+3164"),
    "blank-braille": ("https://example.com/\u2800", "hidden character (U+2800"),
    "no-break-space": ("https://good.example\u00a0.evil.example/", "hidden character (U+00A0"),
    "line-separator": ("https://example.com/\u2028", "hidden character (U+2028"),
    "half-character": ("https://example.com/\ud800", "hidden character (U+D800"),
    "mixed-letters": (
        "https://аpple.com/login",
        "xn--pple-43d.com mixes letters of several scripts (Cyrillic and Latin)",
    ),
    "mixed-ascii": ("https://xn--pple-43d.com/login", "mixes letters of several scripts"),
    "mixed-greek": ("https://example.gοogle.com/", "(Greek and Latin)"),
    "empty": ("", "contains no URL"),
    "no-text": (["https://example.com/"], "contains no URL"),
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
    "https-loopback-6": ("https://[::1]/x", "computer you open it on"),
    "private-ip": ("https://192.168.0.1/x", "private network"),
    "public-ip": ("https://1.1.1.1/x", "IP address instead of a domain name"),
}


@pytest.mark.parametrize(("url", "words"), WARNED.values(), ids=WARNED.keys())
def test_an_unusual_place_is_opened_with_a_warning(url: str, words: str) -> None:
    address = read_address(url)
    assert address.href == url
    assert words in " ".join(address.warnings)
