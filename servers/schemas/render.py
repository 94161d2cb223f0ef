"""The form as HTML. The only file of this package that knows Django (its template engine, nothing else)."""

import hashlib
import re
from functools import cached_property

from django.template.loader import get_template
from django.utils.safestring import SafeString, mark_safe

from servers.schemas.nodes import AbsentNode, ArrayNode, Node, NumberNode, ObjectNode, TextNode, UnionNode
from servers.schemas.pointer import PREFIX, name

_FOLDER = "schemas/"
_LONGEST_ID = 120
_UNSAFE_ID = re.compile(r"[^A-Za-z0-9/]")
_SEGMENT_BRANCHES, _SEGMENT_LETTERS = 4, 40
_LEAVES = {"text", "number", "switch", "fixed", "choice", "chips", "json"}


def render_form(node: Node, *, prefix: str = PREFIX, id_prefix: str = "arg") -> SafeString:
    """The fields of a compiled form, to go inside the page's own <form>; edit buttons are named `_op`."""
    return _rendered("form.html", ShownNode(node, prefix, id_prefix))


def render_errors(node: Node, *, id_prefix: str = "arg") -> SafeString:
    """A summary that takes focus and links to each field with an error; empty without errors."""
    return _rendered("_errors.html", ShownNode(node, PREFIX, id_prefix))


def field_id(path: str, id_prefix: str = "arg") -> str:
    """The id of a node's control, derived from the node's path, so that it stays the same when other items change."""
    slug = _UNSAFE_ID.sub(lambda found: f"_{ord(found[0]):x}_", path).replace("/", "-")
    if len(slug) > _LONGEST_ID:
        slug = f"-{hashlib.blake2s(path.encode('utf-8', 'replace')).hexdigest()}"
    return f"{id_prefix}{slug}"


def suggestions_of(node: Node) -> tuple[str, ...]:
    return node.suggestions if isinstance(node, TextNode | NumberNode) else ()


def suggestions_id(node: Node, id_prefix: str) -> str:
    values = suggestions_of(node)
    digest = hashlib.blake2s("\n".join(values).encode("utf-8", "replace"), digest_size=8).hexdigest()
    return f"{id_prefix}-list-{digest}" if values else ""


def _rendered(template: str, shown: "ShownNode") -> SafeString:
    html = get_template(_FOLDER + template).render({"f": shown})
    # A lone surrogate in a server's schema cannot be encoded and must not fail the page.
    return mark_safe(html.encode("utf-8", "replace").decode())  # noqa: S308 -- autoescaped template output


class ShownNode:
    """A node with the names and ids that its fields have on one page."""

    def __init__(
        self, node: Node, prefix: str, id_prefix: str, outer: "ShownNode | None" = None, label: str = ""
    ) -> None:
        self.n = node
        self.outer = outer
        self._prefix, self._id_prefix = prefix, id_prefix
        self._label = label

    def _inner(self, node: Node, label: str = "") -> "ShownNode":
        return ShownNode(node, self._prefix, self._id_prefix, self, label)

    @property
    def template(self) -> str:
        return f"{_FOLDER}_{'leaf' if self.leaf else self.n.kind}.html"

    @property
    def control(self) -> str:
        return f"{_FOLDER}_{self.n.kind}.html"

    @property
    def leaf(self) -> bool:
        return self.n.kind in _LEAVES

    # --- names ---

    @property
    def name(self) -> str:
        return name(self._prefix, self.n.path)

    @property
    def json_name(self) -> str:
        return name(self._prefix, self.n.path, "json")

    @property
    def send_name(self) -> str:
        return name(self._prefix, self.n.path, "send")

    @property
    def on_name(self) -> str:
        return name(self._prefix, self.n.path, "on")

    @property
    def empty_name(self) -> str:
        return name(self._prefix, self.n.path, "empty")

    @property
    def branch_name(self) -> str:
        return name(self._prefix, self.n.path, "branch")

    @property
    def pick_name(self) -> str:
        return name(self._prefix, self.n.path, "pick")

    @property
    def len_name(self) -> str:
        return name(self._prefix, self.n.path, "len")

    @property
    def rows_name(self) -> str:
        return name(self._prefix, self.n.path, "rows")

    @property
    def key_name(self) -> str:
        return name(self._prefix, self.n.path, "key")

    @property
    def blank_name(self) -> str:
        return name(self._prefix, self.n.path, "blank")

    @property
    def if_name(self) -> str:
        return name(self._prefix, self.n.path, "if")

    @property
    def live_name(self) -> str:
        return name(self._prefix, "", "live")

    # --- ids ---

    @cached_property
    def id(self) -> str:
        return field_id(self.n.path, self._id_prefix)

    @property
    def list_id(self) -> str:
        """The id of its suggestions: the items of a list share one."""
        return suggestions_id(self.n, self._id_prefix)

    @property
    def lists(self) -> dict[str, tuple[str, ...]]:
        """All suggestions of the form by their ids."""
        found = {suggestions_id(node, self._id_prefix): suggestions_of(node) for node in self.n.walk()}
        return {name: values for name, values in found.items() if name}

    @property
    def described_by(self) -> str:
        helped = [f"{self.id}_help"] if self.has_help else []
        return " ".join([*helped, *([f"{self.id}_error"] if self.n.errors else [])])

    @property
    def has_help(self) -> bool:
        return bool(self.n.help or self.n.hint or getattr(self.n, "reason", ""))

    # --- texts ---

    @property
    def title(self) -> str:
        return self._label or self.n.title or "Value"

    @property
    def type_label(self) -> str:
        """Includes the key if a title hides it: debugging a server requires both."""
        hidden = self.n.key and self.n.title and not self.in_union and self.n.key.lower() != self.n.title.lower()
        return f"{self.n.key} · {self.n.type_label}" if hidden else self.n.type_label

    @property
    def full_title(self) -> str:
        """With the titles of the enclosing nodes: "Filter 1 › op"."""
        if self.outer is None:
            return ""
        around = self.outer.full_title
        if self.in_union:
            return around
        return f"{around} › {self.title}" if around else self.title

    @property
    def starred(self) -> bool:
        return self.n.required and not self.n.removable and not self.root and not self.in_union

    # --- place ---

    @property
    def root(self) -> bool:
        return self.outer is None

    @property
    def in_union(self) -> bool:
        return self.outer is not None and isinstance(self.outer.n, UnionNode)

    @property
    def compact(self) -> bool:
        """The enclosing node supplies the label: an item of a list, a free key, the chosen branch."""
        return self.leaf and (self.n.removable or self.in_union)

    @property
    def has_box(self) -> bool:
        """Whether it has a "send" box; other optional nodes are added and removed."""
        return self.n.optional and (self.leaf or (isinstance(self.n, UnionNode) and self.n.leaf_like))

    @property
    def can_remove(self) -> bool:
        return self.n.removable or (self.n.optional and not self.has_box and not isinstance(self.n, AbsentNode))

    # --- parts ---

    @cached_property
    def child(self) -> "ShownNode | None":
        return self._inner(self.n.child) if isinstance(self.n, UnionNode) else None

    @cached_property
    def items(self) -> list["ShownNode"]:
        nodes = self.n.items if isinstance(self.n, ArrayNode) else []
        return [self._inner(node, f"{node.title or 'Item'} {index}") for index, node in enumerate(nodes, 1)]

    @cached_property
    def rows(self) -> list["ShownNode"]:
        nodes = self.n.rows if isinstance(self.n, ObjectNode) else []
        return [self._inner(node, node.row_key or f"Property {index}") for index, node in enumerate(nodes, 1)]

    @cached_property
    def properties(self) -> list["ShownNode"]:
        return [self._inner(node) for node in self.n.properties] if isinstance(self.n, ObjectNode) else []

    @property
    def members(self) -> list["ShownNode"]:
        return [shown for shown in self.properties if shown.n.sent]

    @property
    def unsent(self) -> list["ShownNode"]:
        return [shown for shown in self.properties if not shown.n.sent]

    @property
    def unsent_open(self) -> bool:
        """Open if the form would otherwise look empty or hide an error."""
        nothing_else = self.root and not self.members
        return nothing_else or any(node.errors for shown in self.unsent for node in shown.n.walk())

    @property
    def pair(self) -> bool:
        """Two short fields (from, to) are shown side by side."""
        small = {"text", "number", "choice"}
        shown = self.members
        return (
            not self.root
            and len(shown) == 2
            and not self.rows
            and all(part.n.kind in small and not getattr(part.n, "multiline", False) for part in shown)
        )

    @property
    def labels(self) -> list[tuple[int, str]]:
        return list(enumerate(self.n.labels)) if isinstance(self.n, UnionNode) else []

    @property
    def segmented(self) -> bool:
        words = [label for _, label in self.labels]
        return len(words) <= _SEGMENT_BRANCHES and sum(map(len, words)) <= _SEGMENT_LETTERS

    # --- errors ---

    @property
    def all_errors(self) -> list[tuple[str, str, str]]:
        """(id of the field, its label, sentence) in form order."""
        found = [(self.id, self.full_title, error) for error in self.n.errors]
        for part in [*([self.child] if self.child else []), *self.items, *self.members, *self.rows, *self.unsent]:
            found.extend(part.all_errors)
        return found
