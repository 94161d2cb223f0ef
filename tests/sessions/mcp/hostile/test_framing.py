"""The output of framing does not depend on how the bytes are split."""

import base64

from hypothesis import example, given
from hypothesis import strategies as st

from sessions.mcp.core.headers import encode_value
from sessions.mcp.transports.stdio.framing import Lines, Oversized

CAP = 12
pieces = st.lists(st.binary(max_size=20) | st.sampled_from([b"\n", b"\r\n", b"\n\n", b"x" * 30]), max_size=12)


def framed(chunks: list[bytes]) -> list[bytes | None]:
    """The lines, with None for each one over the cap, then the rest if there is any."""
    lines = Lines(CAP)
    told = [line for chunk in chunks for line in lines.feed(chunk)]
    whole = [line for line in told if not isinstance(line, Oversized) or line.tail is None]
    rest = lines.rest()
    return [None if isinstance(line, Oversized) else line for line in whole] + ([rest] if rest else [])


@given(pieces)
@example([b"x" * 13, b"\n"])
@example([b"x" * 12, b"x\n", b"y\n"])
@example([b"x" * 13, b"\n", b"x" * 12, b"\n"])
def test_lines_do_not_depend_on_how_the_bytes_arrive(chunks: list[bytes]) -> None:
    whole = b"".join(chunks)
    expected: list[bytes | None] = [line if len(line) <= CAP else None for line in whole.split(b"\n")]
    if expected[-1] == b"":
        expected.pop()
    assert framed(chunks) == expected
    assert framed([whole]) == expected
    assert framed([bytes([byte]) for byte in whole]) == expected


@given(pieces)
def test_no_more_is_held_than_the_cap_and_one_chunk(chunks: list[bytes]) -> None:
    lines = Lines(CAP)
    for chunk in chunks:
        lines.feed(chunk)
        assert sum(map(len, lines._parts)) <= CAP


def decoded(value: str) -> str:
    """Decode as 2026-07-28 *Value encoding* tells a server to."""
    if value.startswith("=?base64?") and value.endswith("?="):
        return base64.b64decode(value[9:-2], validate=True).decode("utf-8")
    return value


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=30))
@example("=?base64?eA==?=")
@example("=?BASE64?eA==?=")
@example(" a")
@example("a\t")
@example("")
@example("a\r\nX-Evil: 1")
@example("\x7f")
def test_a_header_value_reads_back_the_same_and_is_always_fit_for_a_header(text: str) -> None:
    value = encode_value(text)
    assert decoded(value) == text
    assert all(" " <= character <= "~" for character in value)
    assert value == value.strip()
