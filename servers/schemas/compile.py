"""A schema and a value become the form to show. Stateless: the same two give the same tree."""

from collections.abc import Mapping
from typing import Any

from servers.json.text import Json, depth
from servers.schemas import leaves
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
from servers.schemas.match import fits, likeness
from servers.schemas.merge import Flat
from servers.schemas.nodes import AbsentNode, ArrayNode, JsonNode, Node, ObjectNode, TextNode, UnionNode
from servers.schemas.pointer import NodePlace
from servers.schemas.resolve import Condition, Document
from servers.schemas.secrets import holds_secret, is_secret
from servers.schemas.shapes import Schema, Unsupported, only_value, required_of, text_of, types_of
from servers.schemas.values import ABSENT, FRESH, Branch, Draft, PendingKey, Unread, is_type, loose, same

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
    if errors:
        _attach(root, errors)
    return root


def _attach(root: Node, errors: Mapping[str, list[str]]) -> None:
    """Put each error on the deepest node of its value, or else, with its location named, on the nearest node above."""
    nodes = {node.pointer: node for node in root.walk()}  # walk goes down: the deepest node for a pointer wins
    for pointer, messages in errors.items():
        place = pointer
        while place not in nodes and place:
            place = place.rpartition("/")[0]
        node, rest = nodes[place if place in nodes else ""], pointer[len(place) :]
        node.errors.extend(f"{rest}: {message}" if rest else message for message in messages)
    for node in nodes.values():
        if isinstance(node, TextNode) and node.errors and isinstance(node.draft, Unread):
            node.may_be_empty = True


class _Builder:
    def __init__(self, schema: Schema) -> None:
        self._document = Document(schema)
        self._left = MAX_NODES - 1
        self._has_secrets = holds_secret(schema)

    def node(self, schema: Schema, draft: Draft, at: NodePlace, *, required: bool, removable: bool = False) -> Node:
        decisions: list[str] = []

        def decide(condition: Condition) -> bool:
            value = loose(draft)
            if value is ABSENT or isinstance(value, dict):
                value = {**self._prefilled(schema), **(value or {} if value is not ABSENT else {})}
            decisions.append("1" if fits(self._document, condition.test, value) else "0")
            return decisions[-1] == "1"

        flat: Flat | None = None
        try:
            flat = self._document.effective(schema, decide)
            kind = classify(self._document, flat)
            made = self._control(kind, flat, draft, at, required)
            if "default" in flat:
                made.default = _shown_default(kind, flat["default"])
        except Unsupported as problem:
            made = leaves.json_node(flat or {}, draft, at, required, str(problem))
        if flat is None:
            flat = schema if isinstance(schema, dict) else {}

        made.path, made.pointer, made.key = at.path, at.pointer, at.key
        made.decisions = "".join(decisions)
        made.secret = is_secret(flat) or (self._has_secrets and isinstance(made, JsonNode))
        made.required, made.optional, made.removable = required, not required, removable
        made.title = text_of(flat, "title", 120) or made.key
        made.help = text_of(flat, "description", 2_000)
        if "default" in flat and not made.default:
            made.default = snippet(flat["default"])
        rest = hints(flat, made.default if made.optional else "")
        made.hint = f"{leaves.options_hint(made, flat)} {rest}".strip()
        made.type_label = made.type_label or _type_label(made, flat)
        return made

    def _prefilled(self, schema: Schema) -> dict[str, Any]:
        """What the required fields of a new object will show: conditions look at it."""
        flat, _ = self._document.flatten(schema)
        required = ((key, flat.get("properties", {}).get(key)) for key in required_of(flat))
        return {
            key: sub.get("default", sub.get("const"))
            for key, sub in required
            if isinstance(sub, dict) and ("default" in sub or "const" in sub)
        }

    def _control(self, kind: Kind, flat: Flat, draft: Draft, at: NodePlace, required: bool) -> Node:
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
        match kind:
            case Union():
                return self._union(kind, flat, draft, at, required)
            case Object():
                return self._object(kind, draft, at)
            case Array():
                return self._array(kind, draft, at)
            case Text():
                return leaves.text_node(flat, draft, at, required)
            case Number():
                return leaves.number_node(kind, flat, draft, at, required)
            case Switch():
                return leaves.switch_node(flat, draft, at, required)
            case Fixed():
                return leaves.fixed_node(kind, flat, draft, at, required)
            case Choice():
                return leaves.choice_node(kind, draft, required)
            case Chips():
                if not leaves.as_chips(kind, draft):
                    return self._array(Array((), kind.items), draft, at)
                return leaves.chips_node(kind, draft, required)
            case AnyJson():
                return leaves.json_node(flat, draft, at, required, kind.reason)

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
        index = _choose(self._document, kind, draft)
        inner = draft.value if isinstance(draft, Branch) else draft
        if inner is ABSENT and not required:
            child = self.node(kind.branches[index], ABSENT, at.branch(index), required=False)
            child = child if not isinstance(child, AbsentNode) else leaves.json_node(flat, ABSENT, at, False, "")
        else:
            if inner is ABSENT or inner is FRESH:
                # Without the constants that distinguish the branch, the server would have to guess which was chosen,
                # even if the schema does not require them.
                inner = {
                    key: value
                    for key, value in kind.constants[index].items()
                    if any(key in other and not same(other[key], value) for other in kind.constants)
                } or FRESH
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
        rows = []
        for number, key in enumerate(free):
            text = key.text if isinstance(key, PendingKey) else key
            row = self.node(kind.extra, draft[key], at.row(number, text), required=True, removable=True)
            row.row_key, row.row_blank = text, key == ""
            rows.append(row)
        return ObjectNode(properties=known, rows=rows, offers_keys=kind.offers_keys, draft=draft)

    def _array(self, kind: Array, draft: Draft, at: NodePlace) -> Node:
        if not isinstance(draft, list):
            raise Unsupported("The value is not a list.")
        self._reserve(len(draft))
        items = [
            self.node(kind.at(index), FRESH if item is ABSENT else item, at.item(index), required=True, removable=True)
            for index, item in enumerate(draft)
        ]
        return ArrayNode(items=items, draft=draft, can_add=kind.at(len(draft)) is not False)


def _choose(document: Document, union: Union, draft: Draft) -> int:
    """The branch that a person chose, else the first that the value fits, else the most similar one, else the first.
    For a newly added value: the first that is not null."""
    if isinstance(draft, Branch):
        return draft.index if 0 <= draft.index < len(union.branches) else 0
    if draft is FRESH:
        return next((index for index, branch in enumerate(union.branches) if not _is_null(document, branch)), 0)
    value = loose(draft)
    if value is ABSENT:
        return 0
    for index, branch in enumerate(union.branches):
        if fits(document, branch, value):
            return index
    scores = [likeness(document, branch, value) for branch in union.branches]
    return scores.index(max(scores))


def _is_null(document: Document, branch: Schema) -> bool:
    try:
        flat, _ = document.flatten(branch)
    except Unsupported:
        return False
    return types_of(flat) == ["null"] or only_value(flat) == [None]


def _shown_default(kind: Kind, value: Json) -> str:
    """The default as the control shows it: an option by its label."""
    if isinstance(kind, Choice) and (index := kind.index(value)) is not None:
        return kind.options[index].label
    if isinstance(kind, Chips) and isinstance(value, list) and value:
        return ", ".join(_shown_default(kind.choice, item) for item in value)
    return snippet(value)


def _type_label(node: Node, flat: Flat) -> str:
    if isinstance(node, ArrayNode):
        return f"array, {len(node.items)} item{'' if len(node.items) == 1 else 's'}"
    if isinstance(node, UnionNode):
        return f"one of {len(node.labels)}"
    if isinstance(node, AbsentNode):
        return "array" if node.list_of else "object" if is_type({}, str(flat.get("type"))) else "one of several"
    return node.kind
