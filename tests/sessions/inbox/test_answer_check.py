"""Validation of answers: every kind of elicitation field, and a sampling answer."""

from typing import Any

import pytest

from servers.schemas.compile import compile_form
from sessions.calls.arguments import SubmittedArguments
from sessions.inbox.answer_check import Unfit, prefilled, read_answer, requested_schema

EVERY = {
    "name": {"type": "string", "minLength": 2, "maxLength": 5, "default": "Ada"},
    "mail": {"type": "string", "format": "email"},
    "day": {"type": "string", "format": "date"},
    "age": {"type": "integer", "minimum": 0, "maximum": 150},
    "score": {"type": "number", "default": 95.5},
    "sure": {"type": "boolean", "default": False},
    "one": {"type": "string", "enum": ["a", "b"], "enumNames": ["A", "B"]},
    "titled": {"type": "string", "oneOf": [{"const": "x", "title": "X"}, {"const": "y", "title": "Y"}]},
    "some": {"type": "array", "items": {"type": "string", "enum": ["p", "q"]}, "maxItems": 1},
    "titles": {"type": "array", "items": {"anyOf": [{"const": "r", "title": "R"}, {"const": "s", "title": "S"}]}},
}
SAMPLING: dict[str, Any] = {"messages": [], "maxTokens": 5}
TEXT = {"type": "text", "text": "Four."}


def params(required: tuple[str, ...] = (), **fields: Any) -> dict[str, Any]:
    return {"message": "?", "requestedSchema": {"properties": fields or EVERY, "required": list(required)}}


def read(value: Any, asked: dict[str, Any] | None = None) -> Any:
    return read_answer("form", asked or params(), "accept", SubmittedArguments(value=value))


def refused(value: Any, asked: dict[str, Any] | None = None) -> dict[str, list[str]]:
    with pytest.raises(Unfit) as caught:
        read(value, asked)
    return caught.value.errors


# --- a form ----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("name", "Ada", "A"),
        ("mail", "ada@a.example", "ada"),
        ("day", "2026-01-31", "2026-02-31"),
        ("age", 36, 36.5),
        ("score", 1.5, "much"),
        ("sure", True, "perhaps"),
        ("one", "a", "A"),
        ("titled", "y", "Y"),
        ("some", ["p"], ["p", "q"]),
        ("titles", ["r", "s"], ["t"]),
    ],
)
def test_each_kind_of_field_takes_what_fits_and_says_what_does_not(name: str, good: Any, bad: Any) -> None:
    assert read({name: good}) == {name: good}
    assert any(pointer.startswith(f"/{name}") for pointer in refused({name: bad}))


@pytest.mark.parametrize(
    ("name", "typed", "sent"),
    [("age", "36", 36), ("age", 36.0, 36), ("score", "1e1", 10.0), ("sure", "true", True), ("name", "12", "12")],
)
def test_what_a_plain_control_sends_becomes_the_type_that_was_asked_for(name: str, typed: Any, sent: Any) -> None:
    found = read({name: typed})[name]
    assert (found, type(found)) == (sent, type(sent))


def test_what_is_left_out_is_not_sent_and_what_is_required_is_asked_for() -> None:
    assert read({"name": "Ada", "age": None}) == {"name": "Ada"}
    assert read({}) == {}
    assert refused({}, params(("age",)))


def test_what_was_not_asked_for_is_not_sent() -> None:
    assert refused({"password": "x"})


@pytest.mark.parametrize("value", [{"name": {"first": "Ada"}}, {"name": [1]}, "Ada", None, ["Ada"]])
def test_only_flat_values_leave(value: Any) -> None:
    free = params(name={})
    assert refused(value, free)


@pytest.mark.parametrize("schema", [None, 7, [], {"properties": 7}, {"properties": {"a": 7}}])
def test_a_schema_that_is_none_makes_a_form_without_fields(schema: Any) -> None:
    asked = {"message": "?", "requestedSchema": schema}
    assert prefilled(requested_schema(asked)) == {}
    assert compile_form(requested_schema(asked)) is not None


def test_a_schema_that_cannot_be_checked_is_declined_not_guessed() -> None:
    with pytest.raises(Unfit, match="Decline or cancel instead"):
        read({"name": "Ada"}, params(name={"type": "string", "pattern": "("}))


def test_the_defaults_of_the_server_are_in_the_form_at_first() -> None:
    schema = requested_schema(params())
    assert prefilled(schema) == {"name": "Ada", "score": 95.5, "sure": False}
    assert read(prefilled(schema)) == prefilled(schema)


def test_a_posted_form_is_read_with_its_errors_at_their_fields() -> None:
    asked = params(("name",), name=EVERY["name"], age=EVERY["age"])
    posted = {"arg:/name": ["Eve"], "arg.send:/age": ["0", "on"], "arg:/age": ["36"]}
    assert read_answer("form", asked, "accept", SubmittedArguments(form=posted)) == {"name": "Eve", "age": 36}
    with pytest.raises(Unfit) as caught:
        read_answer("form", asked, "accept", SubmittedArguments(form=posted | {"arg:/age": ["old"]}))
    assert caught.value.errors == {"/age": ["Enter a whole number."]}


@pytest.mark.parametrize("action", ["decline", "cancel"])
@pytest.mark.parametrize("kind", ["form", "url", "sampling"])
def test_to_decline_or_cancel_nothing_is_filled_in(kind: str, action: Any) -> None:
    assert read_answer(kind, params(("age",)), action, SubmittedArguments(value={"x": 1})) is None


def test_a_visit_has_no_content() -> None:
    assert read_answer("url", {"url": "https://a.example"}, "accept", SubmittedArguments(value={"x": 1})) is None


# --- sampling --------------------------------------------------------------------------------------------------------
def sample(value: Any, **asked: Any) -> Any:
    return read_answer("sampling", SAMPLING | asked, "accept", SubmittedArguments(value=value))


def test_an_answer_in_the_place_of_a_model_is_whole() -> None:
    answer = sample({"content": "Four.", "model": " grace ", "stopReason": "endTurn"})
    assert answer == {"role": "assistant", "content": TEXT, "model": "grace", "stopReason": "endTurn"}
    assert sample({"content": [TEXT], "model": "m"}) == {"role": "assistant", "content": TEXT, "model": "m"}


@pytest.mark.parametrize(
    "content",
    [
        *("", "  ", None, [], 7, {"type": "text"}, {"type": "text", "text": 7}, {"type": "video"}, [TEXT, TEXT]),
        {"type": "image", "data": "%%%", "mimeType": "image/png"},
        {"type": "tool_use", "id": "1", "name": "t", "input": {}},
        {"type": "text", "text": "x" * 1_000_001},
    ],
    ids=range(12),
)
def test_an_answer_without_sound_content_is_refused(content: Any) -> None:
    with pytest.raises(Unfit) as caught:
        sample({"content": content, "model": "m"})
    assert caught.value.errors.keys() == {"/content"}


IMAGE = {"type": "image", "data": "aGk=", "mimeType": "image/png"}
WRONG: dict[str, tuple[Any, str]] = {
    "two-blocks": ([TEXT, TEXT], "The request offers no tools, so the answer must be one block."),
    "tool": ({"type": "tool_use", "id": "1", "name": "t", "input": {}}, "must not use one"),
    "no-type": (IMAGE | {"mimeType": ""}, "needs data (base64) and mimeType"),
    "video": ({"type": "video"}, "The type must be text, image or audio."),
    "long": ("x" * 1_000_001, "longer than 1,000,000 characters"),
    "long-image": (IMAGE | {"data": "aGlo" * 250_001}, "longer than 1,000,000 characters"),
    "number": (7, "a JSON object with a type"),
    "nothing": (" ", "Enter an answer."),
}


@pytest.mark.parametrize(("content", "words"), WRONG.values(), ids=WRONG.keys())
def test_a_refused_answer_says_what_is_wrong_with_it(content: Any, words: str) -> None:
    with pytest.raises(Unfit) as caught:
        sample({"content": content, "model": "m"})
    assert words in caught.value.errors["/content"][0]


def test_the_block_that_is_wrong_is_named() -> None:
    with pytest.raises(Unfit) as caught:
        sample({"content": [TEXT, {"type": "tool_use"}], "model": "m"}, tools=[{"name": "t"}])
    assert caught.value.errors["/content"] == ["Block 2: A tool_use block needs id, name and input (an object)."]


def test_media_and_tools_are_taken_where_they_belong() -> None:
    image = {"type": "image", "data": "aGk=", "mimeType": "image/png"}
    use = {"type": "tool_use", "id": "1", "name": "t", "input": {}}
    assert sample({"content": image, "model": "m"})["content"] == image
    assert sample({"content": [TEXT, use], "model": "m"}, tools=[{"name": "t"}])["content"] == [TEXT, use]


@pytest.mark.parametrize("model", ["", "  ", None, "m" * 201])
def test_whoever_answers_names_the_model(model: Any) -> None:
    with pytest.raises(Unfit) as caught:
        sample({"content": "Four.", "model": model})
    assert caught.value.errors.keys() == {"/model"}
