"""One REDIS_URL configures everything that uses Redis, including a unix socket."""

import os
import subprocess
import sys
from pathlib import Path

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


def test_the_address_of_a_unix_socket_serves_broker_and_cache(valkey: Path, tmp_path: Path) -> None:
    own = {"REDIS_URL": f"unix://{valkey}?db=3", "MCPADMIN_DATA_DIR": str(tmp_path)}
    environment = {**os.environ, **own, "DJANGO_SETTINGS_MODULE": "mcpadmin.settings"}
    said = subprocess.run([sys.executable, "-c", CONNECT], env=environment, capture_output=True, text=True, check=False)
    assert said.stdout.split("\n")[:2] == ["database 3", "cache yes"], said.stderr
