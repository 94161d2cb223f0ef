"""Packages of launchers: resolved, verified and installed before a server starts, compared with the registry in between"""
