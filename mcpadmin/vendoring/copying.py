"""From an unpacked package to the files that pages load."""

import re
import shutil
import tempfile
from pathlib import Path

from mcpadmin.vendoring.lock import write_lock
from mcpadmin.vendoring.manifest import OWN_STYLES, SPRITE_FILE, VENDOR_DIR, Package
from mcpadmin.vendoring.npm import VendorError, unpack
from mcpadmin.vendoring.purge import purge
from mcpadmin.vendoring.sprite import build_sprite

# A manifest storage follows these comments and stops on the missing map.
_SOURCE_MAP = re.compile(r"\n?(?://|/\*)[#@]\s*sourceMappingURL=[^\s*]+\s*(?:\*/)?\s*$")


def vendor_all(packages: list[Package]) -> None:
    """Replace static/vendor/ and the sprite as a whole, so that nothing stale stays behind."""
    with tempfile.TemporaryDirectory() as scratch:
        sources = {package.name: unpack(package, Path(scratch)) for package in packages}
        shutil.rmtree(VENDOR_DIR, ignore_errors=True)
        for package in packages:
            _place(package, sources[package.name])
    write_lock(packages)


def _place(package: Package, source: Path) -> None:
    target = VENDOR_DIR / package.folder
    target.mkdir(parents=True, exist_ok=True)
    for inside, name in package.files.items():
        _copy(source / inside, target / name)
        if package.classes and name.endswith(".css"):
            own = "".join(file.read_text() for file in sorted(OWN_STYLES.glob("*.css")))
            (target / name).write_text(purge((target / name).read_text(), package.classes, own))
    _copy(_license(package, source), target / "LICENSE")
    if package.icons:
        SPRITE_FILE.parent.mkdir(parents=True, exist_ok=True)
        SPRITE_FILE.write_text(build_sprite(package.icons, source / "icons" / "outline"))


def _license(package: Package, source: Path) -> Path:
    if package.license.startswith("licenses/"):
        return Path(__file__).parent / package.license
    return source / package.license


def _copy(source: Path, target: Path) -> None:
    if not source.is_file():
        raise VendorError(f"{source.name} is not in the package: correct vendor.toml")
    if source.suffix in {".css", ".js"}:
        target.write_text(_SOURCE_MAP.sub("\n", source.read_text()))
    else:
        target.write_bytes(source.read_bytes())
