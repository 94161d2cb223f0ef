"""Follows watched resources in open sessions, reads them when they change, and calls webhooks."""
