"""The HTTP API, version 1: servers, calls, subscriptions and audit events as JSON, for agents with a token of an agent"""
