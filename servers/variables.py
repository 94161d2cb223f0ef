"""The environment variables of this process by name, including those removed from it because they hold secrets."""

import os

from django.conf import settings


def variable(name: str) -> str:
    """Its value, or "" if it is not set."""
    return os.environ.get(name) or str(settings.PRIVATE_VARIABLES.get(name, ""))
