"""The words of calls and events in the database's own full-text index: FTS5 on SQLite, tsvector on PostgreSQL.

Both index words, not letters: a search for `acme` finds "acme" and "ACME", not "acmeville", which `acme*` finds.
Accents, case and punctuation do not matter, and words in quotes must be adjacent. Arguments and results are kept apart
from names, because not everyone may search them.
"""

import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from django.db.models.expressions import RawSQL

from servers.sql import database
from servers.storable import storable
from sessions.explorer.language import Value

#: streams whose words are in the index
STREAMS = ("calls", "events")
#: characters of each payload that are indexed
WORDS_CHARS = 64 * 1024
#: bytes of the folded words of one document. Folding decomposes some letters (a Korean one into three, a ligature into
#: eighteen), and PostgreSQL refuses a document whose words and positions exceed 1 MiB: at most twice these bytes.
FOLDED_BYTES = 400_000
#: rows that one search takes from the index, newest first
FOUND = 5_000
#: how many of the newest documents are probed, and how many of them must match to call a search common (PostgreSQL)
_PROBED, _COMMON = 500, 5
#: index pages that one portion of a merge writes, which takes a few milliseconds (SQLite)
_MERGED_PAGES = 32
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|.)", re.DOTALL)
_BETWEEN_WORDS = re.compile(r"[\W_]+")


@dataclass(frozen=True)
class Document:
    """`tags` are words for conditions that are searched together with free text."""

    key: int
    tags: str
    names: str
    words: str = ""


def words_of(json_text: str) -> str:
    """The words of a JSON text, without the escapes that would otherwise stick to them."""
    text = json_text[:WORDS_CHARS]
    return _ESCAPE.sub(lambda found: chr(int(found[1], 16)) if found[1] else " ", text) if "\\" in text else text


def folded(text: str) -> str:
    """The words without accents, separated by spaces. PostgreSQL gets only words of letters and digits: its parser
    would take a URL or a path for one word."""
    if not text.isascii():
        apart = unicodedata.normalize("NFKD", text)
        text = "".join(char for char in apart if not unicodedata.combining(char))
    return _BETWEEN_WORDS.sub(" ", text).strip()


# --- writing ---------------------------------------------------------------------------------------------------------
_WRITE = {
    ("sqlite", "calls"): "INSERT OR REPLACE INTO explorer_calls (rowid, tags, names, words) VALUES (%s, %s, %s, %s)",
    ("sqlite", "events"): "INSERT OR REPLACE INTO explorer_events (rowid, names) VALUES (%s, %s)",
    ("postgresql", "calls"): (
        "INSERT INTO explorer_calls (id, names, words) VALUES (%s, to_tsvector('simple', %s), to_tsvector('simple', %s))"
        " ON CONFLICT (id) DO UPDATE SET names = EXCLUDED.names, words = EXCLUDED.words"
    ),
    ("postgresql", "events"): (
        "INSERT INTO explorer_events (id, names) VALUES (%s, to_tsvector('simple', %s))"
        " ON CONFLICT (id) DO UPDATE SET names = EXCLUDED.names"
    ),
}


def write(stream: str, documents: Iterable[Document]) -> None:
    """Runs in the caller's transaction; a document replaces the earlier one with its key."""
    vendor = database().vendor
    if rows := [_row(vendor, stream, document) for document in documents]:
        with database().cursor() as cursor:
            cursor.executemany(_WRITE[vendor, stream], rows)


def _row(vendor: str, stream: str, document: Document) -> list[Any]:
    key, names = document.key, storable(document.names)
    if vendor == "sqlite":
        return [key, document.tags, names, storable(document.words)] if stream == "calls" else [key, names]
    names = _bounded(folded(names))
    if stream != "calls":
        return [key, names]
    return [key, names, _bounded(folded(f"{names} {storable(document.words)}"))]


def _bounded(text: str) -> str:
    data = text.encode()
    return text if len(data) <= FOLDED_BYTES else data[:FOLDED_BYTES].decode(errors="ignore")


def keep_names(keys: Iterable[int]) -> None:
    """Delete the words of calls, but not their names, in the caller's transaction."""
    words = "''" if database().vendor == "sqlite" else "names"
    with database().cursor() as cursor:
        sql = f"UPDATE explorer_calls SET words = {words} WHERE {_column()} = %s"  # noqa: S608  # names of our own
        cursor.executemany(sql, [[key] for key in keys])


def forget(stream: str, keys: Iterable[int]) -> None:
    """Delete the documents of rows that are gone, in the caller's transaction."""
    with database().cursor() as cursor:
        cursor.executemany(f"DELETE FROM explorer_{stream} WHERE {_column()} = %s", [[key] for key in keys])  # noqa: S608  # names of our own


def before(stream: str, key: int, limit: int) -> list[int]:
    """The oldest documents of rows older than `key`, which are gone; at most `limit`."""
    column = _column()
    with database().cursor() as cursor:
        sql = f"SELECT {column} FROM explorer_{stream} WHERE {column} < %s ORDER BY {column} LIMIT %s"  # noqa: S608  # names of our own
        cursor.execute(sql, [key, limit])
        return [int(row[0]) for row in cursor.fetchall()]


def in_parts() -> bool:
    """Whether each write transaction leaves a separate part of the index, to be merged with others."""
    return database().vendor == "sqlite"


def merge(*, all_parts: bool = False) -> bool:
    """Do one portion of the merges that are due, in the caller's transaction; False if none was. FTS5 itself would
    merge in the transaction that makes it due, for tens of milliseconds, so that is off (0027_merges_apart).

    `all_parts` makes a merge of all parts due, which the next portions continue: only that removes deleted words from
    the file.
    """
    pages = -_MERGED_PAGES if all_parts else _MERGED_PAGES
    with database().cursor() as cursor:
        before = cursor.connection.total_changes
        for stream in STREAMS:
            cursor.execute(f"INSERT INTO explorer_{stream} (explorer_{stream}, rank) VALUES ('merge', {pages})")  # noqa: S608  # names of our own
        return bool(cursor.connection.total_changes - before > len(STREAMS))


def _column() -> str:
    return "rowid" if database().vendor == "sqlite" else "id"


# --- searching -------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Match:
    """Documents that contain all of `texts`, none of `without` and, on SQLite, one of each of `tags`. `words`: also
    search the arguments and results of all calls; `own`: those of the calls of the user with this id."""

    texts: Sequence[Value]
    without: Sequence[Value] = ()
    tags: Sequence[Sequence[str]] = ()
    words: bool = False
    own: int | None = None
    #: whether a walk along the keys finds enough matches; otherwise the word index is read, which is not in key order
    common: bool = True

    def probed(self, stream: str) -> "Match":
        """A copy that knows how common it is among the newest documents. PostgreSQL does not know, and would read all
        documents in order for a word that is rare or absent. SQLite's word index is in key order."""
        if database().vendor == "sqlite":
            return self
        condition, values = self._postgresql(stream)
        newest = f"SELECT * FROM explorer_{stream} ORDER BY id DESC LIMIT {_PROBED}"  # noqa: S608  # names of our own
        with database().cursor() as cursor:
            sql = f"SELECT COUNT(*) FROM ({newest}) explorer_{stream} WHERE {condition}"  # noqa: S608  # the same
            cursor.execute(sql, values)
            found = cursor.fetchone()[0]
        return replace(self, common=found >= _COMMON)

    def keys(
        self, stream: str, low: int | None, high: int | None, limit: int, offset: int = 0, *, ascending: bool = False
    ) -> RawSQL:
        """A subquery of the newest (or oldest) keys from `low` up to, but excluding, `high`."""
        column = _column()
        condition, values = self._sqlite(stream) if database().vendor == "sqlite" else self._postgresql(stream)
        for bound, comparison in ((low, ">="), (high, "<")):
            if bound is not None:
                condition += f" AND {column} {comparison} %s"
                values.append(bound)
        order = "ASC" if ascending else "DESC"
        found = f"SELECT {column} FROM explorer_{stream} WHERE {condition}"  # noqa: S608  # names of our own
        if not self.common:
            found = f"WITH found AS MATERIALIZED ({found}) SELECT id FROM found"  # noqa: S608  # the same
        sql = f"{found} ORDER BY {column} {order} LIMIT %s OFFSET %s"
        return RawSQL(sql, [*values, limit, offset])  # noqa: S611  # with parameters

    def _sqlite(self, stream: str) -> tuple[str, list[Any]]:
        def where(value: Value) -> str:
            phrase = '"' + value.text.replace('"', " ").replace("\0", " ") + '"' + (" *" if value.any_end else "")
            names = f"names : {phrase}"
            if stream != "calls":
                return names
            if self.words:
                return f"{{names words}} : {phrase}"
            return names if self.own is None else f"({names} OR (words : {phrase} AND tags : user{self.own}))"

        parts = [where(value) for value in self.texts]
        parts += ["tags : (" + " OR ".join(any_of) + ")" for any_of in self.tags]
        query = " AND ".join(f"({part})" for part in parts)
        query = "".join((query, *(f" NOT ({where(value)})" for value in self.without)))
        return f"explorer_{stream} MATCH %s", [query]

    def _postgresql(self, stream: str) -> tuple[str, list[Any]]:
        wanted, unwanted = [_tsquery(value) for value in self.texts], [_tsquery(value) for value in self.without]
        if stream == "calls" and not self.words and self.own is not None:
            any_name, own_word = "names @@ to_tsquery('simple', %s)", f"words @@ to_tsquery('simple', %s) AND {_OWN}"
            either = f"({any_name} OR {own_word})"
            values: list[Any] = [" & ".join(wanted), " & ".join(wanted), self.own]
            for query in unwanted:  # separate: what an own call must not contain may be in its words only
                values += [query, query, self.own]
            return " AND NOT ".join([either] * (1 + len(unwanted))), values
        column = "words" if self.words and stream == "calls" else "names"
        return f"{column} @@ to_tsquery('simple', %s)", [" & ".join([*wanted, *(f"!({one})" for one in unwanted)])]


_OWN = "EXISTS (SELECT 1 FROM mcp_sessions_call one WHERE one.id = explorer_calls.id AND one.user_id = %s)"


def searchable(value: Value) -> bool:
    """Whether the value contains a word."""
    return bool(folded(value.text))


def _tsquery(value: Value) -> str:
    words = [f"'{word}'" for word in folded(value.text).split()]
    if value.any_end:
        words[-1] += ":*"
    return "(" + " <-> ".join(words) + ")"
