"""A changed definition is judged by whether it breaks users of the previous one."""

from itertools import pairwise
from typing import Any

import pytest

from servers.schemas.compatibility import TOO_LARGE, Compatibility, check_compatibility
from servers.schemas.schema_reading import Budget, Document, TooLarge

TEXT, NUMBER, INTEGER, NULL = ({"type": word} for word in ("string", "number", "integer", "null"))


def tool(schema: Any = None, output: Any = None, **fields: Any) -> dict[str, Any]:
    described = {"name": "t", "inputSchema": {"type": "object"} if schema is None else schema, **fields}
    return described if output is None else described | {"outputSchema": output}


def taking(properties: dict[str, Any], *required: str, **more: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required), **more}


def of_input(before: Any, after: Any) -> Compatibility:
    return check_compatibility(tool(before), tool(after))


def of_output(before: Any, after: Any) -> Compatibility:
    return check_compatibility(tool(output=before), tool(output=after))


def of_value(before: Any, after: Any) -> Compatibility:
    return of_input(taking({"x": before}), taking({"x": after}))


def constants(*values: Any) -> dict[str, Any]:
    return {"oneOf": [{"const": value, "title": str(value).upper()} for value in values]}


OPEN = [taking({name: TEXT}, name) for name in "ab"]
CLOSED = [{**one, "additionalProperties": False} for one in OPEN]
MARKED = [taking({"kind": {"const": kind}, "a": TEXT}, "kind") for kind in ("x", "y")]


# before, after, judgement as input, judgement as output
VALUES: list[tuple[str, Any, Any, str, str]] = [
    ("type narrowed", {"type": ["string", "null"]}, TEXT, "breaking", "compatible"),
    ("number to integer", NUMBER, INTEGER, "breaking", "compatible"),
    ("integer to number", INTEGER, NUMBER, "compatible", "breaking"),
    ("another type", TEXT, INTEGER, "breaking", "breaking"),
    ("any type to text", {}, TEXT, "breaking", "compatible"),
    ("true to text", True, TEXT, "breaking", "compatible"),
    ("nothing taken", TEXT, False, "breaking", "compatible"),
    ("enum value removed", {"enum": ["a", "b"]}, {"enum": ["a"]}, "breaking", "compatible"),
    ("enum value added", {"enum": ["a"]}, {"enum": ["a", "b"]}, "compatible", "breaking"),
    ("enum came", TEXT, {"type": "string", "enum": ["a"]}, "breaking", "compatible"),
    ("enum went", {"type": "string", "enum": ["a"]}, TEXT, "compatible", "breaking"),
    ("const changed", {"const": 1}, {"const": 2}, "breaking", "breaking"),
    ("true is not 1", {"enum": [True]}, {"enum": [1]}, "breaking", "breaking"),
    ("minimum raised", {**NUMBER, "minimum": 1}, {**NUMBER, "minimum": 2}, "breaking", "compatible"),
    ("minimum lowered", {**NUMBER, "minimum": 2}, {**NUMBER, "minimum": 1}, "compatible", "breaking"),
    ("minimum left out", {**NUMBER, "minimum": 1}, {**NUMBER, "exclusiveMinimum": 1}, "breaking", "compatible"),
    ("maximum came", NUMBER, {**NUMBER, "maximum": 9}, "breaking", "compatible"),
    ("maximum lowered", {**NUMBER, "maximum": 9}, {**NUMBER, "maximum": 8}, "breaking", "compatible"),
    ("maximum open in draft 4", {**NUMBER, "maximum": 9}, {**NUMBER, "maximum": 9, "exclusiveMaximum": True}, "breaking", "compatible"),
    ("length shortened", {**TEXT, "maxLength": 9}, {**TEXT, "maxLength": 8}, "breaking", "compatible"),
    ("length of nought", TEXT, {**TEXT, "minLength": 0}, "compatible", "compatible"),
    ("more items needed", {"type": "array"}, {"type": "array", "minItems": 1}, "breaking", "compatible"),
    ("fewer properties", {"type": "object"}, {"type": "object", "maxProperties": 3}, "breaking", "compatible"),
    ("no item twice", {"type": "array"}, {"type": "array", "uniqueItems": True}, "breaking", "compatible"),
    ("pattern came", TEXT, {**TEXT, "pattern": "^a"}, "breaking", "compatible"),
    ("pattern went", {**TEXT, "pattern": "^a"}, TEXT, "compatible", "breaking"),
    ("pattern changed", {**TEXT, "pattern": "^a"}, {**TEXT, "pattern": "^b"}, "breaking", "breaking"),
    ("format changed", {**TEXT, "format": "date"}, {**TEXT, "format": "time"}, "breaking", "breaking"),
    ("default changed", {**TEXT, "default": "a"}, {**TEXT, "default": "b"}, "compatible", "compatible"),
    ("items narrowed", {"type": "array", "items": NUMBER}, {"type": "array", "items": INTEGER}, "breaking", "compatible"),
    ("items named", {"type": "array"}, {"type": "array", "items": TEXT}, "breaking", "compatible"),
    ("first item narrowed", {"prefixItems": [NUMBER]}, {"prefixItems": [INTEGER]}, "breaking", "compatible"),
    ("first items of draft 7", {"items": [NUMBER]}, {"items": [NUMBER, INTEGER]}, "breaking", "compatible"),
    ("property removed", taking({"a": TEXT}), taking({}), "breaking", "breaking"),
    ("property added", taking({}), taking({"a": TEXT}), "compatible", "compatible"),
    ("required added", taking({}), taking({"a": TEXT}, "a"), "breaking", "compatible"),
    ("now required", taking({"a": TEXT}), taking({"a": TEXT}, "a"), "breaking", "compatible"),
    ("not required", taking({"a": TEXT}, "a"), taking({"a": TEXT}), "compatible", "breaking"),
    ("closed", taking({"a": TEXT}), taking({"a": TEXT}, additionalProperties=False), "breaking", "compatible"),
    ("opened", taking({"a": TEXT}, additionalProperties=False), taking({"a": TEXT}), "compatible", "compatible"),
    ("others narrowed", {"additionalProperties": NUMBER}, {"additionalProperties": INTEGER}, "breaking", "compatible"),
    ("pattern property", {"patternProperties": {"^a": NUMBER}}, {"patternProperties": {"^a": INTEGER}}, "breaking", "compatible"),
    ("may be null too", TEXT, {"anyOf": [TEXT, NULL]}, "compatible", "breaking"),
    ("null not any more", {"anyOf": [TEXT, NULL]}, TEXT, "breaking", "compatible"),
    ("null in two spellings", {"anyOf": [TEXT, NULL]}, {"type": ["string", "null"]}, "compatible", "compatible"),
    ("choices moved", {"anyOf": [TEXT, NULL]}, {"oneOf": [NULL, TEXT]}, "compatible", "compatible"),
    ("a choice narrowed", {"anyOf": [TEXT, NULL]}, {"anyOf": [{**TEXT, "minLength": 3}, NULL]}, "breaking", "compatible"),
    ("an option added", constants("a", "b"), constants("a", "b", "c"), "compatible", "breaking"),
    ("an option added to one", {"oneOf": [{"const": "a"}, NULL]}, {"oneOf": [{"const": "a"}, NULL, {"const": 1}]}, "compatible", "breaking"),
    ("an option among choices", {"anyOf": [{"const": "a"}, NUMBER]}, {"anyOf": [{"const": "a"}, {"const": "b"}, NUMBER]}, "compatible", "breaking"),
    ("options in two spellings", {"enum": ["a", "b"]}, {"anyOf": [{"const": "a"}, {"const": "b"}]}, "compatible", "compatible"),
    ("options and their type", {"enum": ["a", 1]}, {"anyOf": [{**TEXT, "const": "a"}, {**INTEGER, "enum": [1]}]}, "compatible", "compatible"),
    ("options or null", {"enum": ["a", "b", None]}, {"anyOf": [{"enum": ["a", "b"]}, NULL]}, "compatible", "compatible"),
    ("options to text", {"anyOf": [{"enum": ["a"]}, NULL]}, {"anyOf": [TEXT, NULL]}, "compatible", "breaking"),
    ("const and enum", {"const": "a"}, {"const": "a", "enum": ["b"]}, "breaking", "compatible"),
    ("any to one", {"anyOf": [INTEGER, NUMBER]}, {"oneOf": [INTEGER, NUMBER]}, "breaking", "compatible"),
    ("one choice more, which overlaps", {"oneOf": [INTEGER, TEXT]}, {"oneOf": [INTEGER, TEXT, NUMBER]}, "breaking", "breaking"),
    ("one choice more beside an overlap", {"oneOf": [INTEGER, NUMBER]}, {"oneOf": [INTEGER, NUMBER, TEXT]}, "compatible", "breaking"),
    ("a choice widened into another", {"oneOf": [{"enum": ["a"]}, {**TEXT, "minLength": 9}, NULL]}, {"oneOf": [{"enum": ["a"]}, {**TEXT, "minLength": 1}, NULL]}, "breaking", "breaking"),
    ("an option twice", {"anyOf": [{"const": "a"}, {"const": "b"}]}, {"oneOf": [{"enum": ["a", "b"]}, {"const": "b"}]}, "breaking", "compatible"),
    ("any to one with marks", {"anyOf": MARKED}, {"oneOf": MARKED}, "compatible", "compatible"),
    ("any to one of closed ones", {"anyOf": CLOSED}, {"oneOf": CLOSED}, "compatible", "compatible"),
    ("any to one of open ones", {"anyOf": OPEN}, {"oneOf": OPEN}, "breaking", "compatible"),
    ("any to one below a reference", {"anyOf": [{"anyOf": OPEN}, TEXT]}, {"anyOf": [{"oneOf": OPEN}, TEXT]}, "breaking", "compatible"),
    ("allOf tightened", {"allOf": [NUMBER, {"minimum": 1}]}, {"allOf": [NUMBER, {"minimum": 1}, {"minimum": 5}]}, "breaking", "compatible"),
    ("allOf or not", {"allOf": [NUMBER, {"minimum": 1}]}, {**NUMBER, "minimum": 1}, "compatible", "compatible"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("before", "after", "of_in", "of_out"), [row[1:] for row in VALUES], ids=[row[0] for row in VALUES]
)
def test_input_has_to_take_what_it_took_and_output_to_give_what_it_gave(
    before: Any, after: Any, of_in: str, of_out: str
) -> None:
    assert of_value(before, after).change == of_in
    assert of_output(taking({"x": before}), taking({"x": after})).change == of_out


# Removing a property breaks both ways, so adding one is not its mirror image.
MIRRORED = [row for row in VALUES if row[3] != row[4] and row[0] != "required added"]


@pytest.mark.parametrize(("before", "after"), [row[1:3] for row in MIRRORED], ids=[row[0] for row in MIRRORED])
def test_the_other_way_round_the_judgements_are_the_other_way_round(before: Any, after: Any) -> None:
    assert of_value(after, before).change == of_output(taking({"x": before}), taking({"x": after})).change


def test_a_tool_that_stays_as_it_is_or_changes_its_words_is_words_only() -> None:
    before = tool(taking({"title": {**TEXT, "description": "old"}}), description="old", icons=[], annotations={})
    after = tool(
        taking({"title": {**TEXT, "description": "new"}}), description="new", title="T", annotations={"title": "x"}
    )
    assert check_compatibility(before, before) == Compatibility("words", [])
    assert check_compatibility(before, after) == Compatibility("words", [])


def test_a_property_that_is_called_like_a_word_is_none() -> None:
    assert of_input(taking({"description": TEXT}), taking({})).reasons == ["Argument “description” was removed."]


def test_each_choice_beside_several_types_is_compared() -> None:
    before, after = (
        {"type": ["string", "null"], "anyOf": [{"minLength": 3}, {"maxLength": longest}]} for longest in (5, 4)
    )
    assert of_value(before, after).change == "breaking"


def test_an_option_that_comes_or_goes_is_named() -> None:
    assert of_value(constants("a", "b"), constants("a", "b", "c")).reasons == ['Argument “x” also accepts "c".']
    assert of_value(constants("a", "b", 1), constants("a", 1)).reasons == ['Argument “x” no longer accepts "b".']
    assert of_value({"anyOf": [INTEGER, NUMBER]}, {"oneOf": [INTEGER, NUMBER]}).reasons == [
        "Argument “x” must match exactly one of its choices, and these overlap."
    ]


def test_hints_are_words_and_are_reported() -> None:
    after = check_compatibility(tool(annotations={"readOnlyHint": True}), tool(annotations={"destructiveHint": True}))
    assert after == Compatibility("words", ["It is no longer marked read-only.", "It is now marked destructive."])


def test_reasons_name_the_place_and_a_breaking_change_only_what_breaks_it() -> None:
    row = {"type": "array", "items": taking({"id": NUMBER})}
    narrower = {"type": "array", "items": taking({"id": INTEGER, "more": TEXT})}
    found = of_input(taking({"filter": taking({"rows": row})}), taking({"filter": taking({"rows": narrower})}))
    assert found == Compatibility("breaking", ["Argument “filter.rows[].id” accepted number and now accepts integer."])


def test_the_whole_of_the_input_is_named_where_no_property_is() -> None:
    found = of_input(taking({"a": TEXT}), taking({"a": TEXT}, additionalProperties=False))
    assert found.reasons == ["The input no longer accepts properties that it does not list."]


def test_local_references_are_followed_and_their_spelling_does_not_matter() -> None:
    plain = taking({"x": NUMBER})
    by_name = taking({"x": {"$ref": "#/$defs/n"}}, **{"$defs": {"n": NUMBER}})
    by_anchor = taking({"x": {"$ref": "#n"}}, **{"$defs": {"m": {"$anchor": "n", **NUMBER}}})
    by_id = taking({"x": {"$ref": "#n"}}, definitions={"m": {"$id": "#n", **NUMBER}})  # draft-07
    own = "http://example.com/tool.json"
    by_own_address = taking({"x": {"$ref": f"{own}#/$defs/n"}}, **{"$id": f"{own}#", "$defs": {"n": NUMBER}})
    spellings = (plain, by_name, by_anchor, by_id, by_own_address, plain)
    for before, after in pairwise(spellings):
        assert of_input(before, after) == Compatibility(
            "compatible", ["The input schema is written differently but means the same."]
        )
    narrowed = taking({"x": {"$ref": "#/$defs/n"}}, **{"$defs": {"n": INTEGER}})
    assert of_input(by_name, narrowed).reasons == ["Argument “x” accepted number and now accepts integer."]


def test_a_foreign_reference_is_never_fetched_and_another_one_breaks() -> None:
    one, other = ({"$ref": f"https://example.com/{name}.json"} for name in "ab")
    assert of_value(one, one).change == "words"
    assert of_value(one, other).change == "breaking"


def naming(part: Any, **more: Any) -> dict[str, Any]:
    return taking({"x": {"$ref": "part"}}, **{"$defs": {"p": {"$id": "part", **part}}, **more})


def test_a_reference_to_a_part_by_its_own_id_is_followed() -> None:
    assert of_input(taking({"x": NUMBER}), naming(NUMBER)).change == "compatible"
    assert of_input(naming(NUMBER), naming(INTEGER)).reasons == [
        "Argument “x” accepted number and now accepts integer."
    ]
    rooted = {"$id": "http://example.com/tools/t"}
    far = taking({"x": {"$ref": "http://example.com/tools/part"}}, **rooted, **{"$defs": naming(NUMBER)["$defs"]})
    assert of_input(far, naming(INTEGER, **rooted)).reasons == ["Argument “x” accepted number and now accepts integer."]


def test_inside_of_a_part_with_an_id_a_pointer_starts_at_that_part() -> None:
    def schema(real: Any) -> dict[str, Any]:
        part = {"properties": {"y": {"$ref": "#/$defs/s"}}, "$defs": {"s": real}}
        unchanged = naming(part)
        unchanged["$defs"]["s"] = TEXT
        return unchanged

    narrowed = of_input(schema(TEXT), schema({**TEXT, "enum": ["only"]}))
    assert narrowed.reasons == ['Argument “x.y” now accepts only "only".']


DOUBTFUL: dict[str, Any] = {
    "two of one name": lambda part: {"$defs": {"p": {"$id": "part", **NUMBER}, "q": {"$id": "part", **part}}},
    "a part that no reader looks for": lambda part: {"x-parts": {"p": {"$id": "part", **part}}},
    "a value that looks like one": lambda part: {"default": {"$id": "part", **part}},
    "a keyword of a later draft": lambda part: {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "$defs": {"p": {"$id": "part", **part}},
    },
    "a name that a neighbour may hide": lambda part: {
        "$id": "part",
        "$defs": {"p": {"$id": "part", "$ref": "#/$defs/n", "$defs": {"n": part}}},
    },
    "another dialect": lambda part: {
        "$defs": {"p": {"$schema": "http://json-schema.org/draft-04/schema#", "$id": "part", **part}}
    },
}


@pytest.mark.parametrize("more", DOUBTFUL.values(), ids=DOUBTFUL)
def test_a_reference_on_which_readers_would_not_agree_breaks_whatever_else_changes(more: Any) -> None:
    one, other = (taking({"x": {"$ref": "part"}}, **more(part)) for part in (NUMBER, INTEGER))
    assert of_input(one, one).change == "words"
    assert of_input(one, other) == Compatibility(
        "breaking", ["Argument “x” has a reference that cannot be resolved, so it cannot be compared."]
    )


def test_names_that_mean_one_address_are_one() -> None:
    def schema(part: Any) -> dict[str, Any]:
        return taking({"x": {"$ref": "../part"}}, **{"$defs": {"p": {"$id": "./part", **part}}})

    assert of_input(schema(NUMBER), schema(INTEGER)).reasons == [
        "Argument “x” accepted number and now accepts integer."
    ]


@pytest.mark.parametrize(
    "condition",
    [
        {"not": {"$ref": "#/$defs/n"}},
        {"if": {"properties": {"a": {"$ref": "#/$defs/n"}}}, "then": {"required": ["b"]}},
        {"contains": {"$ref": "#/$defs/n"}},
        {"allOf": [{"anyOf": [{"$ref": "#/$defs/n"}]}, {"anyOf": [{"$ref": "#/$defs/n"}, TEXT]}]},
    ],
)
def test_a_condition_that_is_written_alike_changes_with_what_it_refers_to(condition: Any) -> None:
    one, other = (taking({"x": condition}, **{"$defs": {"n": part, "m": TEXT}}) for part in (INTEGER, NUMBER))
    assert of_input(one, other).change == "breaking"
    assert of_input(one, {**one, "$defs": {**one["$defs"], "m": NUMBER}}).change == "compatible"


def test_one_text_of_two_references_is_two_conditions() -> None:
    def schema(second: Any) -> dict[str, Any]:
        parts = [
            {"$id": name, "properties": {"y": {"$ref": "#/$defs/s"}}, "$defs": {"s": part}}
            for name, part in (("one", TEXT), ("two", second))
        ]
        return taking({"x": {"allOf": parts}})

    assert of_input(schema(TEXT), schema({**TEXT, "minLength": 3})).change == "breaking"


def test_a_foreign_reference_may_stay_beside_a_change_only_where_no_part_has_an_id() -> None:
    foreign = {"$ref": "http://json-schema.org/draft-07/schema#"}
    assert of_input(taking({"x": foreign}), taking({"x": foreign, "y": TEXT})).change == "compatible"
    spelled = {"$ref": "http://EXAMPLE.com/part"}  # readers that normalise a URI find it
    one, other = (
        taking({"x": spelled}, **{"$defs": {"p": {"$id": "http://example.com/part", **part}}})
        for part in (NUMBER, INTEGER)
    )
    assert of_input(one, other).change == "breaking"


def tree(leaf: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"leaf": leaf, "next": {"$ref": "#"}, "all": {"items": {"$ref": "#"}}}}


def test_recursive_schemas_are_compared_to_an_end() -> None:
    assert of_input(tree(TEXT), tree(TEXT)).change == "words"
    assert of_input(tree(NUMBER), tree(INTEGER)) == Compatibility(
        "breaking", ["Argument “leaf” accepted number and now accepts integer."]
    )


LOOP = {"$ref": "#/$defs/a"}
DOUBLING = {
    f"d{n}": {"anyOf": [{"$ref": f"#/$defs/d{n + 1}"}, {"properties": {"x": {"$ref": f"#/$defs/d{n + 1}"}}}]}
    for n in range(40)
}
GROWING = {
    "n": {"allOf": [{"properties": {"x": {"$ref": "#/$defs/n"}}}, {"properties": {"x": {"$ref": "#/$defs/n"}}, "a": 1}]}
}
ENDLESS: dict[str, Any] = {
    "a reference to itself": {**LOOP, "$defs": {"a": LOOP}},
    "a choice of itself": {"anyOf": [{"$ref": "#"}, {"$ref": "#"}], "x": 1},
    "choices that double": {"$ref": "#/$defs/d0", "$defs": DOUBLING},
    "an allOf that grows": {"$ref": "#/$defs/n", "$defs": GROWING},
}


@pytest.mark.parametrize("schema", ENDLESS.values(), ids=ENDLESS.keys())
def test_a_schema_without_end_ends_as_breaking_or_as_what_it_is(schema: Any) -> None:
    found = of_input(schema, {**schema, "minProperties": 1, "type": ["object", "null"]})
    assert found.change == "breaking"
    assert found.reasons


def nested(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(levels):
        schema = {"items": schema}
    return schema


def test_what_is_nested_too_deeply_is_not_compared() -> None:
    assert of_value(nested(5_000), nested(5_001)) == Compatibility("breaking", [TOO_LARGE])


def test_what_is_too_large_is_not_compared() -> None:
    huge = taking({f"p{n}": TEXT for n in range(50_000)})
    assert of_input(huge, {**huge, "minProperties": 1}) == Compatibility("breaking", [TOO_LARGE])


NONSENSE: list[Any] = [
    None,
    7,
    "x",
    [],
    [1],
    {"type": 7},
    {"properties": []},
    {"required": {"a": 1}},
    {"enum": "a"},
    {"items": 3},
]
NONSENSE += [
    {"$ref": 7},
    {"$ref": "#/x/9"},
    {"allOf": 1},
    {"anyOf": {}},
    {"minimum": "low"},
    {"additionalProperties": "no"},
]


@pytest.mark.parametrize("schema", NONSENSE, ids=[str(item) for item in NONSENSE])
def test_a_schema_that_is_none_is_judged_all_the_same(schema: Any) -> None:
    assert of_input(schema, taking({"a": TEXT})).change in {"breaking", "compatible", "words"}
    assert of_input(taking({"a": TEXT}), schema).change in {"breaking", "compatible", "words"}
    assert check_compatibility(schema, tool()).change in {"breaking", "compatible", "words"}


def test_hostile_names_and_many_reasons_are_cut() -> None:
    many = taking({f"<img onerror=x>{n}" * 20: TEXT for n in range(200)})
    found = of_input(many, taking({}))
    assert len(found.reasons) == 13
    assert found.reasons[-1] == "And 188 more."
    assert max(map(len, found.reasons)) <= 300


def test_an_output_schema_may_come_and_must_not_go() -> None:
    assert check_compatibility(tool(), tool(output=taking({}))) == Compatibility(
        "compatible", ["The output now has a schema."]
    )
    assert check_compatibility(tool(output=taking({})), tool()) == Compatibility(
        "breaking", ["The output no longer has a schema."]
    )


def test_a_tool_that_has_to_run_as_a_task_breaks_its_callers() -> None:
    found = check_compatibility(tool(), tool(execution={"taskSupport": "required"}))
    assert found == Compatibility("breaking", ["Running it as a task was forbidden and is now required."])
    assert check_compatibility(tool(), tool(execution={"taskSupport": "optional"})).change == "compatible"


def prompt(*arguments: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"name": "p", "arguments": list(arguments), **fields}


def test_a_prompt_breaks_by_an_argument_that_is_required_or_gone() -> None:
    a, b = {"name": "a"}, {"name": "b"}
    assert check_compatibility(prompt(a), prompt({**a, "description": "d"}, title="P")).change == "words"
    assert check_compatibility(prompt(a), prompt(a, b)) == Compatibility("compatible", ["Argument “b” was added."])
    assert check_compatibility(prompt(a, b), prompt(a)) == Compatibility("breaking", ["Argument “b” was removed."])
    needed = check_compatibility(prompt(a), prompt({**a, "required": True}, {**b, "required": True}))
    assert needed.reasons == ["Argument “b” was added and is required.", "Argument “a” is now required."]
    assert check_compatibility(prompt({**a, "required": True}), prompt(a)).change == "compatible"


def test_a_template_breaks_by_other_variables() -> None:
    one = {"uriTemplate": "file:///{path}", "name": "n"}
    found = check_compatibility(one, {"uriTemplate": "file:///{folder}{?q}", "name": "n"})
    assert found.change == "breaking"
    assert found.reasons[0] == "Variable “path” was removed."
    assert check_compatibility(one, {**one, "mimeType": "text/plain"}) == Compatibility(
        "compatible", ["The type was added."]
    )


def test_choices_of_choices_are_spread_out_within_the_budget_only() -> None:
    """Each level doubles them: a schema of a few kilobytes would fill the memory of the worker that compares it."""
    levels = 20
    choices = {
        f"c{n}": {"anyOf": [{"$ref": f"#/$defs/c{n + 1}"}, {"$ref": f"#/$defs/c{n + 1}"}]} for n in range(levels)
    }
    schema = {"$ref": "#/$defs/c0", "$defs": {**choices, f"c{levels}": TEXT}}
    with pytest.raises(TooLarge):
        Document(schema, Budget()).alternatives(schema)
    assert of_input(schema, {**schema, "minProperties": 1}) == Compatibility("breaking", [TOO_LARGE])
