"""vendor.toml as values: which files of which package at which version end up where."""

import tomllib
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MANIFEST_FILE = Path(__file__).with_name("vendor.toml")
VENDOR_DIR = ROOT / "static" / "vendor"
OWN_STYLES = ROOT / "static" / "css"
LOCK_FILE = VENDOR_DIR / "vendor.lock.json"
SPRITE_FILE = ROOT / "templates" / "kit" / "icons.svg"


@dataclass(frozen=True)
class Package:
    name: str
    version: str
    integrity: str
    """sha512 of the package archive, as npm writes it: ``sha512-<base64>``."""
    folder: str
    """Below static/vendor/."""
    license: str
    """Path inside the package, or ``licenses/<file>`` next to vendor.toml if the package ships none."""
    files: dict[str, str] = field(default_factory=dict)
    """Path inside the package -> file name below ``folder``."""
    icons: tuple[str, ...] = ()
    """Names of outline icons that make the sprite."""
    classes: tuple[str, ...] = ()
    """The classes of the package's style sheets that our pages use; rules for others are left out. Empty: all rules."""

    @property
    def spec(self) -> str:
        return f"{self.name}@{self.version}"


def read_manifest(path: Path = MANIFEST_FILE) -> list[Package]:
    entries = tomllib.loads(path.read_text())["package"]
    return [
        Package(**entry | {key: tuple(sorted(set(entry.get(key, ())))) for key in ("icons", "classes")})
        for entry in entries
    ]
