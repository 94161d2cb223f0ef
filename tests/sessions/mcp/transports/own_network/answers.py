"""DNS answers that try to lead us to an internal address: after or beside a public address, or after a failed
lookup."""

import pytest

from .wall import PUBLIC

LOOPBACK, PRIVATE, METADATA = "127.0.0.1", "10.0.0.5", "169.254.169.254"
FAILED: list[str] = []
CASES = {
    "rebound-to-loopback": [[PUBLIC], [LOOPBACK]],
    "rebound-to-private": [[PUBLIC], [PRIVATE]],
    "rebound-to-metadata": [[PUBLIC], [METADATA]],
    "rebound-at-the-third": [[PUBLIC], [PUBLIC], [LOOPBACK]],
    "rebound-at-the-fourth": [[PUBLIC], [PUBLIC], [PUBLIC], [PRIVATE]],
    "mixed-public-first": [[PUBLIC, PRIVATE]],
    "mixed-private-first": [[PRIVATE, PUBLIC]],
    "public-and-ipv6-loopback": [[PUBLIC, "::1"]],
    "public-and-mapped-loopback": [[PUBLIC, "::ffff:127.0.0.1"]],
    "failed-then-private": [FAILED, [PRIVATE]],
    "failed-then-mixed": [FAILED, [PUBLIC, LOOPBACK]],
}
EACH = pytest.mark.parametrize("answers", CASES.values(), ids=CASES)
#: more than any case has answers
TRIES = 6
