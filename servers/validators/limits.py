"""The limits on what a server may send, as an admin sets them: the unit, bounds and texts of each.

What each one bounds exactly is documented in sessions/mcp/core/limits.py, which has fields of the same names. The
instance's defaults are the settings MCPADMIN_LIMIT_*; a registration stores only what differs for its server.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.core.exceptions import ValidationError

KIB = 1024
MIB = 1024 * KIB


@dataclass(frozen=True)
class Limit:
    """`least` and `most` as stored; `factor`: how many stored units make one `unit` as shown in a form."""

    name: str
    group: str
    label: str
    unit: str
    least: int
    most: int
    help: str
    factor: int = 1

    @property
    def default(self) -> int:
        """The instance's default, as stored."""
        return int(settings.LIMITS[self.name])

    def in_unit(self, value: int) -> int:
        return value // self.factor

    @property
    def least_shown(self) -> int:
        return -(-self.least // self.factor)

    @property
    def bounds_in_words(self) -> str:
        return f"between {self.least_shown:,} and {self.in_unit(self.most):,}"


def _kib(name: str, group: str, label: str, least: int, most: int, help_text: str) -> Limit:
    return Limit(name, group, label, "KiB", least, most, help_text, KIB)


_MESSAGE, _WIRE, _LISTS, _TRAFFIC = "One message", "In flight", "Lists", "Traffic"
LIMITS: dict[str, Limit] = {
    limit.name: limit
    for limit in (
        _kib("message_bytes", _MESSAGE, "Message size", 16 * KIB, 256 * MIB, "Larger messages are rejected."),
        Limit("message_values", _MESSAGE, "Values", "values", 1_000, 10_000_000, "Object members and array elements in total."),
        Limit("batch_messages", _MESSAGE, "Batch", "messages", 1, 100_000, "Messages in one array, as 2025-03-26 allows."),
        Limit("depth", _MESSAGE, "Nesting", "levels", 8, 256, "Depth of nested arrays and objects."),
        _kib("inflated_bytes", _WIRE, "Decompressed size", 16 * KIB, 512 * MIB, "Of a compressed HTTP response."),
        Limit("inflated_ratio", _WIRE, "Compression", "times", 10, 1_000, "How much a compressed response may expand."),
        _kib("stream_bytes", _WIRE, "Stream without messages", 64 * KIB, 512 * MIB, "Comments and empty events."),
        _kib("line_bytes", _WIRE, "Line on stdout", 64 * KIB, 1024 * MIB, "Discarded up to this size before the session fails."),
        Limit("header_count", _WIRE, "Headers", "lines", 10, 1_000, "Of one HTTP response."),
        _kib("header_bytes", _WIRE, "Header size", 4 * KIB, MIB, "All headers of one HTTP response."),
        Limit("list_items", _LISTS, "Entries of a list", "entries", 10, 100_000, "Longer lists are truncated."),
        Limit("list_pages", _LISTS, "Pages of a list", "pages", 1, 10_000, "Pages requested per list."),
        _kib("list_bytes", _LISTS, "Size of a list", 64 * KIB, 512 * MIB, "All pages of a list together."),
        Limit("pending_requests", _TRAFFIC, "Requests to the server", "in flight", 1, 10_000, "More are not sent."),
        Limit("open_server_requests", _TRAFFIC, "Server requests", "open", 1, 1_000, "More are refused."),
        Limit("server_requests_per_minute", _TRAFFIC, "Server request rate", "a minute", 1, 10_000, "The rest is refused."),
        Limit("rounds", _TRAFFIC, "Rounds", "rounds", 1, 100, "Rounds of input one call may request."),
        _kib("request_state_bytes", _TRAFFIC, "Request state", KIB, 16 * MIB, "Carried from round to round."),
        Limit("events_per_second", _TRAFFIC, "Events", "a second", 10, 100_000, "More are counted and dropped."),
    )
}  # fmt: skip


def validate_limit(name: str, value: Any) -> None:
    limit = LIMITS.get(name)
    if limit is None:
        raise ValidationError(f"There is no limit called {name}.", code="unknown")
    if isinstance(value, bool) or not isinstance(value, int) or not limit.least <= value <= limit.most:
        raise ValidationError(f"{limit.label}: {limit.bounds_in_words} ({limit.unit}).", code="bounds")


def validate_limits(overrides: Mapping[str, Any]) -> None:
    for name, value in overrides.items():
        validate_limit(name, value)
