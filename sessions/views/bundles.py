"""*Bundles*: several servers as one endpoint. List, the names as clients show them, changes, export and import, and *Use
it from …* of each endpoint."""

import hashlib
import json
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.conf import settings
from django.contrib import messages
from django.core.exceptions import ValidationError
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from servers import access
from servers.agents import bundle_files, tokens
from servers.agents.configurations import configurations
from servers.agents.forms import EndpointTokenForm
from servers.audit.record import Actor
from servers.bundles import changing, names, offers
from servers.bundles.changing import BundleInput, Conflict
from servers.bundles.forms import BundleForm, ImportForm
from servers.definitions import model_tokens
from servers.enums import AuditAction, BundleListing
from servers.models import AuditEvent, Bundle, BundleMember, Server
from servers.numbers import uuids
from servers.single_use_forms import ALREADY_USED, use_form
from sessions.agents.catalog import bundle_contents
from sessions.agents.catalog.bundle_contents import Contents

SHOWN = 200
HISTORY = 20
_CHANGES = (
    AuditAction.BUNDLE_CREATE,
    AuditAction.BUNDLE_CHANGE,
    AuditAction.BUNDLE_DELETE,
    AuditAction.BUNDLE_RESTORE,
    AuditAction.BUNDLE_EXPORT,
    AuditAction.AGENT_POLICY_CHANGE,
)


def _visible(request: HttpRequest) -> QuerySet[Bundle]:
    rows = Bundle.objects.filter(deleted_at=None)
    return rows if access.may(request.user, "view") else rows.none()


def seen(request: HttpRequest, slug: str, permission: str = "view") -> Bundle:
    """For a form, the bundle that it was opened for, whatever its short name is now. Raises access.Replaced, too."""
    bundle = _visible(request).filter(slug=slug).first()
    if (uid := request.POST.get("uid", "")) and (bundle is None or uid != str(bundle.uid)):
        opened_for = _visible(request).filter(uid__in=uuids([uid])).first()
        if opened_for is None and bundle is not None:
            raise access.Replaced("bundle")
        bundle = opened_for
    if bundle is None:
        raise Http404("This bundle does not exist, or you don't have access to it.")
    if permission != "view":
        access.require(request.user, permission)
    return bundle


def members_of(bundle: Bundle) -> list[BundleMember]:
    rows = bundle.members.filter(retired_at=None, server__archived_at=None).select_related("server")
    return list(rows.order_by("position", "pk"))


def contents_of(request: HttpRequest, bundle: Bundle) -> Contents:
    return bundle_contents.contents(request.user, bundle, members_of(bundle))


@require_safe
def index(request: HttpRequest) -> HttpResponse:
    access.require(request.user, "view")
    rows = list(_visible(request).prefetch_related("members__server")[:SHOWN])
    context = {
        "nav": "bundles",
        "rows": [(row, [one for one in row.members.all() if one.retired_at is None]) for row in rows],
        "deleted": Bundle.objects.filter(deleted_at__isnull=False).order_by("-deleted_at")[:SHOWN],
        "most": SHOWN,
        "may_change": access.may(request.user, changing.PERMISSION),
        "address": f"{settings.PUBLIC_URL}/mcp/",
    }
    return render(request, "agents/bundles.html", context)


@require_safe
def detail(request: HttpRequest, slug: str) -> HttpResponse:
    """`?client=` is the name under which a client knows the endpoint."""
    bundle = seen(request, slug)
    contents = contents_of(request, bundle)
    client = request.GET.get("client", "").strip()[:64] or bundle.slug
    context = {
        "nav": "bundles",
        "bundle": bundle,
        "url": _url(bundle.slug),
        "client": client,
        "contents": contents,
        "members": [(one, _shown(contents, one, client)) for one in contents.members],
        "searches": bundle.listing == BundleListing.SEARCH,
        "history": _history(request, bundle),
        "may_change": access.may(request.user, changing.PERMISSION),
        "many": bundle_contents.MANY_TOOLS,
        "vocabulary": model_tokens.NAME,
    }
    return render(request, "agents/bundle.html", context)


def _shown(contents: Contents, member: Any, client: str) -> list[dict[str, Any]]:
    found = []
    for kind, title in (
        ("tool", "Tools"),
        ("resource", "Resources"),
        ("resource_template", "Templates"),
        ("prompt", "Prompts"),
    ):
        lines = contents.of(member)[kind]
        for line in lines:
            is_name = kind in ("tool", "prompt")
            shown = names.shown_by_claude_code(client, line.exposed) if is_name else line.exposed
            found.append(
                {"line": line, "kind": kind, "title": title, "shown": shown, "long": is_name and len(shown) > 64}
            )
    return found


def _history(request: HttpRequest, bundle: Bundle) -> list[dict[str, Any]] | None:
    """None for people who may not read the audit log."""
    if not access.may(request.user, "view_auditevent"):
        return None
    rows = AuditEvent.objects.filter(action__in=_CHANGES, body__contains=str(bundle.uid))
    found = []
    for event in rows.order_by("-seq")[:HISTORY]:
        details = json.loads(event.body).get("details", {})
        found.append(
            {"event": event, "changed": ", ".join(name.replace("_", " ") for name in details.get("changed", {}))}
        )
    return found


@require_http_methods(["GET", "HEAD", "POST"])
def create(request: HttpRequest) -> HttpResponse:
    access.require(request.user, changing.PERMISSION)
    form = BundleForm(request.user, None, request.POST if request.method == "POST" else None)
    if request.method == "POST" and form.is_valid() and (made := _saved(request, form, None)) is not None:
        return redirect("agents:bundle", made.slug)
    context = {"nav": "bundles", "form": form}
    return render(request, "agents/bundle_form.html", context, status=422 if form.errors else 200)


@require_http_methods(["GET", "HEAD", "POST"])
def edit(request: HttpRequest, slug: str) -> HttpResponse:
    bundle = seen(request, slug, changing.PERMISSION)
    form = BundleForm(request.user, bundle, request.POST if request.method == "POST" else None)
    if request.method == "POST":
        try:
            if request.POST.get("version") != str(bundle.version):
                raise Conflict
            if form.is_valid() and (made := _saved(request, form, bundle)) is not None:
                return redirect("agents:bundle", made.slug)
        except Conflict:
            bundle.refresh_from_db()
            form = _outdated(request, bundle)
    context = {"nav": "bundles", "form": form, "bundle": bundle}
    return render(request, "agents/bundle_form.html", context, status=422 if form.is_bound else 200)


def _outdated(request: HttpRequest, bundle: Bundle) -> BundleForm:
    """What was entered, as a form of the bundle as another person left it."""
    posted = request.POST.copy()
    posted["version"] = str(bundle.version)
    form = BundleForm(request.user, bundle, posted, outdated=True)
    words = "Someone else has changed this bundle. What you entered is still here. Look at their changes on the bundle's page first: if you save now, yours replace them."
    if form.added:
        words += f" They added {', '.join(one.name for one in form.added)}, which stays unless you remove it."
    if form.gone:
        words += f" They removed {', '.join(one.name for one in form.gone)}, which comes back unless you remove it."
    form.is_valid()
    form.add_error(None, words)
    return form


def _saved(request: HttpRequest, form: BundleForm, bundle: Bundle | None) -> Bundle | None:
    """None: the form has the errors. Raises Conflict."""
    wanted, actor = form.wanted(), Actor.of(request)
    weight = _weight(request.user, wanted, bundle)
    if weight.too_many and not form.cleaned_data["confirm"]:
        form.add_error("confirm", f"{_too_many(weight)} Offer fewer, use search, or confirm below.")
        return None
    try:
        if bundle is None:
            made = changing.create(actor, request.user, wanted)
        else:
            made = changing.change(actor, request.user, bundle, wanted, form.cleaned_data["version"] or 0)
    except ValidationError as problem:
        for name, texts in problem.message_dict.items():
            for text in texts:
                form.add_error(name if name in form.fields else None, text)
        return None
    bundle_contents.assign_names(request.user, made)
    messages.success(request, "Saved.")
    _warn_of_many(request, weight)
    return made


def _too_many(weight: bundle_contents.Weight) -> str:
    return f"This would offer {weight.tools} tools, {weight.after} tokens in each conversation."


def _warn_of_many(request: HttpRequest, weight: bundle_contents.Weight) -> None:
    if weight.many:
        messages.warning(
            request,
            f"{weight.tools} tools: Cursor uses only the first {bundle_contents.MANY_TOOLS}, and models choose less reliably from long lists.",
        )


def _weight(user: Any, wanted: BundleInput, bundle: Bundle | None) -> bundle_contents.Weight:
    unsaved = Bundle(pk=bundle.pk if bundle else None, listing=wanted.listing, pinned=list(wanted.pinned))
    rows = [
        BundleMember(server=one.server, alias=one.alias, **one.columns())
        for one in wanted.members
        if names.ALIAS.match(one.alias)
    ]
    return bundle_contents.contents(user, unsaved, rows).weight


@require_http_methods(["GET", "HEAD", "POST"])
def choose(request: HttpRequest, slug: str, alias: str) -> HttpResponse:
    """Which tools, resources and prompts of one member are offered."""
    bundle = seen(request, slug, changing.PERMISSION)
    rows = members_of(bundle)
    row = next((one for one in rows if one.alias == alias), None)
    if row is None:
        raise Http404("This server is not part of the bundle.")
    contents = bundle_contents.contents(request.user, bundle, rows)
    member = next(one for one in contents.members if one.alias == alias)
    lines = contents.of(member)
    groups = [
        ("tools", "Tools", lines["tool"]),
        ("resources", "Resources and templates", [*lines["resource"], *lines["resource_template"]]),
        ("prompts", "Prompts", lines["prompt"]),
    ]
    ticked = {name: {line.row.key for line in found if line.offered} for name, _, found in groups}
    confirm = False
    if request.method == "POST":
        if request.POST.get("version") != str(bundle.version):  # before this page is shown again with the new version
            messages.error(request, "Someone else has changed this bundle. Choose again.")
            return redirect("agents:bundle_member", bundle.slug, alias)
        shown, changed = request.POST.get("shown"), {}
        marks = set(shown.split()) if shown is not None else None
        for name, _, found in groups:
            known = [line.row.key for line in found if marks is None or _mark(name, line.row.key) in marks]
            given = set(request.POST.getlist(name))
            changed[name] = tuple(offers.chosen(getattr(row, name), known, given))
            ticked[name] = given | ticked[name].difference(known)
        wanted = changing.with_member(bundle, alias, **changed)
        weight = _weight(request.user, wanted, bundle)
        confirm = weight.too_many and "confirm" not in request.POST
        try:
            if not confirm:
                version = int(request.POST.get("version") or 0)
                changing.change(Actor.of(request), request.user, bundle, wanted, version)
                messages.success(request, "Saved.")
                _warn_of_many(request, weight)
                return redirect("agents:bundle", bundle.slug)
            messages.error(request, f"{_too_many(weight)} Offer fewer, or confirm below.")
        except (Conflict, ValueError):
            messages.error(request, "Someone else has changed this bundle. Choose again.")
            return redirect("agents:bundle_member", bundle.slug, alias)
        except ValidationError as problem:
            words = " ".join(problem.messages)
            messages.error(request, f"{words} Under Edit, use fewer lines of patterns or names.")
    context = {
        "nav": "bundles",
        "bundle": bundle,
        "row": row,
        "groups": [
            (name, title, [(line, line.row.key in ticked[name]) for line in found]) for name, title, found in groups
        ],
        "shown": " ".join(_mark(name, line.row.key) for name, _, found in groups for line in found),
        "confirm": confirm,
        "offers": any(lines.values()),
        "connected": member.endpoint.connected,
    }
    status = 422 if request.method == "POST" else 200
    return render(request, "agents/bundle_member.html", context, status=status)


def _mark(name: str, key: str) -> str:
    """Of a line of the page, which sends all of them along: what the server added since was not left out by anyone."""
    return hashlib.sha256(f"{name} {key}".encode("utf-8", "surrogatepass")).hexdigest()[:16]


@require_http_methods(["GET", "HEAD", "POST"])
def delete(request: HttpRequest, slug: str) -> HttpResponse:
    bundle = seen(request, slug, changing.PERMISSION)
    if request.method == "POST":
        changing.delete(Actor.of(request), request.user, bundle)
        messages.success(request, f"{bundle.name} was deleted. You can restore it below for 90 days.")
        return redirect("agents:bundles")
    return render(request, "agents/bundle_delete.html", {"nav": "bundles", "bundle": bundle, "url": _url(bundle.slug)})


@require_POST
def restore(request: HttpRequest, uid: UUID) -> HttpResponse:
    access.require(request.user, changing.PERMISSION)
    bundle = Bundle.objects.filter(uid=uid, deleted_at__isnull=False).first()
    if bundle is None:
        raise Http404("This bundle does not exist, or is not deleted.")
    changing.restore(Actor.of(request), request.user, bundle)
    messages.success(request, f"{bundle.name} was restored.")
    return redirect("agents:bundle", bundle.slug)


@require_POST
def export(request: HttpRequest, slug: str) -> HttpResponse:
    bundle = seen(request, slug)
    answer = HttpResponse(
        bundle_files.export(Actor.of(request), bundle), content_type="application/json; charset=utf-8"
    )
    answer["Content-Disposition"] = f'attachment; filename="{bundle.slug}.bundle.json"'
    return answer


@require_http_methods(["GET", "HEAD", "POST"])
def import_bundle(request: HttpRequest) -> HttpResponse:
    access.require(request.user, changing.PERMISSION)
    form = ImportForm(request.POST if request.method == "POST" else None)
    if request.method == "POST" and form.is_valid():
        try:
            made = bundle_files.import_bundle(Actor.of(request), request.user, form.cleaned_data["text"])
        except ValidationError as problem:
            for text in problem.messages:
                form.add_error("text", text)
        else:
            bundle_contents.assign_names(request.user, made)
            messages.success(request, f"{made.name} was imported.")
            _warn_of_many(request, contents_of(request, made).weight)
            return redirect("agents:bundle", made.slug)
    return render(
        request, "agents/bundle_import.html", {"nav": "bundles", "form": form}, status=422 if form.errors else 200
    )


# --- use it from … -----------------------------------------------------------------------------------------------------
@require_http_methods(["GET", "HEAD", "POST"])
@never_cache
def use(request: HttpRequest, slug: str) -> HttpResponse:
    """Configurations of each client, for a server or a bundle. POST makes a token for it, which is shown here only."""
    place = _endpoint(request, slug)
    access.require(request.user, "call_tool")
    if request.POST.get("uid", "") not in ("", str(place.uid)):
        messages.error(request, f"{access.ANOTHER_ENDPOINT} No token was created.")
        return redirect("agents:use", slug)
    form = EndpointTokenForm(
        request.POST if request.method == "POST" else None, initial={"name": f"Client of {place.name}"[:120]}
    )
    text = ""
    if request.method == "POST" and form.is_valid():
        if not use_form(request):
            messages.info(request, ALREADY_USED)
            return redirect("agents:use", place.slug)
        try:
            issued = tokens.issue(Actor.of(request), request.user, form.wanted(place.servers))
        except ValidationError as problem:
            form.add_error(None, problem)
        else:
            text = issued.text
    context = {
        "nav": place.nav,
        "name": place.name,
        "endpoint": place,
        "back": place.page,
        "url": _url(place.slug),
        "form": form,
        "text": text,
        "configurations": configurations(place.slug, _url(place.slug), text or "YOUR_TOKEN"),
        "plain": settings.PUBLIC_URL.startswith("http:"),
    }
    return render(request, "agents/use.html", context, status=422 if form.errors else 200)


@dataclass(frozen=True)
class _Endpoint:
    """A server or bundle. `servers`: those that a token must reach; `page`: its address; `nav`: the entry of the navigation."""

    uid: UUID
    slug: str
    name: str
    servers: list[Server]
    page: str
    nav: str


def _endpoint(request: HttpRequest, slug: str) -> _Endpoint:
    server = access.visible_servers(request.user).filter(slug=slug, archived_at=None).first()
    if server is not None:
        return _Endpoint(server.uid, slug, server.name, [server], reverse("servers:detail", args=[slug]), "agents")
    bundle = seen(request, slug)
    servers = [row.server for row in members_of(bundle)]
    return _Endpoint(
        bundle.uid, bundle.slug, bundle.name, servers, reverse("agents:bundle", args=[bundle.slug]), "bundles"
    )


def _url(slug: str) -> str:
    return f"{settings.PUBLIC_URL}/mcp/{slug}"
