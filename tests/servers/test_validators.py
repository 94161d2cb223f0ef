from collections.abc import Callable

import pytest
from django.core.exceptions import ValidationError

from servers import validators
from servers.enums import TransportKind
from servers.registration.forms import suggest
from sessions.mcp.transports.egress import Allow


@pytest.mark.parametrize(
    "url",
    ["http://localhost:3000/mcp", "https://mcp.example.com", "https://[::1]:8443/mcp?team=a%20b", "HTTPS://X.example/"],
)
def test_a_usual_url_is_legal(url: str) -> None:
    validators.validate_url(url)


@pytest.mark.parametrize(
    ("url", "code"),
    [
        ("", "scheme"),
        ("mcp.example.com", "scheme"),
        ("ftp://x/", "scheme"),
        ("javascript:alert(1)", "scheme"),
        ("file:///etc/passwd", "scheme"),
        ("https://", "host"),
        ("https://user@x/", "userinfo"),
        ("https://:pw@x/", "userinfo"),
        ("https://x/#a", "fragment"),
        ("https://x/#", "fragment"),
        ("https://x/a b", "url"),
        ("https://x/\r\nHost: y", "url"),
        ("https://x:99999/", "url"),
        ("https://[::1/", "url"),
    ],
)
def test_other_urls_are_refused_for_their_reason(url: str, code: str) -> None:
    with pytest.raises(ValidationError) as refused:
        validators.validate_url(url)
    assert refused.value.code == code


@pytest.mark.parametrize("name", ["Authorization", "X-Api-Key", "x_team"])
def test_a_usual_header_name_is_legal(name: str) -> None:
    validators.validate_header_name(name)


@pytest.mark.parametrize(
    "name", ["", "X A", "X:", "Ä", "a\r\nb", "Host", "content-length", "MCP-Session-Id", "Connection", "Accept"]
)
def test_names_that_are_none_or_ours_are_refused(name: str) -> None:
    with pytest.raises(ValidationError):
        validators.validate_header_name(name)


@pytest.mark.parametrize("value", ["a\r\nB: c", "a\0", " a", "ä", "x" * 20_000])
def test_values_that_would_break_a_request_are_refused(value: str) -> None:
    with pytest.raises(ValidationError):
        validators.validate_header_value(value)


@pytest.mark.parametrize(
    "name",
    [
        "Authorization",
        "X-API-Key",
        "GITHUB_TOKEN",
        "client_secret",
        "PASSWORD",
        "Cookie",
        "DB_PASSWD",
        "API_KEY",
        "KEY",
    ],
)
def test_names_of_credentials_are_recognised(name: str) -> None:
    assert validators.looks_secret(name)


@pytest.mark.parametrize(
    "name", ["X-Team", "LANG", "MONKEY", "KEYBOARD_LAYOUT", "Accept-Language", "NODE_ENV", "PINNED"]
)
def test_other_names_are_no_credentials(name: str) -> None:
    assert not validators.looks_secret(name)


@pytest.mark.parametrize(
    ("url", "masked"),
    [
        ("https://x/mcp", "https://x/mcp"),
        ("https://u:p@x/mcp", "https://…@x/mcp"),
        ("https://x/?token=abc&a=1&api-key=2&key=3", "https://x/?token=…&a=1&api-key=…&key=…"),
        ("http://[::1", "(not a URL)"),
    ],
)
def test_secrets_of_a_url_are_masked(url: str, masked: str) -> None:
    assert validators.masked_url(url) == masked


@pytest.mark.parametrize(
    ("text", "transport"),
    [
        ("https://mcp.example.com/mcp", "auto_http"),
        ("https://mcp.example.com/sse", "auto_http"),
        ("HTTP://localhost:3000", "auto_http"),
        ("localhost:3000/mcp", "auto_http"),
        ("localhost:3000", "auto_http"),
        ("mcp.example.com/mcp", "auto_http"),
        ("ws://localhost:3000", "websocket"),
        ("WSS://mcp.example.com/ws", "websocket"),
        ("npx -y @modelcontextprotocol/server-everything", "stdio"),
        ("python -m server", "stdio"),
        ("/usr/local/bin/server", "stdio"),
        ("./server.py", "stdio"),
        ("server.py", "stdio"),
        ("docker", "stdio"),
    ],
)
def test_the_transport_is_suggested_from_what_was_typed(text: str, transport: str) -> None:
    suggestion = suggest(text)
    assert suggestion.transport == TransportKind(transport)
    assert suggestion.reason


def test_a_suggestion_completes_a_bare_host_and_splits_a_command_line() -> None:
    assert suggest("localhost:3000/mcp").url == "http://localhost:3000/mcp"
    assert suggest("mcp.example.com/mcp").url == "https://mcp.example.com/mcp"
    found = suggest("npx -y 'a b' $HOME")
    assert (found.command, found.arguments) == ("npx", ["-y", "a b", "$HOME"])
    with pytest.raises(ValidationError):
        suggest("npx 'open")


@pytest.mark.parametrize(
    "text",
    [
        "htp:/example.com/mcp",
        "http:/example.com/mcp",
        "https:example.com/mcp",
        "https;//example.com/mcp",
        "https//example.com/mcp",
        "gateway:8080/mcp",
    ],
)
def test_a_mistyped_url_is_refused_and_not_registered_as_a_command(text: str) -> None:
    with pytest.raises(ValidationError, match="looks like a URL"):
        suggest(text)


def test_a_command_with_a_colon_is_still_a_command() -> None:
    for text in ("docker run acme/notes:1.2", "C:/tools/server.exe", "npx -y @acme/notes --url http://localhost:3000"):
        assert suggest(text).transport == TransportKind.STDIO


@pytest.mark.parametrize(
    "path",
    ["/", "/.", "//", "/proc", "/./proc", "//proc/self", "/proc/.", "/sys//kernel", "/dev/./sda", "srv", "/a/../b"],
)
def test_a_path_to_everything_or_to_the_kernel_cannot_be_granted_however_it_is_spelled(path: str) -> None:
    with pytest.raises(ValidationError):
        validators.validate_path(path)
    validators.validate_path("/srv/proc")


@pytest.mark.parametrize(
    "host",
    [
        *("169.254.169.254", "[fd00:ec2::254]:80", "[fd00:0ec2:0::254]", "[::ffff:169.254.169.254]"),
        *("[64:ff9b::a9fe:a9fe]:80", "[64:ff9b:1::169.254.169.254]", "[2002:a9fe:a9fe::1]", "[fe80::1%eth0]"),
    ],
)
def test_a_metadata_service_is_no_host_however_it_is_spelled(host: str) -> None:
    """A start of the server would fail on it, and not say where to change it."""
    with pytest.raises(ValidationError):
        validators.validate_host(host)
    validators.validate_host("[fd00::5]:8080")
    validators.validate_host("[64:ff9b::808:808]")


@pytest.mark.parametrize(
    "text",
    [
        *("10.1.0.0/16", "10.1.0.5", "10.1.0.5/16", "10.1.0.5:8080", "10.1.0.0/16:8080", "fd00::/8", "[fd00::5]:8080"),
        *("", "mcp.corp.example", "10.0.0.0/8 192.168.0.0/16", "https://10.1.0.5", "10.0.0.0/33", "10.1.0.5:0"),
        *("10.1.0.5:65536", "[10.1.0.5]", "[fd00::5]", "fd00::5:99999"),
    ],
)
def test_a_network_of_the_operator_is_checked_as_the_outbound_guard_reads_it(text: str) -> None:
    assert accepts(Allow.parsed, text) is accepts(validators.validate_network, text)


def accepts(rule: Callable[[str], object], text: str) -> bool:
    try:
        rule(text)
    except (ValueError, ValidationError):
        return False
    return True


def test_a_root_with_a_nul_character_is_refused() -> None:
    """No path holds one, and the session would end with an error of the worker."""
    with pytest.raises(ValidationError, match="NUL"):
        validators.validate_root_uri("file:///srv/%00data")
