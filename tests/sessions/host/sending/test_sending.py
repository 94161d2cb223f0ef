"""What is sent over HTTP, syslog and S3, to real receivers: when it counts as delivered, and what a failure says."""

import asyncio
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from servers.secret import Secret
from sessions.host.sending import http, s3, syslog
from sessions.host.sending.failure import NotDelivered
from sessions.host.sending.s3 import Store
from sessions.mcp.transports import dialing
from sessions.mcp.transports.egress import OutboundPolicy
from sessions.mcp.transports.tls import client_context
from tests.peers.peers import closed_port
from tests.sessions.host.sending.receivers import (
    ACCESS_KEY,
    REGION,
    SECRET_KEY,
    Bucket,
    SyslogReceiver,
    s3_bucket,
    syslog_receiver,
)
from tests.sessions.mcp.transports.making import silent_address
from tests.sessions.mcp.transports.test_client_certificates import made
from tests.sessions.subscriptions.hook import Hook, running_hook

HERE = OutboundPolicy(allow_loopback=True)
MESSAGES = [b"<110>1 - - mcpadmin - - - one", "<110>1 - - mcpadmin - - - zwei ä".encode()]


@pytest.fixture
def hook() -> Iterator[Hook]:
    with running_hook() as hook:
        yield hook


@pytest.fixture
def receiver(tmp_path: Path) -> Iterator[SyslogReceiver]:
    with syslog_receiver(tmp_path) as receiver:
        yield receiver


@pytest.fixture
def bucket() -> Iterator[Bucket]:
    with s3_bucket() as bucket:
        yield bucket


# --- HTTP ---------------------------------------------------------------------------------------------------------------
async def test_a_receiver_that_refuses_is_quoted_without_secrets(hook: Hook) -> None:
    token = Secret("s3cr3t-value-of-this-sink")
    hook.statuses, hook.body = [401], f"token {token.reveal()} is unknown\n".encode()
    with pytest.raises(NotDelivered) as refused:
        await http.send("POST", hook.url, {"X-Key": token.reveal()}, b"{}", policy=HERE, secrets=[token])
    assert refused.value.detail.startswith("The receiver answered with HTTP 401: token [redacted]")
    assert token.reveal() not in refused.value.detail
    assert hook.received[0].headers["x-key"] == token.reveal()


async def test_a_receiver_that_repeats_the_address_is_quoted_without_path_and_query(hook: Hook) -> None:
    url = f"{hook.url}/in/t0ken%20of-this-sink?key=k3y-of-this-sink"
    echoes = [
        b"Cannot POST /hook/in/t0ken%20of-this-sink",
        b"no /hook/in/t0ken of-this-sink",
        b"key=k3y-of-this-sink is unknown",
    ]
    for hook.body in echoes:
        hook.statuses = [404]
        with pytest.raises(NotDelivered) as refused:
            await http.send("POST", url, {}, b"{}", policy=HERE)
        assert "[redacted]" in refused.value.detail
        assert "of-this-sink" not in refused.value.detail


async def test_a_quote_of_a_receiver_can_be_stored_in_any_database(hook: Hook) -> None:
    hook.statuses, hook.body = [500], b"core\0dump"
    with pytest.raises(NotDelivered) as refused:
        await http.send("POST", hook.url, {}, b"{}", policy=HERE)
    assert refused.value.detail == "The receiver answered with HTTP 500: core\ufffddump"


async def test_a_redirect_is_not_followed(hook: Hook) -> None:
    hook.statuses = [307]
    with pytest.raises(NotDelivered, match="Redirects are not followed"):
        await http.send("POST", hook.url, {}, b"{}", policy=HERE)
    assert len(hook.received) == 1


async def test_the_guard_blocks_an_address_and_says_who_can_allow_it(hook: Hook) -> None:
    with pytest.raises(NotDelivered, match="MCPADMIN_ALLOWED_NETWORKS"):
        await http.send("POST", hook.url, {}, b"{}", policy=OutboundPolicy())
    assert hook.received == []


async def test_a_receiver_that_hangs_fails_in_time(hook: Hook) -> None:
    hook.may_answer.clear()
    with pytest.raises(NotDelivered, match=r"did not answer within 0\.2 s"):
        await http.send("POST", hook.url, {}, b"{}", policy=HERE, seconds=0.2)


@pytest.mark.parametrize("status", [200, 400])
async def test_the_status_of_an_answer_that_never_ends_counts(hook: Hook, status: int) -> None:
    """A receiver may hold its answer open: it has the data."""
    hook.statuses, hook.body = [status], b"and so on"
    hook.may_end.clear()
    if status == 200:
        assert (await http.send("POST", hook.url, {}, b"{}", policy=HERE, seconds=1)).status == 200
        return
    with pytest.raises(NotDelivered) as refused:
        await http.send("POST", hook.url, {}, b"{}", policy=HERE, seconds=1)
    assert refused.value.detail == "The receiver answered with HTTP 400."


@pytest.mark.parametrize(("header", "seconds"), [("120", 120.0), ("99999", 300.0), ("soon", None), ("", None)])
async def test_a_receiver_says_how_long_to_wait_within_bounds(hook: Hook, header: str, seconds: float | None) -> None:
    hook.statuses, hook.headers = [429], {"Retry-After": header} if header else {}
    with pytest.raises(NotDelivered) as refused:
        await http.send("POST", hook.url, {}, b"{}", policy=HERE)
    assert (refused.value.status, refused.value.retry_after) == (429, seconds)


@pytest.mark.parametrize("status", [200, 299, 304, 400, 500])
async def test_only_a_status_of_success_counts_as_delivered(hook: Hook, status: int) -> None:
    hook.statuses = [status]
    if status < 300:
        assert (await http.send("POST", hook.url, {}, b"{}", policy=HERE)).status == status
        return
    with pytest.raises(NotDelivered) as refused:
        await http.send("POST", hook.url, {}, b"{}", policy=HERE)
    assert refused.value.status == status


async def test_an_https_receiver_of_an_unknown_authority_or_another_name_gets_nothing(
    receiver: SyslogReceiver,
) -> None:
    for host, tls in (("127.0.0.1", None), ("localhost", client_context("", "", receiver.ca))):
        with pytest.raises(NotDelivered, match="Could not establish a secure connection"):
            await http.send("POST", f"https://{host}:{receiver.port}/", {}, b"secret", policy=HERE, tls=tls)
    assert receiver.messages == []


# --- syslog -------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("manner", ["farewell", "close"])
async def test_messages_are_framed_by_their_length_and_confirmed_by_the_end(
    receiver: SyslogReceiver, manner: str
) -> None:
    receiver.manner = manner
    tls = client_context("", "", receiver.ca)
    await syslog.send("127.0.0.1", receiver.port, MESSAGES, policy=HERE, tls=tls)
    assert receiver.messages == MESSAGES


@pytest.mark.parametrize(
    ("manner", "words"), [("reset", "before it had read everything"), ("silent", "did not confirm")]
)
async def test_a_receiver_that_dies_or_never_ends_has_not_confirmed(
    receiver: SyslogReceiver, manner: str, words: str
) -> None:
    """Everything was handed to the kernel: only the end of the connection tells that it was read."""
    receiver.manner = manner
    tls = client_context("", "", receiver.ca)
    with pytest.raises(NotDelivered, match=words):
        await syslog.send("127.0.0.1", receiver.port, MESSAGES * 200, policy=HERE, tls=tls, seconds=0.5)


async def test_a_receiver_of_an_unknown_authority_gets_nothing(receiver: SyslogReceiver) -> None:
    with pytest.raises(NotDelivered, match="Could not establish a secure connection"):
        await syslog.send("127.0.0.1", receiver.port, MESSAGES, policy=HERE)
    assert receiver.messages == []


async def test_a_receiver_that_wants_a_certificate_gets_ours_and_refuses_others(tmp_path: Path) -> None:
    client = made("mcpadmin")
    with syslog_receiver(tmp_path, client) as receiver:
        ours = client_context(client.pem, client.key_pem, receiver.ca)
        await syslog.send("127.0.0.1", receiver.port, MESSAGES, policy=HERE, tls=ours)
        with pytest.raises(NotDelivered):
            await syslog.send(
                "127.0.0.1", receiver.port, MESSAGES, policy=HERE, tls=client_context("", "", receiver.ca)
            )
        assert receiver.messages == MESSAGES


async def test_a_silent_address_of_a_syslog_receiver_does_not_keep_the_others_from_being_tried(
    receiver: SyslogReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    with silent_address() as silent:

        async def infos(*_: object) -> list[Any]:
            places = (silent, ("127.0.0.1", receiver.port))
            return [(socket.AF_INET, socket.SOCK_STREAM, 0, "", place) for place in places]

        monkeypatch.setattr(dialing, "_infos", infos)
        tls = client_context("", "", receiver.ca)
        await syslog.send("127.0.0.1", receiver.port, MESSAGES, policy=HERE, tls=tls, seconds=5)
    assert receiver.messages == MESSAGES


async def test_slow_syslog_receivers_take_no_thread_from_anything_else(receiver: SyslogReceiver) -> None:
    receiver.manner = "silent"
    tls = client_context("", "", receiver.ca)
    sending = [
        asyncio.create_task(syslog.send("127.0.0.1", receiver.port, MESSAGES, policy=HERE, tls=tls, seconds=10))
        for _ in range(12)
    ]
    loop = asyncio.get_running_loop()
    loop.set_default_executor(ThreadPoolExecutor(1))
    async with asyncio.timeout(5):
        for _ in range(400):
            if len(receiver.messages) == 12 * len(MESSAGES):
                break
            await asyncio.sleep(0.01)
        await asyncio.to_thread(int)
    assert not any(one.done() for one in sending)
    receiver.close()
    await asyncio.gather(*sending, return_exceptions=True)


async def test_syslog_passes_the_guard_too_and_says_where_nothing_listens(receiver: SyslogReceiver) -> None:
    with pytest.raises(NotDelivered, match="MCPADMIN_ALLOWED_NETWORKS"):
        await syslog.send("127.0.0.1", receiver.port, MESSAGES, policy=OutboundPolicy())
    with pytest.raises(NotDelivered, match="Could not connect"):
        await syslog.send("127.0.0.1", closed_port(), MESSAGES, policy=HERE)
    assert receiver.connections == 0


# --- S3 -----------------------------------------------------------------------------------------------------------------
def store(bucket: Bucket, secret: str = SECRET_KEY) -> Store:
    return Store(bucket.endpoint, REGION, "audit", ACCESS_KEY, Secret(secret))


async def test_an_object_is_signed_and_lies_under_its_key(bucket: Bucket) -> None:
    await s3.put(store(bucket), "a/b c+ä.jsonl", b"lines\n", policy=HERE, lock_until="2027-01-01T00:00:00Z")
    assert bucket.objects == {"/audit/a/b c+ä.jsonl": b"lines\n"}
    headers = bucket.headers["/audit/a/b c+ä.jsonl"]
    assert headers["x-amz-object-lock-mode"] == "COMPLIANCE"


async def test_a_wrong_key_is_named_by_the_store(bucket: Bucket) -> None:
    with pytest.raises(NotDelivered, match=r"refused the upload to audit: SignatureDoesNotMatch \(HTTP 403\)"):
        await s3.put(store(bucket, "another"), "x", b"1", policy=HERE)
    assert bucket.objects == {}


async def test_a_large_file_goes_up_in_parts(bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3, "PART_BYTES", 1_000)
    data = bytes(range(256)) * 10
    (tmp_path / "file").write_bytes(data)
    await s3.put_file(store(bucket), "file", tmp_path / "file", policy=HERE)
    assert bucket.objects == {"/audit/file": data}
    assert len(bucket.parts) == 3


async def test_parts_of_a_failed_upload_are_removed(
    bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(s3, "PART_BYTES", 1_000)
    bucket.fail_part = 2
    (tmp_path / "file").write_bytes(b"x" * 2_500)
    with pytest.raises(NotDelivered, match="InternalError"):
        await s3.put_file(store(bucket), "file", tmp_path / "file", policy=HERE)
    assert (bucket.objects, bucket.aborted) == ({}, True)


@pytest.mark.parametrize("answer", [b"<Error><Code>InternalError</Code></Error>", b'<?xml version="1.0"?>   ', b""])
async def test_a_large_file_is_there_only_if_the_store_says_so_after_its_status(
    answer: bytes, bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The beginning of an answer whose connection breaks, too."""
    monkeypatch.setattr(s3, "PART_BYTES", 1_000)
    bucket.completed = answer
    (tmp_path / "file").write_bytes(b"x" * 2_500)
    with pytest.raises(NotDelivered, match="could not complete the multipart upload"):
        await s3.put_file(store(bucket), "file", tmp_path / "file", policy=HERE)
    assert bucket.aborted
