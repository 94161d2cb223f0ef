"""The content of a recorded message, for its templates."""

from typing import Any, NamedTuple

from django import template

from sessions.models import WireMessage
from sessions.wire import reading

register = template.Library()


class Body(NamedTuple):
    """`label` names its region: several messages are open at once."""

    label: str
    is_json: bool
    json: Any = None


@register.simple_tag
def wire_body(message: WireMessage, title: str) -> Body:
    label = f"{title}, message {message.seq}"
    try:
        return Body(label, True, reading.body(message))
    except (ValueError, RecursionError):
        return Body(label, False)


@register.simple_tag
def wire_headers(message: WireMessage) -> reading.Headers | None:
    return reading.headers(message)
