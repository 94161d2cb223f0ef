"""Structural edits: `add:/edits`, `del:/edits/0`, `branch:/filter=1`, `addkey:/weights`, `refresh:`; form paths."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from servers.numbers import whole_number
from servers.schemas.compile import compile_form
from servers.schemas.nodes import AbsentNode, ArrayNode, Node, ObjectNode, UnionNode
from servers.schemas.shapes import Schema
from servers.schemas.values import ABSENT, FRESH, Branch, Draft, PendingKey

_VERBS = {"add", "del", "branch", "addkey", "refresh"}
_LONGEST = 4_000
_GONE = object()


@dataclass(frozen=True)
class Operation:
    verb: str
    path: str
    index: int = 0


def parse_operation(posted: list[str], picked: Callable[[str], str]) -> Operation | None:
    """Returns None if no structural edit was requested, or an unknown one.

    `pick:/filter` is `branch:/filter=N` with N from the select that `picked` reads.
    """
    verb, _, rest = posted[-1].partition(":") if posted else ("", "", "")
    if verb == "pick":
        verb, rest = "branch", f"{rest}={picked(rest)}"
    if verb not in _VERBS or len(rest) > _LONGEST:
        return None
    if verb != "branch":
        return Operation(verb, rest)
    path, _, digits = rest.rpartition("=")
    number = whole_number(digits)
    return None if number is None else Operation(verb, path, number)


def apply(op: Operation, schema: Schema, value: Draft = ABSENT) -> Draft:
    """Return the draft after the edit, for compile_form. An edit that does not fit the form changes nothing."""
    root = compile_form(schema, value)
    node = next((node for node in root.walk() if node.path == op.path and _applies(op, node)), None)
    return _with(root, op, node) if node is not None else value


def _applies(op: Operation, node: Node) -> bool:
    if op.verb == "del":
        return node.removable or node.optional
    if op.verb == "branch":
        return isinstance(node, UnionNode) and op.index < len(node.labels)
    if op.verb == "addkey":
        return isinstance(node, ObjectNode)
    return op.verb == "add" and (isinstance(node, AbsentNode) or (isinstance(node, ArrayNode) and node.can_add))


def _edited(op: Operation, node: Node) -> Any:
    if op.verb == "del":
        return _GONE
    if isinstance(node, UnionNode):
        return Branch(op.index, _with(node.child, op, None) if op.index == node.index else FRESH)
    if isinstance(node, ObjectNode):
        return {**_with(node, op, None), PendingKey(len(node.rows), ""): FRESH}
    if isinstance(node, ArrayNode):
        return [*_with(node, op, None), FRESH]
    return [FRESH] if isinstance(node, AbsentNode) and node.list_of else FRESH


def _with(node: Node, op: Operation, target: Node | None) -> Any:
    """The draft of `node` as the form shows it, including initial values, with the edit to `target` applied."""
    if node is target:
        return _edited(op, node)
    if isinstance(node, ObjectNode):
        keys = [key for key in node.draft if key not in {child.key for child in node.properties}]
        pairs = [(child.key, _with(child, op, target)) for child in node.properties]
        known = {key: draft for key, draft in pairs if draft is not _GONE and draft is not ABSENT}
        rows = [(key, _with(row, op, target)) for key, row in zip(keys, node.rows, strict=True)]
        return {**known, **{key: draft for key, draft in rows if draft is not _GONE}}
    if isinstance(node, ArrayNode):
        return [draft for item in node.items if (draft := _with(item, op, target)) is not _GONE]
    if isinstance(node, UnionNode) and (node.sent or any(child is target for child in node.child.walk())):
        inner = _with(node.child, op, target)
        return inner if inner is _GONE else Branch(node.index, inner)
    return node.draft
