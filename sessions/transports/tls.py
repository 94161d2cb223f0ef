"""A TLS context of a server's own: a client certificate, a private certificate authority, or both.

Contexts are shared by what they hold, as each costs 700 KiB. A key never meets a disk: OpenSSL reads it from a file
in memory.
"""

import functools
import os
import ssl


@functools.lru_cache(maxsize=64)
def client_context(certificate: str, key: str, ca: str = "") -> ssl.SSLContext:
    """PEM texts. With `ca`, only what it signed is trusted, not the public authorities. Raises ssl.SSLError."""
    context = ssl.create_default_context(cadata=ca or None)
    if certificate:
        descriptor = os.memfd_create("client", os.MFD_CLOEXEC)
        try:
            os.write(descriptor, f"{certificate.rstrip()}\n{key}".encode())
            context.load_cert_chain(f"/proc/self/fd/{descriptor}")
        finally:
            os.close(descriptor)
    return context
