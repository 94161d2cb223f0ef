"""Random bytes and UUIDs for the path of a call, from OpenSSL's generator, which also secures TLS and is fork-safe.

`os.urandom` and `uuid.uuid4` call the kernel each time and release the GIL: among the many threads of a busy process,
getting it back costs several times as much as sealing a value.
"""

from ssl import RAND_bytes
from uuid import UUID


def random_bytes(count: int) -> bytes:
    return RAND_bytes(count)


def random_uuid() -> UUID:
    return UUID(bytes=RAND_bytes(16), version=4)
