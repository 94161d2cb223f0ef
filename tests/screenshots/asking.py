"""Policies and calls that wait for approval, for the screenshots. Runs in the product's shell."""

SEED = """
from datetime import timedelta
from django.contrib.auth.models import Permission, User
from django.utils import timezone
from servers.agents import policy_changes
from servers.agents.policies import Rule
from servers.audit.record import Actor
from servers.enums import PolicyEffect as Effect, PolicyKind as Kind
from servers.models import AgentToken, Bundle, Server
from sessions.agents.policy.policy_check import PolicyCheck
from sessions.approvals import deciding, validity
from sessions.models import Approval
from tests.sessions.agents.placed import place, principal_of
ada, now = User.objects.get(username=%(admin)r), timezone.now()
actor, server = Actor.of_user(ada), Server.objects.get(slug=%(slug)r)
def rule(owner, effect, pattern, kind=Kind.TOOL, often=None):
    policy_changes.add_rule(actor, ada, owner, Rule(effect, kind, pattern, often))
rule(server, Effect.ASK, "greet")
rule(server, Effect.DENY, "demo://notes/secret*", Kind.RESOURCE)
rule(server, Effect.ALLOW, "search_*", often=30)
policy_changes.change(actor, ada, server, dict(calls_in_flight=8))
rule(Bundle.objects.get(slug="team-tools"), Effect.DENY, "work__draw")
token = AgentToken.objects.get(name="Cursor on the desk")
rule(token, Effect.ASK, "add")
nina = User.objects.create_user("nina", first_name="Nina")
permissions = ["view_server", "call_tool", "answer_question"]
nina.user_permissions.set(Permission.objects.filter(codename__in=permissions))
check, desk = PolicyCheck(), principal_of(ada, name="Claude Code on the desk")
night = principal_of(nina, name="Nightly clean-up")
def held(principal, name, /, **arguments):
    call = place(check, principal, server.slug, name, "claude-code 3.2.1", **arguments)
    return Approval.objects.select_related("call__server", "call__arguments", "token", "bundle").get(call=call)
nobody = held(desk, "greet", name="Friend")
Approval.objects.filter(pk=nobody.pk).update(created_at=now - timedelta(hours=3))
deciding.refuse(actor, ada, nobody, "Greet people by their names.")
yes = held(desk, "greet", name="Bea Long")
deciding.approve(actor, ada, yes, validity.binding(yes))
waits = held(desk, "greet", name="Olga Petrova")
destructive = held(night, "forget_notes", tag="travel")
own = held(desk, "forget_notes", tag="kitchen")
print("ASKING", destructive.uid, own.uid, nobody.uid, token.uid)
"""
