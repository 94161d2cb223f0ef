"""Variables of the worker that the operator passes on to every stdio server (MCPADMIN_INHERITED_VARIABLES)."""

import os
import re
from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Final
from urllib.parse import unquote

from django.conf import settings

from servers.secret import Secret
from servers.validators import looks_like_token, looks_secret

#: our own variables, regardless of the patterns: they contain keys and passwords
_NEVER: Final = ("MCPADMIN_*", "DJANGO_*", "DATABASE_URL", "REDIS_URL*", "PGPASS*")
_ACCOUNT: Final = re.compile(r"://([^/?#\s]+)@")
#: for a variable whose name suggests a secret: shorter values are settings such as `true` and `legacy`, and paths and
#: URLs are locations
_LEAST_CHARS: Final = 8
_NO_SECRET: Final = re.compile(r"^/|://")


def inherited() -> dict[str, str]:
    """The inherited variables that are set, by name."""
    return {
        name: os.environ[name]
        for name in sorted(os.environ)
        if _matches(name, settings.INHERITED_VARIABLES) and not _matches(name, _NEVER)
    }


def secrets_of(variables: dict[str, str]) -> tuple[Secret, ...]:
    """The values that must never be shown: passwords of proxies and package mirrors, in a URL or by themselves."""
    found = []
    for name, value in variables.items():
        for user, _, password in (account.partition(":") for account in _ACCOUNT.findall(value)):
            if password:
                found += [f"{user}:{password}", password, unquote(password)]
            elif looks_like_token(user):
                found.append(user)
        if looks_secret(name) and len(value) >= _LEAST_CHARS and not _NO_SECRET.search(value) and name != "GOPRIVATE":
            found.append(value)
    return tuple(map(Secret, dict.fromkeys(found)))


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)
