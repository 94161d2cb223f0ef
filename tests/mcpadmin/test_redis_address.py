"""One REDIS_URL configures everything that uses Redis, including a unix socket and a server behind TLS."""

import asyncio
import json
import os
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.sessions.mcp.transports.test_client_certificates import AUTHORITY, made

CONNECT = """
import django; django.setup()
from django.conf import settings
from django.core.cache import cache
from kombu import Connection
with Connection(settings.CELERY_BROKER_URL) as broker:
    broker.ensure_connection(max_retries=1)
    print("database", broker.default_channel.client.connection_pool.connection_kwargs["db"])
cache.set("seen", "yes", 5)
print("cache", cache.get("seen"))
"""
#: what each user of Redis meets: "" or the words of an error with its causes
MEET = """
import asyncio, json
import django; django.setup()
from channels.layers import get_channel_layer
from django.core.cache import cache
from mcpadmin.celery import app

def connect():
    with app.connection_for_write() as broker:
        broker.ensure_connection(max_retries=1, interval_start=0)
        broker.default_channel.client.ping()

def meets(work):
    try:
        work()
    except Exception as problem:
        found = []
        while problem is not None:
            found.append(str(problem))
            problem = problem.__cause__ or problem.__context__
        return " ".join(found)
    return ""

print(json.dumps({
    "broker": meets(connect),
    "cache": meets(lambda: cache.set("seen", "yes", 5)),
    "layer": meets(lambda: asyncio.run(get_channel_layer().group_send("group", {"type": "a"}))),
}))
"""


def in_process(code: str, folder: Path, **own: str) -> str:
    own |= {"MCPADMIN_DATA_DIR": str(folder), "DJANGO_SETTINGS_MODULE": "mcpadmin.settings"}
    command = [sys.executable, "-c", code]
    said = subprocess.run(command, env={**os.environ, **own}, capture_output=True, text=True, check=False, timeout=60)
    assert said.returncode == 0, said.stderr
    return said.stdout


def test_the_address_of_a_unix_socket_serves_broker_and_cache(valkey: Path, tmp_path: Path) -> None:
    said = in_process(CONNECT, tmp_path, REDIS_URL=f"unix://{valkey}?db=3")
    assert said.split("\n")[:2] == ["database 3", "cache yes"]


@contextmanager
def behind_tls(valkey: Path, folder: Path) -> Iterator[int]:
    """The port of a TLS listener before Valkey; its certificate is of AUTHORITY, for localhost."""
    own = made("redis", AUTHORITY, "localhost")
    (folder / "redis.pem").write_text(own.pem + own.key_pem)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "redis.pem")

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(1 << 16):
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        finally:
            writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        from_redis, to_redis = await asyncio.open_unix_connection(valkey)
        await asyncio.gather(pump(reader, to_redis), pump(from_redis, writer))

    loop = asyncio.new_event_loop()
    server: Any = loop.run_until_complete(asyncio.start_server(serve, "127.0.0.1", 0, ssl=context))
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    yield server.sockets[0].getsockname()[1]
    loop.call_soon_threadsafe(server.close)
    loop.call_soon_threadsafe(loop.stop)
    thread.join(10)


def test_a_redis_behind_tls_is_used_when_its_certificate_is_trusted_and_refused_otherwise(
    valkey: Path, tmp_path: Path
) -> None:
    (tmp_path / "authority.pem").write_text(AUTHORITY.pem)
    trust = {"SSL_CERT_FILE": str(tmp_path / "authority.pem")}
    with behind_tls(valkey, tmp_path) as port:
        url = f"rediss://localhost:{port}/0"
        trusted = json.loads(in_process(MEET, tmp_path, REDIS_URL=url, **trust))
        foreign = json.loads(in_process(MEET, tmp_path, REDIS_URL=url))
        misnamed = json.loads(in_process(MEET, tmp_path, REDIS_URL=url.replace("localhost", "127.0.0.1"), **trust))
    assert trusted == {"broker": "", "cache": "", "layer": ""}
    for met in (foreign, misnamed):
        refused = [part for part, words in met.items() if "CERTIFICATE_VERIFY_FAILED" in words]
        assert refused == ["broker", "cache", "layer"], met
