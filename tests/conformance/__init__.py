"""The official conformance suite for MCP clients, run against ours: `make conformance`."""
