"""Callbacks that run after a commit. If one fails, the others still run."""

from collections.abc import Callable
from typing import Any

from django.db import transaction


def after_commit(act: Callable[..., object], *given: Any, **named: Any) -> None:
    """Call `act` once the current transaction is committed. Its exceptions are logged."""
    # Django's log names the hook by its `__qualname__`. A partial has none, so that one which fails would raise after all.
    transaction.on_commit(lambda: act(*given, **named), robust=True)
