"""TLS contexts for individual servers and their authorization servers: a client certificate, a private certificate
authority, or both.

Equal contexts are shared because each costs 700 KiB. On Linux a key never touches a disk: OpenSSL reads it from a file
in memory. Elsewhere it reads a private file that is removed immediately.
"""

import functools
import os
import ssl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager


@functools.lru_cache(maxsize=64)
def client_context(certificate: str, key: str, ca: str = "") -> ssl.SSLContext:
    """Takes PEM texts. With `ca`, only that authority is trusted, not the public ones. Raises ssl.SSLError."""
    context = ssl.create_default_context(cadata=ca or None)
    if ca:
        _accept_default_authorities(context)
    if certificate:
        with _readable(f"{certificate.rstrip()}\n{key}".encode()) as path:
            # an empty passphrase: with none, OpenSSL would prompt for an encrypted key's passphrase on the terminal
            context.load_cert_chain(path, password="")
    return context


@contextmanager
def _readable(data: bytes) -> Iterator[str]:
    """The path of a file with this content, for as long as it is read."""
    if not hasattr(os, "memfd_create"):
        with tempfile.NamedTemporaryFile() as file:
            file.write(data)
            file.flush()
            yield file.name
        return
    descriptor = os.memfd_create("client", os.MFD_CLOEXEC)
    try:
        os.write(descriptor, data)
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)


@functools.lru_cache(maxsize=64)
def trusting(ca: str) -> ssl.SSLContext:
    """Trusts this authority (PEM) besides the public ones, and presents no certificate. Raises ssl.SSLError."""
    context = ssl.create_default_context()
    _accept_default_authorities(context)
    context.load_verify_locations(cadata=ca)
    return context


def _accept_default_authorities(context: ssl.SSLContext) -> None:
    """Python 3.13 and later demand extensions of RFC 5280, such as key identifiers, that many private authorities
    omit. Signatures, names and validity are still checked."""
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
