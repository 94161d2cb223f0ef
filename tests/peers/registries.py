"""A registry for npm and an index for uv, as one small HTTP server on loopback. Their packages are MCP servers whose
content a test changes."""

import base64
import hashlib
import io
import json
import tarfile
import threading
import zipfile
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

_JS = """#!/usr/bin/env node
const helped = require('%(helper)s');
const tools = %(tools)s.map((name) => ({name, inputSchema: {type: 'object'}}));
require('fs').appendFileSync(process.env.RAN, '%(mark)s ' + helped + ' ' + process.argv.slice(2).join(' ') + '\\n');
const send = (message) => process.stdout.write(JSON.stringify({jsonrpc: '2.0', ...message}) + '\\n');
require('readline').createInterface({input: process.stdin}).on('line', (line) => {
  const {id, method} = JSON.parse(line);
  if (id === undefined) return;
  const results = {
    initialize: {protocolVersion: '2025-06-18', capabilities: {tools: {}}, serverInfo: {name: 'notes', version: '%(version)s'}},
    'tools/list': {tools},
    ping: {},
  };
  send(results[method] ? {id, result: results[method]} : {id, error: {code: -32601, message: 'unknown'}});
});
"""
_PYTHON = """
import json, os, sys
import %(helper)s
def main():
    tools = [{"name": name, "inputSchema": {"type": "object"}} for name in %(tools)s]
    with open(os.environ["RAN"], "a") as ran:
        ran.write(" ".join(["%(mark)s", %(helper)s.MARK, *sys.argv[1:]]) + "\\n")
    for line in sys.stdin:
        message = json.loads(line)
        if "id" not in message:
            continue
        results = {
            "initialize": {
                "protocolVersion": "2025-06-18",
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "notes", "version": "%(version)s"},
            },
            "tools/list": {"tools": tools},
            "ping": {},
        }
        found = results.get(message["method"])
        answer = {"error": {"code": -32601, "message": "unknown"}} if found is None else {"result": found}
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **answer}), flush=True)
"""


@dataclass
class Release:
    files: dict[str, bytes]
    dependencies: dict[str, str] = field(default_factory=dict)
    executable: bool = False

    def tarball(self, name: str, version: str) -> bytes:
        about: dict[str, Any] = {"name": name, "version": version, "dependencies": self.dependencies}
        if self.executable:
            about["bin"] = {name: "index.js"}
        data = io.BytesIO()
        with tarfile.open(fileobj=data, mode="w:gz") as archive:
            for path, content in {"package.json": json.dumps(about).encode(), **self.files}.items():
                entry = tarfile.TarInfo(f"package/{path}")
                entry.size, entry.mode = len(content), 0o755
                archive.addfile(entry, io.BytesIO(content))
        return data.getvalue()

    def wheel(self, name: str, version: str) -> bytes:
        about = f"{name}-{version}.dist-info"
        needs = "".join(f"Requires-Dist: {one}{wanted}\n" for one, wanted in self.dependencies.items())
        data = io.BytesIO()
        with zipfile.ZipFile(data, "w") as archive:
            for path, content in self.files.items():
                archive.writestr(zipfile.ZipInfo(path), content)
            archive.writestr(
                zipfile.ZipInfo(f"{about}/METADATA"),
                f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}",
            )
            tags = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
            archive.writestr(zipfile.ZipInfo(f"{about}/WHEEL"), tags)
            if self.executable:
                archive.writestr(
                    zipfile.ZipInfo(f"{about}/entry_points.txt"), f"[console_scripts]\n{name} = {name}:main\n"
                )
            archive.writestr(zipfile.ZipInfo(f"{about}/RECORD"), "")
        return data.getvalue()


class Registries:
    """Serves `notes`, an MCP server, and `helper`, which it needs. `fetched`: the paths that were asked for."""

    def __init__(self) -> None:
        self.npm: dict[str, dict[str, bytes]] = {}
        self.pypi: dict[str, dict[str, bytes]] = {}
        self.fetched: list[str] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def close(self) -> None:
        """May be called twice."""
        self._server.shutdown()
        self._server.server_close()

    def publish(self, version: str, mark: str, tools: tuple[str, ...] = ("add",)) -> None:
        """`notes` in both; what runs appends `mark` to the file that the variable RAN names."""
        words = {"mark": mark, "version": version, "tools": json.dumps(tools), "helper": "helper"}
        script = Release({"index.js": (_JS % words).encode()}, {"helper": "^1.0.0"}, True)
        module = Release({"notes.py": (_PYTHON % words).encode()}, {"helper": ">=1"}, True)
        self.npm.setdefault("notes", {})[version] = script.tarball("notes", version)
        self.pypi.setdefault("notes", {})[version] = module.wheel("notes", version)

    def publish_helper(self, version: str, mark: str) -> None:
        script = Release({"index.js": f"module.exports = '{mark}';".encode()})
        module = Release({"helper.py": f"MARK = '{mark}'".encode()})
        self.npm.setdefault("helper", {})[version] = script.tarball("helper", version)
        self.pypi.setdefault("helper", {})[version] = module.wheel("helper", version)

    def npm_integrity(self, name: str, version: str) -> str:
        return f"sha512-{base64.b64encode(hashlib.sha512(self.npm[name][version]).digest()).decode()}"

    def pypi_hash(self, name: str, version: str) -> str:
        return f"sha256:{hashlib.sha256(self.pypi[name][version]).hexdigest()}"

    # --- answers ---------------------------------------------------------------------------------------------------
    def _answer(self, path: str) -> tuple[str, bytes] | None:
        kind, _, rest = path.strip("/").partition("/")
        if kind == "npm" and rest in self.npm:
            return "application/json", json.dumps(self._packument(rest)).encode()
        if kind == "simple" and rest in self.pypi:
            return "text/html", self._links(rest).encode()
        if kind == "files":
            where, name, version, _ = rest.split("/")
            found = (self.npm if where == "npm" else self.pypi).get(name, {}).get(version)
            return None if found is None else ("application/octet-stream", found)
        return None

    def _packument(self, name: str) -> dict[str, Any]:
        versions = {version: self._version(name, version) for version in self.npm[name]}
        return {"name": name, "dist-tags": {"latest": list(versions)[-1]}, "versions": versions}

    def _version(self, name: str, version: str) -> dict[str, Any]:
        with tarfile.open(fileobj=io.BytesIO(self.npm[name][version])) as archive:
            member = archive.extractfile("package/package.json")
            assert member is not None
            about = json.load(member)
        tarball = f"{self.url}/files/npm/{name}/{version}/{name}-{version}.tgz"
        return about | {"dist": {"tarball": tarball, "integrity": self.npm_integrity(name, version)}}

    def _links(self, name: str) -> str:
        links = [
            f'<a href="/files/pypi/{name}/{version}/{name}-{version}-py3-none-any.whl'
            f'#{self.pypi_hash(name, version).replace(":", "=")}">{name}-{version}-py3-none-any.whl</a>'
            for version in self.pypi[name]
        ]
        return f"<!DOCTYPE html><html><body>{''.join(links)}</body></html>"

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        registries = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                registries.fetched.append(self.path)
                found = registries._answer(self.path)
                self.send_response(200 if found else 404)
                kind, data = found or ("text/plain", b"not here")
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def do_HEAD(self) -> None:
                self.send_response(405)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                """Quiet."""

        return Handler
