"""What a receiver's answer means for a sink, whatever it says."""

import pytest

from servers.secret import Secret
from sessions.host.forwarding import partial_success

TOKEN = Secret("canary-of-the-sink-51f0")


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        (b'{"partialSuccess":{"rejectedLogRecords":"2","errorMessage":"too old"}}', (2, "too old")),
        (b'{"partialSuccess":{"rejectedLogRecords":1e999}}', (0, "")),
        (b'{"partialSuccess":{"rejectedLogRecords":-1}}', (0, "")),
        (b'{"partialSuccess":{"rejectedLogRecords":99999999999999999999}}', (3, "")),
        (b'{"partialSuccess":{"rejectedLogRecords":1,"errorMessage":"a\\u0000b\\ud800"}}', (1, "a\ufffdb\ufffd")),
        (b'{"partialSuccess":{"rejectedLogRecords":1,"errorMessage":"canary-of-the-sink-51f0?"}}', (1, "[redacted]?")),
        (b'{"partialSuccess":[]}', (0, "")),
        (b"<html>", (0, "")),
        (b"", (0, "")),
    ],
)
def test_what_an_otlp_receiver_rejected_is_within_what_was_sent_and_can_be_stored(
    answer: bytes, found: tuple[int, str]
) -> None:
    assert partial_success(answer, 3, TOKEN) == found
