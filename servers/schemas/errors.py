"""Attaches errors, given by JSON pointer, to the nodes of the form."""

from collections.abc import Mapping

from servers.schemas.nodes import Node, TextNode
from servers.schemas.values import Unread


def attach(root: Node, errors: Mapping[str, list[str]]) -> None:
    """Put each error on the deepest node of its value, or else, with its location named, on the nearest node above."""
    if not errors:
        return
    nodes = {node.pointer: node for node in root.walk()}  # walk goes down: the deepest node for a pointer wins
    for pointer, messages in errors.items():
        node, rest = _nearest(nodes, pointer)
        node.errors.extend(f"{rest}: {message}" if rest else message for message in messages)
    for node in nodes.values():
        if isinstance(node, TextNode) and node.errors and isinstance(node.draft, Unread):
            node.may_be_empty = True


def _nearest(nodes: dict[str, Node], pointer: str) -> tuple[Node, str]:
    place = pointer
    while place not in nodes and place:
        place = place.rpartition("/")[0]
    return nodes[place if place in nodes else ""], pointer[len(place) :]
