"""A scripted MCP server (2025-11-25, stdio) that puts a text of the corpus into everything that a server can say.

`python scripted.py ROWS`: it offers ROWS tools that answer, as many with schemas, and as many resources, templates and
prompts. The fields of row `i` hold other texts than those of row `i + 1`. Standard library only.
"""

import base64
import itertools
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
import corpus

ROWS = int(sys.argv[1]) if __name__ == "__main__" else 1
DOT = base64.b64encode(b"\x89PNG\r\n\x1a\n").decode()
NAMES = 128
#: tools that end in another way than with a result; the row of a tool modulo their number chooses
ENDINGS = ("result", "isError", "error", "notifications", "violation")
ASKS = {"ask form": "elicitation/create", "ask url": "elicitation/create", "ask model": "sampling/createMessage"}
_written = itertools.count()


def field(name: str) -> int:
    return corpus.SERVER_FIELDS.index(name)


def text(name: str, row: int, most: int | None = None) -> str:
    return corpus.text(field(name), row, most)


def long_text(name: str, row: int) -> str:
    """Every fifth holds the whole corpus."""
    return corpus.whole(field(name)) if row % 5 == 4 else text(name, row)


def say(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def icons(name: str, row: int) -> list[dict[str, Any]]:
    return [{"src": text(name, row), "mimeType": "image/svg+xml", "sizes": ["any"]}]


# --- what it offers --------------------------------------------------------------------------------------------------
def tool(row: int) -> dict[str, Any]:
    """A callable tool: its schema requires no arguments."""
    name = f"call {row} {text('tool.name', row, NAMES - 10)}"
    found = {"name": name, "title": text("tool.title", row), "description": long_text("tool.description", row)}
    found |= {
        "inputSchema": {"type": "object"},
        "icons": icons("tool.icon", row),
        "_meta": {"x": text("tool.meta", row)},
    }
    if ENDINGS[row % len(ENDINGS)] == "violation":
        key = text("schema.output", row)
        found["outputSchema"] = {"type": "object", "properties": {key: {"type": "integer"}}, "required": [key]}
    return found


def tool_with_schema(row: int) -> dict[str, Any]:
    def t(name: str) -> str:
        return text(f"schema.{name}", row)

    named = {"title": t("property_title"), "description": t("property_description")}
    properties = {
        t("property"): named | {"type": "string", "default": t("default"), "examples": [t("example")]},
        "choice": {"type": "string", "title": t("title"), "enum": [t("enum"), "b"], "enumNames": [t("enum_name"), "b"]},
        "one": {"oneOf": [{"const": t("const_title"), "title": t("const_title")}, {"const": "b", "title": "b"}]},
        "list": {
            "type": "array",
            "items": named | {"type": "string", "default": t("default")},
            "default": [t("default")],
        },
        "inner": {"type": "object", "properties": {t("property"): named | {"type": "integer"}}},
    }
    if row % 3 == 0:
        properties["odd"] = {"type": "string", "pattern": t("pattern"), "format": t("format")}
    if row % 7 == 6:
        properties["elsewhere"] = {"$ref": t("ref")}
    schema = {"type": "object", "title": t("title"), "description": t("description"), "properties": properties}
    return {
        "name": text("tool.name", row + 1, NAMES),
        "annotations": {"title": text("tool.annotation", row), "destructiveHint": row % 2 == 0},
        "description": text("tool.description", row),
        "inputSchema": schema,
    }


def resource(row: int) -> dict[str, Any]:
    audience = {"audience": ["user", text("resource.audience", row)], "lastModified": text("resource.modified", row)}
    return {
        "uri": text("resource.uri", row),
        "name": text("resource.name", row),
        "title": text("resource.title", row),
        "description": long_text("resource.description", row),
        "mimeType": text("resource.mime", row),
        "annotations": audience,
        "icons": icons("resource.icon", row),
    }


def template(row: int) -> dict[str, Any]:
    uri = text("template.uri", row).replace("{", "(").replace("}", ")")
    found = {name: text(f"template.{name}", row) for name in ("name", "title", "description")}
    return found | {"uriTemplate": f"{uri}{{x}}", "mimeType": text("template.mime", row)}


def prompt(row: int) -> dict[str, Any]:
    argument = {"name": text("prompt.argument", row), "title": text("prompt.argument_title", row)}
    argument["description"] = text("prompt.argument_description", row)
    found = {"title": text("prompt.title", row), "description": long_text("prompt.description", row)}
    return found | {"name": f"{row} {text('prompt.name', row, NAMES - 10)}", "arguments": [argument]}


# --- what it answers -------------------------------------------------------------------------------------------------
def content(row: int) -> list[dict[str, Any]]:
    link = {name: text(f"link.{name}", row) for name in ("uri", "name", "title", "description")}
    page = f"<!doctype html><script>hit({corpus.number(field('embedded.blob'), 0)})</script>"
    return [
        {"type": "text", "text": long_text("result.text", row)},
        {"type": "text", "text": f"# Rendered\n\n{text('result.markdown', row)}\n\n**so it is Markdown**"},
        {"type": "image", "mimeType": text("result.image", row), "data": DOT},
        {"type": "image", "mimeType": "image/svg+xml", "data": encoded(svg("result.image"))},
        {"type": "audio", "mimeType": text("result.audio", row), "data": DOT},
        {"type": "resource_link", **link, "mimeType": text("link.mime", row), "icons": icons("link.icon", row)},
        {"type": "resource", "resource": {
            "uri": text("embedded.uri", row), "mimeType": text("embedded.mime", row), "text": text("embedded.text", row)}},
        {"type": "resource", "resource": {"uri": "x:page", "mimeType": "text/html", "text": page}},
        {"type": "resource", "resource": {"uri": "x:blob", "mimeType": "text/html", "blob": encoded(page)}},
        {"type": text("result.type", row), "data": text("result.data", row)},
    ]  # fmt: skip


def encoded(words: str) -> str:
    return base64.b64encode(words.encode()).decode()


def svg(name: str) -> str:
    return f"<svg xmlns='http://www.w3.org/2000/svg' onload='hit({corpus.number(field(name), 0)})'/>"


def result(row: int) -> dict[str, Any]:
    rows = [{text("result.column", row): text("result.cell", row + at), "b": at} for at in range(3)]
    nested = {
        text("result.key", row): text("result.value", row),
        "rows": rows,
        "deep": [{"a": [text("result.value", row)]}],
    }
    return {"content": content(row), "structuredContent": nested, "_meta": {"x": text("result.meta", row)}}


def contents(uri: str) -> list[dict[str, Any]]:
    row = next(_written)
    page = f"<!doctype html><script>hit({corpus.number(field('contents.html'), 0)})</script>"
    return [
        {"uri": uri, "mimeType": "text/plain", "text": long_text("contents.text", row)},
        {"uri": text("contents.uri", row), "mimeType": text("contents.mime", row), "text": text("contents.text", row)},
        {"uri": uri, "mimeType": "text/html", "text": page},
        {"uri": uri, "mimeType": "text/markdown", "text": corpus.whole(field("contents.markdown"))},
        {"uri": uri, "mimeType": "image/svg+xml", "blob": encoded(svg("contents.blob"))},
    ]


def messages(row: int) -> list[dict[str, Any]]:
    linked = {"type": "resource_link", "uri": text("message.link", row), "name": text("message.link", row)}
    return [
        {"role": "user", "content": {"type": "text", "text": long_text("message.text", row)}},
        {"role": text("message.role", row), "content": {"type": "text", "text": text("message.text", row)}},
        {"role": "assistant", "content": {"type": "image", "mimeType": text("message.image", row), "data": DOT}},
        {"role": "assistant", "content": linked},
    ]


def greeting(params: dict[str, Any]) -> dict[str, Any]:
    info: dict[str, Any] = {name: text(f"info.{name}", 0) for name in ("name", "title", "version", "description")}
    info |= {"websiteUrl": text("info.website", 0), "icons": icons("info.icon", 0)}
    offered: dict[str, Any] = {name: {"listChanged": True} for name in ("tools", "prompts", "resources")}
    offered |= {"logging": {}, "completions": {}, "experimental": {text("capability.name", 0): {}}}
    said = {"protocolVersion": params.get("protocolVersion", "2025-11-25"), "capabilities": offered}
    return said | {"serverInfo": info, "instructions": corpus.whole(field("instructions"))}


ANSWERS: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "initialize": greeting,
    "ping": lambda params: {},
    "logging/setLevel": lambda params: {},
    "tools/list": lambda params: {"tools": [
        *({"name": name, "inputSchema": {"type": "object"}} for name in ASKS),
        *(make(row) for make in (tool, tool_with_schema) for row in range(ROWS))]},
    "resources/list": lambda params: {"resources": [resource(row) for row in range(ROWS)]},
    "resources/templates/list": lambda params: {"resourceTemplates": [template(row) for row in range(ROWS)]},
    "resources/read": lambda params: {"contents": contents(params["uri"])},
    "prompts/list": lambda params: {"prompts": [prompt(row) for row in range(ROWS)]},
    "prompts/get": lambda params: {
        "messages": messages(int(params["name"].split()[0])), "description": corpus.whole(field("prompt.description"))},
    "completion/complete": lambda params: {
        "completion": {"values": [text("completion.value", row) for row in range(20)], "total": 20, "hasMore": False}},
}  # fmt: skip


# --- calls -----------------------------------------------------------------------------------------------------------
def call(identity: Any, params: dict[str, Any]) -> None:
    name = params["name"]
    if name in ASKS:
        ask(identity, name)
        return
    row = int(name.split()[1])
    ending = ENDINGS[row % len(ENDINGS)]
    if ending == "error":
        data = {text("error.key", row): text("error.data", row)}
        say({"id": identity, "error": {"code": -32000, "message": long_text("error.message", row), "data": data}})
        return
    if ending == "notifications":
        notify(row, params.get("_meta", {}).get("progressToken"))
    say({"id": identity, "result": result(row) | {"isError": ending == "isError"}})


def notify(row: int, token: Any) -> None:
    progress = {"progressToken": token, "progress": 1, "total": 2, "message": text("progress.message", row)}
    say({"method": "notifications/progress", "params": progress})
    for data in (long_text("log.data", row), {text("log.key", row): text("log.data", row)}):
        line = {"level": "warning", "logger": text("log.logger", row), "data": data}
        say({"method": "notifications/message", "params": line})
    sys.stderr.buffer.write((text("stderr", row) + "\n").encode("utf-8", "replace"))
    sys.stderr.flush()


def form(row: int) -> dict[str, Any]:
    def t(name: str) -> str:
        return text(f"form.{name}", row)

    properties = {
        t("property"): {
            "type": "string",
            "title": t("title"),
            "description": t("description"),
            "default": t("default"),
        },
        "choice": {"type": "string", "enum": [t("enum"), "b"], "enumNames": [t("enum_name"), "b"]},
        "one": {"type": "string", "oneOf": [{"const": "a", "title": t("const_title")}, {"const": "b", "title": "b"}]},
    }
    return {"message": long_text("form.message", row), "requestedSchema": {"type": "object", "properties": properties}}


def sampling(row: int) -> dict[str, Any]:
    said = {"role": "user", "content": {"type": "text", "text": long_text("sampling.text", row)}}
    return {
        "messages": [said, {"role": "user", "content": content(row)[2]}],
        "systemPrompt": text("sampling.system", row),
        "modelPreferences": {"hints": [{"name": text("sampling.hint", row)}]},
        "stopSequences": [text("sampling.stop", row)],
        "maxTokens": 5,
        "tools": [{"name": text("sampling.tool", row), "inputSchema": {"type": "object"}}],
    }


def visit(row: int) -> dict[str, Any]:
    asked = {"mode": "url", "message": long_text("url.message", row), "elicitationId": text("url.id", row)}
    return asked | {
        "url": text("url.address", row) if row % 2 else f"https://{corpus.EVIL}/?{text('url.address', row)}"
    }


def ask(identity: Any, name: str) -> None:
    """The call ends when each of its questions was answered."""
    params = {"ask form": form, "ask url": visit, "ask model": sampling}[name]
    asked[identity] = identity
    say({"id": f"q{identity}", "method": ASKS[name], "params": params(next(_written))})


asked: dict[Any, Any] = {}


def main() -> None:
    for line in sys.stdin:
        message = json.loads(line)
        identity, method = message.get("id"), message.get("method")
        if method is None and str(identity).startswith("q"):
            waiting = asked.pop(int(str(identity)[1:]), None)
            if waiting is not None:
                say({"id": waiting, "result": result(0)})
        elif identity is not None and method == "tools/call":
            call(identity, message["params"])
        elif identity is not None and method in ANSWERS:
            say({"id": identity, "result": ANSWERS[method](message.get("params", {}))})
        elif identity is not None and method is not None:
            say({"id": identity, "error": {"code": -32601, "message": text("error.message", 0)}})


if __name__ == "__main__":
    main()
