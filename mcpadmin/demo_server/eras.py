"""The differences between the revisions that open with `initialize` and 2026-07-28, which uses `_meta` instead."""

from typing import Any

LEGACY = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
MODERN = ("2026-07-28",)
PREFIX = "io.modelcontextprotocol/"
VERSION_KEY = PREFIX + "protocolVersion"
CAPABILITIES_KEY = PREFIX + "clientCapabilities"
LOG_LEVEL_KEY = PREFIX + "logLevel"
SERVER_INFO_KEY = PREFIX + "serverInfo"
SUBSCRIPTION_KEY = PREFIX + "subscriptionId"

SERVER_INFO = {"name": "mcpadmin-demo", "title": "mcpadmin demo server", "version": "1.0.0"}
INSTRUCTIONS = (
    "A playground. Run `greet` or `add` first; `countdown` shows progress and can be cancelled; "
    "`demo://clock` changes every five seconds."
)


def capabilities(modern: bool) -> dict[str, Any]:
    return {
        "tools": {"listChanged": False},
        "resources": {"subscribe": True, "listChanged": False},
        "prompts": {"listChanged": False},
        "completions": {},
        # Modern clients request log messages per request, with `_meta`, so there is no logging capability.
        **({} if modern else {"logging": {}}),
    }


def initialize(params: dict[str, Any]) -> dict[str, Any]:
    """The legacy handshake: the revision that the client requested if we support it, otherwise our newest legacy one."""
    asked = params.get("protocolVersion")
    return {
        "protocolVersion": asked if asked in LEGACY else LEGACY[-1],
        "capabilities": capabilities(modern=False),
        "serverInfo": SERVER_INFO,
        "instructions": INSTRUCTIONS,
    }


def discover() -> dict[str, Any]:
    return {
        "supportedVersions": list(MODERN),
        "capabilities": capabilities(modern=True),
        "instructions": INSTRUCTIONS,
        "ttlMs": 60_000,
        "cacheScope": "public",
    }


def modern_result(result: dict[str, Any]) -> dict[str, Any]:
    meta = {SERVER_INFO_KEY: SERVER_INFO} | result.get("_meta", {})
    return {"resultType": "complete"} | result | {"_meta": meta}
