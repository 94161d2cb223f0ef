"""Secrets and identities: the vault, kinds of credentials, references, OAuth sign-ins, rotation of keys."""
