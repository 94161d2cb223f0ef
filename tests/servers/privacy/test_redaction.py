"""What a rule, a schema or a shape names is masked; everything else is stored as it came."""

import json
import time
import tracemalloc
from base64 import b64decode, b64encode
from typing import Any

import pytest

from servers.audit.payload_privacy import PayloadPrivacy, Rule
from servers.enums import RedactedPart
from servers.privacy.redaction import INNER_CHARS, PathInvalid, Subject, _found, compiled, redacted, redacted_message
from servers.schemas.secrets import secret_places
from servers.secret import MASK

ARGUMENTS = Subject(RedactedPart.ARGUMENTS, 1, "create_user")
RESULT = Subject(RedactedPart.RESULT, 1, "create_user")
TOKEN = "ghp_" + "a1B2" * 9
ESCAPED_TOKEN = TOKEN.replace("g", "\\u0067")


def rules(*paths: str, part: str = "all", server_id: int | None = None, target: str = "") -> PayloadPrivacy:
    return PayloadPrivacy(detect=False, rules=tuple(Rule(path, part, server_id, target) for path in paths))


def masked(value: Any, policy: PayloadPrivacy, subject: Subject = ARGUMENTS) -> Any:
    return json.loads(redacted(json.dumps(value), subject, policy)[0])


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("$.password", {"user": "ann", "password": MASK, "all": [{"pin": 1, "password": "y"}, {"pin": 2}]}),
        ("$..password", {"user": "ann", "password": MASK, "all": [{"pin": 1, "password": MASK}, {"pin": 2}]}),
        ("$.all[*].pin", {"user": "ann", "password": "x", "all": [{"pin": MASK, "password": "y"}, {"pin": MASK}]}),
        (
            "$.all[?@.pin == 2].pin",
            {"user": "ann", "password": "x", "all": [{"pin": 1, "password": "y"}, {"pin": MASK}]},
        ),
        ("$.all", {"user": "ann", "password": "x", "all": MASK}),
        ("$.nothing", {"user": "ann", "password": "x", "all": [{"pin": 1, "password": "y"}, {"pin": 2}]}),
    ],
)
def test_a_path_masks_every_value_that_it_finds(path: str, expected: Any) -> None:
    value = {"user": "ann", "password": "x", "all": [{"pin": 1, "password": "y"}, {"pin": 2}]}
    assert masked(value, rules(path)) == expected


PATHS = [
    "$.a",
    "$..a",
    "$..*",
    "$.*",
    "$.b[*].a",
    "$.b[0]",
    "$.b[-1].a",
    "$.b[7]",
    "$.b[-7]",
    "$['a','b']",
    "$..['a',0]",
]
PATHS += ["$..b..a", "$..*..a", "$.a.a", "$.*[0]", "$..[1]", "$.missing", "$[0]", "$..*.*"]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    "value",
    [
        {"a": 1, "b": [{"a": {"a": [1, {"a": None}]}}, [0, {"a": "x", "b": {"a": 2}}], "a"], "": {"a": []}, "0": "a"},
        [{"a": 1}, [{"a": 2}, []], "a"],
        {},
    ],
)
def test_a_path_finds_what_the_library_finds(path: str, value: Any) -> None:
    assert set(_found(path, value)) == {tuple(match.parts) for match in compiled(path).finditer(value)}


def test_a_path_takes_moments_for_a_large_result() -> None:
    names = [f"password{number}" for number in range(20)]
    value = {"structuredContent": dict.fromkeys(names, "x") | {"numbers": [0] * 50_000, "rows": [{"id": 1}] * 500}}
    began = time.process_time()
    text = redacted(json.dumps(value), RESULT, rules(*(f"$..{name}" for name in names), "$.rows[*].id"))[0]
    assert time.process_time() - began < 3
    assert json.loads(text)["structuredContent"][names[-1]] == MASK


@pytest.mark.parametrize("path", ["$[?@.a]", "$[0:2].a", "$..[?@.a]", "$[?@.a == $[0].a]", "$[?@..a]"])
def test_what_is_too_large_for_a_filter_is_masked_as_a_whole(path: str) -> None:
    small, large = [{"a": 1}] * 100, [{"a": 1}] * 20_000
    assert masked(small, rules(path)) != MASK
    began = time.process_time()
    assert masked(large, rules(path)) == MASK
    assert time.process_time() - began < 2


def test_a_path_reaches_the_structured_part_of_a_result_and_its_copy_in_the_text() -> None:
    inner = {"id": 7, "password": "hunter2"}
    result = {
        "content": [{"type": "text", "text": json.dumps(inner)}, {"type": "text", "text": "no JSON: hunter"}],
        "structuredContent": inner,
    }
    text, count = redacted(json.dumps(result), RESULT, rules("$.password"))
    assert "hunter2" not in text
    assert count == 2
    assert json.loads(json.loads(text)["content"][0]["text"]) == {"id": 7, "password": MASK}
    assert json.loads(text)["content"][1]["text"] == "no JSON: hunter"


def test_a_path_reaches_the_json_of_an_embedded_and_of_a_read_resource() -> None:
    secret = json.dumps({"key": "hunter2"})
    embedded = {"content": [{"type": "resource", "resource": {"uri": "a:b", "text": secret}}]}
    read = {"contents": [{"uri": "a:b", "text": secret}]}
    for result in (embedded, read):
        assert "hunter2" not in redacted(json.dumps(result), RESULT, rules("$.key"))[0]


@pytest.mark.parametrize(
    "block",
    [
        {"type": "text", "text": '{"key": "hunter2"}'},
        {"type": "resource", "resource": {"uri": "a:b", "text": '{"key": "hunter2"}'}},
        {"type": "resource", "resource": {"uri": "a:b", "blob": b64encode(b'{"key": "hunter2"}').decode()}},
    ],
    ids=["text", "resource", "base64"],
)
def test_a_path_reaches_the_json_in_the_messages_of_a_prompt(block: dict[str, Any]) -> None:
    plain = {"role": "user", "content": {"type": "text", "text": "hello"}}
    for content in (block, [plain["content"], block]):
        result = {"messages": [plain, {"role": "assistant", "content": content}, "no message"]}
        text, count = redacted(json.dumps(result), RESULT, rules("$.key"))
        assert (count, json.loads(text)["messages"][0]) == (1, plain)
        assert json.dumps(block) not in json.dumps(json.loads(text))


def test_a_rule_applies_to_its_part_its_server_and_its_tool_only() -> None:
    value = {"password": "x"}
    for policy in (
        rules("$.password", part="result"),
        rules("$.password", server_id=2),
        rules("$.password", target="delete_*"),
        rules("$.password", target="create"),
    ):
        assert masked(value, policy) == value
    for policy in (
        rules("$.password", part="arguments"),
        rules("$.password", server_id=1),
        rules("$.password", target="create_*"),
        rules("$.password", target="*_user"),
    ):
        assert masked(value, policy) == {"password": MASK}


def test_brackets_and_question_marks_in_the_name_of_a_tool_are_not_patterns() -> None:
    subject = Subject(RedactedPart.ARGUMENTS, 1, "get[a]?")
    assert masked({"p": 1}, rules("$.p", target="get[a]?"), subject) == {"p": MASK}
    assert masked({"p": 1}, rules("$.p", target="g?t*"), subject) == {"p": 1}


def test_text_that_nothing_concerns_comes_back_as_it_was() -> None:
    text = '{ "a" : 12345678901234567890123, "b":"\\ud800" }'
    assert redacted(text, ARGUMENTS, PayloadPrivacy()) == (text, 0)
    assert redacted(text, ARGUMENTS, rules("$.missing")) == (text, 0)


def test_the_rest_of_a_masked_value_is_kept_exactly() -> None:
    text = '{"big":12345678901234567890123,"half":"\\ud800","password":"x"}'
    value = json.loads(redacted(text, ARGUMENTS, rules("$.password"))[0])
    assert value == {"big": 12345678901234567890123, "half": "\ud800", "password": MASK}


def test_a_detected_secret_is_masked_inside_of_its_text() -> None:
    result = {"content": [{"type": "text", "text": f"Your token: {TOKEN}."}]}
    text, count = redacted(json.dumps(result), RESULT, PayloadPrivacy())
    assert count == 1
    assert json.loads(text)["content"][0]["text"] == f"Your token: {MASK}."
    assert redacted(json.dumps(result), RESULT, PayloadPrivacy(detect=False))[1] == 0


def test_a_secret_that_its_name_gives_away_is_masked_where_name_and_value_are_apart() -> None:
    key = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
    bearer = "Bearer opaque-0123456789"
    value = {"headers": {"authorization": bearer, "Authorization": [bearer], "x": bearer}, "SecretAccessKey": key}
    assert masked(value, PayloadPrivacy()) == {
        "headers": {"authorization": f"Bearer {MASK}", "Authorization": [f"Bearer {MASK}"], "x": bearer},
        "SecretAccessKey": MASK,
    }


def test_a_detected_secret_is_masked_in_the_name_of_a_member() -> None:
    value = {"owners": [{TOKEN: "ann", "b": [1, {"c": 2}]}], "d": TOKEN}
    text, count = redacted(json.dumps(value), ARGUMENTS, PayloadPrivacy())
    assert (json.loads(text), count) == ({"owners": [{MASK: "ann", "b": [1, {"c": 2}]}], "d": MASK}, 2)
    assert message({"params": value}, None, PayloadPrivacy()) == {"params": json.loads(text)}


def nested(value: Any, depth: int) -> str:
    return "[" * depth + json.dumps(value, separators=(",", ":")) + "]" * depth


@pytest.mark.parametrize("beside", [{}, {TOKEN: 1}], ids=["texts", "and a name"])
def test_many_secrets_deep_in_a_value_take_no_more_memory_than_the_value(beside: dict[str, int]) -> None:
    value = ["ab://:abc@"] * 5_000 + [beside]
    tracemalloc.start()
    try:
        text, count = redacted(nested(value, 58), ARGUMENTS, PayloadPrivacy())
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 10 * 1024 * 1024
    flat, same = redacted(nested(value, 1), ARGUMENTS, PayloadPrivacy())
    assert (text, count) == ("[" * 57 + flat + "]" * 57, same)
    assert count == 5_000 + len(beside)


@pytest.mark.parametrize("end", ["", " authorization"])
def test_many_texts_of_a_member_with_a_long_name_take_moments(end: str) -> None:
    value = {"n" * 1_000_000 + end: ["Bearer a"] * 5_000}
    began = time.process_time()
    assert masked(value, PayloadPrivacy()) == value
    assert time.process_time() - began < 2


def test_many_masked_values_deep_in_a_value_take_moments() -> None:
    value = {"a": 1, "b": [{"a": {"a": 1}}] * 20_000}
    began = time.process_time()
    text, count = redacted(nested(value, 58), ARGUMENTS, rules("$..a"))
    assert time.process_time() - began < 3
    assert (json.loads(text[58:-58]), count) == ({"a": MASK, "b": [{"a": MASK}] * 20_000}, 20_001)


@pytest.mark.parametrize(
    "path", ["", "password", "$..[", "$.a | $.b", "$", "$[?match(@.a, '(a+)+$')]", "$[?search(@, 'a')]"]
)
def test_what_is_no_usable_path_is_refused_with_words(path: str) -> None:
    with pytest.raises(PathInvalid):
        compiled(path)


def test_a_name_that_is_written_with_escapes_is_found_all_the_same() -> None:
    inner = '{"p\\u0061ssword": "hunter2"}'
    result = {"content": [{"type": "text", "text": inner}]}
    assert "hunter2" not in redacted(json.dumps(result), RESULT, rules("$.password"))[0]
    assert redacted('{"p\\u0061ssword": "hunter2"}', ARGUMENTS, rules("$.password"))[1] == 1


# --- messages of the wire ------------------------------------------------------------------------------------------------
def message(value: Any, subject: Subject | None, policy: PayloadPrivacy) -> Any:
    text = redacted_message(json.dumps(value), subject, policy)
    return None if text is None else json.loads(text)


def test_a_message_is_masked_where_its_payload_is() -> None:
    request = {"id": 1, "params": {"name": "login", "arguments": {"password": "x"}, "password": "not an argument"}}
    assert message(request, ARGUMENTS, rules("$.password"))["params"] == {
        "name": "login",
        "arguments": {"password": MASK},
        "password": "not an argument",
    }
    answer = {"id": 1, "result": {"structuredContent": {"password": "x"}, "content": [{"text": '{"password": "x"}'}]}}
    assert '"x"' not in json.dumps(message(answer, RESULT, rules("$.password")))
    given = {"id": 7, "result": {"action": "accept", "content": {"password": "x"}}}
    assert message(given, Subject(RedactedPart.ANSWER), rules("$.password"))["result"]["content"] == {"password": MASK}
    schema = Subject(RedactedPart.ARGUMENTS, 1, "login", {"properties": {"password": {"writeOnly": True}}})
    assert message(request, schema, PayloadPrivacy())["params"]["arguments"] == {"password": MASK}


def test_a_message_about_nothing_special_loses_only_detected_secrets() -> None:
    notice = {"method": "notifications/message", "params": {"data": f"token {TOKEN}", "password": "x"}}
    assert message(notice, None, PayloadPrivacy(rules=rules("$..password").rules))["params"] == {
        "data": f"token {MASK}",
        "password": "x",
    }
    assert redacted_message("plain", None, PayloadPrivacy()) == "plain"


@pytest.mark.parametrize(
    "written",
    [
        '{"params": {"data": "' + ESCAPED_TOKEN + '"}}',
        '{"params": {"data": "postgres:\\/\\/app:hunter22@db\\/main"}}',
        '{"params": {"data": "' + ESCAPED_TOKEN,
    ],
)
def test_a_secret_in_a_message_is_detected_however_its_characters_are_escaped(written: str) -> None:
    masked = redacted_message(written, None, PayloadPrivacy())
    assert masked is not None
    assert MASK in masked
    assert TOKEN[4:] not in masked
    assert "hunter22" not in masked


def test_a_message_that_cannot_be_searched_or_must_be_encrypted_is_not_stored() -> None:
    assert redacted_message('{"params": {"arguments": {"password": "hun', ARGUMENTS, rules("$.password")) is None
    assert redacted_message(f'{{"half": "{TOKEN}', None, PayloadPrivacy()) == f'{{"half": "{MASK}'


# --- schemas -----------------------------------------------------------------------------------------------------------
SECRET = {"type": "string", "format": "password"}


@pytest.mark.parametrize(
    ("schema", "value", "places"),
    [
        ({"properties": {"p": SECRET}}, {"p": "x", "q": "y"}, {("p",)}),
        ({"properties": {"p": {"writeOnly": True}}}, {"p": {"a": 1}}, {("p",)}),
        ({"properties": {"a": {"items": {"properties": {"p": SECRET}}}}}, {"a": [{"p": 1}, {}]}, {("a", 0, "p")}),
        ({"$ref": "#/$defs/x", "$defs": {"x": {"properties": {"p": SECRET}}}}, {"p": 1}, {("p",)}),
        ({"anyOf": [{"properties": {"p": {}}}, {"properties": {"p": SECRET}}]}, {"p": 1}, {("p",)}),
        ({"additionalProperties": SECRET}, {"p": 1}, {("p",)}),
        ({"patternProperties": {"(a+)+$": SECRET}}, {"p": 1}, {("p",)}),
        ({"prefixItems": [{}, SECRET], "items": {}}, [1, 2, 3], {(1,)}),
        ({"prefixItems": [{}], "unevaluatedItems": SECRET}, [1, 2, 3], {(1,), (2,)}),
        ({"if": {}, "then": {"properties": {"p": SECRET}}}, {"p": 1}, {("p",)}),
        ({"dependencies": {"a": ["p"], "b": {"properties": {"p": SECRET}}}}, {"p": 1}, {("p",)}),
        ({"properties": {"p": {"type": "string"}}}, {"p": 1}, set()),
        ({"$ref": "#/$defs/missing"}, {"p": 1}, set()),
        ({"properties": {"a": {"$ref": "#/$defs/missing"}, "p": SECRET}}, {"a": 1, "b": 1}, {("a",)}),
        ({"properties": {"a": {"$ref": "s"}}, "$defs": {"s": {"$id": "s", **SECRET}}}, {"a": 1, "b": 1}, {("a",)}),
        ({"properties": {"p": SECRET, "next": {"$recursiveRef": "#"}}}, {"next": {"p": 1, "q": 2}}, {("next", "p")}),
    ],
)
def test_a_schema_names_the_places_of_its_secrets(schema: Any, value: Any, places: Any) -> None:
    assert secret_places(schema, value) == places


def test_a_schema_that_refers_to_itself_ends() -> None:
    node: dict[str, Any] = {"properties": {"next": {"$ref": "#"}, "p": SECRET}, "allOf": [{"$ref": "#"}]}
    assert secret_places(node, {"next": {"next": {"p": 1}}}) == {("next", "next", "p")}


def test_a_schema_that_takes_too_long_to_follow_masks_the_whole_value() -> None:
    wide = {"anyOf": [{"properties": {"a": {"$ref": "#"}}} for _ in range(30)]}
    deep: dict[str, Any] = {}
    for _ in range(12):
        deep = {"a": deep}
    assert secret_places(wide, deep) == {()}


def test_a_long_list_beside_a_secret_is_kept() -> None:
    schema = {"properties": {"p": SECRET, "numbers": {"items": {"type": "number"}}, "rows": {"items": {}}}}
    value = {"p": "x", "numbers": [0] * 60_000, "rows": [{"a": 1}] * 20_000, "more": [1] * 20_000}
    assert secret_places(schema, value) == {("p",)}


def test_the_schema_masks_what_a_person_typed_into_a_password_field() -> None:
    subject = Subject(RedactedPart.ARGUMENTS, 1, "login", {"properties": {"password": SECRET}})
    assert masked({"user": "ann", "password": "x"}, PayloadPrivacy(), subject) == {"user": "ann", "password": MASK}
    assert masked({"user": "ann", "password": "x"}, PayloadPrivacy(by_schema=False), subject) == {
        "user": "ann",
        "password": "x",
    }


@pytest.mark.parametrize("beside", ["[" * 5_000 + "]" * 5_000, "1" * 5_000], ids=["nesting", "digits"])
def test_json_inside_of_a_text_that_cannot_be_searched_is_masked_as_a_whole(beside: str) -> None:
    inner = f'{{"password": "hunter2", "beside": {beside}}}'
    text, count = redacted(json.dumps({"content": [{"type": "text", "text": inner}]}), RESULT, rules("$.password"))
    assert (json.loads(text)["content"][0]["text"], count) == (MASK, 1)


DOCUMENT = '{"id": 7, "password": "hunter2"}'
FORMS = {
    "a byte order mark": "\ufeff" + DOCUMENT,
    "one document a line": f'{DOCUMENT}\nno JSON\n\ufeff{{"password": "hunter2"}}\n{{"broken": \n',
    "a list a line": f"[{DOCUMENT}]\r\n[{DOCUMENT}]\r\n",
}


@pytest.mark.parametrize("text", FORMS.values(), ids=FORMS)
def test_json_in_other_forms_is_searched_too(text: str) -> None:
    for content in ({"type": "text", "text": text}, {"type": "resource", "resource": {"uri": "a:b", "text": text}}):
        found = masked({"content": [content]}, rules("$..password"), RESULT)["content"][0]
        shown = (found.get("resource") or found)["text"]
        assert ("hunter2" in shown, shown.count(MASK), "\n" in shown) == (False, text.count("hunter2"), "\n" in text)
        if "no JSON" in text:
            assert shown.endswith('\nno JSON\n{"password": "[redacted]"}\n{"broken": \n')


@pytest.mark.parametrize("text", [DOCUMENT, *FORMS.values()], ids=["plain", *FORMS])
def test_json_in_the_base64_of_a_resource_is_searched_too(text: str) -> None:
    blob = b64encode(text.encode()).decode()
    for name, items in (
        ("contents", [{"uri": "a:b", "blob": blob}]),
        ("content", [{"type": "resource", "resource": {"uri": "a:b", "blob": blob}}]),
    ):
        found = masked({name: items}, rules("$..password"), RESULT)[name][0]
        shown = b64decode((found.get("resource") or found)["blob"]).decode()
        assert ("hunter2" in shown, shown.count(MASK)) == (False, text.count("hunter2"))


@pytest.mark.parametrize("blob", ["", "iVBORw0KGgo=", "no base64!", "eyJ", b64encode(b'{"a":"\xff"}').decode()])
def test_a_blob_that_holds_no_json_stays_as_it_is(blob: str) -> None:
    value = {"contents": [{"uri": "a:b", "blob": blob}]}
    assert masked(value, rules("$..a"), RESULT) == value


def test_base64_of_json_that_is_too_long_to_be_searched_is_masked_as_a_whole() -> None:
    blob = b64encode(json.dumps({"password": "hunter2", "beside": "x" * INNER_CHARS}).encode()).decode()
    found = masked({"contents": [{"uri": "a:b", "blob": blob}]}, rules("$.password"), RESULT)
    assert b64decode(found["contents"][0]["blob"]).decode() == MASK
