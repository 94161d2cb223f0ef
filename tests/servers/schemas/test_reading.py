"""The form handles what people type, tick and forget."""

import pytest

from servers.schemas.compile import compile_form
from servers.schemas.kinds import Union, classify
from servers.schemas.operations import Operation, apply
from servers.schemas.parse import Parsed, parse_form, parse_json
from servers.schemas.render import render_errors, render_form
from servers.schemas.resolve import Document
from servers.schemas.values import ABSENT
from tests.servers.schemas.browser_form import parsed_html, posted

ORDER = {
    "type": "object",
    "properties": {
        "customer": {"type": "string", "title": "Customer"},
        "limit": {"type": "integer", "minimum": 1, "maximum": 500, "default": 50},
        "gift": {"type": "boolean"},
        "state": {"type": "array", "items": {"enum": ["draft", "paid", "packed"]}},
        "edits": {
            "type": "array",
            "items": {"type": "object", "properties": {"old": {"type": "string"}}, "required": ["old"]},
        },
        "filter": {"anyOf": [{"type": "integer"}, {"type": "object", "properties": {"q": {"type": "string"}}}]},
        "weights": {"type": "object", "additionalProperties": {"type": "number"}},
        "tag": {"enum": [1, "1", True, None]},
        "extra": {},
    },
    "required": ["customer"],
}


def form(value: object = ABSENT, schema: object = ORDER) -> dict[str, list[str]]:
    return posted(render_form(compile_form(schema, value)))


def typed(changes: dict[str, list[str]], value: object = ABSENT) -> Parsed:
    return parse_form(ORDER, {**form(value), **changes})


def edited(op: str, value: object) -> object:
    """Post the form with one button pressed, render the result and post it again."""
    parsed = parse_form(ORDER, {**form(value), "_op": [op]})
    assert parsed.op is not None
    return parse_form(ORDER, form(apply(parsed.op, ORDER, parsed.draft))).draft


def test_an_empty_required_text_is_an_error_until_its_box_is_ticked() -> None:
    refused = typed({})
    assert refused.errors == {"/customer": ["Required. To send an empty string, tick “send empty string”."]}
    html = render_form(compile_form(ORDER, refused.draft, refused.errors))
    assert "arg.empty:/customer" in html
    assert typed({"arg.empty:/customer": ["on"]}).value == {"customer": ""}


def test_typing_into_an_optional_field_sends_it_without_script() -> None:
    assert typed({"arg:/customer": ["a"], "arg:/limit": ["7"]}).value == {"customer": "a", "limit": 7}


def test_with_script_the_send_box_alone_decides() -> None:
    data = {"arg:/customer": ["a"], "arg:/limit": ["7"], "arg.live:": ["1"]}
    assert typed(data).value == {"customer": "a"}
    assert typed({**data, "arg.send:/limit": ["0", "on"]}).value == {"customer": "a", "limit": 7}


def test_unticking_send_leaves_the_field_out_although_its_text_is_still_there() -> None:
    data = typed({"arg.send:/limit": ["1"]}, {"customer": "a", "limit": 7})
    assert data.value == {"customer": "a"}


def test_a_sent_field_that_is_empty_names_the_way_out() -> None:
    parsed = typed({"arg:/customer": ["a"], "arg.send:/limit": ["0", "on"]})
    assert parsed.errors == {"/limit": ["Enter a value, or clear “send”."]}


@pytest.mark.parametrize(
    ("text", "number"),
    [("9007199254740993.0", 2**53 + 1), ("1e30", 10**30), ("-12.5E1", -125), ("0e9", 0), ("00012", 12)],
)
def test_a_whole_number_written_as_a_decimal_is_sent_without_rounding(text: str, number: int) -> None:
    assert typed({"arg:/customer": ["a"], "arg:/limit": [text]}).value["limit"] == number


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("12a", "Enter a whole number."),
        ("1.5", "Enter a whole number."),
        ("9007199254740993.5", "Enter a whole number."),
        ("1e-400", "Enter a whole number."),
        (f"1e-{'9' * 30}", "Enter a whole number."),
    ],
)
def test_text_that_is_no_number_stays_in_the_field_beside_its_error(text: str, message: str) -> None:
    parsed = typed({"arg:/customer": ["a"], "arg:/limit": [text]})
    assert parsed.errors == {"/limit": [message]}
    assert parsed.value is ABSENT
    assert not parsed.ok
    html = render_form(compile_form(ORDER, parsed.draft, parsed.errors))
    assert posted(html)["arg:/limit"] == [text]
    assert message in html


@pytest.mark.parametrize("text", ["1e999", "9" * 5000])
def test_a_number_beyond_all_bounds_is_refused_with_a_sentence(text: str) -> None:
    assert typed({"arg:/customer": ["a"], "arg:/limit": [text]}).errors["/limit"][0].startswith("A number")


@pytest.mark.parametrize(("index", "value"), [(0, 1), (1, "1"), (2, True), (3, None)])
def test_enum_values_that_look_alike_stay_distinct(index: int, value: object) -> None:
    parsed = typed({"arg:/customer": ["a"], "arg:/tag": [str(index)]})
    assert parsed.value["tag"] is value or (parsed.value["tag"] == value and type(parsed.value["tag"]) is type(value))


def test_an_option_that_does_not_exist_is_refused() -> None:
    assert typed({"arg:/customer": ["a"], "arg:/tag": ["9"]}).errors == {"/tag": ["This option is not available."]}


def test_line_breaks_of_a_browser_become_newlines() -> None:
    assert typed({"arg:/customer": ["a\r\nb"]}).value == {"customer": "a\nb"}


def test_a_broken_json_part_keeps_its_text_and_names_the_line() -> None:
    parsed = typed({"arg:/customer": ["a"], "arg.json:/extra": ['{"a": 1,\n "b": }'], "arg.send:/extra": ["0", "on"]})
    assert parsed.errors == {"/extra": ["Line 2, column 7: a value is missing or not quoted."]}
    assert posted(render_form(compile_form(ORDER, parsed.draft)))["arg.json:/extra"] == ['{"a": 1,\r\n "b": }']


def test_an_item_is_added_and_removed_without_losing_what_was_typed() -> None:
    value = {"customer": "a", "edits": [{"old": "x"}, {"old": "y"}]}
    grown = edited("add:/edits", value)
    assert [item.get("old") for item in grown["edits"][:2]] == ["x", "y"]
    assert len(grown["edits"]) == 3
    assert edited("del:/edits/0", value)["edits"] == [{"old": "y"}]


def test_removing_the_last_item_leaves_an_empty_list_and_removing_the_list_leaves_it_out() -> None:
    assert edited("del:/edits/0", {"customer": "a", "edits": [{"old": "x"}]}) == {"customer": "a", "edits": []}
    assert edited("del:/edits", {"customer": "a", "edits": []}) == {"customer": "a"}


def test_adding_to_a_list_that_is_not_sent_gives_its_first_item() -> None:
    assert len(edited("add:/edits", {"customer": "a"})["edits"]) == 1


def test_half_typed_text_survives_a_structural_edit() -> None:
    parsed = typed({"arg:/limit": ["12a"], "_op": ["add:/edits"]})
    assert parsed.op == Operation("add", "/edits")
    assert form(apply(parsed.op, ORDER, parsed.draft))["arg:/limit"] == ["12a"]


def test_the_branch_of_a_union_follows_the_value_and_then_the_person() -> None:
    assert form({"customer": "a", "filter": {"q": "z"}})["arg.branch:/filter"] == ["1"]
    parsed = parse_form(ORDER, {**form({"customer": "a", "filter": 3}), "_op": ["branch:/filter=1"]})
    assert parsed.op == Operation("branch", "/filter", 1)
    assert form(apply(parsed.op, ORDER, parsed.draft))["arg.branch:/filter"] == ["1"]


PETS = {
    "type": "object",
    "properties": {
        "pet": {"$ref": "#/$defs/Pet"},
        "more": {"type": "array", "items": {"$ref": "#/$defs/Pet"}},
        "other": {"$ref": "#/$defs/Pet"},
    },
    "required": ["pet"],
    "$defs": {
        "Pet": {
            "oneOf": [
                {
                    "title": kind.title(),
                    "type": "object",
                    "properties": {"kind": {"const": kind, "default": kind}, "name": {"type": "string"}},
                    "required": ["name"],
                }
                for kind in ("cat", "dog")
            ]
        }
    },
}


def after(data: dict[str, list[str]], op: str, schema: object = PETS) -> dict[str, list[str]]:
    """The form's fields after one of its buttons was pressed."""
    parsed = parse_form(schema, {**data, "_op": [op]})
    assert parsed.op is not None
    return form(apply(parsed.op, schema, parsed.draft), schema)


def test_the_variant_that_a_person_chose_is_in_what_is_sent_though_its_constant_is_not_required() -> None:
    data = after(form(ABSENT, PETS), "branch:/pet=1") | {"arg:/pet/~b1/name": ["x"]}
    assert parse_form(PETS, data).value == {"pet": {"kind": "dog", "name": "x"}}
    untouched = form(ABSENT, PETS) | {"arg:/pet/~b0/name": ["x"]}
    assert parse_form(PETS, untouched).value == {"pet": {"kind": "cat", "name": "x"}}
    unticked = {**data, "arg.send:/pet/~b1/kind": ["0"], "arg.live:": ["1"]}
    assert parse_form(PETS, unticked).value == {"pet": {"name": "x"}}
    again = form(parse_form(PETS, unticked).draft, PETS)
    assert "on" not in again["arg.send:/pet/~b1/kind"], "what was unticked stays so"


def test_an_enum_of_one_value_tells_variants_apart_as_a_constant_does() -> None:
    """draft-04 and OpenAPI 3.0 have no `const`."""
    kinds = [{"type": "object", "properties": {"kind": {"enum": [one]}, "name": {}}} for one in ("cat", "dog")]
    schema = {"type": "object", "properties": {"pet": {"anyOf": kinds}}, "required": ["pet"]}
    parsed = parse_form(schema, {**form(ABSENT, schema), "_op": ["branch:/pet=1"]})
    assert parsed.op is not None
    draft = apply(parsed.op, schema, parsed.draft)
    assert parse_form(schema, form(draft, schema)).value == {"pet": {"kind": "dog"}}
    same = {"anyOf": [{"type": "object", "properties": {"a": {"type": one}}} for one in ("string", "number")]}
    kind = classify(Document(same), Document(same).flatten(same)[0])
    assert isinstance(kind, Union)
    assert kind.labels == ("object with a (1)", "object with a (2)")


def test_a_variant_that_is_added_to_a_list_is_sent_with_its_constant() -> None:
    data = after(form({"pet": {"kind": "cat", "name": "x"}}, PETS), "add:/more")
    data = after(data, "branch:/more/0=1") | {"arg:/more/0/~b1/name": ["y"]}
    assert parse_form(PETS, data).value["more"] == [{"kind": "dog", "name": "y"}]


def test_an_optional_choice_of_objects_that_is_added_is_sent() -> None:
    data = after(form({"pet": {"kind": "cat", "name": "x"}}, PETS), "add:/other") | {"arg:/other/~b0/name": ["y"]}
    assert parse_form(PETS, data).value["other"] == {"kind": "cat", "name": "y"}


NAMES = {"type": "array", "items": {"type": "string"}}
ADDED = {"type": "object", "properties": {"x": {"type": "string"}}}


@pytest.mark.parametrize(
    ("schema", "typed_in", "sent"),
    [
        ({"anyOf": [NAMES, {"type": "null"}], "default": None}, {}, []),
        ({"anyOf": [{"type": "null"}, NAMES]}, {}, []),
        ({"anyOf": [{"const": None}, ADDED], "default": None}, {"arg:/a/~b1/x": ["y"]}, {"x": "y"}),
        (ADDED | {"default": None}, {"arg:/a/x": ["y"]}, {"x": "y"}),
        (NAMES | {"default": None}, {"arg:/a/0": ["y"]}, ["y"]),
        ({"anyOf": [NAMES, {"type": "null"}], "default": ["z"]}, {}, ["z"]),
    ],
)
def test_who_adds_what_may_be_null_gets_the_other_thing(
    schema: object, typed_in: dict[str, list[str]], sent: object
) -> None:
    whole = {"type": "object", "properties": {"a": schema}}
    assert parse_form(whole, form({}, whole)).value == {}
    assert parse_form(whole, after(form({}, whole), "add:/a", whole) | typed_in).value == {"a": sent}


def test_a_value_that_must_be_sent_begins_with_its_default_null() -> None:
    whole = {
        "type": "object",
        "properties": {"a": {"anyOf": [NAMES, {"type": "null"}], "default": None}},
        "required": ["a"],
    }
    assert parse_form(whole, form(ABSENT, whole)).value == {"a": None}


def test_a_branch_picked_in_a_select_but_not_switched_to_is_not_sent() -> None:
    schema = {"oneOf": [{"type": "string", "title": f"A rather long name {n}"} for n in range(6)]}
    data = form("x", schema)
    refused = parse_form(schema, {**data, "arg.pick:": ["2"]})
    assert refused.errors == {"": ["Choose “Switch” to show the selected form."]}
    pressed = parse_form(schema, {**data, "arg.pick:": ["2"], "_op": ["pick:"]})
    assert pressed.op == Operation("branch", "", 2)


@pytest.mark.parametrize("branch", ["²", "9" * 5000, "-1", ""])
def test_a_branch_that_is_no_number_is_read_as_nothing_typed(branch: str) -> None:
    data = form({"customer": "a"}) | {"arg.branch:/filter": [branch], "arg.send:/filter": ["0"]}
    assert parse_form(ORDER, data).value == {"customer": "a"}


def test_a_free_key_is_added_named_and_sent() -> None:
    grown = parse_form(ORDER, {**form({"customer": "a", "weights": {"x": 1}}), "_op": ["addkey:/weights"]})
    assert grown.op is not None
    data = form(apply(grown.op, ORDER, grown.draft))
    assert "Enter a name for each added property" in parse_form(ORDER, data).errors["/weights"][0]
    named = {**data, "arg.key:/weights/~k1": ["y"], "arg:/weights/~k1": ["2.5"]}
    assert parse_form(ORDER, named).value == {"customer": "a", "weights": {"x": 1, "y": 2.5}}


def test_a_key_given_twice_is_refused_and_both_rows_stay() -> None:
    data = {**form({"customer": "a", "weights": {"x": 1, "y": 2}}), "arg.key:/weights/~k1": ["x"]}
    parsed = parse_form(ORDER, data)
    assert parsed.errors == {"/weights": ["The property “x” appears twice."]}
    again = posted(render_form(compile_form(ORDER, parsed.draft, parsed.errors)))
    assert (again["arg.key:/weights/~k0"], again["arg.key:/weights/~k1"]) == (["x"], ["x"])


@pytest.mark.parametrize(
    "op", ["", "run", "add", "del:/customer", "del:", "branch:/filter", "branch:/edits=1", "add:/no"]
)
def test_an_edit_that_does_not_fit_changes_nothing(op: str) -> None:
    parsed = parse_form(ORDER, {**form({"customer": "a"}), "_op": [op]})
    draft = apply(parsed.op, ORDER, parsed.draft) if parsed.op else parsed.draft
    assert form(draft) == form({"customer": "a"})


def test_a_condition_shows_the_fields_of_the_value_as_it_is() -> None:
    schema = {
        "type": "object",
        "properties": {"mode": {"enum": ["file", "web"], "default": "web"}},
        "required": ["mode"],
        "if": {"properties": {"mode": {"const": "file"}}},
        "then": {"properties": {"path": {"type": "string"}}, "required": ["path"]},
        "else": {"properties": {"url": {"type": "string"}}},
    }
    assert "arg:/url" in form(ABSENT, schema)
    changed = {**form(ABSENT, schema), "arg:/mode": ["0"], "_op": ["refresh:"]}
    parsed = parse_form(schema, changed)
    assert parsed.op is not None
    assert "arg:/path" in form(apply(parsed.op, schema, parsed.draft), schema)


def test_an_error_is_at_its_field_and_in_the_summary_with_a_link_to_it() -> None:
    node = compile_form(ORDER, {"customer": "a", "limit": 900}, {"/limit": ["Must be 500 or less."]})
    html = render_form(node)
    field = next(given for tag, given in parsed_html(html).tags if given.get("name") == "arg:/limit")
    assert field["aria-invalid"] == "true"
    assert field["aria-describedby"].split() == [f"{field['id']}_help", f"{field['id']}_error"]
    summary = parsed_html(render_errors(node))
    assert ("a", {"href": f"#{field['id']}"}) in summary.tags
    assert "tabindex" in dict(summary.tags)["div"] or any("tabindex" in given for _, given in summary.tags)


def test_an_error_without_a_field_of_its_own_goes_to_the_nearest_above() -> None:
    node = compile_form(
        ORDER, {"customer": "a", "extra": {"x": 1}}, {"/extra/x/y": ["Too odd."], "/zz": ["Not allowed."]}
    )
    assert "/x/y: Too odd." in render_form(node)
    assert "/zz: Not allowed." in render_form(node)


def test_an_error_in_a_field_that_is_not_sent_opens_its_disclosure() -> None:
    tags = parsed_html(render_form(compile_form(ORDER, {"customer": "a"}, {"/limit": ["Required."]}))).tags
    assert "open" in next(given for tag, given in tags if tag == "details")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "Line 1, column 1: no JSON value is given."),
        ('{"a": 1,\n"b" 2}', "Line 2, column 5: a colon is missing after the key."),
        ('{"a": 1, "a": 2}', 'The key "a" appears twice.'),
        ("[NaN]", "NaN is not a JSON value."),
        ("-Infinity", "-Infinity is not a JSON value."),
        ("1e400", "A number is too large."),
        ("[" * 100 + "]" * 100, "Nested more than 64 levels deep, which is a fixed limit."),
        ("[" * 100_000, "Nested too deeply."),
    ],
)
def test_json_text_that_cannot_be_sent_says_why_and_where(text: str, message: str) -> None:
    parsed = parse_json(text)
    assert parsed.errors == {"": [message]}
    assert parsed.value is ABSENT


def test_json_text_keeps_integers_of_any_size() -> None:
    assert parse_json("[12345678901234567890123]").value == [12345678901234567890123]
