"""The query language of the explorer: `server:github tool:create_* outcome:error duration:>2s last:1h "acme"`.

query    terms, separated by blanks; all of them must hold
term     field:value, field:value,value (any of them), or free text; `-` in front negates it
value    a word, or text in double quotes (\\", \\\\ and \\* inside); `*` at its ends stands for any text
         of duration and size: a comparison (>2s, <=500ms, >1mb)
         of since and until: a date, a time, both (2026-11-23T15:00), today, yesterday, or a duration ago (2h)
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, time, timedelta
from difflib import get_close_matches
from enum import Enum
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

from sessions.explorer.rows import Completion

if TYPE_CHECKING:
    from lark import Lark, Token, Tree
    from lark.exceptions import UnexpectedInput

TEXT_CHARS = 2_000
TERMS = 40
#: values of one condition: SQLite refuses an expression with a thousand alternatives
VALUES = 100
FREE_TEXT = ""
#: of a range
EARLIEST, LATEST = datetime(1000, 1, 1, tzinfo=UTC), datetime(9000, 1, 1, tzinfo=UTC)
#: milliseconds and bytes that a database compares exactly
LARGEST = 2**53
Comparison = Literal["", "<", "<=", ">", ">="]

_GRAMMAR = r"""
start: _BLANK? (term (_BLANK term)*)?
term: NOT? FIELD value ("," value)*   -> filter
    | NOT? (QUOTED STAR? | WORD)      -> text
value: COMPARISON? (QUOTED STAR? | ATOM)
NOT.4: "-"
FIELD.3: /[A-Za-z][A-Za-z_]*:/
COMPARISON.2: /[<>]=?/
QUOTED.2: /"(\\.|[^"\\])*"/s
STAR: "*"
ATOM: /[^\s",]+/
WORD: /[^\s"]+/
_BLANK: /\s+/
"""


@cache
def _parser() -> "Lark":
    from lark import Lark  # noqa: PLC0415  # 4 MB and 50 ms, and not every process reads queries

    return Lark(_GRAMMAR, parser="lalr", lexer="contextual")


class Kind(Enum):
    """How the values of a field are compared."""

    NAME = "name"
    CHOICE = "choice"
    DURATION = "duration"
    SIZE = "size"
    MOMENT = "moment"


@dataclass(frozen=True)
class Field:
    name: str
    label: str
    kind: Kind = Kind.NAME
    example: str = ""


FIELDS: Mapping[str, Field] = {
    found.name: found
    for found in (
        Field("server", "Server", example="server:github"),
        Field("tool", "Tool, prompt, resource or subject", example="tool:create_*"),
        Field("user", "User", example="user:ann"),
        Field("identity", "Identity that the server saw", example="identity:Shared"),
        Field("way", "Source", Kind.CHOICE, "way:agent"),
        Field("outcome", "Outcome", Kind.CHOICE, "outcome:error"),
        Field("status", "Exact state", Kind.CHOICE, "status:tool_error"),
        Field("kind", "Kind", Kind.CHOICE, "kind:sign-in"),
        Field("in", "Calls, events, logs", Kind.CHOICE, "in:calls"),
        Field("duration", "Duration", Kind.DURATION, "duration:>2s"),
        Field("size", "Size of arguments and result", Kind.SIZE, "size:>1mb"),
        Field("session", "Session", example="session:3f2a…"),
        Field("call", "Call", example="call:3f2a…"),
        Field("own", "mcpadmin's own requests", Kind.CHOICE, "own:show"),
        Field("last", "The last", Kind.DURATION, "last:15m"),
        Field("since", "Since", Kind.MOMENT, "since:yesterday"),
        Field("until", "Until", Kind.MOMENT, "until:2026-11-23T16:00"),
    )
}
_RANGE = ("last", "since", "until")


class QueryError(Exception):
    """The text from `start` to `end` (characters) cannot be read; `message` says what to write there."""

    def __init__(self, message: str, start: int, end: int) -> None:
        super().__init__(message)
        self.message, self.start, self.end = message, start, end


@dataclass(frozen=True)
class Value:
    """`text` without the asterisks. `number`: milliseconds of a duration, bytes of a size."""

    text: str
    comparison: Comparison = ""
    any_start: bool = False
    any_end: bool = False
    number: float | None = None

    @property
    def exact(self) -> bool:
        return not (self.any_start or self.any_end)

    def matches(self, name: str) -> bool:
        """Ignores case."""
        text, name = self.text.casefold(), name.casefold()
        if self.any_start and self.any_end:
            return text in name
        if self.any_end:
            return bool(name) and name.startswith(text)
        return name.endswith(text) if self.any_start else name == text

    def text_form(self) -> str:
        if not self.text and self.any_end:
            return "*"
        plain = re.fullmatch(r'[^\s",*<>-][^\s",*]*', self.text) and not re.match(r"[A-Za-z_]+:", self.text)
        escaped = self.text.replace("\\", "\\\\").replace('"', '\\"')
        if self.any_start and not plain:
            return f'"*{escaped}"' + ("*" if self.any_end else "")
        text = self.text if plain else f'"\\{escaped}"' if escaped.startswith("*") else f'"{escaped}"'
        return f"{self.comparison}{'*' if self.any_start else ''}{text}{'*' if self.any_end else ''}"


@dataclass(frozen=True)
class Term:
    """One condition: any of `values`. `field` is FREE_TEXT for free text. `start` and `end` are its place in the text."""

    field: str
    values: tuple[Value, ...]
    negated: bool = False
    start: int = 0
    end: int = 0

    def text_form(self) -> str:
        values = ",".join(value.text_form() for value in self.values)
        name = f"{self.field}:" if self.field else ""
        return f"{'-' if self.negated else ''}{name}{values}"


@dataclass(frozen=True)
class Query:
    """`since` is included, `until` is not, both in UTC. `streams` is empty for all. `terms` are all but the range and `in:`.
    `last`: the length of a relative range ("15m"), which stays relative in `text_form`."""

    since: datetime | None = None
    until: datetime | None = None
    streams: frozenset[str] = frozenset()
    terms: tuple[Term, ...] = ()
    last: str = ""
    placed: tuple[Term, ...] = ()  # range and `in:`, as they were written

    def text_form(self) -> str:
        """One spelling for the same query; `parse` reads it again."""
        return " ".join(term.text_form() for term in (*self.placed, *self.terms))

    def of(self, field: str) -> tuple[Term, ...]:
        return tuple(term for term in self.terms if term.field == field)

    def having(self, field: str, value: str, *, negated: bool = False) -> str:
        """The text of this query with one more condition; for a link or a button."""
        added = Term(field, (Value(value),), negated)
        return " ".join(filter(None, (self.text_form(), added.text_form())))

    def without(self, *fields: str) -> str:
        """The text of this query without the conditions on these fields."""
        return " ".join(term.text_form() for term in (*self.placed, *self.terms) if term.field not in fields)


def parse(text: str, now: datetime) -> Query:
    """Times without a zone are in the zone of `now`. Raises QueryError."""
    if len(text) > TEXT_CHARS:
        raise QueryError(f"A query can have at most {TEXT_CHARS:,} characters (a fixed limit).", TEXT_CHARS, len(text))
    from lark import Tree  # noqa: PLC0415  # see _parser
    from lark.exceptions import UnexpectedInput  # noqa: PLC0415  # see _parser

    trimmed = text.rstrip()
    try:
        tree = _parser().parse(trimmed)
    except UnexpectedInput as problem:
        raise _explained(trimmed, problem) from problem
    terms = [_term(node) for node in tree.children if isinstance(node, Tree)]
    if len(terms) > TERMS:
        raise QueryError(
            f"A query can have at most {TERMS} conditions (a fixed limit).", terms[TERMS].start, terms[-1].end
        )
    return _query([_read(term) for term in terms], now)


# --- terms -----------------------------------------------------------------------------------------------------------
def _term(node: "Tree[Token]") -> Term:
    from lark import Token, Tree  # noqa: PLC0415  # see _parser

    tokens = list(node.scan_values(lambda item: isinstance(item, Token)))
    start, end = int(tokens[0].start_pos or 0), int(tokens[-1].end_pos or 0)
    negated = tokens[0].type == "NOT"
    if node.data == "text":
        return Term(FREE_TEXT, (_value(tokens[1 if negated else 0 :]),), negated, start, end)
    field = tokens[1 if negated else 0]
    name = str(field)[:-1].lower()
    if name not in FIELDS:
        raise _unknown_field(name, int(field.start_pos or 0), int(field.end_pos or 0))
    values = (child for child in node.children if isinstance(child, Tree))
    found = tuple(_value([token for token in child.children if isinstance(token, Token)]) for child in values)
    return Term(name, found, negated, start, end)


def _value(tokens: "list[Token]") -> Value:
    comparison: Any = ""
    if tokens[0].type == "COMPARISON":
        comparison, tokens = str(tokens[0]), tokens[1:]
    text = str(tokens[0])
    if tokens[0].type == "QUOTED":
        any_start = text.startswith('"*')
        inner = re.sub(r"\\(.)", r"\1", text[1 + any_start : -1], flags=re.DOTALL)
        return Value(inner, comparison, any_start, len(tokens) > 1)
    if text == "*":
        return Value("", comparison, any_end=True)
    any_start, any_end = text.startswith("*"), text.endswith("*")
    return Value(text[any_start : len(text) - any_end], comparison, any_start, any_end)


def _unknown_field(name: str, start: int, end: int) -> QueryError:
    near = next(iter(get_close_matches(name, FIELDS, 1)), "")
    hint = f" Did you mean “{near}”?" if near else f' To search for the text, write "{name}:…" in quotes.'
    return QueryError(f"Unknown field “{name}”.{hint}", start, end)


def _explained(text: str, problem: "UnexpectedInput") -> QueryError:
    from lark.exceptions import UnexpectedCharacters, UnexpectedEOF, UnexpectedToken  # noqa: PLC0415  # see _parser

    place = len(text) if isinstance(problem, UnexpectedEOF) else int(problem.pos_in_stream or 0)
    if isinstance(problem, UnexpectedToken) and problem.token.type == "$END":
        place = len(text)
    field = re.search(r"([A-Za-z_]+):[<>=]*\Z", text[:place])
    if text[place : place + 1] == '"' and isinstance(problem, UnexpectedCharacters):
        return QueryError("This quote is not closed.", place, len(text))
    if field:
        if field[1].lower() not in FIELDS:
            return _unknown_field(field[1].lower(), field.start(), place)
        example = FIELDS[field[1].lower()].example
        return QueryError(f"Write a value after {field[1]}:, without a space: {example}", field.start(), place)
    if place >= len(text):
        return QueryError("The query is incomplete. Add a field or text after “-”.", max(0, place - 1), place)
    return QueryError("This is not valid here. Separate conditions with spaces.", place, place + 1)


# --- values ----------------------------------------------------------------------------------------------------------
CHOICES: dict[str, Mapping[str, str]] = {
    "in": {"calls": "Calls", "events": "Events", "logs": "Logs", "messages": "Messages"},
    "own": {"show": "Show them too", "only": "Only them"},
}
#: former value of a choice, which links and saved queries may still contain -> current value
RENAMED: dict[str, Mapping[str, str]] = {}
#: what is searched without `in:`; there are many messages, so a query names them
USUAL = frozenset({"calls", "events", "logs"})
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d|w)")
_SIZE = re.compile(r"(\d+(?:\.\d+)?)(b|kb|mb|gb)?")
_MILLISECONDS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_BYTES = {"b": 1, "kb": 1024, "mb": 1024**2, "gb": 1024**3}


def _read(term: Term) -> Term:
    """The term with its values checked and parsed according to the field's kind. Raises QueryError."""
    if not term.field:
        if term.values[0].any_start:
            raise _problem(term, "Free text finds words and their beginnings: write acme or acme*, not *acme.")
        return term
    if len(term.values) > VALUES:
        raise _problem(term, f"A condition can have at most {VALUES} values (a fixed limit).")
    kind = FIELDS[term.field].kind
    if kind in (Kind.DURATION, Kind.SIZE):
        return replace(term, values=tuple(_number(term, value, kind) for value in term.values))
    if any(value.comparison for value in term.values):
        raise _problem(term, f"{term.field}: does not support comparisons. Write {FIELDS[term.field].example}")
    if term.field == "own" and term.negated:
        raise _problem(term, "own: does not support “-”. Write own:show or own:only")
    if kind is Kind.CHOICE and term.field in CHOICES:
        words = RENAMED.get(term.field, {})
        term = replace(term, values=tuple(replace(one, text=words.get(one.text, one.text)) for one in term.values))
        for value in term.values:
            if value.text not in CHOICES[term.field] or not value.exact:
                some = ", ".join([*CHOICES[term.field]][:12])
                raise _problem(term, f"Write {term.field}: with one of {some}.")
    return term


def _number(term: Term, value: Value, kind: Kind) -> Value:
    units, pattern = (_MILLISECONDS, _DURATION) if kind is Kind.DURATION else (_BYTES, _SIZE)
    found = pattern.fullmatch(value.text.lower())
    relative = term.field == "last"
    if found is None or not value.exact or bool(value.comparison) == relative:
        raise _problem(term, f"Write {term.field}: as in {FIELDS[term.field].example}")
    number = float(found[1]) * units[found[2] or "b"]
    if number > LARGEST:
        raise _problem(term, f"This is too large. Write {term.field}: as in {FIELDS[term.field].example}")
    return replace(value, number=number)


def _problem(term: Term, message: str) -> QueryError:
    return QueryError(message, term.start, term.end)


# --- range -----------------------------------------------------------------------------------------------------------
def _query(terms: list[Term], now: datetime) -> Query:
    placed = tuple(term for term in terms if term.field in (*_RANGE, "in"))
    since, until, last = None, None, ""
    for term in _single(placed):
        value = term.values[0]
        if term.field == "last":
            last = value.text.lower()
            since = _ago(term, value.number or 0, now)
        elif term.field == "since":
            since = _moment(term, value, now, end_of_day=False)
        elif term.field == "until":
            until = _moment(term, value, now, end_of_day=True)
    if since and until and since >= until:
        term = next(term for term in placed if term.field == "until")
        raise _problem(term, "until: must be later than since:.")
    return Query(since, until, _streams(placed), tuple(term for term in terms if term not in placed), last, placed)


def _single(placed: tuple[Term, ...]) -> Iterator[Term]:
    """The terms of the range, each at most once and not negated."""
    seen: set[str] = set()
    for term in placed:
        if term.field not in _RANGE:
            continue
        if term.negated or len(term.values) > 1:
            raise _problem(term, f"{term.field}: accepts one value, without “-”.")
        if (
            term.field in seen
            or (term.field == "since" and "last" in seen)
            or (term.field == "last" and "since" in seen)
        ):
            raise _problem(term, "The range is given twice. Keep one of last: and since:.")
        seen.add(term.field)
        yield term


def _streams(placed: tuple[Term, ...]) -> frozenset[str]:
    named: set[str] = set()
    excluded: set[str] = set()
    terms = [term for term in placed if term.field == "in"]
    for term in terms:
        (excluded if term.negated else named).update(value.text for value in term.values)
    if not excluded:
        return frozenset(named)
    left = (named or USUAL) - excluded
    if not left:
        raise _problem(terms[-1], "Nothing is left to search. Use in: to choose what to search, such as in:calls")
    return frozenset(left)


def _ago(term: Term, milliseconds: float, now: datetime) -> datetime:
    try:
        return _in_utc(term, now.astimezone(UTC) - timedelta(milliseconds=milliseconds))
    except OverflowError as problem:
        raise _out_of_range(term) from problem


def _in_utc(term: Term, moment: datetime) -> datetime:
    """Times in a zone cannot be subtracted: its clocks change."""
    try:
        found = moment.astimezone(UTC)
    except OverflowError as problem:
        raise _out_of_range(term) from problem
    if not EARLIEST <= found < LATEST:
        raise _out_of_range(term)
    return found


def _out_of_range(term: Term) -> QueryError:
    return _problem(term, f"The time must be between the years {EARLIEST.year} and {LATEST.year}.")


def _moment(term: Term, value: Value, now: datetime, *, end_of_day: bool) -> datetime:
    text = value.text.lower()
    if found := _DURATION.fullmatch(text):
        return _ago(term, float(found[1]) * _MILLISECONDS[found[2]], now)
    days = {"today": 0, "yesterday": 1}
    whole = timedelta(days=1 if end_of_day else 0)
    try:
        if text in days:
            day = now.date() - timedelta(days=days[text]) + whole
            return _in_utc(term, datetime.combine(day, time(), now.tzinfo))
        if re.fullmatch(r"\d{1,2}:\d\d(:\d\d)?", text):
            clock = time.fromisoformat(text if text[2] == ":" else f"0{text}")
            return _in_utc(term, datetime.combine(now.date(), clock, now.tzinfo))
        moment = datetime.fromisoformat(value.text.upper())
        if re.fullmatch(r"\d{4}-?\d\d-?\d\d", text):
            moment += whole
    except (ValueError, OverflowError) as problem:
        message = f"Write {term.field}: with a time, such as 2026-11-23T15:00, 15:00, yesterday or 2h (ago)."
        raise _problem(term, message) from problem
    return _in_utc(term, moment if moment.tzinfo else moment.replace(tzinfo=now.tzinfo))


# --- completion ------------------------------------------------------------------------------------------------------
COMPLETIONS = 12
#: field -> values that begin as given, for this user: (value, words). Filled at start by those who know the rows.
SUGGESTIONS: dict[str, Callable[[Any, str], list[tuple[str, str]]]] = {}
_FIXED = {
    "last": ("15m", "1h", "24h", "7d", "30d"),
    "since": ("today", "yesterday", "1h", "24h"),
    "until": ("today", "yesterday", "1h"),
    "duration": (">1s", ">5s", ">30s", "<100ms"),
    "size": (">64kb", ">1mb", ">10mb"),
}
_QUOTE = r'"(?:\\.|[^"\\])*'
#: the conditions before, and the one that is typed; its quote may be open
_TYPED = re.compile(
    rf'(?:(?:{_QUOTE}"|[^\s"])*\s)*-?(?:(?P<field>[A-Za-z_]+):)?(?P<value>(?:{_QUOTE}"|[^\s"])*(?:{_QUOTE})?)',
    re.DOTALL,
)
_LAST_OF_LIST = re.compile(r"""(?:"(?:\\.|[^"\\])*"|[^,"])*,""")


def complete(user: Any, text: str, cursor: int) -> list[Completion]:
    """For the word that ends at `cursor`: fields, or values of the field before it."""
    typed = _TYPED.fullmatch(text[:cursor])
    if typed is None:
        return []
    field, value = typed["field"], typed["value"]
    if field is None:
        found = [known for known in FIELDS.values() if known.name.startswith(value.lower())]
        return [Completion(f"{known.name}:", known.label, known.example, cursor - len(value)) for known in found]
    while listed := _LAST_OF_LIST.match(value):
        value = value[listed.end() :]
    begun = value.lstrip('"')
    values = _values(user, field.lower(), begun)
    return [Completion(form, form, words, cursor - len(value)) for form, words in values][:COMPLETIONS]


def _values(user: Any, field: str, begun: str) -> list[tuple[str, str]]:
    if field in _FIXED:
        return [(form, "") for form in _FIXED[field] if form.startswith(begun.lower())]
    if field in CHOICES:
        choices = CHOICES[field].items()
        return [
            (name, words)
            for name, words in choices
            if begun.lower() in (name[: len(begun)], words[: len(begun)].lower())
        ]
    suggest = SUGGESTIONS.get(field)
    return [] if suggest is None else [(Value(text).text_form(), words) for text, words in suggest(user, begun)]
