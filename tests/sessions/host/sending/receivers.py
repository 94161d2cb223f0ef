"""Receivers that tests send to: syslog over TLS, and an S3-compatible store that checks signatures itself."""

import base64
import hashlib
import hmac
import re
import socket
import ssl
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from tests.sessions.mcp.transports.test_client_certificates import Pair, made

ACCESS_KEY, SECRET_KEY, REGION = "AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", "eu-central-1"


# --- syslog -------------------------------------------------------------------------------------------------------------
class SyslogReceiver:
    """Reads each connection to its end and keeps its messages. `manner`: "farewell" ends TLS properly, "close" only closes
    the socket, "reset" dies with unread data, "silent" keeps the connection open."""

    def __init__(self, folder: Path, *, client: Pair | None = None) -> None:
        self.messages: list[bytes] = []
        self.connections = 0
        self.manner = "farewell"
        pair = made("receiver")
        self.ca = pair.pem
        (folder / "receiver.pem").write_text(pair.pem + pair.key_pem)
        self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._tls.load_cert_chain(folder / "receiver.pem")
        if client is not None:
            self._tls.verify_mode = ssl.CERT_REQUIRED
            self._tls.load_verify_locations(cadata=client.pem)
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        self.over = threading.Event()
        threading.Thread(target=self._serve, daemon=True).start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def close(self) -> None:
        self.over.set()
        self._listening.close()

    def _serve(self) -> None:
        while not self.over.is_set():
            try:
                opened, _ = self._listening.accept()
            except OSError:
                return
            threading.Thread(target=self._receive, args=(opened,), daemon=True).start()

    def _receive(self, opened: socket.socket) -> None:
        self.connections += 1
        try:
            stream = self._tls.wrap_socket(opened, server_side=True)
            if self.manner == "reset":
                stream.recv(1)
                stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                stream.close()
                return
            data = b""
            while piece := stream.recv(65_536):
                data += piece
            self.messages += unframed(data)
            if self.manner == "silent":
                self.over.wait(30)
            elif self.manner == "farewell":
                stream.unwrap()
            stream.close()
        except OSError:
            opened.close()


def unframed(data: bytes) -> list[bytes]:
    """Octet counting (RFC 6587, RFC 5425)."""
    messages = []
    while data:
        length, _, rest = data.partition(b" ")
        messages.append(rest[: int(length)])
        data = rest[int(length) :]
    return messages


@contextmanager
def syslog_receiver(folder: Path, client: Pair | None = None) -> Iterator[SyslogReceiver]:
    receiver = SyslogReceiver(folder, client=client)
    try:
        yield receiver
    finally:
        receiver.close()


# --- S3 -----------------------------------------------------------------------------------------------------------------
class Bucket:
    """Objects by path. Refuses what is not signed, as the AWS documentation describes Signature Version 4: written from it,
    not from the library that signs."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.headers: dict[str, dict[str, str]] = {}
        self.parts: dict[int, bytes] = {}
        self.aborted = False
        self.fail_part = 0
        self.completed = b"<CompleteMultipartUploadResult/>"
        self.endpoint = ""

    def take(self, request: BaseHTTPRequestHandler, method: str) -> tuple[int, dict[str, str], bytes]:
        body = request.rfile.read(int(request.headers.get("Content-Length") or 0))
        headers = {name.lower(): value for name, value in request.headers.items()}
        if problem := refusal(method, request.path, headers, body):
            return 403, {}, f"<Error><Code>{problem}</Code><Message>no</Message></Error>".encode()
        url = urlsplit(request.path)
        query, path = dict(parse_qsl(url.query, keep_blank_values=True)), unquote(url.path)
        if method == "POST" and "uploads" in query:
            return (
                200,
                {},
                b"<InitiateMultipartUploadResult><UploadId>up/1+2</UploadId></InitiateMultipartUploadResult>",
            )
        if method == "PUT" and "partNumber" in query:
            number = int(query["partNumber"])
            if number == self.fail_part:
                return 500, {}, b"<Error><Code>InternalError</Code></Error>"
            self.parts[number] = body
            return 200, {"ETag": f'"{hashlib.md5(body, usedforsecurity=False).hexdigest()}"'}, b""
        if method == "POST" and query.get("uploadId") == "up/1+2":
            numbers = [int(number) for number in re.findall(rb"<PartNumber>(\d+)</PartNumber>", body)]
            self.objects[path] = b"".join(self.parts[number] for number in numbers)
            return 200, {}, self.completed
        if method == "DELETE":
            self.aborted, self.parts = True, {}
            return 204, {}, b""
        self.objects[path], self.headers[path] = body, headers
        return 200, {}, b""


def refusal(method: str, target: str, headers: dict[str, str], body: bytes) -> str:
    """The S3 error code, or empty if the request is signed."""
    found = re.fullmatch(
        r"AWS4-HMAC-SHA256 Credential=([^/]+)/(\d{8})/([^/]+)/s3/aws4_request, ?SignedHeaders=([^,]+), ?Signature=([0-9a-f]{64})",
        headers.get("authorization", ""),
    )
    if found is None or found[1] != ACCESS_KEY:
        return "InvalidAccessKeyId"
    signed = found[4].split(";")
    if any(name not in signed for name in headers if name == "host" or name.startswith("x-amz-")):
        return "AccessDenied"
    digest = hashlib.sha256(body).hexdigest()
    if headers["x-amz-content-sha256"] != digest:
        return "XAmzContentSHA256Mismatch"
    checksum = headers.get("x-amz-checksum-sha256")
    if checksum is not None and base64.b64decode(checksum).hex() != digest:
        return "BadDigest"
    url = urlsplit(target)
    pairs = sorted(
        (quote(name, safe="-_.~"), quote(value, safe="-_.~"))
        for name, value in parse_qsl(url.query, keep_blank_values=True)
    )
    canonical = "\n".join(
        [
            method,
            quote(unquote(url.path), safe="/-_.~"),
            "&".join(f"{name}={value}" for name, value in pairs),
            *(f"{name}:{' '.join(headers[name].split())}" for name in signed),
            "",
            found[4],
            digest,
        ]
    )
    scope = f"{found[2]}/{found[3]}/s3/aws4_request"
    text = "\n".join(["AWS4-HMAC-SHA256", headers["x-amz-date"], scope, hashlib.sha256(canonical.encode()).hexdigest()])
    key = f"AWS4{SECRET_KEY}".encode()
    for word in (found[2], found[3], "s3", "aws4_request", text):
        key = hmac.digest(key, word.encode(), "sha256")
    return "" if key.hex() == found[5] else "SignatureDoesNotMatch"


@contextmanager
def s3_bucket() -> Iterator[Bucket]:
    bucket = Bucket()

    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            status, headers, body = bucket.take(self, self.command)
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_PUT = do_POST = do_DELETE = _answer

        def log_message(self, *arguments: object) -> None:
            """Write nothing to the terminal."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    bucket.endpoint = f"http://127.0.0.1:{server.server_address[1]}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield bucket
    finally:
        server.shutdown()
        server.server_close()
