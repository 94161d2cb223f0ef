"""The parser has a defined verdict for every sequence of hostile bytes."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessions.mcp.core import jsonrpc
from sessions.mcp.core.correlation import Correlation
from sessions.mcp.core.errors import Fault, InvalidRequest, ProtocolError
from sessions.mcp.core.jsonrpc import Notification, Request, Response
from sessions.mcp.core.limits import Limits


def decode(data: bytes, **limits: int) -> list[object]:
    return list(jsonrpc.decode(data, Limits(**limits)))


def fault_of(data: bytes, **limits: int) -> Fault:
    """The fault of what may have been an answer."""
    with pytest.raises(ProtocolError) as caught:
        decode(data, **limits)
    return caught.value.fault


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b'{"jsonrpc":"2.0","id":1,"method":"a"}', Request(1, "a", {})),
        (b'{"jsonrpc":"2.0","id":"x","method":"a","params":{"b":1}}', Request("x", "a", {"b": 1})),
        (b'{"jsonrpc":"2.0","method":"a","params":null}', Notification("a", {})),
        (b'{"jsonrpc":"2.0","id":null,"method":"a"}', Notification("a", {})),
        (b' {"jsonrpc":"2.0","id":0,"result":{},"extra":1}\r', Response(0, {}, None)),
        (
            b'{"jsonrpc":"2.0","id":null,"error":{"code":-1,"message":""}}',
            Response(None, None, {"code": -1, "message": ""}),
        ),
        (b'{"jsonrpc":"2.0","error":{"code":-1,"message":""}}', Response(None, None, {"code": -1, "message": ""})),
    ],
)
def test_each_kind_of_message_is_told_by_its_members(data: bytes, message: object) -> None:
    assert decode(data) == [message]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"not json",
        b"{'a': 1}",
        b'{"jsonrpc":"1.0","id":1,"result":{}}',
        b'{"jsonrpc":"2.0","id":1,"result":[]}',
        b'{"jsonrpc":"2.0","id":1,"result":{},"error":{"code":1,"message":"m"}}',
        b'{"jsonrpc":"2.0","id":1,"error":{"code":"1","message":"m"}}',
        b'{"jsonrpc":"2.0","id":1,"error":{"code":true,"message":"m"}}',
        b'{"jsonrpc":"2.0","id":1,"error":"text"}',
        b'{"jsonrpc":"2.0","id":1,"id":2,"result":{}}',
        b'{"jsonrpc":"2.0","id":1,"result":{"a":1,"\\u0061":2}}',
        b'{"jsonrpc":"2.0","id":1,"result":{"a":NaN}}',
        b'{"jsonrpc":"2.0","id":1,"result":{"a":-Infinity}}',
        b'{"jsonrpc":"2.0","id":1,"result":{"a":1e999}}',
        b'{"jsonrpc":"2.0","id":1,"result":{"\\ud800":1,"\\udfff":2}}',
        b'{"jsonrpc":"2.0","id":1,"result":{"a":"\xff"}}',
        b'\xef\xbb\xbf\xef\xbb\xbf{"jsonrpc":"2.0","id":1,"result":{}}',
        b'{"jsonrpc":"2.0","id":1,"result":{"a":' + b"9" * 5000 + b"}}",
    ],
)
def test_what_is_no_message_is_refused_as_invalid(data: bytes) -> None:
    assert fault_of(data) is Fault.INVALID_MESSAGE


@pytest.mark.parametrize(
    "data",
    [
        b"null",
        b"17",
        b'"text"',
        b"{}",
        b'{"jsonrpc":"2.0"}',
        b'{"jsonrpc":"2.0","id":1.5,"method":"a"}',
        b'{"jsonrpc":"2.0","id":true,"method":"a"}',
        b'{"jsonrpc":"2.0","id":null,"method":7}',
        b'{"jsonrpc":"2.0","id":1,"method":7}',
        b'{"jsonrpc":"2.0","id":1,"method":"a","params":[1]}',
        b'{"jsonrpc":"1.0","method":"a"}',
    ],
)
def test_what_is_no_message_and_cannot_be_an_answer_is_handed_on_as_such(data: bytes) -> None:
    (problem,) = decode(data)
    assert isinstance(problem, ProtocolError)
    assert problem.fault is Fault.INVALID_MESSAGE


@pytest.mark.parametrize(
    ("error", "words"),
    [
        ('{"code":"E_QUOTA","message":"quota of the\\n month is used up"}', "E_QUOTA: quota of the month is used up"),
        ('{"code":null,"message":"no licence"}', "no licence"),
        ('{"code":-32000.5,"message":"no licence"}', "-32000.5: no licence"),
        ('{"code":7}', "7"),
        ('{"code":7,"message":["a"]}', "7"),
        ('"out of memory"', "out of memory"),
        ("7", "7"),
    ],
)
def test_an_error_of_the_wrong_shape_is_refused_with_what_it_says(error: str, words: str) -> None:
    with pytest.raises(ProtocolError) as caught:
        decode(f'{{"jsonrpc":"2.0","id":1,"error":{error}}}'.encode())
    assert caught.value.fault is Fault.INVALID_MESSAGE
    assert caught.value.detail == (
        "The server sent a message that is not valid JSON-RPC: the error is not an object with code and message. "
        f'The server says: "{words}"'
    )


@pytest.mark.parametrize("error", ["{}", "[]", "true", '{"code":true,"message":null}', '{"code":"","message":" "}'])
def test_an_error_of_the_wrong_shape_that_says_nothing_quotes_nothing(error: str) -> None:
    with pytest.raises(ProtocolError) as caught:
        decode(f'{{"jsonrpc":"2.0","id":1,"error":{error}}}'.encode())
    assert caught.value.detail.endswith("the error is not an object with code and message.")


def test_the_words_of_an_error_of_the_wrong_shape_are_bounded() -> None:
    with pytest.raises(ProtocolError) as caught:
        decode(b'{"jsonrpc":"2.0","id":1,"error":{"code":"E","message":"' + b"word " * 10_000 + b'"}}')
    assert len(caught.value.detail) < 2_500


def test_a_code_that_is_an_integer_with_a_fraction_of_zero_is_an_integer() -> None:
    (message,) = decode(b'{"jsonrpc":"2.0","id":1,"error":{"code":-32000.0,"message":"m","data":{"a":1}}}')
    assert isinstance(message, Response)
    assert message.error == {"code": -32000, "message": "m", "data": {"a": 1}}
    assert type(message.error["code"]) is int


def test_an_escaped_pair_of_surrogates_and_an_escaped_backslash_are_legal() -> None:
    (message,) = decode(b'{"jsonrpc":"2.0","id":1,"result":{"a":"\\ud83d\\ude00","b":"\\\\ud800"}}')
    assert isinstance(message, Response)
    assert message.result == {"a": "\U0001f600", "b": "\\ud800"}


def test_half_of_a_pair_of_surrogates_is_replaced_and_told_and_the_rest_is_kept() -> None:
    message, mended = decode(b'{"jsonrpc":"2.0","id":1,"result":{"bad":"a\\ud800b","good":"\\ud83d\\ude00"}}')
    assert message == Response(1, {"bad": "a\ufffdb", "good": "\U0001f600"}, None)
    assert isinstance(mended, ProtocolError)


def test_one_byte_order_mark_is_ignored() -> None:
    assert decode(b'\xef\xbb\xbf{"jsonrpc":"2.0","id":1,"result":{}}') == [Response(1, {}, None)]


def test_a_nul_in_a_string_is_kept() -> None:
    assert decode(b'{"jsonrpc":"2.0","id":1,"result":{"a":"\\u0000"}}') == [Response(1, {"a": "\0"}, None)]


def nested(depth: int) -> bytes:
    return b'{"jsonrpc":"2.0","id":1,"result":{"a":' + b"[" * depth + b"]" * depth + b"}}"


def test_nesting_is_allowed_up_to_the_limit_and_refused_beyond_it() -> None:
    assert len(decode(nested(62))) == 1
    assert fault_of(nested(63)) is Fault.DEPTH_LIMIT


@pytest.mark.parametrize("depth", [5_000, 100_000])
def test_nesting_that_would_exhaust_the_stack_is_refused_as_too_deep(depth: int) -> None:
    assert fault_of(nested(depth)) is Fault.DEPTH_LIMIT


def test_many_brackets_side_by_side_are_not_deep() -> None:
    assert len(decode(b'{"jsonrpc":"2.0","id":1,"result":{"a":[' + b"[],{}," * 5_000 + b"1]}}")) == 1


def test_a_message_over_the_limit_is_refused_before_it_is_parsed() -> None:
    assert fault_of(b"[" * 101, message_bytes=100) is Fault.MESSAGE_LIMIT


@pytest.mark.parametrize("unit", [b"1,", b"[],", b'{"a":1},', b'"ab",', b'"\\\\",', b'"\\"",'])
def test_more_values_than_allowed_are_refused_before_they_are_made(unit: bytes) -> None:
    data = b'{"jsonrpc":"2.0","id":1,"result":{"a":[' + unit * 60 + b"0]}}"
    assert fault_of(data, message_values=60) is Fault.VALUE_LIMIT
    assert len(decode(data, message_values=200)) == 1


def test_commas_and_brackets_in_strings_are_no_values() -> None:
    assert (
        len(decode(b'{"jsonrpc":"2.0","id":1,"result":{"a":"' + b',[{\\\\\\"' * 100 + b'"}}', message_values=60)) == 1
    )


def test_a_batch_of_more_messages_than_allowed_is_refused_as_a_whole() -> None:
    assert fault_of(b"[" + b"0," * 10 + b"0]", batch_messages=10) is Fault.VALUE_LIMIT
    assert len(decode(b"[" + b"0," * 9 + b"0]", batch_messages=10)) == 10


def test_a_batch_is_judged_element_by_element() -> None:
    good, bad, other = decode(
        b'[{"jsonrpc":"2.0","method":"a"},{"jsonrpc":"2.0"},{"jsonrpc":"2.0","id":1,"result":{}}]'
    )
    assert good == Notification("a", {})
    assert isinstance(bad, ProtocolError)
    assert other == Response(1, {}, None)


@given(st.binary(max_size=400))
def test_any_bytes_give_messages_or_one_of_our_errors(data: bytes) -> None:
    try:
        verdict: object = decode(data)
    except ProtocolError as error:
        verdict = error.fault
    assert verdict in (Fault.INVALID_MESSAGE, Fault.DEPTH_LIMIT) or isinstance(verdict, list)


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner, max_size=4)
    ),
    max_leaves=20,
)


@given(st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), max_size=8), json_values, max_size=5))
def test_what_we_write_is_one_line_that_reads_back_the_same(params: dict[str, object]) -> None:
    data = jsonrpc.request(7, "tools/call", params)
    assert len(data.decode().splitlines()) == 1
    assert json.loads(data)["params"] == params
    assert decode(data, depth=200) == [Request(7, "tools/call", params)]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "\ud800", object(), {1, 2}])
def test_what_json_cannot_say_is_refused_before_it_is_sent(value: object) -> None:
    with pytest.raises(InvalidRequest):
        jsonrpc.request(1, "tools/call", {"value": value})


def test_a_circle_of_references_is_refused_before_it_is_sent() -> None:
    circle: dict[str, object] = {}
    circle["again"] = circle
    with pytest.raises(InvalidRequest):
        jsonrpc.request(1, "tools/call", circle)


@pytest.mark.parametrize("identity", [7, 'seven"\\'])
@pytest.mark.parametrize("params", [None, {}, {"name": "büro"}])
@pytest.mark.parametrize("meta", ["", '"trace":1'])
def test_the_envelope_written_in_pieces_reads_as_one_message(
    identity: int | str, params: dict[str, object] | None, meta: str
) -> None:
    expected: dict[str, object] = {"jsonrpc": "2.0", "id": identity, "method": 'a "method"\n'}
    if params is not None or meta:
        expected["params"] = {**(params or {}), **({"_meta": {"trace": 1}} if meta else {})}
    data = jsonrpc.request(identity, 'a "method"\n', params, meta)
    assert data.decode() == json.dumps(expected, separators=(",", ":"), ensure_ascii=False)


def test_ids_are_matched_with_their_type() -> None:
    requests = Correlation(max_pending=4)
    pending = requests.add("ping", None, wants_progress=False)
    assert requests.take(str(pending.id)) is None
    assert requests.take(pending.id) is pending
    assert requests.take(pending.id) is None
