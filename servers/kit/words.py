"""Formats numbers and states as text for pages."""

from typing import NamedTuple


class Look(NamedTuple):
    word: str
    tone: str
    """A tone of the kit: ok, run, warn, bad, viol, or empty for neutral."""
    icon: str


_STATES = {
    "disconnected": Look("Disconnected", "", "plug-off"),
    "connecting": Look("Connecting", "run", "loader-2"),
    "initializing": Look("Initializing", "run", "loader-2"),
    "ready": Look("Ready", "ok", "plug-connected"),
    "disconnecting": Look("Disconnecting", "run", "loader-2"),
}
# A condition says why a session is not where it should be, so it outranks the state unless that is `ready`.
_CONDITIONS = {
    "waiting_worker": Look("Waiting for a worker", "warn", "clock"),
    "backing_off": Look("Retrying", "warn", "refresh-dot"),
    "needs_auth": Look("Needs authorization", "warn", "key"),
    "sign_in": Look("Sign in", "warn", "key"),
    "sign_in_again": Look("Sign in again", "warn", "key"),
    "incompatible": Look("Incompatible", "bad", "alert-circle"),
    "refused": Look("Refused", "bad", "ban"),
    "paused": Look("Paused", "", "player-pause"),
    "failing": Look("Failing", "bad", "plug-x"),
}


def session_look(state: str, condition: str = "none") -> Look:
    if state == "ready":
        return _STATES["ready"]
    fallback = Look(state.replace("_", " ").capitalize() or "Unknown", "", "circle-dashed")
    return _CONDITIONS.get(condition) or _STATES.get(state, fallback)


def shortened(text: str, most: int) -> str:
    """Shortened in the middle: addresses differ at their ends."""
    if len(text) <= most:
        return text
    tail = most // 2
    return f"{text[: most - tail - 1]}…{text[-tail:]}"


def format_count(count: int, noun: str, plural: str = "") -> str:
    """`1 server`, `1,204 servers`."""
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"


def format_all(count: int, noun: str) -> str:
    """`1 event`, `All 1,204 events`."""
    return format_count(count, noun) if count == 1 else f"All {format_count(count, noun)}"


def format_duration(milliseconds: float) -> str:
    """`812 ms`, `1.24 s`, `30.0 s`, `2 min 05 s`, `1 h 04 min`, `6 d 04 h`."""
    if milliseconds < 1:
        return "<1 ms" if milliseconds > 0 else "0 ms"
    if round(milliseconds) < 1000:
        return f"{milliseconds:.0f} ms"
    seconds = milliseconds / 1000
    if seconds < 59.95:
        return f"{seconds:.2f} s" if seconds < 9.995 else f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    hours, rest = divmod(minutes, 60)
    return f"{hours} h {rest:02d} min" if hours < 24 else f"{hours // 24} d {hours % 24:02d} h"


def format_clock(seconds: int) -> str:
    """`0:07`, `12:30`, `1:02:03`: as countdown.js writes a time that runs."""
    hours, rest = divmod(seconds, 3600)
    minutes, seconds = divmod(rest, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"


def format_elapsed(seconds: int) -> str:
    """`7 s`, `2 min 05 s`, `1 h 02 min`: as time.js counts on."""
    if seconds < 60:
        return f"{seconds} s"
    minutes, rest = divmod(seconds, 60)
    return f"{minutes} min {rest:02d} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"


def format_bytes(count: int) -> str:
    """`612 B`, `4.1 kB`, `8.4 MB` (powers of 1000, as transfer sizes are read)."""
    size = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if size < 999.5 or unit == "GB":
            return f"{size:.0f} {unit}" if unit == "B" or size >= 99.95 else f"{size:.1f} {unit}"
        size /= 1000
    raise AssertionError("unreachable: the last unit always returns")
