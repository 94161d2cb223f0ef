"""Framing, event streams, inflating and backoff: the parts of the transports without I/O."""

import asyncio
import gzip
import itertools
import random
import zlib
from collections.abc import AsyncIterator, Iterable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sessions.mcp.core.backoff import Backoff
from sessions.mcp.core.errors import Fault, ProtocolError
from sessions.mcp.core.limits import Limits
from sessions.mcp.transports.base import connect_error
from sessions.mcp.transports.inflate import Inflater
from sessions.mcp.transports.sse import events
from sessions.mcp.transports.stdio.framing import Lines, Oversized, TailBuffer, shortened


def cut(data: bytes, places: list[int]) -> list[bytes]:
    edges = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[start:end] for start, end in itertools.pairwise(edges)]


@given(
    st.lists(st.binary(max_size=30).map(lambda line: line.replace(b"\n", b"")), max_size=8),
    st.lists(st.integers(0, 300), max_size=8),
)
def test_lines_are_the_same_however_the_bytes_arrive(lines: list[bytes], places: list[int]) -> None:
    framing = Lines(64)
    seen = [line for chunk in cut(b"".join(line + b"\n" for line in lines), places) for line in framing.feed(chunk)]
    assert seen == lines
    assert framing.rest() == b""


@given(st.integers(11, 200), st.lists(st.integers(0, 300), max_size=8))
def test_a_line_over_the_cap_is_reported_with_its_beginning_then_with_its_end_and_the_next_is_whole(
    size: int, places: list[int]
) -> None:
    framing = Lines(10)
    data = b"ok\nbegins" + b"x" * size + b"ends\nafter\n"
    seen = [line for chunk in cut(data, places) for line in framing.feed(chunk)]
    first, begun, ended, last = seen
    assert (first, last) == (b"ok", b"after")
    assert isinstance(begun, Oversized)
    assert isinstance(ended, Oversized)
    assert (begun.head[:6], begun.tail) == (b"begins", None)
    assert ended == Oversized(begun.head, (b"begins" + b"x" * size + b"ends")[-256:])


def test_an_endless_line_is_not_held() -> None:
    framing = Lines(1000)
    for _ in range(100):
        framing.feed(b"x" * 1000)
    assert framing.skipped == 100_000
    assert framing.rest() == b""


def test_separators_other_than_lf_stay_inside_a_line() -> None:
    line = "a\u2028b\u0085c\x0bd\x0ce".encode()
    assert Lines(100).feed(line + b"\n") == [line]


def test_the_ring_keeps_the_end_from_the_beginning_of_a_line() -> None:
    tail = TailBuffer(20)
    tail.add(b"0123456789")
    assert tail.tail() == "0123456789"
    tail.add(b"abc\nde f\ng")
    assert tail.tail() == "0123456789abc\nde f\ng"
    tail.add(b"h\n")
    assert tail.tail() == "de f\ngh", "the first line has lost its beginning, which may have been that of a secret"
    assert tail.tail(5) == "gh"


def test_of_one_long_line_the_ring_keeps_the_last_words() -> None:
    tail = TailBuffer(20)
    tail.add(b"key=s3cret-s3cret-s3cret and more")
    assert tail.tail() == "and more"


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("short enough", "short enough"),
        ("the token is s3cret-s3cret", "the token is …"),
        ('{"n":1,"token":"s3cret-s3cret"}', '{"n":1,"token":"…'),
        ("s3cret-s3cret-s3cret", "…"),
    ],
)
def test_a_cut_line_does_not_end_in_the_half_of_a_word(text: str, kept: str) -> None:
    assert shortened(text, 19) == kept


def test_of_a_line_that_is_one_word_the_beginning_is_kept() -> None:
    assert shortened("x" * 3_000, 2_000) == "x" * (2_000 - 256) + "…"


STREAM = (
    b"\xef\xbb\xbf: comment\r\n\r\nid: e1\nretry: 500\ndata:\n\nevent: message\r\ndata: {\"a\":\r\ndata: 1}\r\n\r\n"
    b"data:x\rid: e2\r\rretry: soon\nid: bad\0id\ndata: y\n\nunknown: z\n\nevent: other\ndata: o\n\ndata: unfinished"
)  # fmt: skip
EVENTS = [
    ("message", "", "e1", 500),
    ("message", '{"a":\n1}', "e1", None),
    ("message", "x", "e2", None),
    ("message", "y", "e2", None),
    ("message", "", "e2", None),
    ("other", "o", "e2", None),
]


async def arriving(chunks: Iterable[bytes]) -> AsyncIterator[bytes]:
    for chunk in chunks:
        yield chunk


def decoded(chunks: Iterable[bytes], max_bytes: int = 1000) -> list[tuple[str, str, str, int | None]]:
    limits = Limits(sse_event_bytes=max_bytes, stream_bytes=2 * max_bytes)

    async def collect() -> list[tuple[str, str, str, int | None]]:
        return [(event.event, event.data, event.id, event.retry) async for event in events(arriving(chunks), limits)]

    return asyncio.run(collect())


@given(st.lists(st.integers(3, len(STREAM)), max_size=12))
def test_events_are_the_same_however_the_bytes_arrive(places: list[int]) -> None:
    assert decoded([chunk for chunk in cut(STREAM, places) if chunk]) == EVENTS


@given(st.lists(st.binary(min_size=1, max_size=60), max_size=10))
@example([b"["])
def test_any_bytes_give_events_a_limit_or_the_word_that_they_are_json(chunks: list[bytes]) -> None:
    fault = None
    try:
        decoded(chunks, 100)
    except ProtocolError as error:
        fault = error.fault
    is_json = b"".join(chunks[:1]).removeprefix(b"\xef\xbb\xbf").lstrip()[:1] in (b"{", b"[")
    assert fault in (None, Fault.MESSAGE_LIMIT, Fault.STREAM_LIMIT, *([Fault.INVALID_MESSAGE] if is_json else []))


@pytest.mark.parametrize("chunk", [b"x" * 40, b"data: " + b"x" * 30 + b"\n", b"id: 1\n", b"data\r"])
def test_an_event_that_never_ends_meets_the_cap(chunk: bytes) -> None:
    with pytest.raises(ProtocolError) as caught:
        decoded(itertools.repeat(chunk))
    assert caught.value.fault is Fault.MESSAGE_LIMIT


@pytest.mark.parametrize(
    "chunk",
    [b": ping\n", b": ping\r\n\r\n", b":" + b"x" * 700, b"\n", b":\n:\n", b"id: 1\n\n", b"event: other\ndata: x\n\n"],
)
def test_a_stream_without_messages_meets_its_own_cap_however_it_is_cut(chunk: bytes) -> None:
    for size in (1, 7, 900):
        stream = itertools.cycle(chunk)
        with pytest.raises(ProtocolError) as caught:
            decoded(iter(lambda size=size, stream=stream: bytes(itertools.islice(stream, size)), b""))
        assert caught.value.fault is Fault.STREAM_LIMIT


def test_comments_between_messages_do_not_add_up_over_messages() -> None:
    assert len(decoded([b": " + b"c" * 90 + b"\n\n", b"data: 12345\n\n"] * 1000, 100)) == 1000


def test_many_small_events_do_not_add_up_to_the_cap() -> None:
    assert len(decoded([b"data: 12345\n\n"] * 1000, 100)) == 1000


@pytest.mark.parametrize(("encoding", "squeeze"), [("gzip", gzip.compress), ("deflate", zlib.compress)])
def test_a_compressed_answer_is_inflated(encoding: str, squeeze: object) -> None:
    data = squeeze(b"hello " * 100)  # type: ignore[operator]  # gzip.compress or zlib.compress
    inflater = Inflater(encoding, Limits())
    assert b"".join(piece for chunk in cut(data, [3, 9]) for piece in inflater.feed(chunk)) == b"hello " * 100


@pytest.mark.parametrize("limits", [Limits(inflated_bytes=100_000), Limits(inflated_bytes=2**40)])
def test_a_bomb_is_refused_by_its_size_and_by_its_ratio(limits: Limits) -> None:
    pieces = Inflater("gzip", limits).feed(gzip.compress(b"\0" * 50_000_000))
    with pytest.raises(ProtocolError) as caught:
        assert sum(len(piece) for piece in pieces) == 0
    assert caught.value.fault is Fault.INFLATED_LIMIT


def test_a_compressed_stream_has_no_size_of_its_own() -> None:
    inflater, data = Inflater("gzip", Limits(inflated_bytes=1000), endless=True), random.Random(1).randbytes(50_000)
    assert b"".join(inflater.feed(gzip.compress(data))) == data


@pytest.mark.parametrize(("encoding", "data"), [("br", b""), ("zstd", b""), ("gzip", b"not gzip at all")])
def test_what_cannot_be_inflated_is_refused(encoding: str, data: bytes) -> None:
    with pytest.raises(ProtocolError) as caught:
        list(Inflater(encoding, Limits()).feed(data))
    assert caught.value.fault is Fault.NOT_MCP


@pytest.mark.parametrize("behind", [0, 1, -1], ids=["at its end", "after its end", "before its end"])
@pytest.mark.parametrize(("encoding", "squeeze"), [("gzip", gzip.compress), ("deflate", zlib.compress)])
def test_what_follows_the_end_of_a_compressed_answer_is_refused_wherever_its_chunks_are_cut(
    encoding: str, squeeze: object, behind: int
) -> None:
    data = squeeze(b"{}")  # type: ignore[operator]  # gzip.compress or zlib.compress
    inflater = Inflater(encoding, Limits(), endless=True)
    pieces = (piece for chunk in cut(data + data, [len(data) + behind]) for piece in inflater.feed(chunk))
    with pytest.raises(ProtocolError) as caught:
        list(pieces)
    assert caught.value.fault is Fault.NOT_MCP


def test_backoff_grows_to_its_ceiling_and_never_ends() -> None:
    random.seed(7)
    backoff = Backoff(first=1.0, ceiling=60.0)
    delays = [backoff.delay() for _ in range(2_000)]
    assert all(delay <= min(60.0, 2.0**n) for n, delay in enumerate(delays[:10]))
    assert max(delays) <= 60.0
    assert max(delays) > 50.0
    assert min(delays[10:]) < 10.0
    backoff.reset()
    assert backoff.delay() <= 1.0


def test_the_servers_own_wish_to_wait_wins() -> None:
    assert Backoff().delay(retry_after=17.0) == 17.0
    assert Backoff().delay(retry_after=1e9) == 3600.0


def test_a_refused_connection_is_told_in_words_of_the_system_and_not_of_python() -> None:
    one = OSError(111, "Connect call failed ('127.0.0.1', 9)")
    several = OSError(
        "Multiple exceptions: [Errno 111] Connect call failed ('::1', 9, 0, 0), [Errno 111] Connect call failed"
    )
    for problem in (one, several):
        assert str(connect_error(problem)).endswith("Could not connect: Connection refused.")
