"""Reading what another person's call sent or returned is an event."""

from servers.audit.record import Actor
from servers.models import Payload
from servers.privacy import payload_readings
from servers.privacy.payload_readings import PayloadContext
from sessions.calls.final_states import server_ref
from sessions.models import Call


def context_of(call: Call) -> PayloadContext:
    return PayloadContext(server_ref(call), call.identity_name, call.target, call.uid)


def record_reading(actor: Actor, call: Call, *found: Payload | None) -> None:
    """Record the reading before the payloads are shown, unless the reader made the call."""
    if call.user_id != actor.id:
        payload_readings.record(actor, found, context_of(call))
