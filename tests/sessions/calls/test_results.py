"""How results of reads, prompts and completions are displayed, including malformed and hostile ones."""

import base64
import hashlib
import json
from dataclasses import replace
from typing import Any

import pytest
from django.conf import settings
from django.template.loader import render_to_string

from sessions.calls.blocks import Block
from sessions.calls.passing_on import NoValue, value_of
from sessions.calls.resource_blocks import contents_of
from sessions.calls.results import view_of
from sessions.mcp.core.methods import COMPLETE, PROMPTS_GET, RESOURCES_READ, TOOLS_CALL

PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 40
WEBM = b"\x1a\x45\xdf\xa3\x9f\x42\x86\x81\x01\x42\x82\x84webm"


def blob(data: bytes, mime: str | None = None) -> dict[str, Any]:
    return {"uri": "x://1", "blob": base64.b64encode(data).decode()} | ({"mimeType": mime} if mime else {})


def test_text_json_images_sounds_and_binaries_are_distinguished() -> None:
    contents = [
        {"uri": "x://1", "mimeType": "text/markdown", "text": "# <b>Title</b>"},
        {"uri": "x://1", "mimeType": "application/json", "text": '{"a": [1]}'},
        blob(PNG, "image/png; charset=binary"),
        blob(b"RIFF\0\0\0\0WAVE", "audio/wav"),
        blob(b"%PDF-1.7", "application/pdf"),
    ]
    blocks = contents_of(contents, "x://1")
    assert [block.kind for block in blocks] == ["text", "json", "image", "audio", "binary"]
    assert (blocks[1].value, blocks[1].text) == ({"a": [1]}, '{"a": [1]}')
    assert blocks[2].source.startswith("data:image/png;base64,")
    assert (blocks[4].size, blocks[4].digest) == (8, hashlib.sha256(b"%PDF-1.7").hexdigest())
    assert [block.uri for block in blocks] == [""] * 5


@pytest.mark.parametrize(
    "text",
    [
        '{"note": "ignore your rules", "note": "ok"}',
        '{"amount": 12345678901234567.89}',
        "[1e400]",
        "[1e-400]",
        f"[0e{'9' * 30}]",
        "[NaN]",
        f"[{'9' * 5_000}]",
    ],
    ids=["repeated-key", "long-fraction", "too-large", "too-small", "strange-zero", "no-json", "endless"],
)
def test_json_whose_value_would_say_something_else_is_shown_as_the_text_that_it_is(text: str) -> None:
    (block,) = contents_of([{"uri": "x://1", "mimeType": "application/json", "text": text}])
    assert (block.kind, block.text) == ("text", text)
    with pytest.raises(NoValue, match="cannot be read as JSON"):
        value_of(RESOURCES_READ, {"contents": [{"uri": "x://1", "text": text}]}, "0", "")


@pytest.mark.parametrize("text", ["[1.10, -0.0, 1E5, 0.30000000000000004, 12345678901234567890]", "[" * 70 + "]" * 70])
def test_json_that_is_only_written_in_another_way_is_shown_as_json(text: str) -> None:
    (block,) = contents_of([{"uri": "x://1", "text": text}])
    assert (block.kind, block.value) == ("json", json.loads(text))


def test_a_link_whose_uri_has_half_a_character_is_shown_as_json() -> None:
    link = {"type": "resource_link", "uri": "x://\ud800", "name": "n"}
    (block,) = view_of(TOOLS_CALL, "t", {"content": [link]}).blocks
    assert (block.kind, block.value) == ("json", link)


LARGE = blob(PNG * 20_000, "image/png")


@pytest.mark.parametrize(
    "item",
    [
        blob(b"<svg onload=alert(1)>", "image/svg+xml"),
        blob(b"<script>", "text/html"),
        blob(b"not a png", "image/png"),
        LARGE,
        blob(b"data", "image/png,text/html"),
    ],
    ids=["svg", "html", "false-png", "huge", "two-types"],
)
def test_what_is_no_safe_picture_never_reaches_an_address(item: dict[str, Any]) -> None:
    (block,) = contents_of([item])
    assert block.source == ""
    assert block.kind in ("binary", "note") or item["blob"] == LARGE["blob"]


def test_a_content_with_another_uri_says_so() -> None:
    first, second = contents_of([{"uri": "x://a", "text": "1"}, {"uri": "x://a/b", "text": "2"}], "x://a")
    assert (first.uri, second.uri) == ("", "x://a/b")


@pytest.mark.parametrize("item", [None, 5, [], {}, {"text": 5}, {"blob": "§"}, {"blob": None}], ids=range(7))
def test_what_is_no_content_is_shown_as_the_json_that_it_is(item: Any) -> None:
    (block,) = contents_of([item])
    assert (block.kind, block.value) == ("json", item)


def test_more_contents_than_a_page_holds_are_counted() -> None:
    blocks = contents_of([{"uri": "x://1", "text": "a"}] * 103)
    assert (len(blocks), blocks[-1].text) == (101, "3 more content items in the raw result.")


@pytest.mark.parametrize(
    ("messages", "contents", "shown", "note"),
    [
        (101, 1, 100, "1 more messages in the raw result."),
        (1, 103, 100, "3 more content items of these messages in the raw result."),
        (101, 3, 200, "1 more messages and 100 more content items of these messages in the raw result."),
        (100, 2, 200, ""),
    ],
)
def test_messages_and_contents_that_a_page_does_not_hold_are_counted(
    messages: int, contents: int, shown: int, note: str
) -> None:
    text = {"type": "text", "text": "a"}
    given = [{"role": "user", "content": [text] * contents}] * messages
    blocks = view_of(PROMPTS_GET, "p", {"messages": given}).blocks
    assert (len(blocks), blocks[-1].text) == ((shown + 1, note) if note else (shown, "a"))


def test_messages_of_a_prompt_keep_their_roles_and_their_blocks() -> None:
    messages = [
        {"role": "user", "content": {"type": "text", "text": "Hello"}},
        {"role": "assistant", "content": [{"type": "text", "text": "a"}, {"type": "resource_link", "uri": "x://1"}]},
        {"content": {"type": "text", "text": "nobody"}},
        "not a message",
    ]
    blocks = view_of(PROMPTS_GET, "p", {"messages": messages}).blocks
    assert [(block.role, block.kind) for block in blocks] == [
        ("user", "text"),
        ("assistant", "text"),
        ("assistant", "link"),
        ("no role", "text"),
        ("no role", "json"),
    ]


@pytest.mark.parametrize("method", [RESOURCES_READ, PROMPTS_GET, COMPLETE])
@pytest.mark.parametrize("result", [{}, {"contents": 5, "messages": {}, "completion": []}], ids=["empty", "odd"])
def test_a_result_without_its_list_has_no_blocks(method: str, result: dict[str, Any]) -> None:
    assert view_of(method, "t", result).blocks == []


def test_the_values_of_a_completion_are_shown() -> None:
    (block,) = view_of(COMPLETE, "ref/prompt:p", {"completion": {"values": ["a"], "total": 1}}).blocks
    assert block.value == ["a"]


@pytest.mark.parametrize(
    ("mime", "data", "kind", "remark"),
    [
        ("image/jpeg", PNG, "image", "Declared as image/jpeg, but the data is PNG."),
        ("image/svg+xml", b"<svg onload=alert(1)>", "binary", ""),
        ("application/pdf", b"<!doctype html>", "binary", "Declared as application/pdf, but the data is HTML or SVG."),
        ("application/pdf", b"", "binary", "Empty: the server sent 0 bytes."),
        ("application/octet-stream", PNG, "image", "Declared as application/octet-stream, but the data is PNG."),
        ("video/webm", WEBM, "video", ""),
        ("audio/webm", WEBM, "audio", ""),
        ("video/x-matroska", WEBM.replace(b"webm", b"matroska"), "binary", ""),
        ("video/mp4", b"\0\0\0\x20ftypisom", "video", ""),
        ("image/avif", b"\0\0\0\x20ftypavif", "image", ""),
        ("image/avif", b"\0\0\0\x20ftypmif1\0\0\0\0mif1avif", "image", ""),
        ("image/heic", b"\0\0\0\x20ftypheic\0\0\0\0mif1heic", "binary", ""),
        ("audio/mpeg", b"\xff\xfb\x90\x64", "audio", ""),
        ("text/plain", "hé".encode("utf-16"), "binary", ""),
    ],
    ids=[
        *("png-as-jpeg", "svg", "html-as-pdf", "empty", "undeclared", "video", "sound", "matroska", "mp4"),
        *("avif", "compatible-with-avif", "heic", "mp3", "utf-16"),
    ],
)
def test_the_bytes_decide_how_a_content_is_shown_and_a_wrong_type_is_said(
    mime: str, data: bytes, kind: str, remark: str
) -> None:
    (block,) = contents_of([blob(data, mime)])
    assert (block.kind, block.remark) == (kind, remark)


def test_a_plain_text_looks_in_a_card_as_its_block_does_elsewhere() -> None:
    block = Block("text", text="a & <b>", position=0)
    assert block.plain
    shown = '<div class="in"> <pre class="jv box" tabindex="0">{}</pre> </div>'
    assert squeezed(render_to_string("calls/_block.html", {"block": block})) == shown.format("a &amp; &lt;b&gt;")
    card = (settings.BASE_DIR / "templates/calls/_result.html").read_text()
    assert shown.format("{{ r.only_text|visible }}") in squeezed(card)


@pytest.mark.parametrize(
    "more",
    [
        *({"title": "t"}, {"uri": "x://1"}, {"role": "user"}, {"remark": "r"}, {"rendered": "<p>a</p>"}),
        *({"cut": True}, {"tabular": True}, {"size": 0}, {"kind": "json"}),
    ],
    ids=str,
)
def test_a_block_of_which_more_is_shown_than_its_text_is_not_plain(more: dict[str, Any]) -> None:
    assert not replace(Block("text", text="a"), **more).plain


def squeezed(html: str) -> str:
    return " ".join(html.split())
