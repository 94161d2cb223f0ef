"""Forwards audit events to sinks. The rows say what is due; the host checks at each tick, and when a sink changes."""

import json
import ssl
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import Final

from django.utils import timezone

from servers.crypto import SealError
from servers.enums import SinkKind
from servers.forwarding import delivery, records
from servers.forwarding.delivery import Batch, Claimed, Outcome
from servers.forwarding.sinks import host_and_port
from servers.secret import Secret
from servers.storable import storable
from sessions.host.answer_redaction import Redactor
from sessions.host.db import Database, DatabaseAway
from sessions.host.due import DueTasks
from sessions.host.outbound import egress_policy
from sessions.host.sending import http, syslog
from sessions.host.sending.failure import NotDelivered
from sessions.mcp.transports.tls import client_context
from sessions.subscriptions.webhooks import signature

AT_ONCE: Final = 4
#: characters of a receiver's message about rejected records
_WORDS_CHARS: Final = 200


class Forwarding:
    def __init__(self, db: Database) -> None:
        self._db = db
        self._sinks = DueTasks(db, "sinks", delivery.due, self._serve, at_once=AT_ONCE)
        self.look, self.close = self._sinks.look, self._sinks.close

    async def _serve(self, pk: int) -> None:
        try:
            claimed = await self._db.write(partial(delivery.claim, pk), low_priority=True)
        except SealError as problem:
            await self._db.persist(partial(delivery.not_opened, pk, str(problem)), list)
            return
        if claimed is None:
            return
        if claimed.test:
            outcome = await _outcome(claimed, None)
            await self._db.persist(partial(delivery.tested, claimed, outcome))
            if claimed.forward and not await self._db.write(partial(delivery.renewed, claimed)):
                return
        going: Claimed | None = claimed
        while going is not None and claimed.forward and not self._sinks.closed:
            found = await self._db.read(partial(delivery.next_batch, going))
            if found is None:
                break
            if isinstance(found, str):
                ended = await self._db.persist(partial(delivery.diverged, going, found), lambda end: end.events)
                going = ended.claimed
                continue
            # A durable write, which also flushes the batch's events from other processes to disk: nothing leaves this
            # machine that a power failure could undo.
            if not await self._db.write(partial(delivery.renewed, going)):
                return
            delivered = await self._delivered(going, found)
            if delivered is None:
                return
            found, outcome = delivered
            end = partial(delivery.ended, going, found, outcome)
            going = (await self._db.persist(end, lambda ended: ended.events)).claimed
            if not found.full:
                break
        if going is not None:
            with suppress(DatabaseAway):
                await self._db.write(partial(delivery.release, going), low_priority=True)

    async def _delivered(self, claimed: Claimed, batch: Batch) -> tuple[Batch, Outcome] | None:
        """The part of the batch that was sent: a receiver that finds it too large gets half of it. Nine halvings can
        take longer than the lease, so it is renewed. None if the sink was lost in the meantime."""
        while True:
            try:
                return batch, await _sent(claimed, batch)
            except NotDelivered as problem:
                if not problem.too_large or len(batch.records) == 1:
                    return batch, Outcome(False, problem.detail, problem.retry_after)
            batch = batch.half()
            if not await self._db.write(partial(delivery.renewed, claimed)):
                return None


async def _outcome(claimed: Claimed, batch: Batch | None) -> Outcome:
    try:
        return await _sent(claimed, batch)
    except NotDelivered as problem:
        return Outcome(False, problem.detail, problem.retry_after)


async def _sent(claimed: Claimed, batch: Batch | None) -> Outcome:
    """Send the batch or, without one, a test. Raises NotDelivered."""
    try:
        tls = client_context(claimed.certificate, claimed.secrets.private_key.reveal(), claimed.ca)
    except (ssl.SSLError, ValueError) as exc:
        raise NotDelivered("The certificate, its private key or the certificate authority is not valid PEM.") from exc
    now = timezone.now()
    if claimed.kind == SinkKind.SYSLOG:
        return await _by_syslog(claimed, batch, now, tls)
    if claimed.kind == SinkKind.OTLP:
        return await _by_otlp(claimed, batch, now, tls)
    return await _by_http(claimed, batch, now, tls)


async def _by_syslog(claimed: Claimed, batch: Batch | None, now: datetime, tls: ssl.SSLContext) -> Outcome:
    source = delivery.source()
    messages = records.syslog_messages(batch.records, source) if batch else records.syslog_test(source, now)
    host, port = host_and_port(claimed.address)
    await syslog.send(host, port, messages, policy=egress_policy(), tls=tls)
    return Outcome(True)


async def _by_otlp(claimed: Claimed, batch: Batch | None, now: datetime, tls: ssl.SSLContext) -> Outcome:
    source = delivery.source()
    body = records.otlp_body(batch.records, source, now) if batch else records.otlp_test(source, now)
    headers = {"Content-Type": "application/json"}
    answer = await _posted(claimed, headers, body, tls)
    rejected, words = partial_success(answer.body, len(batch.records) if batch else 1, claimed.secrets.value)
    if not rejected:
        return Outcome(True)
    return Outcome(
        True, f"The receiver rejected {rejected:,} records{f': {words}' if words else '.'}", rejected=rejected
    )


def partial_success(body: bytes, sent: int, secret: Secret) -> tuple[int, str]:
    """How many of the `sent` records the receiver rejected, and its message without the secret that was sent to it.
    OTLP: such records must not be sent again."""
    try:
        found = json.loads(body)["partialSuccess"]
        rejected, words = int(found["rejectedLogRecords"]), str(found.get("errorMessage", ""))
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):  # empty, or not OTLP: nothing was rejected
        return 0, ""
    return max(0, min(rejected, sent)), storable(Redactor([secret]).text(words), _WORDS_CHARS)


async def _by_http(claimed: Claimed, batch: Batch | None, now: datetime, tls: ssl.SSLContext) -> Outcome:
    items = records.http_items(batch.records) if batch else records.http_test(delivery.source(), now)
    body = records.http_body(items, lines=claimed.lines)
    stamp = str(int(now.timestamp()))
    # With the hash, because after a restore of this log the same numbers are different events.
    part = f"{batch.records[0].seq}-{batch.last.seq}.{batch.last.hash[:16]}" if batch else f"test-{stamp}"
    identity = f"{claimed.uid}.{part}"
    headers = {
        "Content-Type": "application/x-ndjson" if claimed.lines else "application/json",
        "webhook-id": identity,
        "webhook-timestamp": stamp,
        "webhook-signature": f"v1,{signature(claimed.secrets.signing, identity, stamp, body)}",
    }
    await _posted(claimed, headers, body, tls)
    return Outcome(True)


async def _posted(claimed: Claimed, headers: dict[str, str], body: bytes, tls: ssl.SSLContext) -> http.Answer:
    value = claimed.secrets.value
    own = {claimed.header: value.reveal()} if claimed.header else {}
    return await http.send(
        "POST", claimed.address, headers | own, body, policy=egress_policy(), tls=tls, secrets=[value]
    )
