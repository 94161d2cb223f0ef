"""Exports of the audit log: a background job writes a file, to download or, on a schedule, for a directory or S3 store"""
