"""Pins that tests start from."""

import json
from datetime import timedelta
from typing import Any

from django.utils import timezone

from servers.enums import Ecosystem, PinState
from servers.models import PinnedPackage, Server
from servers.packages.pins import Pin


def lock_of(version: str, **dependencies: str) -> str:
    """A package-lock.json of `files`. `dependencies`: version, and after a slash the hash."""
    packages: dict[str, Any] = {"": {"dependencies": {"files": "latest"}}}
    packages["node_modules/files"] = {"version": version, "integrity": f"sha512-{version}"}
    for name, text in dependencies.items():
        number, _, digest = text.partition("/")
        packages[f"node_modules/{name}"] = {"version": number, "integrity": f"sha512-{digest or number}"}
    return json.dumps({"lockfileVersion": 3, "packages": packages})


def pin_of(version: str = "1.2.3", integrity: str = "", lock: str = "", **fields: Any) -> Pin:
    lock = lock or lock_of(version, helper="1.0.0")
    base = {"ecosystem": Ecosystem.NPM, "requested": "files", "name": "files", "dependencies": 1}
    return Pin(**base | fields, version=version, integrity=integrity or f"sha512-{version}", lock=lock)


def put(server: Server, state: PinState, pin: Pin | None = None, **fields: Any) -> PinnedPackage:
    fields = {"pinned_at": timezone.now() - timedelta(days=3)} | fields
    return PinnedPackage.objects.create(server=server, state=state, **(pin or pin_of()).columns(), **fields)
