"""The audit log and the one writer of a process: hash chain, payloads beside it, group commit, verification and reading"""
