"""Packages of launchers: resolved, verified and installed before a server starts, and regularly compared with the
registry"""
