"""Icon bodies from the vendored sprite.

Each icon is written where it stands instead of as `<use>` of a sprite: measured, the sprite alone is 36 kB a page, more
than the bodies of 150 icons, and fragments swapped in later need no sprite.
"""

import re
from functools import lru_cache

from django.template.loader import get_template

_SYMBOL = re.compile(r'<symbol id="i-([a-z0-9-]+)"[^>]*>(.*?)</symbol>')


class UnknownIcon(KeyError):
    """The name is not among the icons of mcpadmin/vendoring/vendor.toml."""


@lru_cache(maxsize=1)
def icon_bodies() -> dict[str, str]:
    return dict(_SYMBOL.findall(get_template("kit/icons.svg").render()))


def icon_body(name: str) -> str:
    try:
        return icon_bodies()[name]
    except KeyError as problem:
        raise UnknownIcon(f'"{name}" is not vendored: add it to mcpadmin/vendoring/vendor.toml') from problem
