"""A DNS server whose answers change with each query, with a time to live of 0."""

import ipaddress
import socketserver
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from dnslib import AAAA, QTYPE, RCODE, RR, A, DNSRecord
from dnslib.server import BaseResolver, DNSLogger, DNSServer

from .namespace import NAME_SERVER

#: the addresses of one answer; if empty, the server fails
Answer = Sequence[str]


class Names(BaseResolver):
    """`zone` maps each name to its answers in order; the last one repeats. Other names do not exist."""

    def __init__(self) -> None:
        self.zone: dict[str, Sequence[Answer]] = {}
        self.asked: Counter[tuple[str, str]] = Counter()

    def lookups(self, name: str) -> int:
        return self.asked[name, "A"]

    def resolve(self, request: DNSRecord, handler: object) -> DNSRecord:
        name, kind = str(request.q.qname).rstrip("."), QTYPE[request.q.qtype]
        answers, turn = self.zone.get(name), self.asked[name, kind]
        self.asked[name, kind] += 1
        reply = request.reply()
        if answers is None:
            reply.header.rcode = RCODE.NXDOMAIN
            return reply
        answer = answers[min(turn, len(answers) - 1)]
        if not answer:
            reply.header.rcode = RCODE.SERVFAIL
        for address in answer:
            parsed = ipaddress.ip_address(address)
            if kind == ("A" if parsed.version == 4 else "AAAA"):
                data = (A if parsed.version == 4 else AAAA)(tuple(parsed.packed))
                reply.add_answer(RR(request.q.qname, request.q.qtype, ttl=0, rdata=data))
        return reply


@contextmanager
def name_server() -> Iterator[Names]:
    names = Names()
    # One query at a time, so that answers keep their order.
    server = DNSServer(
        names, address=NAME_SERVER, port=53, logger=DNSLogger("-request,-reply"), server=socketserver.UDPServer
    )
    server.start_thread()
    try:
        yield names
    finally:
        server.stop()
        server.server.server_close()
