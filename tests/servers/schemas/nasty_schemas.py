"""Schemas written to break a form. Each name is the point that its schema makes."""

from dataclasses import dataclass
from typing import Any

TEXT, INTEGER, NUMBER, BOOLEAN = ({"type": word} for word in ("string", "integer", "number", "boolean"))
DRAFT_04 = "http://json-schema.org/draft-04/schema#"
DRAFT_06 = "http://json-schema.org/draft-06/schema#"
DRAFT_07 = "http://json-schema.org/draft-07/schema#"
DRAFT_2019 = "https://json-schema.org/draft/2019-09/schema"
DRAFT_2020 = "https://json-schema.org/draft/2020-12/schema"


@dataclass(frozen=True)
class Nasty:
    """`shown`: "form", "parts" (some parts are JSON) or "json" (all is), for the values together.

    `unable`: the checker cannot judge, and says so; otherwise each value is valid.
    """

    name: str
    schema: Any
    values: tuple[Any, ...]
    shown: str = "form"
    unable: bool = False

    def __str__(self) -> str:
        return self.name


def of(properties: dict[str, Any], *required: str, **more: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required), **more}


def each_x(*values: Any) -> tuple[Any, ...]:
    return tuple({"x": value} for value in values)


def deep(levels: int, inner: Any, wrap: Any) -> Any:
    for _ in range(levels):
        inner = wrap(inner)
    return inner


NODE = of({"name": TEXT, "children": {"type": "array", "items": {"$ref": "#"}}}, "name")
MUTUAL = {
    "type": "object",
    "properties": {"a": {"$ref": "#/$defs/a"}},
    "$defs": {"a": of({"b": {"$ref": "#/$defs/b"}}), "b": of({"a": {"$ref": "#/$defs/a"}, "end": TEXT})},
}
ODD_NAMES = {
    "dots": "a.b.c", "slashes": "a/b/c", "tildes": "~0~1~", "spaces": "  a  b  ", "emoji": "👩‍👩‍👧 🙂", "rtl": "שלום עולם",
    "rtl-override": "\u202egnp.exe", "empty": "", "line-breaks": "a\nb\r\nc", "nul": "a\0b", "quotes": "\"'`<>&",
    "brackets": "a[0][b]", "pointer-like": "~k0", "branch-like": "~b1", "dunder-proto": "__proto__",
    "constructor": "constructor", "to-string": "toString", "has-own": "hasOwnProperty", "op": "_op", "csrf": "csrfmiddlewaretoken",
    "colon": "arg:/x", "percent": "%2F%00", "combining": "e\u0301", "zero-width": "a\u200bb", "template": "{{ x }}{% y %}",
    "very-long": "n" * 500, "number": "0", "lone-surrogate": "\ud800",
}  # fmt: skip
NAMES = [
    Nasty(
        f"property-name-{label}",
        of({name: TEXT, "plain": INTEGER}, name),
        ({name: "x"}, {name: "", "plain": 1}),
        unable="surrogate" in label,
    )
    for label, name in ODD_NAMES.items()
]
FREE_NAMES = [
    Nasty(f"free-key-{label}", {"type": "object", "additionalProperties": TEXT}, ({name: "x"}, {name: "", "other": "y"}), shown, label == "surrogate")
    for label, name, shown in (
        ("empty", "", "form"), ("slashes", "a/b~c", "form"), ("rtl", "שלום", "form"), ("dunder-proto", "__proto__", "form"),
        ("line-break", "a\nb", "json"), ("carriage-return", "a\rb", "json"), ("nul", "a\0b", "json"), ("surrogate", "\udfff", "json"),
    )
]  # fmt: skip
REFERENCES = [
    Nasty("recursive-root-ref", NODE, ({"name": "a"}, {"name": "a", "children": [{"name": "b", "children": []}]})),
    Nasty("recursive-ref-beyond-the-depth-of-a-form", NODE, (deep(12, {"name": "x"}, lambda v: {"name": "n", "children": [v]}),), "parts"),
    Nasty("mutually-recursive-refs", MUTUAL, ({}, {"a": {"b": {"a": {"b": {"end": "x"}}}}})),
    Nasty("ref-with-escaped-slash-and-tilde", of({"x": {"$ref": "#/$defs/a~1b~0c"}}, "x", **{"$defs": {"a/b~c": INTEGER}}), ({"x": 5},)),
    Nasty("ref-with-percent-escapes", of({"x": {"$ref": "#/$defs/a%20b%25"}}, "x", **{"$defs": {"a b%": INTEGER}}), ({"x": 5},)),
    Nasty("ref-into-a-list-of-branches", {"properties": {"x": {"anyOf": [INTEGER, TEXT]}, "y": {"$ref": "#/properties/x/anyOf/1"}}}, ({"x": "a", "y": "b"},)),
    Nasty("ref-with-siblings-2020-12", of({"x": {"$ref": "#/$defs/n", "minimum": 3}}, "x", **{"$defs": {"n": INTEGER}}), ({"x": 3},)),
    Nasty("ref-with-siblings-that-draft-07-ignores", of({"x": {"$ref": "#/definitions/n", "minimum": 3}}, "x", definitions={"n": INTEGER}, **{"$schema": DRAFT_07}), ({"x": 3}, {"x": 1})),
    Nasty("ref-to-a-missing-definition", of({"x": {"$ref": "#/$defs/none"}, "y": TEXT}), ({"x": [1], "y": "a"}, {}), "parts", True),
    Nasty("ref-to-itself", of({"x": {"$ref": "#/$defs/x"}}, **{"$defs": {"x": {"$ref": "#/$defs/x"}}}), ({"x": {"any": 1}},), "parts"),
    Nasty("ref-in-a-ring-of-three", of({"x": {"$ref": "#/$defs/a"}}, **{"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/c"}, "c": {"$ref": "#/$defs/a"}}}), ({"x": 1},), "parts"),
    Nasty("ref-over-http-is-never-fetched", of({"x": {"$ref": "https://example.com/schema.json#/a"}, "y": TEXT}), ({"x": {"a": 1}, "y": "b"}, {}), "parts", True),
    Nasty("ref-to-a-file-is-never-read", of({"x": {"$ref": "file:///etc/passwd"}}), ({"x": "a"},), "parts", True),
    Nasty("ref-relative-to-an-id", of({"x": {"$ref": "other.json"}}, **{"$id": "https://example.com/root.json"}), ({"x": "a"},), "parts", True),
    Nasty("ref-to-the-own-id", of({"x": {"$ref": "https://example.com/root.json#/$defs/n"}}, **{"$id": "https://example.com/root.json", "$defs": {"n": INTEGER}}), ({"x": 4},)),
    Nasty("ref-to-an-anchor", of({"x": {"$ref": "#n"}}, **{"$defs": {"n": {"$anchor": "n", **INTEGER}}}), ({"x": 4},)),
    Nasty("ref-to-a-dynamic-anchor", {"$dynamicAnchor": "node", **of({"sub": {"$dynamicRef": "#node"}, "v": INTEGER})}, ({"v": 1, "sub": {"sub": {"v": 2}}},)),
    Nasty("ref-is-not-text", of({"x": {"$ref": 5}}), ({"x": "a"},), "parts", True),
    Nasty("ref-chain-of-twenty", of({"x": {"$ref": "#/$defs/d0"}}, **{"$defs": {f"d{n}": {"$ref": f"#/$defs/d{n + 1}"} for n in range(20)} | {"d20": INTEGER}}), ({"x": 1},), "parts"),
]  # fmt: skip
UNIONS = [
    Nasty("anyof-with-overlapping-branches", of({"x": {"anyOf": [TEXT, {"type": "string", "minLength": 3}, {"type": ["string", "integer"]}]}}, "x"), ({"x": "abcd"}, {"x": 5})),
    Nasty("oneof-told-apart-by-a-constant", of({"x": {"oneOf": [of({"kind": {"const": k}, k: TEXT}, "kind", k) for k in ("file", "url")]}}, "x"), ({"x": {"kind": "url", "url": "u"}}, {"x": {"kind": "file", "file": ""}})),
    Nasty("oneof-told-apart-by-required-only", of({"x": {"oneOf": [of({"a": TEXT}, "a"), of({"b": TEXT}, "b")]}}, "x"), ({"x": {"b": "z"}}, {"x": {"a": "z"}})),
    Nasty("anyof-of-all-types", of({"x": {"anyOf": [TEXT, NUMBER, BOOLEAN, {"type": "null"}, {"type": "array"}, {"type": "object"}]}}, "x"), each_x("", 0, -0.5, False, None, [1, "a"], {"k": 1}), "parts"),
    Nasty("nullable-by-anyof", of({"x": {"anyOf": [TEXT, {"type": "null"}], "default": None}}), ({}, {"x": None}, {"x": ""}, {"x": "null"})),
    Nasty("nullable-by-a-type-list", of({"x": {"type": ["null", "integer"]}}), ({}, {"x": None}, {"x": 0})),
    Nasty("nullable-openapi-style", of({"x": {"type": "string", "nullable": True}}), ({"x": "a"},)),
    Nasty("type-list-of-seven", of({"x": {"type": ["string", "number", "integer", "boolean", "null", "array", "object"]}}, "x"), each_x("1", 1, 1.5, True, None, [], {})),
    Nasty("anyof-beside-oneof", of({"x": {"anyOf": [TEXT, INTEGER], "oneOf": [TEXT, BOOLEAN]}}), ({"x": "a"},), "parts"),
    Nasty("anyof-of-true-and-false", of({"x": {"anyOf": [False, True]}}), ({"x": [1]}, {}), "parts"),
    Nasty("anyof-of-120-branches", of({"x": {"anyOf": [{"const": f"c{n}"} if n else INTEGER for n in range(120)]}}), ({"x": "c7"}, {"x": 4}), "parts"),
    Nasty("anyof-inside-anyof-inside-anyof", of({"x": {"anyOf": [INTEGER, {"anyOf": [BOOLEAN, {"anyOf": [TEXT, {"type": "null"}]}]}]}}, "x"), ({"x": "a"}, {"x": None}, {"x": True}, {"x": 1})),
    Nasty("oneof-of-constants-with-titles", of({"x": {"oneOf": [{"const": n, "title": f"Number {n}"} for n in range(3)]}}, "x"), ({"x": 0}, {"x": 2})),
    Nasty("oneof-of-constants-of-mixed-types", of({"x": {"oneOf": [{"const": v} for v in (1, "1", None, True, [1], {"a": 1})]}}, "x"), each_x(1, "1", None, True, [1], {"a": 1})),
    Nasty("union-of-arrays", of({"x": {"anyOf": [{"type": "array", "items": INTEGER}, {"type": "array", "items": TEXT}]}}, "x"), ({"x": ["a"]}, {"x": [1]}, {"x": []})),
    Nasty("root-is-a-union", {"type": "object", "oneOf": [of({"a": TEXT}, "a", additionalProperties=False), of({"b": INTEGER}, "b", additionalProperties=False)]}, ({"b": 3}, {"a": "x"})),
    Nasty("empty-anyof", of({"x": {"anyOf": []}, "y": TEXT}), ({"x": 1, "y": "a"},), "parts", True),
    Nasty("not-a-string", of({"x": {"not": {"type": "string"}}}, "x"), ({"x": 1}, {"x": None}), "parts"),
]  # fmt: skip
COMBINED = [
    Nasty("allof-merges-bounds", of({"x": {"allOf": [{**INTEGER, "minimum": 1}, {"maximum": 9}, {"minimum": 3}]}}, "x"), ({"x": 3}, {"x": 9})),
    Nasty("allof-of-objects", {"allOf": [of({"a": TEXT}, "a"), of({"b": INTEGER}, "b"), {"$ref": "#/$defs/c"}], "$defs": {"c": of({"c": BOOLEAN})}}, ({"a": "", "b": 0}, {"a": "x", "b": 1, "c": False})),
    Nasty("allof-that-nothing-can-satisfy", of({"x": {"allOf": [TEXT, INTEGER]}}), ({},), "parts"),
    Nasty("allof-with-two-unions", of({"x": {"allOf": [{"anyOf": [TEXT, INTEGER]}, {"anyOf": [INTEGER, BOOLEAN]}]}}), ({"x": 4},), "parts"),
    Nasty("allof-narrows-an-enum", of({"x": {"allOf": [{"enum": ["a", "b", "c"]}, {"enum": ["b", "c", "d"]}]}}, "x"), ({"x": "b"}, {"x": "c"})),
    Nasty("if-then-else", of({"mode": {"enum": ["a", "b"]}}, "mode", **{"if": {"properties": {"mode": {"const": "a"}}}, "then": of({"path": TEXT}, "path"), "else": of({"url": TEXT}, "url")}), ({"mode": "a", "path": "p"}, {"mode": "b", "url": "u"})),
    Nasty("if-without-then-or-else", of({"x": TEXT}, **{"if": {"required": ["x"]}}), ({"x": "a"}, {})),
    Nasty("if-nested-in-then", of({"a": BOOLEAN, "b": BOOLEAN}, **{"if": {"properties": {"a": {"const": True}}, "required": ["a"]}, "then": {"if": {"properties": {"b": {"const": True}}, "required": ["b"]}, "then": of({"c": INTEGER}, "c")}}), ({"a": True, "b": True, "c": 5}, {"a": True, "b": False}, {})),
    Nasty("forty-conditions", of({"x": TEXT}, allOf=[{"if": {"properties": {"x": {"const": str(n)}}, "required": ["x"]}, "then": of({f"y{n}": INTEGER})} for n in range(40)]), ({"x": "7", "y7": 1},), "json"),
    Nasty("dependent-required", of({"card": TEXT, "address": TEXT}, dependentRequired={"card": ["address"]}), ({}, {"address": "b"}, {"card": "1", "address": "b"})),
    Nasty("dependent-schemas", of({"card": TEXT}, dependentSchemas={"card": of({"cvc": {"type": "string", "pattern": "^[0-9]{3}$"}}, "cvc")}), ({}, {"card": "1", "cvc": "123"})),
    Nasty("dependencies-of-both-kinds-draft-07", of({"a": TEXT, "b": TEXT}, dependencies={"a": ["b"], "b": of({"c": INTEGER}, "c")}, **{"$schema": DRAFT_07}), ({}, {"a": "x", "b": "y", "c": 1})),
    Nasty("properties-that-exclude-each-other", of({"a": TEXT, "b": TEXT}, oneOf=[{"required": ["a"]}, {"required": ["b"]}]), ({"a": "x"}, {"b": ""})),
    Nasty("unevaluated-properties", {"allOf": [of({"a": TEXT})], "properties": {"b": INTEGER}, "unevaluatedProperties": False}, ({"a": "x", "b": 1},)),
]  # fmt: skip
OBJECTS = [
    Nasty("empty-schema", {}, ({}, {"a": [1, None]}), "json"),
    Nasty("true-schema", True, ({"a": 1},), "json"),
    Nasty("false-schema-allows-nothing", of({"x": False, "y": TEXT}), ({"y": "a"}, {})),
    Nasty("true-property", of({"x": True}, "x"), ({"x": [1, {"a": None}]}, {"x": False}), "parts"),
    Nasty("type-object-only", {"type": "object"}, ({}, {"a": 1, "b": [None], "c": {"d": "e"}}), "parts"),
    Nasty("no-type-but-properties", {"properties": {"a": TEXT}}, ({}, {"a": "x"}, {"a": "x", "free": [1]}), "parts"),
    Nasty("required-without-properties", {"type": "object", "required": ["x"]}, ({"x": 1}, {"x": "1"}), "parts"),
    Nasty("required-name-that-is-not-declared", of({"a": TEXT}, "ghost"), ({"ghost": {"x": 1}}, {"ghost": None, "a": ""}), "parts"),
    Nasty("additional-properties-schema", {"type": "object", "additionalProperties": of({"n": INTEGER}, "n")}, ({}, {"a": {"n": 1}, "b/c": {"n": 2}})),
    Nasty("additional-properties-beside-known-ones", of({"id": INTEGER}, "id", additionalProperties={"type": ["string", "null"]}), ({"id": 1}, {"id": 1, "x": None, "y": "null"})),
    Nasty("closed-and-empty", of({}, additionalProperties=False), ({},)),
    Nasty("pattern-properties", {"type": "object", "patternProperties": {"^x-": TEXT}, "additionalProperties": False}, ({}, {"x-a": "1", "x-": ""})),
    Nasty("two-pattern-properties", {"type": "object", "patternProperties": {"^s": TEXT, "^i": INTEGER}}, ({"s1": "a", "i1": 4, "z": [1]},), "parts"),
    Nasty("pattern-property-that-never-ends", {"type": "object", "patternProperties": {"^(a+)+$": TEXT}}, ({"aaa": "x"},)),
    Nasty("property-names-restricted", {"type": "object", "propertyNames": {"pattern": "^[a-z]+$"}, "additionalProperties": INTEGER}, ({}, {"abc": 1})),
    Nasty("min-and-max-properties", {"type": "object", "additionalProperties": INTEGER, "minProperties": 1, "maxProperties": 2}, ({"a": 1}, {"a": 1, "b": 2})),
    Nasty("2000-properties", of({f"p{n}": TEXT for n in range(2_000)}), ({}, {"p1999": "x", "p0": ""}), "json", True),
    Nasty("900-properties", of({f"p{n}": TEXT for n in range(900)}), ({}, {"p899": "x", "p0": ""})),
    Nasty("60-levels-deep", deep(60, TEXT, lambda s: of({"x": s}, "x")), (deep(60, "end", lambda v: {"x": v}),), "parts", True),
    Nasty("13-levels-deep", deep(13, TEXT, lambda s: of({"x": s}, "x")), (deep(13, "end", lambda v: {"x": v}),)),
    Nasty("300-levels-deep", deep(300, TEXT, lambda s: of({"x": s})), ({}, {"x": {"x": {}}}), "json", True),
    Nasty("property-called-properties", of({"properties": of({"type": TEXT}), "type": TEXT, "$ref": TEXT, "required": BOOLEAN}, "$ref"), ({"$ref": "#/x", "type": "object", "properties": {"type": "a"}, "required": True},)),
]  # fmt: skip
ARRAYS = [
    Nasty("prefix-items-closed", of({"x": {"type": "array", "prefixItems": [TEXT, INTEGER], "items": False}}, "x"), ({"x": ["a", 1]}, {"x": ["a"]}, {"x": []})),
    Nasty("prefix-items-open", of({"x": {"prefixItems": [BOOLEAN], "items": TEXT}}, "x"), ({"x": [True, "a", "b"]}, {"x": [False]})),
    Nasty("tuple-of-draft-07", of({"x": {"items": [TEXT, INTEGER], "additionalItems": BOOLEAN}}, "x", **{"$schema": DRAFT_07}), ({"x": ["a", 1, True]}, {"x": []})),
    Nasty("array-without-items", of({"x": {"type": "array"}}, "x"), ({"x": []}, {"x": [1, "a", None, [], {}]}), "parts"),
    Nasty("array-of-anything", of({"x": {"type": "array", "items": {}}}, "x"), ({"x": [1, "1", [None]]},), "parts"),
    Nasty("array-of-arrays-of-arrays", of({"x": deep(5, INTEGER, lambda s: {"type": "array", "items": s})}, "x"), ({"x": [[[[[1, 2]], []]], []]}, {"x": []})),
    Nasty("array-of-enum-with-duplicates", of({"x": {"type": "array", "items": {"enum": ["a", "b", "c"]}}}, "x"), ({"x": ["c", "a", "a"]}, {"x": ["a", "b"]}, {"x": []})),
    Nasty("array-with-contains", of({"x": {"type": "array", "contains": {"const": 7}, "minContains": 2}}, "x"), ({"x": [7, "a", 7]},), "parts"),
    Nasty("array-of-unique-items", of({"x": {"type": "array", "items": NUMBER, "uniqueItems": True}}, "x"), ({"x": [1, 1.5, 2]},)),
    Nasty("array-of-1500-items", of({"x": {"type": "array", "items": INTEGER}}, "x"), ({"x": list(range(1_500))},)),
    Nasty("array-of-2500-items", of({"x": {"type": "array", "items": INTEGER}}, "x"), ({"x": list(range(2_500))},), "parts"),
    Nasty("array-with-at-least-a-million-items", of({"x": {"type": "array", "items": INTEGER, "minItems": 10**6}}), ({},)),
    Nasty("array-of-nullable-texts", of({"x": {"type": "array", "items": {"type": ["string", "null"]}}}, "x"), ({"x": [None, "", "null", "a"]},)),
]  # fmt: skip
LEAVES = [
    Nasty("enum-of-mixed-types", of({"x": {"enum": [1, "1", True, "true", None, "null", 1.5, [], {}, ""]}}, "x"), each_x(1, "1", True, "true", None, "null", 1.5, [], {}, "")),
    Nasty("enum-of-one", of({"x": {"enum": ["only"]}}, "x"), ({"x": "only"},)),
    Nasty("enum-empty", of({"x": {"enum": []}, "y": TEXT}), ({"y": "a"},), "parts"),
    Nasty("enum-with-duplicates", of({"x": {"enum": ["a", "a", "b"]}}, "x"), ({"x": "a"}, {"x": "b"})),
    Nasty("enum-of-1200", of({"x": {"enum": [f"v{n}" for n in range(1_200)]}}, "x"), ({"x": "v1199"},), "parts"),
    Nasty("enum-of-texts-with-spaces-and-line-breaks", of({"x": {"enum": [" ", "a ", " a", "a\nb", "a\r\nb", "\0"]}}, "x"), each_x(" ", "a ", " a", "a\nb", "a\r\nb", "\0")),
    Nasty("enum-of-a-type-that-contradicts-it", of({"x": {"type": "integer", "enum": ["a", 2]}}, "x"), ({"x": 2},)),
    Nasty("const-null", of({"x": {"const": None}}, "x"), ({"x": None},)),
    Nasty("const-object", of({"x": {"const": {"a": [1, {"b": None}]}}}, "x"), ({"x": {"a": [1, {"b": None}]}},)),
    Nasty("const-optional", of({"x": {"const": "v1"}}), ({}, {"x": "v1"})),
    Nasty("type-null", of({"x": {"type": "null"}}), ({}, {"x": None})),
    Nasty("exclusive-minimum-2020-12", of({"x": {**NUMBER, "exclusiveMinimum": 0, "exclusiveMaximum": 1}}, "x"), ({"x": 0.5}, {"x": 5e-324})),
    Nasty("exclusive-minimum-draft-04", of({"x": {**NUMBER, "minimum": 0, "exclusiveMinimum": True}}, "x", **{"$schema": DRAFT_04}), ({"x": 0.5},)),
    Nasty("exclusive-minimum-boolean-in-2020-12-is-invalid", of({"x": {**NUMBER, "minimum": 0, "exclusiveMinimum": True}}, "x"), ({"x": 0.5},), "form", True),
    Nasty("multiple-of-a-tenth", of({"x": {**NUMBER, "multipleOf": 0.1}}, "x"), ({"x": 0.3}, {"x": 4.35 * 2}, {"x": 1000000.1})),
    Nasty("multiple-of-a-tiny-number", of({"x": {**NUMBER, "multipleOf": 1e-8}}, "x"), ({"x": 12391239123},)),
    Nasty("huge-integers", of({"x": INTEGER}, "x"), ({"x": 2**63}, {"x": -(10**300)}, {"x": 9007199254740993})),
    Nasty("huge-and-tiny-numbers", of({"x": NUMBER}, "x"), ({"x": 1.7976931348623157e308}, {"x": 5e-324}, {"x": -0.0}, {"x": 1e22}, {"x": 0.1 + 0.2})),
    Nasty("bounds-beyond-64-bits", of({"x": {**INTEGER, "minimum": -(10**40), "maximum": 10**40}}, "x"), ({"x": 10**39},)),
    Nasty("length-bounds-that-no-text-reaches", of({"x": {**TEXT, "minLength": 10**12}}), ({},)),
    Nasty("text-of-100000-characters", of({"x": TEXT}, "x"), ({"x": "é" * 100_000},)),
    Nasty("texts-that-browsers-change", of({"x": TEXT}, "x"), ({"x": "a\rb"}, {"x": "a\r\nb"}, {"x": "a\0b"}, {"x": "\ud800"}), "parts"),
    Nasty("texts-that-read-as-other-types", of({"x": TEXT}, "x"), each_x("null", "true", "1", "[]", " ", "\n", "\na", "\ufeffa", "a\u2028b")),
    Nasty("text-of-control-characters", of({"x": TEXT}, "x"), ({"x": "\x01\x1b[31m\x7f\x85"},)),
    Nasty("pattern-that-never-ends", of({"x": {**TEXT, "pattern": "^(a+)+$"}}, "x"), ({"x": "aaa"},)),
    Nasty("pattern-that-is-not-one", of({"x": {**TEXT, "pattern": "("}}, "x"), ({"x": "a"},), "form", True),
    Nasty("pattern-with-lookahead", of({"x": {**TEXT, "pattern": "^(?=.*[0-9])(?!x).+$"}}, "x"), ({"x": "a1"},)),
    Nasty("content-encoding-base64", of({"x": {**TEXT, "contentEncoding": "base64", "contentMediaType": "image/png"}}, "x"), ({"x": "aGk="},)),
    *(
        Nasty(f"format-{name}", of({"x": {**TEXT, "format": name}, "y": {**TEXT, "format": name}}, "x"), ({"x": text}, {"x": text, "y": text}))
        for name, text in (
            ("date-time", "2026-11-26T10:20:30.123456+01:00"), ("date", "2026-02-28"), ("time", "23:59:60Z"), ("duration", "P3DT4H"),
            ("uri", "https://user@example.com:8/ä?q=1#f"), ("uri-template", "/a{?b*}"), ("email", "  Ada@Example.com "),
            ("uuid", "8C1F2F5E-9A43-4C55-8A3E-0D6D1F7C2B11"), ("byte", "aGk="), ("binary", "\x01\x02"), ("password", "p ss"),
            ("ipv6", "::ffff:192.0.2.7"), ("regex", "^[a-z"), ("color", "#FFaa00"), ("no-such-format", "x"), ("int64", "5"),
        )
    ),
    Nasty("format-date-with-a-value-that-is-none", of({"x": {**TEXT, "format": "date"}}, "x"), ({"x": "tomorrow"}, {"x": "2026-02-30"}, {"x": ""})),
]  # fmt: skip
DIALECTS = [
    Nasty("dialect-draft-04", of({"x": {"$ref": "#/definitions/n"}}, "x", definitions={"n": INTEGER}, id="http://example.com/s", **{"$schema": DRAFT_04}), ({"x": 1},)),
    Nasty("dialect-draft-06", of({"x": {"const": 1}, "y": {**NUMBER, "exclusiveMinimum": 0}}, **{"$schema": DRAFT_06}), ({"x": 1, "y": 0.5},)),
    Nasty("dialect-draft-07", of({"x": {"$ref": "#/definitions/n"}}, definitions={"n": INTEGER}, **{"$schema": DRAFT_07}), ({"x": 1},)),
    Nasty("dialect-2019-09", of({"x": {"$ref": "#/$defs/n"}}, **{"$defs": {"n": INTEGER}, "$schema": DRAFT_2019, "$recursiveAnchor": True}), ({"x": 1},)),
    Nasty("dialect-2020-12", of({"x": {"$ref": "#/$defs/n"}}, **{"$defs": {"n": INTEGER}, "$schema": DRAFT_2020}), ({"x": 1},)),
    Nasty("dialect-2020-12-with-http-and-hash", of({"x": INTEGER}, **{"$schema": "http://json-schema.org/draft/2020-12/schema#"}), ({"x": 1},)),
    Nasty("dialect-unknown", of({"x": INTEGER}, "x", **{"$schema": "https://example.com/my-dialect"}), ({"x": 1},), "form", True),
    Nasty("dialect-is-not-text", of({"x": INTEGER}, "x", **{"$schema": {"a": 1}}), ({"x": 1},), "form", True),
    Nasty("vocabulary-required-but-unknown", of({"x": INTEGER}, "x", **{"$vocabulary": {"https://example.com/v": True}}), ({"x": 1},)),
    Nasty("definitions-and-defs-beside-each-other", of({"x": {"$ref": "#/definitions/n"}, "y": {"$ref": "#/$defs/n"}}, definitions={"n": INTEGER}, **{"$defs": {"n": TEXT}}), ({"x": 1, "y": "1"},)),
    Nasty("recursive-ref-2019-09", {"$schema": DRAFT_2019, "$recursiveAnchor": True, **of({"sub": {"$recursiveRef": "#"}, "v": INTEGER})}, ({"v": 1, "sub": {"v": 2}},)),
    Nasty("required-boolean-draft-03", {"type": "object", "properties": {"x": {"type": "string", "required": True}}}, ({"x": "a"},), "form", True),
    Nasty("type-any-draft-03", of({"x": {"type": "any"}}), ({"x": [1]},), "parts", True),
]  # fmt: skip
BROKEN = [
    Nasty("schema-is-null", None, ({"a": 1},), "json", True),
    Nasty("schema-is-a-list", [TEXT], ({"a": 1},), "json", True),
    Nasty("schema-is-text", "object", ({"a": 1},), "json", True),
    Nasty("schema-is-a-number", 5, ({},), "json", True),
    Nasty("properties-is-a-list", {"type": "object", "properties": [TEXT]}, ({"a": 1},), "json", True),
    Nasty("property-is-text", of({"x": "string", "y": TEXT}), ({"x": 1, "y": "a"},), "parts", True),
    Nasty("property-is-null", of({"x": None, "y": TEXT}), ({"x": 1, "y": "a"},), "parts", True),
    Nasty("type-is-not-a-type", of({"x": {"type": "str"}, "y": TEXT}), ({"x": "a", "y": "b"},), "parts", True),
    Nasty("type-is-a-number", {"type": 5}, ({"x": 1},), "json", True),
    Nasty("required-is-text", {"type": "object", "properties": {"x": TEXT}, "required": "x"}, ({"x": "a"},), "json", True),
    Nasty("required-holds-numbers", {"type": "object", "properties": {"x": TEXT}, "required": [1]}, ({"x": "a"},), "json", True),
    Nasty("enum-is-an-object", of({"x": {"enum": {"a": 1}}}), ({"x": "a"},), "parts", True),
    Nasty("items-is-text", of({"x": {"type": "array", "items": "string"}}), ({"x": ["a"]},), "parts", True),
    Nasty("minimum-is-text", of({"x": {**INTEGER, "minimum": "3"}}, "x"), ({"x": 5},), "form", True),
    Nasty("max-length-is-negative", of({"x": {**TEXT, "maxLength": -1}}, "x"), ({"x": "a"},), "form", True),
    Nasty("title-and-description-are-not-text", of({"x": {**TEXT, "title": {"en": "X"}, "description": ["a"]}, "y": {**TEXT, "title": 5, "description": None}}, "x"), ({"x": "a", "y": "b"},), "form", True),
    Nasty("enum-names-of-another-length", of({"x": {"enum": ["a", "b"], "enumNames": ["A"]}}, "x"), ({"x": "b"},)),
    Nasty("enum-names-are-not-text", of({"x": {"enum": ["a", "b"], "enumNames": [1, {"b": 2}]}}, "x"), ({"x": "b"},)),
    Nasty("default-of-another-type", of({"x": {**INTEGER, "default": "ten"}, "y": {**TEXT, "default": {"a": 1}}}, "x"), ({"x": 5}, {"x": 5, "y": "a"})),
    Nasty("default-that-is-no-option", of({"x": {"enum": ["a"], "default": "z"}, "y": {**BOOLEAN, "default": "yes"}}), ({"x": "a", "y": True}, {})),
    Nasty("default-of-an-array-is-text", of({"x": {"type": "array", "items": TEXT, "default": "a,b"}}), ({"x": ["a"]}, {})),
    Nasty("default-of-the-whole", of({"x": INTEGER}, default={"x": "z", "y": 1}), ({"x": 1}, {})),
    Nasty("examples-is-not-a-list", of({"x": {**TEXT, "examples": "a"}, "y": {**TEXT, "examples": [5, None]}}), ({"x": "a", "y": "b"},), "form", True),
    Nasty("description-of-100000-characters", of({"x": {**TEXT, "title": "t" * 10_000, "description": "d" * 100_000}}), ({"x": "a"},)),
    Nasty("hostile-texts-everywhere", of({"<x>": {**TEXT, "title": "<img src=x onerror=alert(1)>", "description": "</textarea><script>alert(1)</script>", "pattern": "^[<>\"'&]*$", "default": "\"><svg onload=alert(1)>", "examples": ["' autofocus onfocus='alert(1)"]}}, "<x>"), ({"<x>": "<\"'>"},)),
    Nasty("unknown-keywords-with-anything", of({"x": {**TEXT, "x-order": 1, "widget": {"$ref": 5}, "errorMessage": None}}), ({"x": "a"},)),
    Nasty("id-is-not-a-uri", of({"x": INTEGER}, **{"$id": ":::"}), ({"x": 1},), "form", True),
    Nasty("defs-is-a-list", of({"x": INTEGER}, **{"$defs": []}), ({"x": 1},), "json", True),
]  # fmt: skip
ALL = [*NAMES, *FREE_NAMES, *REFERENCES, *UNIONS, *COMBINED, *OBJECTS, *ARRAYS, *LEAVES, *DIALECTS, *BROKEN]
