"""Headers and environment variables."""

import re

from django.core.exceptions import ValidationError

from servers.validators.characters import CONTROL, MAX_VALUE_LENGTH

# RFC 9110 section 5.6.2
_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
#: names of secret headers or variables; the form's script ticks “Secret” by it, so it must be valid JavaScript, too
SECRET_NAME = re.compile(
    r"auth(?!or(?!i[sz]))|token|secret|passw|pwd|cookie|credential|private|signature|bearer|(?:^|[^a-z])(?:key|pat|pin)(?:$|[^a-z])|api[-_]?key|apikey",
    re.IGNORECASE,
)
# Set by us: the connection's own headers (RFC 9110 section 7.6.1) and those that the protocol core sends each time.
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
        # RFC 6455 section 11.3
        *("sec-websocket-accept", "sec-websocket-extensions", "sec-websocket-key", "sec-websocket-protocol"),
        "sec-websocket-version",
    }
)
# Those of them whose value may be intentional: dropping it would change which server is reached, or as whom.
_OWN_BUT_MEANT = frozenset({"host", "origin", "proxy-authorization", "sec-websocket-protocol"})


def is_set_anyway(header: str) -> bool:
    """Whether this header can be dropped without loss, because mcpadmin sets it on each request."""
    return header.lower() in _OWN_HEADERS - _OWN_BUT_MEANT


def validate_header_name(name: str) -> None:
    if not _TOKEN.fullmatch(name):
        message = f"“{name}” is not a valid header name: use only letters, digits and hyphens, without the colon."
        raise ValidationError(message, code="header_name")
    if name.lower() in _OWN_HEADERS:
        raise ValidationError(f"{name} is set by mcpadmin on each request. Remove this row.", code="own_header")


def validate_header_value(value: str) -> None:
    if CONTROL.search(value):
        raise ValidationError("A header value must be one line without control characters.", code="header_value")
    if value != value.strip():
        raise ValidationError("Remove leading and trailing spaces.", code="header_value")
    try:
        value.encode("ascii")
    except UnicodeEncodeError as exc:
        message = "A header value can contain only ASCII characters. Encode others, for example as %E2%82%AC."
        raise ValidationError(message, code="header_value") from exc
    _validate_length(value)


def validate_variable_name(name: str) -> None:
    if not _VARIABLE.fullmatch(name):
        message = f"“{name}” is not a valid variable name: use letters, digits and _, not starting with a digit."
        raise ValidationError(message, code="variable_name")


def validate_variable_value(value: str) -> None:
    if "\0" in value:
        raise ValidationError("A variable cannot contain a NUL character.", code="variable_value")
    _validate_length(value)


def _validate_length(value: str) -> None:
    if len(value) > MAX_VALUE_LENGTH:
        raise ValidationError(f"At most {MAX_VALUE_LENGTH:,} characters. This limit cannot be changed.", code="length")


def looks_secret(name: str) -> bool:
    """Whether a header or variable with this name usually contains a credential."""
    return bool(SECRET_NAME.search(name))
