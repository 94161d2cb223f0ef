"""The content of a recorded message, for its templates."""

from typing import Any, NamedTuple

from django import template

from sessions.models import WireMessage
from sessions.wire import reading

register = template.Library()


class Body(NamedTuple):
    is_json: bool
    json: Any = None


@register.simple_tag
def wire_body(message: WireMessage) -> Body:
    try:
        return Body(True, reading.body(message))
    except (ValueError, RecursionError):
        return Body(False)


@register.simple_tag
def wire_headers(message: WireMessage) -> reading.Headers | None:
    return reading.headers(message)
