"""One SVG sprite from single outline icons; colour and stroke come from the `.i` rule of the style sheet."""

import re
from pathlib import Path

from mcpadmin.vendoring.npm import VendorError

_BODY = re.compile(r"<svg[^>]*>(.*)</svg>", re.DOTALL)


def build_sprite(icons: tuple[str, ...], outline_folder: Path) -> str:
    symbols = "\n".join(_symbol(name, outline_folder / f"{name}.svg") for name in icons)
    return f'<svg xmlns="http://www.w3.org/2000/svg" class="sprite" aria-hidden="true">\n{symbols}\n</svg>\n'


def _symbol(name: str, source: Path) -> str:
    if not source.exists():
        raise VendorError(f'there is no outline icon "{name}" in this version of the icon package')
    match = _BODY.search(re.sub(r"<!--.*?-->", "", source.read_text(), flags=re.DOTALL))
    if match is None:
        raise VendorError(f'the icon "{name}" is not a plain SVG')
    shapes = re.sub(r"\s*\n\s*", "", match[1]).replace(" />", "/>").strip()
    return f'<symbol id="i-{name}" viewBox="0 0 24 24">{shapes}</symbol>'
