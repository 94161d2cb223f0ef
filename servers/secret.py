"""Secret values in memory: a wrapper that shows nothing, and the set of live values that the log filter looks for.

Standard library only, so that any layer may use it.
"""

import threading
import weakref
from collections.abc import Iterator

_live: "weakref.WeakSet[Secret]" = weakref.WeakSet()
_guard = threading.Lock()  # a set that grows while another thread lists it raises


class Secret:
    """A value without repr, str, pickle or JSON. `reveal()` is the one way out, greppable."""

    __slots__ = ("__weakref__", "_value")

    def __init__(self, value: str) -> None:
        self._value = value
        with _guard:
            _live.add(self)

    def reveal(self) -> str:
        return self._value

    def __repr__(self) -> str:
        return "Secret(…)"

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        return repr(self)

    def __bool__(self) -> bool:
        return bool(self._value)

    def __reduce__(self) -> str:
        raise TypeError("a Secret is never pickled")


def live_values() -> Iterator[str]:
    """Every secret value now alive in this process, for the redaction of logs and results."""
    with _guard:
        present = list(_live)
    return (secret.reveal() for secret in present if secret)
