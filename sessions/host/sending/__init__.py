"""Sends data to addresses that operators choose: HTTP, syslog over TLS, S3. Guarded like every outbound connection"""
