"""Tokens of sessions: grants, service accounts and authorizations by people."""
