"""URI templates of resources: which values a template needs, and the URI that they produce.

The library expands; the grammar is checked here, because the library silently expands broken templates.
Source: RFC 6570 sections 2 and 3.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from uritemplate import URITemplate

Value = str | Sequence[str] | Mapping[str, str]

_LONGEST: Final = 8_192
_MOST_EXPRESSIONS: Final = 64
_OPERATORS: Final = "+#./;?&"
#: operators that the RFC reserves for future use
_RESERVED: Final = "=,!@|"
#: The RFC does not allow hyphens in names; servers use them, and they expand unambiguously.
_NAME: Final = re.compile(r"(?:[A-Za-z0-9_-]|%[0-9A-Fa-f]{2})+(?:\.(?:[A-Za-z0-9_-]|%[0-9A-Fa-f]{2})+)*")
_PREFIX: Final = re.compile(r"[1-9][0-9]{0,3}")


class BrokenTemplate(ValueError):
    """The text is not a URI template; the message says where it is broken."""


@dataclass(frozen=True, slots=True)
class Variable:
    """`explode`: a list or an object is expanded. `prefix`: only this many characters are used; None: all."""

    name: str
    operator: str = ""
    explode: bool = False
    prefix: int | None = None

    @property
    def may_be_absent(self) -> bool:
        """Whether the URI is complete without it: path or query parameters, and fragments. Others leave a gap."""
        return self.operator in (";", "?", "&", "#")


def variables(template: str) -> list[Variable]:
    """The variables in template order, each name once. Raises BrokenTemplate."""
    found: dict[str, Variable] = {}
    for expression in _expressions(template):
        operator = expression[:1] if expression[:1] in _OPERATORS else ""
        if expression[:1] and expression[0] in _RESERVED:
            raise BrokenTemplate(f"{expression[0]!r} is an operator reserved for future use.")
        for spec in expression[len(operator) :].split(","):
            variable = _variable(spec, operator, expression)
            found.setdefault(variable.name, variable)
    return list(found.values())


def expand(template: str, values: Mapping[str, Value]) -> str:
    """Return the URI. An absent value is undefined, an empty text is a value (RFC 6570 section 2.3); values that the
    template does not name are ignored. Raises BrokenTemplate, and ValueError for a value of the wrong type."""
    for variable in variables(template):
        value = values.get(variable.name)
        if variable.prefix is not None and value is not None and not isinstance(value, str):
            raise ValueError(f"{variable.name} is cut to {variable.prefix} characters, so it must be a string.")
    return str(URITemplate(template).expand({name: _plain(value) for name, value in values.items()}))


def _plain(value: Value) -> Any:
    """Lists and objects as the library needs them: it would sort an object by its keys, but it keeps the order of a
    list of pairs (which its types do not say)."""
    if isinstance(value, str):
        return value
    return list(value.items()) if isinstance(value, Mapping) else list(value)


def _expressions(template: str) -> list[str]:
    """The texts between braces."""
    if len(template) > _LONGEST:
        raise BrokenTemplate(f"The template is longer than {_LONGEST} characters.")
    expressions: list[str] = []
    at = 0
    while (begin := _brace(template, at)) is not None:
        end = template.find("}", begin)
        if end < 0:
            raise BrokenTemplate(f"The opening brace at character {begin + 1} has no closing brace.")
        expressions.append(template[begin + 1 : end])
        at = end + 1
    if len(expressions) > _MOST_EXPRESSIONS:
        raise BrokenTemplate(f"The template has more than {_MOST_EXPRESSIONS} expressions, which is a fixed limit.")
    return expressions


def _brace(template: str, at: int) -> int | None:
    """Where the next expression begins. Raises BrokenTemplate if an unmatched closing brace comes first."""
    opening, closing = template.find("{", at), template.find("}", at)
    if closing >= 0 and (opening < 0 or closing < opening):
        raise BrokenTemplate(f"The closing brace at character {closing + 1} has no opening brace.")
    return opening if opening >= 0 else None


def _variable(spec: str, operator: str, expression: str) -> Variable:
    name, colon, length = spec.partition(":")
    explode = not colon and name.endswith("*")
    if explode:
        name = name[:-1]
    if not _NAME.fullmatch(name):
        raise BrokenTemplate(f"{{{expression[:60]}}} needs the name of a variable instead of {name[:60]!r}.")
    if colon and not _PREFIX.fullmatch(length):
        raise BrokenTemplate(f"{{{expression[:60]}}} cuts {name[:60]} to {length[:20]!r}, which is not a valid length.")
    return Variable(name, operator, explode, int(length) if colon else None)
