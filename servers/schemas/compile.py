"""A schema and a value become the form to show. Stateless: the same two give the same tree."""

from collections.abc import Callable, Mapping
from typing import Any

from servers.json.text import Json, depth
from servers.schemas import leaves
from servers.schemas.branches import begin, choose
from servers.schemas.errors import attach
from servers.schemas.kinds import (
    AnyJson,
    Array,
    Chips,
    Choice,
    Fixed,
    Kind,
    Number,
    Object,
    Switch,
    Text,
    Union,
    classify,
    is_leaf,
)
from servers.schemas.labels import hints, snippet
from servers.schemas.match import fits
from servers.schemas.merge import Flat
from servers.schemas.nodes import AbsentNode, ArrayNode, JsonNode, Node, ObjectNode, UnionNode
from servers.schemas.pointer import NodePlace
from servers.schemas.resolve import Condition, Document
from servers.schemas.secrets import holds_secret, is_secret
from servers.schemas.shapes import Schema, Unsupported, required_of, text_of
from servers.schemas.values import ABSENT, FRESH, Branch, Draft, PendingKey, Unread, is_type, loose

MAX_DEPTH = 14
MAX_NODES = 2_000
MAX_SCHEMA_DEPTH = 200
_INITIAL_ITEMS = 5


def compile_form(schema: Schema, value: Draft = ABSENT, errors: Mapping[str, list[str]] | None = None) -> Node:
    """The form of `value`, or of a new value when it is ABSENT.

    `value` is JSON, or the draft of a Parsed (which keeps unreadable text and chosen branches). `errors` maps JSON
    pointers to sentences; one whose value has no node of its own goes to the nearest node above it. Never raises for
    a schema: what cannot become a form becomes a JSON control, for that node alone where possible.
    """
    value = FRESH if value is ABSENT else value
    if depth(schema, MAX_SCHEMA_DEPTH) > MAX_SCHEMA_DEPTH:
        root = leaves.json_node({}, value, NodePlace(), True, "The schema is nested too deeply to become a form.")
        root.secret = holds_secret(schema)
    else:
        root = _Builder(schema).node(schema, value, NodePlace(), required=True)
    attach(root, errors or {})
    return root


class _Builder:
    def __init__(self, schema: Schema) -> None:
        self._document = Document(schema)
        self._left = MAX_NODES - 1
        self._has_secrets = holds_secret(schema)

    def node(self, schema: Schema, draft: Draft, at: NodePlace, *, required: bool, removable: bool = False) -> Node:
        decisions: list[str] = []
        try:
            flat = self._document.effective(schema, self._decide(schema, draft, decisions))
        except Unsupported as problem:
            made: Node = leaves.json_node({}, draft, at, required, str(problem))
            flat = schema if isinstance(schema, dict) else {}
        else:
            made = self._made(flat, draft, at, required)
        made.path, made.pointer, made.key = at.path, at.pointer, at.key
        made.decisions = "".join(decisions)
        made.secret = is_secret(flat) or (self._has_secrets and isinstance(made, JsonNode))
        made.required, made.optional, made.removable = required, not required, removable
        _describe(made, flat)
        return made

    def _decide(self, schema: Schema, draft: Draft, decisions: list[str]) -> Callable[[Condition], bool]:
        def decide(condition: Condition) -> bool:
            value = loose(draft)
            if value is ABSENT or isinstance(value, dict):
                value = {**self._prefilled(schema), **(value or {} if value is not ABSENT else {})}
            decisions.append("1" if fits(self._document, condition.test, value) else "0")
            return decisions[-1] == "1"

        return decide

    def _prefilled(self, schema: Schema) -> dict[str, Any]:
        """What the required fields of a new object will show: conditions look at it."""
        flat, _ = self._document.flatten(schema)
        required = ((key, flat.get("properties", {}).get(key)) for key in required_of(flat))
        return {
            key: sub.get("default", sub.get("const"))
            for key, sub in required
            if isinstance(sub, dict) and ("default" in sub or "const" in sub)
        }

    def _made(self, flat: Flat, draft: Draft, at: NodePlace, required: bool) -> Node:
        try:
            kind = classify(self._document, flat)
            node = self._of_kind(kind, flat, draft, at, required)
            if "default" in flat:
                node.default = _shown_default(kind, flat["default"])
            return node
        except Unsupported as problem:
            return leaves.json_node(flat, draft, at, required, str(problem))

    def _of_kind(self, kind: Kind, flat: Flat, draft: Draft, at: NodePlace, required: bool) -> Node:
        if at.depth > MAX_DEPTH:
            raise Unsupported(f"Nested more than {MAX_DEPTH} levels deep.")
        if isinstance(draft, Unread) and draft.raw:
            reason = (
                kind.reason if isinstance(kind, AnyJson) else "The earlier value did not fit the fields of this part."
            )
            return leaves.json_node(flat, draft, at, required, reason)
        if draft is ABSENT and not required and not self._leaf(kind):
            return AbsentNode(sent=False, list_of=isinstance(kind, Array))
        if draft is FRESH or (draft is ABSENT and required):
            draft = self._initial(kind, flat, added=draft is FRESH)
        if isinstance(kind, Union):
            return self._union(kind, flat, draft, at, required)
        if isinstance(kind, Object):
            return self._object(kind, draft, at)
        if isinstance(kind, Array):
            return self._array(kind, draft, at)
        if isinstance(kind, Chips) and not leaves.as_chips(kind, draft):
            return self._array(Array((), kind.items), draft, at)
        return _leaf_node(kind, flat, draft, at, required)

    def _leaf(self, kind: Kind) -> bool:
        return is_leaf(self._document, kind, lambda schema: self._document.flatten(schema)[0])

    def _initial(self, kind: Kind, flat: Flat, *, added: bool) -> Draft:
        """The value of a node that is sent but new: the default, else an empty container, else nothing yet. A person
        who adds a node wants something other than a default of null, which is what leaving it out means."""
        may_be_null = isinstance(kind, Choice | AnyJson) or (isinstance(kind, Union) and not added)
        if "default" in flat and not isinstance(kind, Fixed) and (may_be_null or flat["default"] is not None):
            return flat["default"]
        if isinstance(kind, Object):
            return {}
        if isinstance(kind, Union):
            return FRESH
        if isinstance(kind, Array):
            least = flat.get("minItems", len(kind.leading))
            return [FRESH] * min(least if isinstance(least, int) else 0, _INITIAL_ITEMS)
        return kind.value if isinstance(kind, Fixed) else ABSENT

    def _reserve(self, count: int) -> None:
        if count > self._left:
            raise Unsupported(f"The form would have more than {MAX_NODES:,} fields.")
        self._left -= count

    def _union(self, kind: Union, flat: Flat, draft: Draft, at: NodePlace, required: bool) -> Node:
        self._reserve(1)
        index = choose(self._document, kind, draft)
        inner = draft.value if isinstance(draft, Branch) else draft
        if inner is ABSENT and not required:
            child = self.node(kind.branches[index], ABSENT, at.branch(index), required=False)
            child = child if not isinstance(child, AbsentNode) else leaves.json_node(flat, ABSENT, at, False, "")
        else:
            inner = begin(kind, index) if inner is ABSENT or inner is FRESH else inner
            child = self.node(kind.branches[index], inner, at.branch(index), required=True)
        child.optional = child.removable = False
        child.title = kind.labels[index]
        return UnionNode(
            labels=list(kind.labels),
            index=index,
            leaf_like=self._leaf(kind),
            child=child,
            draft=draft,
            sent=required or draft is not ABSENT,
        )

    def _object(self, kind: Object, draft: Draft, at: NodePlace) -> Node:
        if not isinstance(draft, dict):
            raise Unsupported("The value is not an object.")
        free = [key for key in draft if key not in kind.properties]
        if any(isinstance(key, str) and leaves.UNSAFE_LINE.search(key) for key in free):
            raise Unsupported("A property's name has characters that a text field would change.")
        self._reserve(len(kind.properties) + len(free))
        known = [
            self.node(sub, draft.get(key, ABSENT), at.property(key), required=key in kind.required)
            for key, sub in kind.properties.items()
        ]
        rows = [self._row(kind, draft, key, at, number) for number, key in enumerate(free)]
        return ObjectNode(properties=known, rows=rows, offers_keys=kind.offers_keys, draft=draft)

    def _row(self, kind: Object, draft: dict[Any, Draft], key: "str | PendingKey", at: NodePlace, number: int) -> Node:
        text = key.text if isinstance(key, PendingKey) else key
        node = self.node(kind.extra, draft[key], at.row(number, text), required=True, removable=True)
        node.row_key, node.row_blank = text, key == ""
        return node

    def _array(self, kind: Array, draft: Draft, at: NodePlace) -> Node:
        if not isinstance(draft, list):
            raise Unsupported("The value is not a list.")
        self._reserve(len(draft))
        items = [
            self.node(kind.at(index), FRESH if item is ABSENT else item, at.item(index), required=True, removable=True)
            for index, item in enumerate(draft)
        ]
        return ArrayNode(items=items, draft=draft, can_add=kind.at(len(draft)) is not False)


def _leaf_node(kind: Kind, flat: Flat, draft: Draft, at: NodePlace, required: bool) -> Node:
    if isinstance(kind, Text):
        return leaves.text_node(flat, draft, at, required)
    if isinstance(kind, Number):
        return leaves.number_node(kind, flat, draft, at, required)
    if isinstance(kind, Switch):
        return leaves.switch_node(flat, draft, at, required)
    if isinstance(kind, Fixed):
        return leaves.fixed_node(kind, flat, draft, at, required)
    if isinstance(kind, Choice):
        return leaves.choice_node(kind, draft, required)
    if isinstance(kind, Chips):
        return leaves.chips_node(kind, draft, required)
    if not isinstance(kind, AnyJson):
        raise TypeError(f"no control for {type(kind).__name__}")
    return leaves.json_node(flat, draft, at, required, kind.reason)


def _shown_default(kind: Kind, value: Json) -> str:
    """The default as the control shows it: an option by its label."""
    if isinstance(kind, Choice) and (index := kind.index(value)) is not None:
        return kind.options[index].label
    if isinstance(kind, Chips) and isinstance(value, list) and value:
        return ", ".join(_shown_default(kind.choice, item) for item in value)
    return snippet(value)


def _describe(node: Node, flat: Flat) -> None:
    node.title = text_of(flat, "title", 120) or node.key
    node.help = text_of(flat, "description", 2_000)
    if "default" in flat and not node.default:
        node.default = snippet(flat["default"])
    rest = hints(flat, node.default if node.optional else "")
    node.hint = f"{leaves.options_hint(node, flat)} {rest}".strip()
    node.type_label = node.type_label or _type_label(node, flat)


def _type_label(node: Node, flat: Flat) -> str:
    if isinstance(node, ArrayNode):
        return f"array, {len(node.items)} item{'' if len(node.items) == 1 else 's'}"
    if isinstance(node, UnionNode):
        return f"one of {len(node.labels)}"
    if isinstance(node, AbsentNode):
        return "array" if node.list_of else "object" if is_type({}, str(flat.get("type"))) else "one of several"
    return node.kind
