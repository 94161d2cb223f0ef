"""Whether a waiting call is still what a person is asked to approve. Read-only."""

import hashlib
import json

from servers import access
from servers.agents import policies
from servers.audit import payloads
from servers.bundles import exposed, offers, overrides, uris
from servers.enums import AgentScope, DefinitionKind, PolicyEffect
from servers.models import BundleMember, Definition, Server
from sessions.calls.operations import operation_of
from sessions.mcp.core.methods import TOOLS_CALL
from sessions.models import Approval, Call


def binding(approval: Approval) -> str:
    """What an approval is bound to: caller, token, server, target, definition and arguments. The form posts it, so that
    people approve exactly what the page showed."""
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
    """Why the call may no longer be sent, approved or not; empty if it may. `approval`: with call, server, bundle,
    token and its user."""
    call, token = approval.call, approval.token
    server = call.server
    if token is None or token.state != "active":
        return f"The token is {token.state}." if token is not None else "The token was deleted."
    if not token.user.is_active or not access.may(token.user, "call_tool"):
        return f"{token.user.get_username()} can no longer call tools."
    if server is None or server.archived_at is not None or not server.enabled:
        return f"{call.server_name} is disabled."
    needed = AgentScope.CALL if call.method == TOOLS_CALL else AgentScope.READ
    if needed.value not in token.scopes:
        return f"The token no longer has the scope {needed.value}."
    kind, key = operation_of(call.method).place(call.target)
    shown = approval.shown
    if shown:
        member = _member(approval, server)
        if member is None:
            return f"{call.server_name} is no longer part of the bundle that the call came through."
        if why := _withheld(call, member, kind, key):
            return why
        shown = _name(member, server, kind, key)
    known = policies.policies_at(server, token, approval.bundle)
    verdict = known.decide(policies.KIND_OF[kind], key, shown)
    if verdict.effect is PolicyEffect.DENY:
        return f"It is now denied. {verdict.why}"
    return changed(call)


def _member(approval: Approval, server: Server) -> BundleMember | None:
    bundle = approval.bundle
    if bundle is None or bundle.deleted_at is not None:
        return None
    return bundle.members.filter(server=server, retired_at=None).first()


def _withheld(call: Call, member: BundleMember, kind: DefinitionKind, key: str) -> str:
    """Why an agent could not make the call through the bundle now; empty if it could."""
    if kind == DefinitionKind.RESOURCE:
        offered = _offers_uri(call, member, key)
    else:
        offered = offers.offers(member.tools if kind == DefinitionKind.TOOL else member.prompts, key)
    if not offered:
        return f"The bundle that the call came through no longer offers {key}."
    if kind == DefinitionKind.TOOL and (hidden := _hidden(call, member, key)):
        return f"The bundle that the call came through no longer offers the parameter {', '.join(hidden)}."
    return ""


def _offers_uri(call: Call, member: BundleMember, uri: str) -> bool:
    """Whether the bundle offers the URI: by its own entry in the server's list, or by the templates that it matches."""
    rows = Definition.objects.filter(identity=call.identity_id or 0, removed_at=None)
    if rows.filter(kind=DefinitionKind.RESOURCE, key=uri).exists():
        return offers.offers(member.resources, uri)
    templates = rows.filter(kind=DefinitionKind.RESOURCE_TEMPLATE).values_list("key", flat=True)
    fitting = [one for one in templates if uris.fits(one, uri)]
    return any(offers.offers(member.resources, one) for one in fitting or [uri])


def _hidden(call: Call, member: BundleMember, tool: str) -> list[str]:
    """Parameters that the call sets and the bundle hides."""
    override = overrides.stored(member.overrides, tool)
    if not override.hidden:
        return []
    rows = Definition.objects.filter(
        identity=call.identity_id or 0, kind=DefinitionKind.TOOL, key=tool, removed_at=None
    )
    body, text = rows.values_list("body", flat=True).first(), payloads.read(call.arguments)
    given = json.loads(text) if text else None
    return (
        sorted(overrides.left_out(json.loads(body), override) & given.keys())
        if body and isinstance(given, dict)
        else []
    )


def _name(member: BundleMember, server: Server, kind: DefinitionKind, key: str) -> str:
    """The name to which the bundle's rules now apply: the alias may have changed."""
    if kind == DefinitionKind.RESOURCE:
        return uris.exposed_uri(member.alias, key)
    target = str(server.uid), key
    return exposed.preview(member.bundle_id, kind, {target: member.alias})[target]
