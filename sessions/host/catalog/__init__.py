"""Keeps the stored lists of servers, and the icons that they declare, up to date."""
