"""The endpoint for agents: each server and bundle as an MCP server of our own, with every call in the ledger of calls."""
