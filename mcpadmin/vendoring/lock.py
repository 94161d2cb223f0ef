"""vendor.lock.json: what was vendored, and the sha384 of every file, so that any change is detected."""

import base64
import hashlib
import json
from pathlib import Path
from typing import Any

from mcpadmin.vendoring.manifest import LOCK_FILE, ROOT, SPRITE_FILE, VENDOR_DIR, Package, read_manifest


def digest_of(path: Path) -> str:
    return "sha384-" + base64.b64encode(hashlib.sha384(path.read_bytes()).digest()).decode()


def vendored_files() -> list[Path]:
    below = [path for path in VENDOR_DIR.rglob("*") if path.is_file() and path != LOCK_FILE]
    return sorted([*below, SPRITE_FILE])


def write_lock(packages: list[Package]) -> None:
    lock = {
        "packages": {package.name: _entry(package) for package in packages},
        "files": {_key(path): digest_of(path) for path in vendored_files()},
    }
    LOCK_FILE.write_text(json.dumps(lock, indent=2, sort_keys=True) + "\n")


def problems() -> list[str]:
    """Every difference between the working tree, the lock and vendor.toml, as text; empty if they all match."""
    lock: dict[str, Any] = json.loads(LOCK_FILE.read_text())
    present = {_key(path): digest_of(path) for path in vendored_files() if path.exists()}
    expected = lock["files"]
    found = [f"{name} is missing" for name in sorted(expected.keys() - present.keys())]
    found += [f"{name} is not in the lock" for name in sorted(present.keys() - expected.keys())]
    common = sorted(expected.keys() & present.keys())
    found += [f"{name} was changed by hand" for name in common if expected[name] != present[name]]
    if lock["packages"] != {package.name: _entry(package) for package in read_manifest()}:
        found.append("vendor.toml and the lock name different packages: run `python -m mcpadmin.vendoring`")
    return found


def _entry(package: Package) -> dict[str, str]:
    return {"version": package.version, "integrity": package.integrity}


def _key(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()
