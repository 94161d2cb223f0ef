"""Servers that fail before they answer anything; the first argument selects how."""

import json
import os
import signal
import subprocess
import sys
import time

way = sys.argv[1]
if way == "exit":
    print("no licence found", file=sys.stderr)
    sys.exit(3)
if way == "noise":
    for number in range(200):
        print(f"log line {number}", flush=True)
    time.sleep(600)
if way == "indented":
    answer = {"jsonrpc": "2.0", "id": 1, "result": {"a": 1}}
    for _ in range(20):
        print(json.dumps(answer, indent=2), flush=True)
    time.sleep(600)
if way == "silent":
    time.sleep(600)
if way == "not-utf8":
    sys.stdin.buffer.readline()
    sys.stdout.buffer.write(b'{"jsonrpc":"2.0","id":1,"result":{"a":"\xff"}}\n')
    sys.stdout.buffer.flush()
    time.sleep(600)
if way == "stubborn":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
    while True:
        time.sleep(600)
if way == "closes-output":
    os.close(1)
    time.sleep(600)
