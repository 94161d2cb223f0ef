"""The content of a recorded message, for its templates."""

import json
from typing import Any, NamedTuple

from django import template

from servers.crypto import SealError
from sessions.models import WireMessage
from sessions.wire import reading

register = template.Library()


class Body(NamedTuple):
    """`label` names its region, because several messages can be open at the same time."""

    label: str
    text: str = ""
    is_json: bool = False
    json: Any = None
    problem: str = ""


@register.simple_tag
def wire_body(message: WireMessage, title: str) -> Body:
    label = f"{title}, message {message.seq}"
    try:
        text = reading.text(message)
    except SealError as problem:
        return Body(label, problem=str(problem))
    try:
        return Body(label, text) if message.cut else Body(label, text, True, json.loads(text))
    except (ValueError, RecursionError):
        return Body(label, text)


@register.simple_tag
def wire_headers(message: WireMessage) -> reading.Headers | None:
    return reading.headers(message)
