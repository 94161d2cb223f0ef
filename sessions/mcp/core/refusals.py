"""Reads the body of an HTTP refusal: the server's own words, and what they ask for.

Bodies of refusals follow no standard. This module recognizes the guards of common SDKs and gateways by their wording.
Anything else is shown without interpretation.
"""

import json
import re
from html.parser import HTMLParser
from typing import Any, Final

from .errors import Fault

#: bytes of a body that we examine, and bytes of its text that we show
READ_BYTES: Final = 16 * 1024
SHOWN_BYTES: Final = 2 * 1024
_SAYS: Final = ' The server says: "'
#: before what an authorization server says
IT_SAYS: Final = "It says: "
_QUOTED: Final = re.compile(rf'{_SAYS}.*"| {IT_SAYS}.*', re.DOTALL)
#: where text may be cut: the characters between two of these may be a token, which is never shown in part
_BETWEEN: Final = re.compile(r"[^\w.~+/=%-]")
#: members of a JSON object that hold a sentence, most useful first (OAuth, RFC 9457, common frameworks)
_SENTENCES: Final = ("error_description", "message", "detail", "error_message", "reason", "title", "error")
_CHALLENGED: Final = frozenset({400, 401, 402, 403})
_GUARDED: Final = frozenset({400, 403, 421})
_HOST: Final = re.compile(
    r"\binvalid host\b|\bdisallowed.?host\b|\bhost(?:name| header)?\b[^.]{0,60}\b(?:not allowed|not permitted|invalid)\b"
    r"|\ballowed_?hosts\b|\bblocked request\b[^.]{0,20}\bhost\b",
    re.IGNORECASE,
)
_ORIGIN: Final = re.compile(
    r"\binvalid origin\b|\borigin(?: header)?\b[^.]{0,60}\b(?:not allowed|not permitted|invalid|forbidden|missing|required)\b"
    r"|\ballowed_?origins\b|\bmissing origin\b",
    re.IGNORECASE,
)
_KEY: Final = (
    r"(?:x-)?api[\s_-]?keys?|subscription key|access key|(?:api|access|auth|authentication|bearer)[\s_-]?token"
    r"|authorization header|x-[a-z0-9-]*(?:key|token)\b"
)
_REQUIRED: Final = (
    r"missing|required|requires?|needs?|must|provide|no|not (?:provided|found|set|supplied|present)|expected"
)
_ASKS_FOR_KEY: Final = re.compile(
    rf"\b(?:{_REQUIRED})\b[^.]{{0,60}}\b(?:{_KEY})|\b(?:{_KEY})\b[^.]{{0,60}}\b(?:{_REQUIRED})\b", re.IGNORECASE
)
_NOT_THERE: Final = "not found|not provided|required|missing|invalid|unknown|expired|terminated"
_UNKNOWN: Final = r"(?:no|missing|invalid|unknown|expired)(?: (?:or|valid|missing|invalid|unknown|expired))*"
_OF_SESSION: Final = r"(?:(?:mcp[ -])?session[ -]?id(?: header)?|(?:mcp )?session)"
#: matches the whole text, because a tool may mention its own sessions
_LOST_SESSION: Final = re.compile(
    rf"(?:bad request\W+)?(?:{_UNKNOWN} {_OF_SESSION}(?: provided| found)?"
    rf"|{_OF_SESSION} (?:is |was |has )?(?:{_NOT_THERE})(?: or (?:{_NOT_THERE}))?)(?:: \S+)?\W*",
    re.IGNORECASE,
)
_HEADER: Final = re.compile(r"\b(x-[a-z0-9-]*(?:key|token|auth)[a-z0-9-]*|api-key|authorization)\b", re.IGNORECASE)


def words_in(body: bytes, media: str) -> str:
    """The sentence in a JSON object, the text of an HTML page, or any other text unchanged; on one line, within
    SHOWN_BYTES. Empty if the body is not text."""
    try:
        text = body.decode("utf-8") if len(body) < READ_BYTES else body.decode("utf-8", "ignore")
    except UnicodeDecodeError:
        return ""
    if media == "text/html" or text.lstrip()[:1] == "<":
        text = _text_of_page(text)
    elif text.lstrip()[:1] in ("{", "[", '"', "n"):
        text = _sentence(text)
    return in_one_line(text)


def in_one_line(text: str) -> str:
    """The text on one line, within SHOWN_BYTES."""
    return _cut(" ".join(text.split()))


def _text_of_page(text: str) -> str:
    """The text of an HTML page. Empty if the parser fails."""
    page = _Page()
    try:
        page.feed(text)
        page.close()
    except (AssertionError, ValueError):  # an unknown marked section; a character reference with thousands of digits
        return ""
    return " ".join(page.found)


class _Page(HTMLParser):
    """Collects the text that a reader would see."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self._unseen = 0

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self._unseen += tag in ("script", "style")

    def handle_endtag(self, tag: str) -> None:
        self._unseen -= tag in ("script", "style") and self._unseen > 0

    def handle_data(self, data: str) -> None:
        if not self._unseen:
            self.found.append(data)


def _sentence(text: str) -> str:
    """A JSON-RPC error's message, or the one member that holds a sentence; otherwise the text itself. Empty for JSON
    without content."""
    try:
        value: Any = json.loads(text)
        if _says_nothing(value):
            return ""
    except (ValueError, RecursionError):
        return text
    if not isinstance(value, dict):
        return value if isinstance(value, str) else text
    for _ in range(3):
        found = next((value[name] for name in _SENTENCES if value.get(name)), None)
        if isinstance(found, str):
            return found
        if not isinstance(found, dict):
            break
        value = found
    return text


def _says_nothing(value: Any) -> bool:
    if isinstance(value, dict):
        return all(name in _SENTENCES and _says_nothing(inner) for name, inner in value.items())
    if isinstance(value, list):
        return all(_says_nothing(inner) for inner in value)
    return value is None or (isinstance(value, str) and not value.strip())


def _cut(text: str) -> str:
    """At most SHOWN_BYTES of the text. Later redaction recognizes only whole secrets, so the cut must not split one."""
    data = text.encode("utf-8", "replace")
    if len(data) <= SHOWN_BYTES:
        return data.decode()
    kept = data[:SHOWN_BYTES].decode("utf-8", "ignore")
    ends = [found.start() for found in _BETWEEN.finditer(kept)]
    return f"{kept[: ends[-1]] if ends else kept[: SHOWN_BYTES // 4]} …"


def with_words(detail: str, words: str) -> str:
    """Our sentence, followed by the server's."""
    return f'{detail}{_SAYS}{words}"' if words else detail


def without_words(detail: str) -> str:
    """Only our own sentence: for users who may not read text from the server. Also lets callers see that two failures
    are equal although the server's words contain a time or a number."""
    return _QUOTED.sub("", detail)


def recognised(status: int, words: str, *, credential: bool) -> Fault | None:
    """The fault that the status and words show, or None. `credential`: whether the request carried one."""
    if status == 421 or (status in _GUARDED and _HOST.search(words)):
        return Fault.HOST_REFUSED
    if status in _GUARDED and _ORIGIN.search(words):
        return Fault.ORIGIN_REFUSED
    if status in _CHALLENGED and not credential and _ASKS_FOR_KEY.search(words):
        return Fault.KEY_NEEDED
    if status == 403 and not credential:
        return Fault.ACCESS_REFUSED
    return None


def names_lost_session(words: str) -> bool:
    """Whether the words of a refusal say that the server does not know the session of the request."""
    return _LOST_SESSION.fullmatch(words) is not None


def header_asked_for(text: str) -> str:
    """The header for a key that the server's words name. Empty if they name none."""
    found = _HEADER.search(text)
    return found.group(1) if found else ""
