"""TLS contexts of single servers and their authorization servers: a client certificate, a private certificate
authority, or both.

Equal contexts are shared because each costs 700 KiB. A key never touches a disk: OpenSSL reads it from a file in
memory.
"""

import functools
import os
import ssl


@functools.lru_cache(maxsize=64)
def client_context(certificate: str, key: str, ca: str = "") -> ssl.SSLContext:
    """Takes PEM texts. With `ca`, only that authority is trusted, not the public ones. Raises ssl.SSLError."""
    context = ssl.create_default_context(cadata=ca or None)
    if certificate:
        descriptor = os.memfd_create("client", os.MFD_CLOEXEC)
        try:
            os.write(descriptor, f"{certificate.rstrip()}\n{key}".encode())
            # an empty passphrase: without one, OpenSSL asks for that of an encrypted key at the terminal, and waits
            context.load_cert_chain(f"/proc/self/fd/{descriptor}", password="")
        finally:
            os.close(descriptor)
    return context


@functools.lru_cache(maxsize=64)
def trusting(ca: str) -> ssl.SSLContext:
    """Trusts this authority (PEM) besides the public ones, and presents no certificate. Raises ssl.SSLError."""
    context = ssl.create_default_context()
    context.load_verify_locations(cadata=ca)
    return context
