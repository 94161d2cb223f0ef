"""The MCP registry's `server.json`: each package and remote of a server as an entry that a client could have written.

Packages become the command that runs them (npx, uvx, docker, dnx); variables become inputs with their description,
default and choices. A server with several ways to run it yields an entry for each, and the first is proposed.
https://github.com/modelcontextprotocol/registry, *server.json*, in all spellings since 2025-07.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from servers.registration.importing.inputs import Input, words

_VARIABLE = re.compile(r"\{([A-Za-z_][A-Za-z0-9_.-]{0,100})\}")
_RUNTIMES = {"npm": "npx", "pypi": "uvx", "oci": "docker", "docker": "docker", "nuget": "dnx"}
_MOST = 200


@dataclass(frozen=True)
class About:
    """`alternative`: another way to run a server from the same file, so it is skipped unless chosen."""

    alternative: bool = False
    problem: str = ""
    notes: tuple[str, ...] = ()


@dataclass
class _Conversion:
    """One package or remote while it is converted to an entry."""

    title: str
    kind: str
    entry: dict[str, Any] = field(default_factory=dict)
    inputs: dict[str, Input] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    problem: str = ""

    def value(self, name: str, given: Mapping[str, Any]) -> str | None:
        """The text of an argument, variable or header; None if it is optional and has no value."""
        variables = _mapping(given.get("variables"))
        if (template := words(given.get("value"))) != "":
            return _VARIABLE.sub(lambda found: self._variable(found, variables), template)
        default = words(given.get("default"))
        if default and not _secret(given):
            return default
        if not given.get("isRequired", given.get("is_required")):
            return None
        return self._asked(name, given)

    def _variable(self, found: re.Match[str], variables: Mapping[str, Any]) -> str:
        given = variables.get(found[1])
        if not isinstance(given, dict):
            return found[0]
        fixed = words(given.get("value")) or ("" if _secret(given) else words(given.get("default")))
        return fixed or self._asked(found[1], given)

    def _asked(self, name: str, given: Mapping[str, Any]) -> str:
        key = re.sub(r"[{}\s]+", "-", f"{self.title}-{self.kind}-{name}")
        choices = given.get("choices")
        self.inputs[key] = Input(
            words(given.get("description")) or name,
            "" if _secret(given) else words(given.get("default")),
            _secret(given),
            tuple(filter(None, map(words, choices[:_MOST]))) if isinstance(choices, list) else (),
        )
        return f"${{input:{key}}}"

    def arguments(self, given: Any) -> list[str]:
        found: list[str] = []
        for row in _rows(given):
            name, hint = words(row.get("name")), words(row.get("valueHint", row.get("value_hint")))
            value = self.value(name or hint or "argument", row)
            if row.get("type") == "named" or (name.startswith("-") and row.get("type") != "positional"):
                is_flag = not words(row.get("value")) and (
                    row.get("format") == "boolean" or not ({"default", "isRequired"} & row.keys())
                )
                if value is not None and row.get("format") != "boolean":
                    found += [name, value]
                elif is_flag and row.get("isRequired", row.get("value") or value == "true"):
                    found.append(name)
                else:
                    self.notes.append(f"Optional and not set: {name}.")
            elif value is not None:
                found.append(value)
            else:
                self.notes.append(f"Optional and not set: the argument {hint or name or 'without a name'}.")
        return found

    def named(self, given: Any) -> dict[str, str]:
        """Environment variables or headers."""
        found: dict[str, str] = {}
        left: list[str] = []
        for row in _rows(given):
            name = words(row.get("name"))
            value = self.value(name, row)
            if name and value is not None:
                found[name] = value
            elif name:
                left.append(name)
        if left:
            self.notes.append(f"Optional and not set: {', '.join(left)}.")
        return found


def descriptions(root: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The servers that this file or registry response describes; none if it is something else."""
    rows = root.get("servers")
    if isinstance(rows, list):
        found = [_described(row) for row in rows]
        return [row for row in found if row is not None] if all(row is not None for row in found) else []
    one = _described(root)
    return [] if one is None else [one]


def _described(value: Any) -> Mapping[str, Any] | None:
    inner = value.get("server") if isinstance(value, dict) else None
    value = inner if isinstance(inner, dict) else value
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        return None
    return value if isinstance(value.get("packages"), list) or isinstance(value.get("remotes"), list) else None


def servers_of(described: list[Mapping[str, Any]]) -> tuple[list[tuple[str, Any]], dict[str, About], dict[str, Input]]:
    servers: list[tuple[str, Any]] = []
    about: dict[str, About] = {}
    inputs: dict[str, Input] = {}
    for server in described:
        title = words(server.get("title")) or words(server.get("name")).rpartition("/")[2]
        ways = sorted(_ways(server, title), key=lambda way: bool(way.problem))
        for index, way in enumerate(ways):
            name = title if not index else f"{title} ({way.kind})"
            while name in about:
                name += " 2"
            entry = way.entry | ({"description": server["description"]} if words(server.get("description")) else {})
            notes = [*way.notes, *([f"Another way to run {title}."] if index else [])]
            servers.append((name, entry))
            about[name] = About(bool(index), way.problem, tuple(notes))
            inputs |= way.inputs
    return servers, about, inputs


def _ways(server: Mapping[str, Any], title: str) -> Iterator[_Conversion]:
    for row in _rows(server.get("packages")):
        yield _package(row, title)
    for row in _rows(server.get("remotes")):
        kind = words(row.get("type", row.get("transport_type")))
        way = _Conversion(title, kind or "http")
        variables = _mapping(row.get("variables"))
        url = _VARIABLE.sub(lambda found, way=way, known=variables: way._variable(found, known), words(row.get("url")))  # type: ignore[misc]  # bound now
        way.entry = {"type": kind or "http", "url": url, "headers": way.named(row.get("headers"))}
        yield way


def _package(row: Mapping[str, Any], title: str) -> _Conversion:
    kind = words(row.get("registryType", row.get("registry_type", row.get("registry_name"))))
    identifier, version = words(row.get("identifier", row.get("name"))), words(row.get("version"))
    way = _Conversion(title, kind)
    transport = _mapping(row.get("transport"))
    if (served := words(transport.get("type"))) not in ("", "stdio"):
        where = words(transport.get("url")) or "its URL"
        way.problem = f"This package serves {served} at {where}. Start it yourself, then register that URL."
    elif kind == "mcpb":
        way.problem = "This is an MCPB bundle. Download and unpack it on the worker, then register the command that its manifest.json names."
    elif kind not in _RUNTIMES and not words(row.get("runtimeHint", row.get("runtime_hint"))):
        way.problem = (
            f"mcpadmin cannot run packages of “{kind[:40]}”. Install it on the worker, then register its command."
        )
    if way.problem:
        return way
    runtime = words(row.get("runtimeHint", row.get("runtime_hint"))) or _RUNTIMES[kind]
    before = way.arguments(row.get("runtimeArguments", row.get("runtime_arguments")))
    after = way.arguments(row.get("packageArguments", row.get("package_arguments")))
    environment = way.named(row.get("environmentVariables", row.get("environment_variables")))
    program = runtime.rpartition("/")[2]
    if program in ("npx", "bunx"):
        yes = [] if program == "bunx" or {"-y", "--yes"} & set(before) else ["-y"]
        arguments = [*yes, *before, identifier + (f"@{version}" if version else ""), *after]
    elif program in ("docker", "podman"):
        run = [] if before[:1] == ["run"] else ["run", "-i", "--rm"]
        passed = [word for name in environment if name not in before for word in ("-e", name)]
        arguments = [*run, *before, *passed, _image(row, identifier, version), *after]
    elif program == "dnx":
        arguments = [
            *before,
            identifier + (f"@{version}" if version else ""),
            "--yes",
            *(["--", *after] if after else []),
        ]
    else:
        arguments = [*before, identifier + (f"=={version}" if version and kind == "pypi" else ""), *after]
    way.entry = {"type": "stdio", "command": runtime, "args": arguments, "env": environment}
    return way


def _image(row: Mapping[str, Any], identifier: str, version: str) -> str:
    base = words(row.get("registryBaseUrl", row.get("registry_base_url"))).rstrip("/").rpartition("//")[2]
    if base and base != "docker.io" and "." not in identifier.partition("/")[0]:
        identifier = f"{base}/{identifier}"
    has_tag = ":" in identifier.rpartition("/")[2] or "@" in identifier
    return identifier if has_tag or not version else f"{identifier}:{version}"


def _rows(given: Any) -> list[Mapping[str, Any]]:
    return [row for row in given[:_MOST] if isinstance(row, dict)] if isinstance(given, list) else []


def _mapping(given: Any) -> Mapping[str, Any]:
    return given if isinstance(given, dict) else {}


def _secret(given: Mapping[str, Any]) -> bool:
    return bool(given.get("isSecret", given.get("is_secret")))
