"""From an unpacked package to the files that pages load."""

import re
import shutil
import tempfile
from pathlib import Path

from mcpadmin.vendoring.lock import write_lock
from mcpadmin.vendoring.manifest import OWN_STYLES, SPRITE_FILE, VENDOR_DIR, Package
from mcpadmin.vendoring.npm import VendorError, unpack
from mcpadmin.vendoring.purge import purge

_SVG = re.compile(r"<svg[^>]*>(.*)</svg>", re.DOTALL)
# A manifest storage follows these comments and stops on the missing map.
_SOURCE_MAP = re.compile(r"\n?(?://|/\*)[#@]\s*sourceMappingURL=[^\s*]+\s*(?:\*/)?\s*$")


def vendor_all(packages: list[Package]) -> None:
    """Replace static/vendor/ and the sprite as a whole, so that nothing stale stays behind."""
    with tempfile.TemporaryDirectory() as scratch:
        sources = {package.name: unpack(package, Path(scratch)) for package in packages}
        shutil.rmtree(VENDOR_DIR, ignore_errors=True)
        for package in packages:
            source, target = sources[package.name], VENDOR_DIR / package.folder
            target.mkdir(parents=True, exist_ok=True)
            for inside, name in package.files.items():
                _copy(source / inside, target / name)
                if package.classes and name.endswith(".css"):
                    own = "".join(file.read_text() for file in sorted(OWN_STYLES.glob("*.css")))
                    (target / name).write_text(purge((target / name).read_text(), package.classes, own))
            ships_no_license = package.license.startswith("licenses/")
            _copy((Path(__file__).parent if ships_no_license else source) / package.license, target / "LICENSE")
            if package.icons:
                SPRITE_FILE.parent.mkdir(parents=True, exist_ok=True)
                SPRITE_FILE.write_text(build_sprite(package.icons, source / "icons" / "outline"))
    write_lock(packages)


def build_sprite(icons: tuple[str, ...], outline_folder: Path) -> str:
    """One SVG from single outline icons; colour and stroke come from the `.i` rule of the style sheet."""
    symbols = []
    for name in icons:
        source = outline_folder / f"{name}.svg"
        if not source.exists():
            raise VendorError(f'there is no outline icon "{name}" in this version of the icon package')
        match = _SVG.search(re.sub(r"<!--.*?-->", "", source.read_text(), flags=re.DOTALL))
        if match is None:
            raise VendorError(f'the icon "{name}" is not a plain SVG')
        shapes = re.sub(r"\s*\n\s*", "", match[1]).replace(" />", "/>").strip()
        symbols.append(f'<symbol id="i-{name}" viewBox="0 0 24 24">{shapes}</symbol>')
    sprite = "\n".join(symbols)
    return f'<svg xmlns="http://www.w3.org/2000/svg" class="sprite" aria-hidden="true">\n{sprite}\n</svg>\n'


def _copy(source: Path, target: Path) -> None:
    if not source.is_file():
        raise VendorError(f"{source.name} is not in the package: correct vendor.toml")
    if source.suffix in {".css", ".js"}:
        target.write_text(_SOURCE_MAP.sub("\n", source.read_text()))
    else:
        target.write_bytes(source.read_bytes())
