"""Whether a call that waits is still what a person is asked about. Only reads."""

import hashlib

from servers import access
from servers.agents import policies
from servers.enums import AgentScope, PolicyEffect
from servers.models import Definition, Server
from sessions.calls.operations import operation_of
from sessions.mcp.core.methods import TOOLS_CALL
from sessions.models import Approval, Call


def binding(approval: Approval) -> str:
    """What a yes is bound to: caller, token, server, target, definition and arguments. It travels with the form, so that a
    person approves what the page showed."""
    call = approval.call
    parts = [
        *(approval.uid, call.uid, call.user_id, approval.token_id, call.server_id, call.identity_id),
        *(approval.bundle_id, call.method, call.target, call.definition_digest, call.arguments.digest),
    ]
    return hashlib.sha256("\n".join(str(part) for part in parts).encode()).hexdigest()


def changed(call: Call) -> str:
    """Why the definition is not the one that the call was made with; empty if it is."""
    kind, key = operation_of(call.method).place(call.target)
    rows = Definition.objects.filter(identity=call.identity_id or 0, kind=kind, key=key, removed_at=None)
    found = rows.values_list("digest", "approved_digest").first()
    if found is None:
        return f"{call.server_name} no longer offers {call.target}." if call.definition_digest else ""
    if found[0] != call.definition_digest or found[1]:
        return f"{call.server_name} changed the definition of {call.target} after the call was made."
    return ""


def void_reason(approval: Approval) -> str:
    """Why the call may not be sent any more, approved or not; empty if it may. `approval` with call, server, bundle, token
    and its user."""
    call, token = approval.call, approval.token
    server = call.server
    if token is None or token.state != "active":
        return f"The token is {token.state}." if token is not None else "The token was deleted."
    if not token.user.is_active or not access.may(token.user, "call_tool"):
        return f"{token.user.get_username()} may no longer call tools."
    if server is None or server.archived_at is not None or not server.enabled:
        return f"{call.server_name} is disabled."
    needed = AgentScope.CALL if call.method == TOOLS_CALL else AgentScope.READ
    if needed.value not in token.scopes:
        return f"The token no longer has the scope {needed.value}."
    if approval.shown and not _in_bundle(approval, server):
        return f"{call.server_name} is no longer part of the bundle that the call came through."
    kind, key = operation_of(call.method).place(call.target)
    known = policies.policies_at(server, token, approval.bundle)
    verdict = known.decide(policies.KIND_OF[kind], key, approval.shown)
    if verdict.effect is PolicyEffect.DENY:
        return f"It is denied now. {verdict.why}"
    return changed(call)


def _in_bundle(approval: Approval, server: Server) -> bool:
    bundle = approval.bundle
    if bundle is None or bundle.deleted_at is not None:
        return False
    return bundle.members.filter(server=server, retired_at=None).exists()
