"""Turns server notifications into events. Progress is handled elsewhere: it belongs to a request in flight."""

from collections.abc import Iterator

from . import events, methods
from .jsonrpc import Notification


def events_of(message: Notification) -> Iterator[events.Event]:
    """Yields nothing for a resource update without a usable URI."""
    params = message.params
    if message.method == methods.MESSAGE:
        logger = params.get("logger")
        level = str(params.get("level", "info"))[:32]
        yield events.LogMessage(level, logger if isinstance(logger, str) else None, params.get("data"))
    elif message.method in methods.LIST_CHANGED:
        yield events.ListChanged(methods.LIST_CHANGED[message.method])
    elif message.method == methods.RESOURCE_UPDATED:
        if isinstance(uri := params.get("uri"), str):
            yield events.ResourceUpdated(uri)
    else:
        yield events.OtherNotification(message.method, params)
