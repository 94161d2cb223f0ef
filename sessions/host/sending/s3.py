"""Uploads objects to an S3-compatible store: signed by requests-aws4auth (AWS Signature Version 4), sent by our own
engine.

Why that library: AWS's own `aws-sdk-signers` needs Python 3.12, botocore is 25 MB with hundreds of services, and the
S3 SDKs open their own connections, bypassing the outbound guard.
"""

import asyncio
import base64
import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import quote, urlsplit

import httpx

from servers.secret import Secret
from sessions.host.sending import http
from sessions.host.sending.failure import NotDelivered
from sessions.host.sending.http import Answer
from sessions.mcp.core.limits import KIB
from sessions.mcp.transports.egress import OutboundPolicy

SECONDS: Final = 120.0
#: larger files go up in parts; a store takes at most 10,000 of them
PART_BYTES: Final = 32 * KIB * KIB
PARTS: Final = 10_000
_UPLOAD_ID: Final = re.compile(rb"<UploadId>([^<]{1,1024})</UploadId>")


@dataclass(frozen=True)
class Store:
    """A bucket, addressed by path (`https://host/bucket/key`), which every S3-compatible store understands."""

    endpoint: str
    region: str
    bucket: str
    access_key: str
    secret_key: Secret = field(repr=False)


async def put(
    store: Store,
    key: str,
    data: bytes,
    *,
    policy: OutboundPolicy,
    content_type: str = "application/octet-stream",
    lock_until: str = "",
) -> None:
    """Upload one object. `lock_until`: ISO time until which the store must keep it (object lock, mode COMPLIANCE).
    Raises NotDelivered."""
    headers = {"Content-Type": content_type}
    if lock_until:
        headers |= {"x-amz-object-lock-mode": "COMPLIANCE", "x-amz-object-lock-retain-until-date": lock_until}
    await _request(store, "PUT", key, "", headers, data, policy)


async def put_file(
    store: Store,
    key: str,
    path: Path,
    *,
    policy: OutboundPolicy,
    content_type: str = "application/octet-stream",
) -> None:
    """Upload a file of any size: above PART_BYTES in parts, which become one object at the end, or none. Raises
    NotDelivered, and OSError if the file cannot be read."""
    size = (await asyncio.to_thread(path.stat)).st_size
    if size <= PART_BYTES:
        data = await asyncio.to_thread(path.read_bytes)
        await put(store, key, data, policy=policy, content_type=content_type)
        return
    begun = await _request(store, "POST", key, "uploads=", {"Content-Type": content_type}, b"", policy)
    found = _UPLOAD_ID.search(begun.body)
    if found is None:
        raise NotDelivered("The store did not start the multipart upload.")
    upload = f"uploadId={quote(found[1].decode(), safe='')}"
    try:
        tags: list[str] = []
        length = max(PART_BYTES, -(-size // PARTS))
        for number in range(1, -(-size // length) + 1):
            part = await asyncio.to_thread(_part, path, (number - 1) * length, length)
            answer = await _request(store, "PUT", key, f"partNumber={number}&{upload}", {}, part, policy)
            tags.append(answer.headers.get("etag", ""))
        await _complete(store, key, upload, tags, policy)
    except BaseException:  # leftover parts cost money
        try:
            await _request(store, "DELETE", key, upload, {}, b"", policy)
        except NotDelivered:
            pass  # the first failure is the one to report
        raise


async def _complete(store: Store, key: str, upload: str, tags: list[str], policy: OutboundPolicy) -> None:
    items = "".join(
        f"<Part><PartNumber>{number}</PartNumber><ETag>{tag}</ETag></Part>" for number, tag in enumerate(tags, 1)
    )
    document = f"<CompleteMultipartUpload>{items}</CompleteMultipartUpload>".encode()
    answer = await _request(store, "POST", key, upload, {"Content-Type": "application/xml"}, document, policy)
    # the store answers 200 before it knows the result: the body may report a failure, or never arrive
    if b"CompleteMultipartUploadResult" not in answer.body:
        raise NotDelivered("The store could not complete the multipart upload.", answer.status)


async def _request(
    store: Store,
    method: str,
    key: str,
    query: str,
    headers: Mapping[str, str],
    body: bytes,
    policy: OutboundPolicy,
) -> Answer:
    from requests_aws4auth import AWS4Auth  # noqa: PLC0415  # 5 MB with requests, which few installations need

    url = f"{store.endpoint.rstrip('/')}/{quote(store.bucket, safe='')}/{quote(key, safe='/-_.~')}"
    request = httpx.Request(method, f"{url}?{query}" if query else url, headers=dict(headers), content=body)
    if method == "PUT" and not query:  # object lock requires a checksum; a part must not have its own
        request.headers["x-amz-checksum-sha256"] = base64.b64encode(hashlib.sha256(body).digest()).decode()
    request.headers["Host"] = AWS4Auth.get_host_header(url)
    signed = AWS4Auth(store.access_key, store.secret_key.reveal(), store.region, "s3")(request)
    try:
        headers = signed.headers
        return await http.send(
            method, str(signed.url), headers, body, policy=policy, seconds=SECONDS, secrets=[store.secret_key]
        )
    except NotDelivered as exc:
        raise NotDelivered(_explained(exc, store), exc.status, exc.retry_after) from exc


def _explained(problem: NotDelivered, store: Store) -> str:
    """S3 answers in XML; its code says what to do."""
    code = re.search(r"<Code>([A-Za-z]{1,60})</Code>", problem.detail)
    host = urlsplit(store.endpoint).netloc
    if problem.status is None or code is None:
        return f"{host}: {problem.detail}"
    return f"{host} refused the upload to {store.bucket}: {code[1]} (HTTP {problem.status})."


def _part(path: Path, start: int, length: int) -> bytes:
    with path.open("rb") as file:
        file.seek(start)
        return file.read(length)
