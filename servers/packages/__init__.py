"""Packages of npx, uvx, docker run and the like: read from the command line, pinned to a version and its hashes"""
