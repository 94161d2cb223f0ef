"""From what a door was given (form fields, JSON text, a value) to arguments that fit the tool's schema, or to words why not."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sessions.schemas import checker, parse


class Rejected(Exception):
    """The call is not placed. `errors`: JSON pointer into the arguments -> messages. `confirm`: a confirmation is missing."""

    def __init__(self, message: str, errors: Mapping[str, list[str]] | None = None, *, confirm: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.errors = dict(errors or {})
        self.confirm = confirm


@dataclass(frozen=True)
class Given:
    """One of `form` (field -> values as posted), `text` (JSON) or `value`. `confirm` is what the person typed or ticked."""

    form: Mapping[str, list[str]] | None = None
    text: str | None = None
    value: Any = None
    confirm: str | bool = ""

