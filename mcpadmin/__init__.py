"""mcpadmin: the self-hosted control room for MCP servers."""

#: the single source of the version: the package is built with it, servers and pages show it
__version__ = "0.1.0"
