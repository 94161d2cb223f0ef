"""What a legal URL, header, variable or command line is. Pure functions: each raises ValidationError with words for people."""

import re
import shlex
from pathlib import PurePosixPath
from urllib.parse import SplitResult, urlsplit

from django.core.exceptions import ValidationError

# RFC 9110 section 5.6.2
_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_SECRET_NAME = re.compile(
    r"auth|token|secret|passw|pwd|cookie|credential|private|signature|bearer|(?:^|[^a-z])(?:key|pat|pin)(?:$|[^a-z])|api[-_]?key|apikey",
    re.IGNORECASE,
)
_SECRET_PARAMETER = re.compile(r"token|secret|passw|api[-_]?key|^key$|^sig$|signature|auth", re.IGNORECASE)
# Ours to set: the connection's own (RFC 9110 section 7.6.1) and what the protocol core writes on each request.
_OWN_HEADERS = frozenset(
    {
        *(
            "accept",
            "accept-encoding",
            "connection",
            "content-encoding",
            "content-length",
            "content-type",
            "expect",
            "host",
        ),
        *("keep-alive", "last-event-id", "mcp-method", "mcp-name", "mcp-protocol-version", "mcp-session-id", "origin"),
        *(
            "proxy-authenticate",
            "proxy-authorization",
            "proxy-connection",
            "te",
            "trailer",
            "transfer-encoding",
            "upgrade",
        ),
    }
)
_DEFAULT_PORTS = {"http": 80, "https": 443}
# Words of our own addresses under /servers/.
RESERVED_SLUGS = frozenset({"add", "demo", "test", "import", "export", "new"})
MAX_VALUE_LENGTH = 16_384
MAX_ARGUMENTS = 200


def split_url(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        _ = parts.port  # raises for what is no port
    except ValueError as exc:
        raise ValidationError(f"This is no URL: {exc}.", code="url") from exc
    return parts


def validate_url(url: str) -> None:
    if _CONTROL.search(url) or " " in url or "\t" in url:
        raise ValidationError("A URL has no blanks or line breaks. Write a blank as %20.", code="url")
    parts = split_url(url)
    if parts.scheme.lower() not in _DEFAULT_PORTS:
        raise ValidationError("Start the URL with http:// or https://.", code="scheme")
    if not parts.hostname:
        raise ValidationError("The URL names no host. Write it like https://mcp.example.com/mcp.", code="host")
    if parts.username is not None or parts.password is not None:
        message = "Take the user name and password out of the URL and put them in a header: it is sealed, a URL is not."
        raise ValidationError(message, code="userinfo")
    if parts.fragment or url.endswith("#"):
        raise ValidationError("Leave out the part after #: it is never sent to a server.", code="fragment")


def origin(url: str) -> tuple[str, str, int]:
    """Scheme, host and port: what a credential is bound to (RFC 6454)."""
    parts = split_url(url)
    scheme = parts.scheme.lower()
    return scheme, (parts.hostname or "").rstrip("."), parts.port or _DEFAULT_PORTS.get(scheme, 0)


def masked_url(url: str) -> str:
    """`url` without user name, password and the values of parameters that look like secrets."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return "(not a URL)"
    host = parts.netloc.rpartition("@")[2]
    query = "&".join(_masked_parameter(item) for item in parts.query.split("&")) if parts.query else ""
    return parts._replace(netloc=f"…@{host}" if "@" in parts.netloc else host, query=query).geturl()


def _masked_parameter(item: str) -> str:
    name, equals, value = item.partition("=")
    return f"{name}=…" if value and _SECRET_PARAMETER.search(name) else f"{name}{equals}{value}"


# --- headers and variables -------------------------------------------------------------------------------------------
def validate_header_name(name: str) -> None:
    if not _TOKEN.fullmatch(name):
        message = f"“{name}” is no header name: letters, digits and hyphens only, without the colon."
        raise ValidationError(message, code="header_name")
    if name.lower() in _OWN_HEADERS:
        raise ValidationError(f"{name} is set by mcpadmin itself on each request. Remove this row.", code="own_header")


def validate_header_value(value: str) -> None:
    if _CONTROL.search(value):
        raise ValidationError("A header value is one line without control characters.", code="header_value")
    if value != value.strip():
        raise ValidationError("Remove the blanks around the value.", code="header_value")
    try:
        value.encode("ascii")
    except UnicodeEncodeError as exc:
        message = "A header value has ASCII characters only. Encode others, for example as %E2%82%AC."
        raise ValidationError(message, code="header_value") from exc
    _validate_length(value)


def validate_variable_name(name: str) -> None:
    if not _VARIABLE.fullmatch(name):
        message = f"“{name}” is no variable name: letters, digits and _, not starting with a digit."
        raise ValidationError(message, code="variable_name")


def validate_variable_value(value: str) -> None:
    if "\0" in value:
        raise ValidationError("A variable cannot hold a NUL character.", code="variable_value")
    _validate_length(value)


def _validate_length(value: str) -> None:
    if len(value) > MAX_VALUE_LENGTH:
        raise ValidationError(f"At most {MAX_VALUE_LENGTH} characters.", code="length")


def looks_secret(name: str) -> bool:
    """Whether a header or variable of this name holds a credential as a rule."""
    return bool(_SECRET_NAME.search(name))


# --- commands ----------------------------------------------------------------------------------------------------------
def validate_command(command: str) -> None:
    if not command.strip():
        raise ValidationError(
            "Enter the program to start, for example npx or /usr/local/bin/my-server.", code="required"
        )
    if _CONTROL.search(command):
        raise ValidationError("The command is one line without control characters.", code="command")


def validate_arguments(arguments: list[str]) -> None:
    if len(arguments) > MAX_ARGUMENTS:
        raise ValidationError(f"At most {MAX_ARGUMENTS} arguments.", code="arguments")
    if any("\0" in argument for argument in arguments):
        raise ValidationError("An argument cannot hold a NUL character.", code="arguments")
    if any(len(argument) > MAX_VALUE_LENGTH for argument in arguments):
        raise ValidationError(f"An argument has at most {MAX_VALUE_LENGTH} characters.", code="arguments")


def validate_working_directory(path: str) -> None:
    if _CONTROL.search(path):
        raise ValidationError("The directory is one line without control characters.", code="directory")
    if not PurePosixPath(path).is_absolute():
        raise ValidationError("Write the whole path of the directory, starting with /.", code="directory")


def split_command_line(line: str) -> tuple[str, list[str]]:
    """A command line pasted whole, as a shell would split it; no variable, glob or pipe is interpreted."""
    try:
        words = shlex.split(line)
    except ValueError as exc:
        raise ValidationError(f"The quotes of this command line do not match: {exc}.", code="quotes") from exc
    if not words:
        raise ValidationError("Enter the program to start.", code="required")
    return words[0], words[1:]


# --- names and times -----------------------------------------------------------------------------------------------------
def validate_slug(slug: str) -> None:
    if slug in RESERVED_SLUGS:
        raise ValidationError(f"“{slug}” is a word of our own addresses. Choose another short name.", code="reserved")


def validate_tags(tags: list[str]) -> None:
    if len(tags) > 20 or any(len(tag) > 40 for tag in tags):
        raise ValidationError("At most 20 tags of 40 characters.", code="tags")


#: seconds: (least, most) by field of Server
TIMES = {
    "connect_timeout_seconds": (1, 600),
    "request_timeout_seconds": (1, 86_400),
    "total_timeout_seconds": (1, 604_800),
    "idle_timeout_seconds": (10, 604_800),
}


def validate_seconds(field: str, seconds: int) -> None:
    least, most = TIMES[field]
    if not least <= seconds <= most:
        raise ValidationError(f"Between {least} and {most:,} seconds.", code="seconds")
