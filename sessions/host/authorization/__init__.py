"""Tokens of sessions: grants, service accounts and sign-ins."""
