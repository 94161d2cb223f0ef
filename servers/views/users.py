"""Users, their invitations, links and service accounts.

A link is shown only in the response to the request that issued it: mcpadmin stores nothing but its digest.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from django.conf import settings
from django.contrib import messages
from django.contrib.auth import get_user_model
from django.db import IntegrityError
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from servers import access
from servers.accounts import belongings, browser_sessions, catalog, links, mail, people, reads, service_accounts
from servers.accounts.authority import Authority, Refused, held_by, in_words
from servers.accounts.catalog import MANAGE
from servers.accounts.forms import (
    HandOverForm,
    InviteForm,
    PermissionsForm,
    ServiceAccountForm,
    UserListFilter,
)
from servers.accounts.links import Invitation, IssuedLink
from servers.audit.record import Actor
from servers.enums import LinkPurpose
from servers.models import AccountLink, AgentToken, Identity, Server, ServiceAccount
from servers.numbers import whole_number
from servers.single_use_forms import ALREADY_USED, use_form


def _user(request: HttpRequest, user_id: int) -> Any:
    access.require(request.user, MANAGE)
    found = get_user_model()._default_manager.filter(pk=user_id).first()
    if found is None:
        raise Http404("This user does not exist.")
    return found


def _visible(request: HttpRequest) -> Any:
    return access.visible_servers(request.user)


# --- the list --------------------------------------------------------------------------------------------------------
@require_safe
def index(request: HttpRequest) -> HttpResponse:
    access.require(request.user, MANAGE)
    filters = UserListFilter(request.GET)
    before = whole_number(request.GET.get("before", ""))
    invited_only = filters.chosen == "invited"
    if invited_only:
        page: Any = reads.invitations(filters.search, before)
        rows, waiting, more = [], page.rows, False
    else:
        page = reads.people(filters.search, filters.chosen, before)
        rows = [reads.PersonRow(user) for user in page.rows]
        found = (
            reads.invitations(filters.search, size=reads.WAITING_SHOWN, revoked=False)
            if page.first and not filters.chosen
            else None
        )
        waiting, more = (found.rows, found.older is not None) if found else ([], False)
    context = {
        "nav": "users",
        "filters": filters,
        "filtered": filters.active,
        "ignored_filters": filters.ignored(),
        "rows": rows,
        "invitations": reads.invitation_rows(waiting),
        "more_invitations": more,
        "invited_only": invited_only,
        "first": page.first,
        "older": page.older,
    }
    return render(request, "users/index.html", context)


# --- links -----------------------------------------------------------------------------------------------------------
@require_http_methods(["GET", "POST"])
def invite(request: HttpRequest) -> HttpResponse:
    access.require(request.user, MANAGE)
    form = InviteForm(Authority.of(request.user), request.POST if request.method == "POST" else None)
    if request.method == "POST" and form.is_valid():
        if not use_form(request):
            return _not_again(request, "users:list")
        data = form.cleaned_data
        invitation = Invitation(
            data["name"].strip(), data["email"], data["superuser"], list(data["groups"]), tuple(data["own"])
        )
        return _issued(request, links.invite(Actor.of(request), request.user, invitation))
    context = {
        "nav": "users",
        "form": form,
        "may_superuser": request.user.is_superuser,
        "days": settings.INVITATION_DAYS,
    }
    return render(request, "users/invite.html", context, status=422 if form.errors else 200)


@require_POST
def reissue(request: HttpRequest, uid: Any) -> HttpResponse:
    link = _invitation(request, uid)
    if not use_form(request):
        return _not_again(request, "users:list")
    try:
        issued = links.reissue(Actor.of(request), request.user, link)
    except Refused as refused:
        return _back(request, refused, "users:list")
    return _issued(request, issued)


@require_http_methods(["GET", "HEAD", "POST"])
def revoke(request: HttpRequest, uid: Any) -> HttpResponse:
    """GET asks; POST ends the link."""
    link = _invitation(request, uid)
    if request.method != "POST":
        return render(request, "users/revoke_invitation.html", {"nav": "users", "link": link})
    return _done(
        request,
        lambda: links.revoke(Actor.of(request), request.user, link),
        f"The invitation for {link} was revoked.",
        "users:list",
    )


def _invitation(request: HttpRequest, uid: Any) -> AccountLink:
    access.require(request.user, MANAGE)
    link = AccountLink.objects.filter(uid=uid, purpose=LinkPurpose.INVITATION, used_at=None).first()
    if link is None:
        raise Http404("This invitation does not exist, or it has been used.")
    return link


@require_POST
def reset(request: HttpRequest, user_id: int) -> HttpResponse:
    user = _user(request, user_id)
    if not use_form(request):
        return _not_again(request, "users:detail", user.pk)
    try:
        issued = links.issue_password_link(Actor.of(request), request.user, user)
    except Refused as refused:
        return _back(request, refused, "users:detail", user.pk)
    return _issued(request, issued)


def _not_again(request: HttpRequest, where: str, *args: Any) -> HttpResponse:
    messages.info(request, ALREADY_USED)
    return redirect(where, *args)


def _issued(request: HttpRequest, issued: IssuedLink) -> HttpResponse:
    """The one page that shows the link."""
    url = issued.url(settings.PUBLIC_URL)
    context = {"nav": "users", "link": issued.link, "url": url, "mailed": mail.send(issued, url)}
    return render(request, "users/link.html", context)


# --- service accounts --------------------------------------------------------------------------------------------------
@require_http_methods(["GET", "POST"])
def add_service_account(request: HttpRequest) -> HttpResponse:
    access.require(request.user, MANAGE)
    form = ServiceAccountForm(Authority.of(request.user), request.POST if request.method == "POST" else None)
    if request.method == "POST" and form.is_valid():
        data = form.cleaned_data
        wanted = service_accounts.NewServiceAccount(
            data["name"], data["purpose"], list(data["groups"]), tuple(data["own"])
        )
        try:
            user = service_accounts.add(Actor.of(request), request.user, wanted)
        except IntegrityError:
            form.add_error("name", "A user with that username already exists.")
        else:
            messages.success(request, f"{wanted.name} is added. Create a token for it next.")
            return redirect("users:detail", user.pk)
    context = {"nav": "users", "form": form}
    return render(request, "users/add_service_account.html", context, status=422 if form.errors else 200)


# --- one person ------------------------------------------------------------------------------------------------------
def _service(user: Any) -> ServiceAccount | None:
    return ServiceAccount.objects.filter(user=user).first()


def _active_tokens(user: Any) -> int:
    return AgentToken.objects.filter(user=user, revoked_at=None, expires_at__gt=timezone.now()).count()


@require_safe
def detail(request: HttpRequest, user_id: int) -> HttpResponse:
    user = _user(request, user_id)
    authority = Authority.of(request.user)
    seen = _visible(request)
    context = {
        "nav": "users",
        "person": user,
        "look": reads.look_of(user),
        "service": _service(user),
        "tokens": _active_tokens(user),
        "groups": user.groups.order_by("name"),
        "sections": catalog.effective(user),
        "browsers": browser_sessions.browsers(user, request.session.session_key),
        "belongings": belongings.of(user, seen),
        "sees_servers": access.may(request.user, "view"),
        "identities": belongings.identities_in_use(user, seen),
        "reached": authority.reaches(user),
        "beyond": in_words(authority.lacks(held_by(user))),
        "self": user.pk == request.user.pk,
    }
    return render(request, "users/detail.html", context)


@require_http_methods(["GET", "POST"])
def permissions(request: HttpRequest, user_id: int) -> HttpResponse:
    user = _user(request, user_id)
    initial = {
        "groups": list(user.groups.values_list("pk", flat=True)),
        "own": sorted(catalog.own_permissions(user)),
        "superuser": user.is_superuser,
        "seen": people.mark(user),
    }
    posted = request.method == "POST"
    form = PermissionsForm(Authority.of(request.user), request.POST if posted else None, initial=initial)
    problem, status = "", 200
    if posted and form.is_valid():
        data = form.cleaned_data
        try:
            people.set_permissions(
                Actor.of(request),
                request.user,
                user,
                groups=list(data["groups"]),
                own=data["own"],
                superuser=data["superuser"],
                seen=data["seen"],
            )
        except Refused as refused:
            # The page shows the current permissions, so that saving again is a decision about those.
            problem, status = str(refused), 409
            user = _user(request, user_id)
            fresh = initial | {
                "groups": list(user.groups.values_list("pk", flat=True)),
                "own": sorted(catalog.own_permissions(user)),
                "superuser": user.is_superuser,
                "seen": people.mark(user),
            }
            form = PermissionsForm(Authority.of(request.user), initial=fresh)
        else:
            messages.success(request, f"Saved. {user.get_username()} now has these permissions.")
            return redirect("users:detail", user.pk)
    context = {
        "nav": "users",
        "person": user,
        "form": form,
        "problem": problem,
        "may_superuser": request.user.is_superuser,
        "reached": form.authority.reaches(user),
        "beyond": in_words(form.authority.lacks(held_by(user))),
    }
    return render(request, "users/permissions.html", context, status=422 if form.errors else status)


@require_http_methods(["GET", "POST"])
def disable(request: HttpRequest, user_id: int) -> HttpResponse:
    """GET asks and says what happens; POST disables."""
    user = _user(request, user_id)
    if request.method == "POST":
        return _done(
            request,
            lambda: people.disable(Actor.of(request), request.user, user),
            f"{user.get_username()} is disabled and signed out everywhere.",
            "users:detail",
            user.pk,
        )
    context = {
        "nav": "users",
        "person": user,
        "service": _service(user),
        "tokens": _active_tokens(user),
        "browsers": browser_sessions.browsers(user),
        "identities": belongings.identities_in_use(user, _visible(request)),
        "owned": Server.objects.filter(pk__in=_visible(request), owner=user).count(),
    }
    return render(request, "users/disable.html", context)


@require_POST
def enable(request: HttpRequest, user_id: int) -> HttpResponse:
    user = _user(request, user_id)
    enabled = "is enabled. Its tokens work again." if _service(user) else "is enabled and can sign in."
    return _done(
        request,
        lambda: people.enable(Actor.of(request), request.user, user),
        f"{user.get_username()} {enabled}",
        "users:detail",
        user.pk,
    )


@require_POST
def end_sign_in(request: HttpRequest, user_id: int, number: int) -> HttpResponse:
    return _end(request, _user(request, user_id), browser_sessions.numbered(number))


@require_POST
def end_sign_ins(request: HttpRequest, user_id: int) -> HttpResponse:
    return _end(request, _user(request, user_id), None)


def _end(request: HttpRequest, user: Any, ids: list[int] | None) -> HttpResponse:
    words = f"{user.get_username()} is signed out {'everywhere' if ids is None else 'in that browser'}."
    end = partial(people.end_sign_ins, Actor.of(request), request.user, user, ids)
    return _done(request, end, words, "users:detail", user.pk)


@require_http_methods(["GET", "POST"])
def hand_over(request: HttpRequest, user_id: int) -> HttpResponse:
    user = _user(request, user_id)
    form = HandOverForm(user, request.POST if request.method == "POST" else None)
    if request.method == "POST" and form.is_valid():
        heir = form.cleaned_data["to"]
        return _done(
            request,
            lambda: people.hand_over(Actor.of(request), request.user, user, heir),
            f"Handed over to {heir.get_username()}.",
            "users:detail",
            user.pk,
        )
    context = {"nav": "users", "person": user, "form": form, "belongings": belongings.of(user, _visible(request))}
    return render(request, "users/hand_over.html", context, status=422 if form.errors else 200)


@require_http_methods(["GET", "HEAD", "POST"])
def end_identity(request: HttpRequest, user_id: int, uid: Any) -> HttpResponse:
    """GET asks and says what is lost; POST ends it."""
    user = _user(request, user_id)
    found = Identity.objects.filter(uid=uid, user=user, server__in=_visible(request)).select_related("server").first()
    if found is None:
        raise Http404("This identity does not exist, or you don't have access to it.")
    if request.method != "POST":
        context = {"nav": "users", "person": user, "server": found.server, "credentials": found.uses.count()}
        return render(request, "users/end_identity.html", context)
    return _done(
        request,
        lambda: people.end_identity(Actor.of(request), request.user, user, found),
        f"The personal identity on {found.server.name} was removed, and its credentials were erased.",
        "users:detail",
        user.pk,
    )


@require_http_methods(["GET", "POST"])
def delete(request: HttpRequest, user_id: int) -> HttpResponse:
    user = _user(request, user_id)
    if request.method == "POST":
        name = user.get_username()
        try:
            people.delete(Actor.of(request), request.user, user)
        except Refused as refused:
            return _back(request, refused, "users:detail", user.pk)
        messages.success(request, f"{name} was deleted.")
        return redirect("users:list")
    blocking = [item for item in belongings.of(user) if item.blocks]
    shown = belongings.of(user, _visible(request))
    context = {
        "nav": "users",
        "person": user,
        "blocking": [item for item in shown if item.blocks],
        "ending": [item for item in shown if item.ends],
        "blocked": bool(blocking),
    }
    return render(request, "users/delete.html", context)


# --- answers ---------------------------------------------------------------------------------------------------------
def _done(request: HttpRequest, act: Callable[[], Any], words: str, page: str, *args: Any) -> HttpResponse:
    try:
        act()
    except Refused as refused:
        return _back(request, refused, page, *args)
    messages.success(request, words)
    return redirect(page, *args)


def _back(request: HttpRequest, refused: Refused, page: str, *args: Any) -> HttpResponse:
    messages.error(request, str(refused))
    return redirect(page, *args)
