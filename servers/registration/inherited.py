"""Variables of the worker that every stdio server gets, because the operator says so (MCPADMIN_INHERITED_VARIABLES)."""

import os
from fnmatch import fnmatchcase
from typing import Final
from urllib.parse import urlsplit

from django.conf import settings

from servers.secret import Secret

#: ours, whatever the patterns say: they hold keys and passwords
_NEVER: Final = ("MCPADMIN_*", "DJANGO_*", "DATABASE_URL", "REDIS_URL*")


def inherited() -> dict[str, str]:
    """Those that are set, by name."""
    return {name: os.environ[name] for name in sorted(os.environ) if _passes(name)}


def secrets_of(variables: dict[str, str]) -> tuple[Secret, ...]:
    """User name and password of a proxy, which may be shown nowhere."""
    found = []
    for value in variables.values():
        try:
            parts = urlsplit(value)
        except ValueError:
            continue
        if parts.password:
            found += [Secret(parts.netloc.rpartition("@")[0]), Secret(parts.password)]
    return tuple(found)


def _passes(name: str) -> bool:
    def named(patterns: tuple[str, ...] | list[str]) -> bool:
        return any(fnmatchcase(name, pattern) for pattern in patterns)

    return named(settings.INHERITED_VARIABLES) and not named(_NEVER)
