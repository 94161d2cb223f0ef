"""Secrets and identities: the vault, kinds of credentials, references, authorizations at servers (OAuth), rotation of keys."""
