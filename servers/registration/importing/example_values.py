"""What instructions print in place of the reader's own values: `<host>`, `YOUR_API_KEY`, `/path/to/file`, `sk-...`.

They are found by shapes that ordinary values do not have. A false positive asks for a value that the reader can type
unchanged; a false negative registers a server that cannot work. Only unambiguous shapes are listed here.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

#: no documentation contains a longer example
_LONGEST = 4_000
# A name in brackets or of a shell variable means the same everywhere in one entry.
_NAMED = re.compile(
    r"(?<!\?P)<(?P<a>[A-Za-z][^<>\n\"]{0,80})>|\$?\{\{\s*(?P<b>[^{}\n]{1,80}?)\s*\}\}"
    r"|\[(?P<c>(?i:your|insert|enter|add|path|the)[-_ ][^\[\]\n\"]{0,80}|[A-Z][A-Z0-9]{0,20}(?:_[A-Z0-9]{1,20}){1,5})\]"
    r"|(?<![\w$\\])\$(?:env:)?(?P<d>[A-Z][A-Z0-9_]{2,60})\b|%(?P<e>[A-Z][A-Z_]{3,40})%"
)
_IN_URL = re.compile(r"(?<![\${])\{(?P<a>[A-Za-z][\w -]{0,60})\}(?!\})")
_LOGIN = re.compile(
    r"(?<=://)(?:user(?:name)?|your\w{1,30}):(?:pass(?:word)?|pwd|your\w{1,30})(?=@)"
    r"|(?<=@)host(?:name)?(?=[:/])|(?<=://)host(?:name)?(?=[:/])|(?<=@host:)port\b|\b[Yy]ou(?:r[\w.-]{0,40})?@[\w.-]{1,80}"
)
# A piece of text that may be a path: a colon separates two paths, but not a drive or a scheme from its path.
_PIECE = re.compile(r"[^\s,;\"'=]+")
_PARTED = re.compile(r"(?<!^[A-Za-z]):(?!//)(?=[/~.\\])")
_NOWHERE = re.compile(
    r"(?:^|[\\/])(?:(?:absolute|full|actual|local|some|your|the|correct)[-_ ])?path(?:[\\/]+|[-_])(?:to|on|of)(?:$|[\\/_-])"
    r"|^(?:file:/*|~|[A-Za-z]:)?[\\/]*(?:absolute|full[\\/_-]+path|some[\\/_-]+path)(?:[-_]path)?[\\/]|(?:^|[\\/])your(?:[\\/_ -]|$)"
    r"|(?:^|[\\/])(?:users|home)[\\/]+(?:your|you\b|user[-_]?name\b)|(?:^|[\\/])users[\\/]+(?:user|me|name|xxx)(?:[\\/]|$)",
    re.IGNORECASE,
)
_WORD = re.compile(r"[A-Za-z0-9_*-]+")
_YOURS = re.compile(
    r"(?:^|[-_])(?:[Yy]our|YOUR)(?:[-_]|$)|^your[A-Z]|^YOUR[A-Z]{2}"
    r"|^[Yy]our(?:company|domain|name|username|user|token|api|apikey|key|project|org|organi[sz]ation|password|secret|team|site"
    r"|instance|workspace|host|server|repo|account|tenant|subdomain|email|db|database)$"
)
_MASKED = re.compile(r"\*{3}|(?<![A-Za-z])(?:x{3,}|X{3,})(?![A-Za-z])|^[0xX]{8}(?:-[0xX]{4}){3}-[0xX]{12}$")
_ASKED = re.compile(
    r"^(?:REPLACE|INSERT|ENTER|PASTE|PUT)(?:[-_][A-Z0-9]+)+[-_]?$|^(?:change|replace|fill)[-_]?me$|[a-zA-Z][-_](?:here|HERE)$",
)
_CUT_OFF = re.compile(r"(?<![\w./-])[A-Za-z][\w-]{0,60}(?:\.{3}|…)(?![\w.])")
_WHOLE = re.compile(r"\.{3}|…|\*+|x{3,}|TODO|TBD|FIXME", re.IGNORECASE)
# For values whose names say that they are credentials.
_WHOLE_SECRET = re.compile(
    r"(?:my|the|some|an?|insert|enter|add|put|paste|example|sample|dummy|placeholder|fake|actual|real)[-_ ][\w -]*"
    r"|[\w-]*[-_](?:placeholder|example)|\[[^\[\]]*\]|\{[^{}\":]*\}"
    r"|(?:(?:api|access|auth|secret|bearer|personal|private|client|service|oauth|bot|app)[-_ ]?){0,2}"
    r"(?:key|token|secret|password|pat|pass|credentials?)"
    r"|[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)*_(?:KEY|TOKEN|SECRET|PASSWORD|PAT|ID)",
    re.IGNORECASE,
)
_SCHEME = re.compile(r"(?:bearer|basic|token)\s+", re.IGNORECASE)


@dataclass(frozen=True)
class ExampleValue:
    """`label`: the words inside its brackets, if any."""

    start: int
    end: int
    text: str
    label: str = ""


def example_values(text: str, *, secret: bool = False, url: bool = False) -> list[ExampleValue]:
    """The example values in text order, without overlaps. `secret`: the value's name says that it is a credential."""
    if len(text) > _LONGEST:
        return []
    scheme = _SCHEME.match(text) if secret else None
    start = scheme.end() if scheme else 0
    value = text[start:].strip()
    if _WHOLE.fullmatch(value) or (secret and value and _WHOLE_SECRET.fullmatch(value)):
        return [ExampleValue(start, len(text), text[start:])]
    found: list[ExampleValue] = []
    for one in _found(text, url=url):
        if all(one.end <= other.start or other.end <= one.start for other in found):
            found.append(one)
    return sorted(found, key=lambda one: one.start)


def filled(text: str, put: Callable[[ExampleValue], str | None], *, secret: bool = False, url: bool = False) -> str:
    """`text` with each example value replaced by what `put` returns; None leaves it unchanged."""
    out, at = [], 0
    for one in example_values(text, secret=secret, url=url):
        value = put(one)
        out += [text[at : one.start], one.text if value is None else value]
        at = one.end
    return "".join([*out, text[at:]])


def _found(text: str, *, url: bool) -> Iterator[ExampleValue]:
    """Yield wider shapes before narrower ones."""
    for match in _NAMED.finditer(text):
        label = next(group for group in match.groups() if group)
        yield ExampleValue(match.start(), match.end(), match[0], label)
    for match in _IN_URL.finditer(text) if url else ():
        yield ExampleValue(match.start(), match.end(), match[0], match["a"])
    for start, piece in _pieces(text):
        if ("/" in piece or "\\" in piece) and _NOWHERE.search(piece):
            yield ExampleValue(start, start + len(piece), piece)
    for match in (*_LOGIN.finditer(text), *_CUT_OFF.finditer(text)):
        yield ExampleValue(match.start(), match.end(), match[0])
    for match in _WORD.finditer(text):
        if _YOURS.search(match[0]) or _MASKED.search(match[0]) or _ASKED.search(match[0]):
            yield ExampleValue(match.start(), match.end(), match[0])


def _pieces(text: str) -> Iterator[tuple[int, str]]:
    if re.match(r"(?:[A-Za-z]:|~)?[\\/]", text) and not re.search(r"[,;\"'=:]", text[2:]):
        yield 0, text  # one path, perhaps with spaces in it
        return
    for match in _PIECE.finditer(text):
        at = 0
        for part in _PARTED.split(match[0]):
            if "://" not in part or part.startswith("file:"):
                yield match.start() + at, part
            at += len(part) + 1
