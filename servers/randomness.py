"""Random bytes and UUIDs for the path of a call, from OpenSSL's generator, which also secures TLS and is safe across forks.

`os.urandom` and `uuid.uuid4` ask the kernel each time and let other threads go on meanwhile: among the many threads of a
busy process, waiting for the turn costs several times what sealing a value does.
"""

from ssl import RAND_bytes
from uuid import UUID


def random_bytes(count: int) -> bytes:
    return RAND_bytes(count)


def random_uuid() -> UUID:
    return UUID(bytes=RAND_bytes(16), version=4)
