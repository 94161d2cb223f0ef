"""The product's own settings with what tests must not share or wait for.

The data directory is a fresh one for each process, so parallel test processes never meet.
"""

import atexit
import os
import shutil
import tempfile

_data_dir = tempfile.mkdtemp(prefix="mcpadmin-test-")
_owner = os.getpid()


def _remove_data_dir() -> None:
    if os.getpid() == _owner:
        shutil.rmtree(_data_dir, ignore_errors=True)


atexit.register(_remove_data_dir)
for _name in [name for name in os.environ if name.startswith("MCPADMIN_")]:
    del os.environ[_name]
# What a developer's shell exports must not decide what the tests run against, nor be written to by them.
os.environ.pop("REDIS_URL", None)
os.environ.pop("DATABASE_URL", None)
os.environ["MCPADMIN_DATA_DIR"] = _data_dir

from mcpadmin.settings import *  # noqa: E402, F403 - Django's way to override settings; only after the environment is ours
from mcpadmin.settings import DATA_DIR, DATABASES  # noqa: E402 - as above

# In a file: writer and reader threads have connections of their own, which an in-memory database would not share.
DATABASES["default"]["TEST"] = {"NAME": str(DATA_DIR / "test.sqlite3")}
# Argon2 takes 50 ms by design; tests of signing in ask for it by the fixture `argon2`.
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
# Throttling counts in the cache; tests that need the real one ask for the fixture `valkey`.
CACHES = {"default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache", "LOCATION": "tests"}}
