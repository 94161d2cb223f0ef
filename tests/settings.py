"""The product's settings, minus what tests must not share or wait for.

Each process has a fresh data directory, so parallel test processes never collide.
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
# Variables exported by a developer's shell must not decide what the tests run against, nor may tests write to it.
os.environ.pop("REDIS_URL", None)
os.environ.pop("DATABASE_URL", None)
os.environ["MCPADMIN_DATA_DIR"] = _data_dir

from mcpadmin import settings as _product  # noqa: E402 - as above
from mcpadmin.settings import *  # noqa: E402, F403 - Django's way to override settings; after the environment is clean

# Its command `flush` replaces Django's between tests; see there.
INSTALLED_APPS = ["tests.tools", *_product.INSTALLED_APPS]
_database = _product.DATABASES["default"]
DATABASES = {
    "default": _database
    | {
        # A file: writer and reader threads use separate connections, which an in-memory database would not share.
        "TEST": {"NAME": str(_product.DATA_DIR / "test.sqlite3")},
        # Test rows need not survive a power cut. Processes that a test starts keep the product's setting.
        "OPTIONS": _database["OPTIONS"]
        | {"init_command": _database["OPTIONS"]["init_command"].replace("synchronous=FULL", "synchronous=OFF")},
    }
}
# Argon2 takes 50 ms by design. Sign-in tests request it with the fixture `argon2`.
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
# Throttling counts in the cache. Tests that need the real cache request the fixture `valkey`.
CACHES = {"default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache", "LOCATION": "tests"}}
# WhiteNoise looks for a static file when one is asked for. Otherwise each test client would list all of them first, for
# 9 ms of CPU time in thousands of tests.
WHITENOISE_AUTOREFRESH = True
