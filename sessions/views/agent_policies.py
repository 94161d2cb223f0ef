"""The policies of agents: of a server's endpoint, of a bundle and of a token, with a table of what would happen."""

from typing import Any
from uuid import UUID

from django.contrib import messages
from django.core.exceptions import ValidationError
from django.db.models import Q
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from servers import access
from servers.agents import policies, policy_changes, tokens
from servers.agents.policies import Owner
from servers.agents.policy_forms import BundlePolicyForm, EndpointPolicyForm, RuleForm, TokenPolicyForm
from servers.audit.record import Actor
from servers.bundles import changing
from servers.enums import PolicyEffect
from servers.models import AgentPolicy, AgentRule, AgentToken, Bundle, Server
from sessions.agents.catalog.preview import Preview, preview, preview_of_bundle
from sessions.overview import server_page
from sessions.views import bundles
from sessions.views.server_tabs import server_context


# --- the policy of an endpoint ------------------------------------------------------------------------------------------
@require_safe
def of_server(request: HttpRequest, slug: str) -> HttpResponse:
    """`?token=` shows what would happen with that token."""
    return _server_page(request, access.server_for(request.user, slug))


@require_POST
def add_server_rule(request: HttpRequest, slug: str) -> HttpResponse:
    server = access.server_of_form(request.user, slug, request.POST.get("uid", ""), "change")
    form = RuleForm(request.POST)
    return _done(request, server) if _added(request, server, form) else _server_page(request, server, rule=form)


@require_POST
def change_server(request: HttpRequest, slug: str) -> HttpResponse:
    server = access.server_of_form(request.user, slug, request.POST.get("uid", ""), "change")
    form = EndpointPolicyForm(request.POST)
    return _done(request, server) if _changed(request, server, form) else _server_page(request, server, form=form)


@require_http_methods(["GET", "HEAD", "POST"])
def remove_server_rule(request: HttpRequest, slug: str, uid: UUID) -> HttpResponse:
    server = access.server_for(request.user, slug, "change")
    return _removed(request, server, AgentRule.objects.filter(policy__server=server, uid=uid).first())


def _server_page(request: HttpRequest, server: Server, *, rule: Any = None, form: Any = None) -> HttpResponse:
    reaching = Q(every_server=True) | Q(servers=server)
    mine = tokens.visible_tokens(request.user).filter(reaching, revoked_at=None).distinct().order_by("name")[:200]
    offered = [token for token in mine if token.state == "active"]
    chosen = next((token for token in offered if str(token.uid) == request.GET.get("token")), None)
    row = AgentPolicy.objects.filter(server=server).first()
    context = server_context(request, server_page.header(server), "policy") | {
        "offered": offered,
        "chosen": chosen,
        "preview": preview(server, chosen, request.GET.get("page", "")),
        "actions": {
            "add": reverse("servers:add_agent_rule", args=[server.slug]),
            "rules": reverse("servers:add_agent_rule", args=[server.slug]),
            "change": reverse("servers:change_agent_policy", args=[server.slug]),
            "of": server,
        },
        **_policy(request, server, row, rule, form or EndpointPolicyForm(initial=_initial(row))),
    }
    return render(request, "agents/server_policy.html", context, status=_status(rule, form))


# --- the policy of a bundle ----------------------------------------------------------------------------------------------
@require_safe
def of_bundle(request: HttpRequest, slug: str) -> HttpResponse:
    return _bundle_page(request, bundles.seen(request, slug))


@require_POST
def add_bundle_rule(request: HttpRequest, slug: str) -> HttpResponse:
    bundle, form = bundles.seen(request, slug, changing.PERMISSION), RuleForm(request.POST)
    return _done(request, bundle) if _added(request, bundle, form) else _bundle_page(request, bundle, rule=form)


@require_POST
def change_bundle(request: HttpRequest, slug: str) -> HttpResponse:
    bundle, form = bundles.seen(request, slug, changing.PERMISSION), BundlePolicyForm(request.POST)
    return _done(request, bundle) if _changed(request, bundle, form) else _bundle_page(request, bundle, form=form)


@require_http_methods(["GET", "HEAD", "POST"])
def remove_bundle_rule(request: HttpRequest, slug: str, uid: UUID) -> HttpResponse:
    bundle = bundles.seen(request, slug, changing.PERMISSION)
    return _removed(request, bundle, AgentRule.objects.filter(policy__bundle=bundle, uid=uid).first())


def _bundle_page(request: HttpRequest, bundle: Bundle, *, rule: Any = None, form: Any = None) -> HttpResponse:
    row = AgentPolicy.objects.filter(bundle=bundle).first()
    context = {
        "nav": "bundles",
        "bundle": bundle,
        "preview": preview_of_bundle(bundles.contents_of(request, bundle), bundle, request.GET.get("page", "")),
        "actions": {
            "add": reverse("agents:add_bundle_rule", args=[bundle.slug]),
            "rules": reverse("agents:add_bundle_rule", args=[bundle.slug]),
            "change": reverse("agents:change_bundle_policy", args=[bundle.slug]),
            "of": bundle,
        },
        **_policy(request, bundle, row, rule, form or BundlePolicyForm(initial=_initial(row))),
    }
    return render(request, "agents/bundle_policy.html", context, status=_status(rule, form))


# --- the policy of a token ----------------------------------------------------------------------------------------------
@require_safe
def of_token(request: HttpRequest, uid: UUID) -> HttpResponse:
    """`?server=` shows what would happen on that server."""
    return _token_page(request, _token(request, uid))


@require_POST
def add_token_rule(request: HttpRequest, uid: UUID) -> HttpResponse:
    token, form = _token(request, uid), RuleForm(request.POST)
    return _done(request, token) if _added(request, token, form) else _token_page(request, token, rule=form)


@require_POST
def change_token(request: HttpRequest, uid: UUID) -> HttpResponse:
    token, form = _token(request, uid), TokenPolicyForm(request.POST)
    return _done(request, token) if _changed(request, token, form) else _token_page(request, token, form=form)


@require_http_methods(["GET", "HEAD", "POST"])
def remove_token_rule(request: HttpRequest, uid: UUID) -> HttpResponse:
    mine = AgentRule.objects.filter(policy__token__in=tokens.visible_tokens(request.user), uid=uid)
    rule = mine.select_related("policy__token").first()
    if rule is None or rule.policy.token is None:
        raise Http404("This rule no longer exists.")
    return _removed(request, rule.policy.token, rule)


def _token_page(request: HttpRequest, token: AgentToken, *, rule: Any = None, form: Any = None) -> HttpResponse:
    servers = access.visible_servers(request.user).filter(archived_at=None).order_by("name")
    if not token.every_server:
        servers = servers.filter(pk__in=token.servers.values("pk"))
    offered = list(servers[:500])
    chosen = next((server for server in offered if server.slug == request.GET.get("server")), None)
    chosen = chosen or next(iter(offered), None)
    row = AgentPolicy.objects.filter(token=token).first()
    context = {
        "nav": "agents",
        "token": token,
        "offered": offered,
        "chosen": chosen,
        "preview": _preview(request, chosen, token) if chosen is not None else None,
        "actions": {
            "add": reverse("agents:add_rule", args=[token.uid]),
            "rules": f"{reverse('agents:list')}rules/",
            "change": reverse("agents:change_policy", args=[token.uid]),
        },
        **_policy(request, token, row, rule, form or TokenPolicyForm(initial=_initial(row))),
    }
    return render(request, "agents/token_policy.html", context, status=_status(rule, form))


def _preview(request: HttpRequest, server: Server, token: AgentToken) -> Preview:
    return preview(access.with_identity_of(request.user, server), token, request.GET.get("page", ""))


def _token(request: HttpRequest, uid: UUID) -> AgentToken:
    token: AgentToken | None = tokens.visible_tokens(request.user).filter(uid=uid).first()
    if token is None:
        raise Http404("This token does not exist, or you don't have access to it.")
    return token


# --- both ---------------------------------------------------------------------------------------------------------------
def _policy(request: HttpRequest, of: Owner, row: AgentPolicy | None, rule: Any, form: Any) -> dict[str, Any]:
    rules = list(row.rules.all()) if row is not None else []
    strictness = policies.STRICTNESS
    return {
        "rules": sorted(rules, key=lambda one: strictness[PolicyEffect(one.effect)]),
        "rule_form": rule or RuleForm(initial={"effect": PolicyEffect.ASK}),
        "form": form,
        "may_change": policy_changes.may_change(request.user, of),
    }


def _initial(row: AgentPolicy | None) -> dict[str, Any]:
    row = row or AgentPolicy()
    return {name: getattr(row, name) for name in EndpointPolicyForm.base_fields}


def _status(*forms: Any) -> int:
    return 422 if any(form is not None and form.errors for form in forms) else 200


def _added(request: HttpRequest, of: Owner, form: RuleForm) -> bool:
    if not form.is_valid():
        return False
    try:
        policy_changes.add_rule(Actor.of(request), request.user, of, form.rule())
    except ValidationError as problem:
        form.add_error("pattern", problem)
        return False
    messages.success(request, "Rule added. It applies immediately.")
    return True


def _changed(request: HttpRequest, of: Owner, form: TokenPolicyForm) -> bool:
    if not form.is_valid():
        return False
    policy_changes.change(Actor.of(request), request.user, of, form.changes())
    messages.success(request, "Saved.")
    return True


def _removed(request: HttpRequest, of: Owner, rule: AgentRule | None) -> HttpResponse:
    """GET asks; POST removes it."""
    if rule is None or request.method != "POST":
        policy_changes.require(Actor.of(request), request.user, of)
    if rule is None:
        messages.info(request, "This rule was already removed.")
        return _done(request, of)
    if request.method != "POST":
        nav = "servers" if isinstance(of, Server) else "bundles" if isinstance(of, Bundle) else "agents"
        context = {"nav": nav, "of": of, "rule": rule, "keep": _page_of(of)}
        return render(request, "agents/remove_rule.html", context)
    policy_changes.remove_rule(Actor.of(request), request.user, of, rule)
    messages.success(request, f"The rule “{rule.get_effect_display()} {rule.pattern}” was removed.")
    return _done(request, of)


def _done(request: HttpRequest, of: Owner) -> HttpResponse:
    return redirect(_page_of(of))


def _page_of(of: Owner) -> str:
    if isinstance(of, Server):
        return reverse("servers:agent_policy", args=[of.slug])
    if isinstance(of, Bundle):
        return reverse("agents:bundle_policy", args=[of.slug])
    return reverse("agents:policy", args=[of.uid])
