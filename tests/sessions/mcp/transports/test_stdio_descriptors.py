"""Starts of stdio servers while no file descriptor is free: nothing is lost for the time after."""

import asyncio
import os
import resource
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from sessions.mcp.transports.stdio import keeper_client
from sessions.mcp.transports.stdio.connect_gate import AddressRules, Network
from sessions.mcp.transports.stdio.names import Forwarder

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux confines")


def open_descriptors() -> set[int]:
    found = set()
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            os.fstat(int(name))  # not that of the listing
            found.add(int(name))
    return found


@contextmanager
def only(free: int) -> Iterator[None]:
    """So many further descriptors may be opened."""
    used, number = open_descriptors(), 0
    while free or number in used:
        free -= number not in used
        number += 1
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (number, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize("free", range(8))
async def test_a_start_that_finds_too_few_descriptors_keeps_none(free: int) -> None:
    before = open_descriptors()
    with only(free), pytest.raises(OSError, match="Too many open files"):
        await keeper_client.start(asyncio.SubprocessProtocol, -1, -1)
    assert open_descriptors() == before


async def test_names_are_looked_up_again_after_a_moment_without_a_free_descriptor() -> None:
    forwarder, asker = Forwarder(), AddressRules(Network.PUBLIC)
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as client:
        with only(0), pytest.raises(OSError, match="Too many open files"):
            await forwarder.address(client, asker)
        host, port, *_ = await forwarder.address(client, asker)
    assert (host, port > 0) == ("127.0.0.1", True)
