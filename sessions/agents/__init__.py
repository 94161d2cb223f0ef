"""The door for programs: each server as an MCP server of our own, every call through the ledger"""
