"""Icon bodies from the vendored sprite.

Each icon is written where it stands instead of as `<use>` of a sprite: measured, the sprite alone is 36 kB a page, more
than the bodies of 150 icons, and fragments swapped in later need no sprite.
"""

import re
from functools import lru_cache

from django.template.loader import get_template

#: what each icon of the set begins with, and nobody sees; and the end of a path that another one of the same look follows
_FRAME, _NEXT_PATH = '<path stroke="none" d="M0 0h24v24H0z" fill="none"/>', re.compile(r'"/><path d="(?=M)')
_SYMBOL = re.compile(r'<symbol id="i-([a-z0-9-]+)"[^>]*>(.*?)</symbol>')


class UnknownIcon(KeyError):
    """The name is not among the icons of mcpadmin/vendoring/vendor.toml."""


@lru_cache(maxsize=1)
def icon_bodies() -> dict[str, str]:
    found = _SYMBOL.findall(get_template("kit/icons.svg").render())
    return {name: _NEXT_PATH.sub("", body.replace(_FRAME, "")) for name, body in found}


def icon_body(name: str) -> str:
    try:
        return icon_bodies()[name]
    except KeyError as problem:
        raise UnknownIcon(f'"{name}" is not vendored: add it to mcpadmin/vendoring/vendor.toml') from problem
