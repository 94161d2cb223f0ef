"""The only place that talks to npm; the registry is whatever the developer's npm is configured for."""

import base64
import hashlib
import json
import subprocess
import tarfile
from pathlib import Path

from mcpadmin.vendoring.manifest import Package

NPM_SECONDS = 180


class VendorError(Exception):
    """A vendored file does not match vendor.toml or the lock; the text says what to do."""


def unpack(package: Package, into: Path) -> Path:
    """Download the archive, check its sha512 against vendor.toml, and return the folder with its contents."""
    listing = json.loads(_run("pack", package.spec, "--json", cwd=into))
    archive = into / str(listing[0]["filename"]).replace("@", "").replace("/", "-")
    found = integrity_of(archive.read_bytes())
    if found != package.integrity:
        raise VendorError(
            f"{package.spec}: the archive is {found}, vendor.toml says {package.integrity or 'nothing'}. "
            "Read the package's changes, then set `integrity` in vendor.toml."
        )
    folder = into / archive.name.removesuffix(".tgz")
    with tarfile.open(archive) as tar:
        tar.extractall(folder, filter="data")
    return folder / "package"


def integrity_of(content: bytes) -> str:
    return "sha512-" + base64.b64encode(hashlib.sha512(content).digest()).decode()


def latest_version(name: str) -> str:
    return str(json.loads(_run("view", name, "version", "--json", cwd=Path.cwd())))


def _run(*arguments: str, cwd: Path) -> str:
    try:
        done = subprocess.run(  # noqa: S603 - names and versions from vendor.toml, no shell
            ["npm", *arguments],  # noqa: S607 - the developer's own npm, wherever it is installed
            cwd=cwd,
            capture_output=True,
            text=True,
            timeout=NPM_SECONDS,
            check=True,
        )
    except FileNotFoundError as problem:
        raise VendorError(
            "npm is not installed; it is needed to change vendored files, not to run mcpadmin"
        ) from problem
    except subprocess.TimeoutExpired as problem:
        raise VendorError(f"npm {arguments[0]} did not end within {NPM_SECONDS} s") from problem
    except subprocess.CalledProcessError as problem:
        raise VendorError(f"npm {' '.join(arguments)} failed: {problem.stderr.strip()[-400:]}") from problem
    return done.stdout
