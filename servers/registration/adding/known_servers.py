"""Servers that are often added first: how to reach each, what it needs, where its keys come from, what to limit.

Commands and options are from https://github.com/modelcontextprotocol/servers, URLs from the vendors' documentation.
"""

import json
from dataclasses import dataclass
from typing import Any, Final

_REFERENCE: Final = "https://github.com/modelcontextprotocol/servers/tree/main/src/"


@dataclass(frozen=True)
class Field:
    """A value that only the reader knows."""

    key: str
    label: str
    secret: bool = False
    default: str = ""


@dataclass(frozen=True)
class KnownServer:
    """`about`: documentation; `keys`: where to create its token; `hint`: how to give it no more access than needed."""

    key: str
    name: str
    words: str
    about: str
    hint: str
    command: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    url: str = ""
    headers: tuple[tuple[str, str], ...] = ()
    fields: tuple[Field, ...] = ()
    keys: str = ""

    @property
    def icon(self) -> str:
        return "world" if self.url else "terminal-2"

    @property
    def source(self) -> str:
        """What the box is filled with: a configuration in the VS Code format, with the fields as its inputs."""
        if self.url:
            entry: dict[str, Any] = {"type": "http", "url": self.url}
            entry |= {"headers": dict(self.headers)} if self.headers else {}
        else:
            entry = {"type": "stdio", "command": self.command[0], "args": list(self.command[1:])}
            entry |= {"env": dict(self.environment)} if self.environment else {}
        whole: dict[str, Any] = {"servers": {self.name: entry}}
        if self.fields:
            whole["inputs"] = [
                {"id": one.key, "type": "promptString", "description": one.label}
                | ({"password": True} if one.secret else {"default": one.default} if one.default else {})
                for one in self.fields
            ]
        return json.dumps(whole, indent=2)


REFERENCE_SERVERS: Final = (
    KnownServer(
        "everything",
        "Everything",
        "Every feature of MCP, for trying out",
        _REFERENCE + "everything",
        "Its tools return samples: it needs no files and no credential.",
        ("npx", "-y", "@modelcontextprotocol/server-everything"),
    ),
    KnownServer(
        "filesystem",
        "Filesystem",
        "Read and change files in one folder",
        _REFERENCE + "filesystem",
        "Enter the smallest folder that is sufficient. If tools must not write, move it to “Files it may read” under Access.",
        ("npx", "-y", "@modelcontextprotocol/server-filesystem", "${input:folder}"),
        fields=(Field("folder", "Folder on the worker, as an absolute path"),),
    ),
    KnownServer(
        "memory",
        "Memory",
        "A knowledge graph in one file",
        _REFERENCE + "memory",
        "Give it a folder of its own: it can change everything in the folder that contains its file.",
        ("npx", "-y", "@modelcontextprotocol/server-memory"),
        environment=(("MEMORY_FILE_PATH", "${input:file}"),),
        fields=(Field("file", "File of the graph on the worker, as an absolute path ending in .jsonl"),),
    ),
    KnownServer(
        "sequential-thinking",
        "Sequential thinking",
        "Step-by-step reasoning",
        _REFERENCE + "sequentialthinking",
        "It needs no files and no credential.",
        ("npx", "-y", "@modelcontextprotocol/server-sequential-thinking"),
    ),
    KnownServer(
        "git",
        "Git",
        "Read, search and change one repository",
        _REFERENCE + "git",
        "It can commit and reset. For reading only, move the repository to “Files it may read” under Access.",
        ("uvx", "mcp-server-git", "--repository", "${input:repository}"),
        fields=(Field("repository", "Repository on the worker, as an absolute path"),),
    ),
    KnownServer(
        "time",
        "Time",
        "The time, and conversion between time zones",
        _REFERENCE + "time",
        "It needs no files and no credential.",
        ("uvx", "mcp-server-time", "--local-timezone", "${input:zone}"),
        fields=(Field("zone", "Local time zone", default="Etc/UTC"),),
    ),
    KnownServer(
        "fetch",
        "Fetch",
        "Web pages as Markdown",
        _REFERENCE + "fetch",
        "It opens any public URL that a caller names. Private networks stay out of reach unless listed under Access, Hosts.",
        ("uvx", "mcp-server-fetch"),
    ),
)
REMOTE_SERVERS: Final = (
    KnownServer(
        "github",
        "GitHub",
        "Repositories, issues and pull requests",
        "https://github.com/github/github-mcp-server",
        "Use a fine-grained token with only the repositories and permissions that the tools need. For reading only, use the "
        "URL https://api.githubcopilot.com/mcp/readonly.",
        url="https://api.githubcopilot.com/mcp/",
        headers=(("Authorization", "Bearer ${input:token}"),),
        fields=(Field("token", "Personal access token", secret=True),),
        keys="https://github.com/settings/personal-access-tokens/new",
    ),
    KnownServer(
        "sentry",
        "Sentry",
        "Errors, issues and traces",
        "https://docs.sentry.io/product/sentry-mcp/",
        "Sign in with an account that sees only the projects the tools need.",
        url="https://mcp.sentry.dev/mcp",
    ),
    KnownServer(
        "linear",
        "Linear",
        "Issues, projects and cycles",
        "https://linear.app/docs/mcp",
        "Tools act as the account that signs in. To have each person use their own, choose “Own credential required” under "
        "Session, Identity.",
        url="https://mcp.linear.app/mcp",
    ),
    KnownServer(
        "notion",
        "Notion",
        "Pages and databases",
        "https://developers.notion.com/docs/mcp",
        "Tools see what the account that signs in sees. Use one that is limited to the pages they need.",
        url="https://mcp.notion.com/mcp",
    ),
    KnownServer(
        "hugging-face",
        "Hugging Face",
        "Models, datasets and papers",
        "https://huggingface.co/docs/hub/hf-mcp-server",
        "Public content needs no token. For private content, add a token with the role Read.",
        url="https://huggingface.co/mcp",
        keys="https://huggingface.co/settings/tokens",
    ),
    KnownServer(
        "context7",
        "Context7",
        "Documentation of libraries, by version",
        "https://github.com/upstash/context7",
        "Works without a key within a lower rate limit; a key goes into the CONTEXT7_API_KEY header.",
        url="https://mcp.context7.com/mcp",
        keys="https://context7.com/dashboard",
    ),
    KnownServer(
        "deepwiki",
        "DeepWiki",
        "Questions about public GitHub repositories",
        "https://docs.devin.ai/work-with-devin/deepwiki-mcp",
        "Needs no sign-in and reaches only public repositories.",
        url="https://mcp.deepwiki.com/mcp",
    ),
)
_BY_KEY: Final = {one.key: one for one in (*REFERENCE_SERVERS, *REMOTE_SERVERS)}


def known_server(key: str) -> KnownServer | None:
    return _BY_KEY.get(key)
