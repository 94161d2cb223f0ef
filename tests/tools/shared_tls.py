"""One TLS context for all clients that a test creates: most speak plain HTTP, and loading the authorities for each takes
50 ms of the processor."""

import ssl

SHARED_TLS = ssl.create_default_context()
