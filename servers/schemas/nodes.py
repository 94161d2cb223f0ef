"""The form as a tree of plain values: built by compile, shown by the templates."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar

from servers.schemas.values import ABSENT, Draft


@dataclass(kw_only=True)
class Node:
    """One value of the form.

    `path` names its fields, `pointer` is the JSON pointer of its value in the instance. `optional` nodes may be left
    out: leaves by a "send" box (`sent`), objects and lists by "Add" and "Remove". `removable` is an item or a free key.
    """

    kind: ClassVar[str] = ""
    path: str = ""
    pointer: str = ""
    key: str = ""
    title: str = ""
    type_label: str = ""
    help: str = ""
    hint: str = ""
    default: str = ""
    optional: bool = False
    required: bool = False
    sent: bool = True
    removable: bool = False
    secret: bool = False
    """Whether its value, with everything below it, is declared secret."""
    draft: Draft = ABSENT
    errors: list[str] = field(default_factory=list)
    row_key: str | None = None
    row_blank: bool = False
    decisions: str = ""
    """One character per condition of the schema here, "1" if `then` applies: the form reader follows them."""

    def nested(self) -> "Iterator[Node]":
        yield from ()

    def walk(self) -> "Iterator[Node]":
        yield self
        for child in self.nested():
            yield from child.walk()


@dataclass(kw_only=True)
class TextNode(Node):
    kind: ClassVar[str] = "text"
    text: str = ""
    input_type: str = "text"
    multiline: bool = False
    rows: int = 3
    placeholder: str = ""
    input_mode: str = ""
    may_be_empty: bool = False
    """Whether to show the checkbox that confirms an empty required text."""
    empty: bool = False
    suggestions: tuple[str, ...] = ()


@dataclass(kw_only=True)
class NumberNode(Node):
    kind: ClassVar[str] = "number"
    text: str = ""
    placeholder: str = ""
    integral: bool = False
    suggestions: tuple[str, ...] = ()


@dataclass(kw_only=True)
class SwitchNode(Node):
    kind: ClassVar[str] = "switch"
    on: bool = False


@dataclass(kw_only=True)
class FixedNode(Node):
    kind: ClassVar[str] = "fixed"
    text: str = ""


@dataclass(frozen=True)
class OptionItem:
    value: str
    label: str
    chosen: bool


@dataclass(kw_only=True)
class ChoiceNode(Node):
    kind: ClassVar[str] = "choice"
    options: list[OptionItem] = field(default_factory=list)
    blank: bool = True


@dataclass(kw_only=True)
class ChipsNode(Node):
    kind: ClassVar[str] = "chips"
    options: list[OptionItem] = field(default_factory=list)


@dataclass(kw_only=True)
class JsonNode(Node):
    kind: ClassVar[str] = "json"
    text: str = ""
    reason: str = ""
    rows: int = 3


@dataclass(kw_only=True)
class AbsentNode(Node):
    """An optional object, list or union that is not sent: a label and an "Add" button, so recursion ends here."""

    kind: ClassVar[str] = "absent"
    list_of: bool = False


@dataclass(kw_only=True)
class UnionNode(Node):
    kind: ClassVar[str] = "union"
    labels: list[str] = field(default_factory=list)
    index: int = 0
    leaf_like: bool = False
    """Whether it is small enough to be shown with a "send" box instead of "Add" and "Remove"."""
    child: Node

    def nested(self) -> Iterator[Node]:
        yield self.child


@dataclass(kw_only=True)
class ArrayNode(Node):
    kind: ClassVar[str] = "array"
    items: list[Node] = field(default_factory=list)
    can_add: bool = True

    def nested(self) -> Iterator[Node]:
        yield from self.items


@dataclass(kw_only=True)
class ObjectNode(Node):
    kind: ClassVar[str] = "object"
    properties: list[Node] = field(default_factory=list)
    rows: list[Node] = field(default_factory=list)
    offers_keys: bool = False

    def nested(self) -> Iterator[Node]:
        yield from self.properties
        yield from self.rows
