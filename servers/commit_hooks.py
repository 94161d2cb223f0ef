"""What follows a commit and may fail without harm to what follows it too."""

from collections.abc import Callable
from typing import Any

from django.db import transaction


def after_commit(act: Callable[..., object], *given: Any, **named: Any) -> None:
    """Call `act` once the current transaction is committed. What it raises is logged."""
    # Django's log names the hook by its `__qualname__`. A partial has none, so that one which fails would raise after all.
    transaction.on_commit(lambda: act(*given, **named), robust=True)
