"""The HTTP API, version 1: servers, calls, subscriptions and audit events as JSON, for clients with an agent's token."""
