"""The endpoint for agents: presents each server and bundle as an MCP server, with every call in the ledger of calls."""
