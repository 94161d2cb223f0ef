"""Groups of users, and their permissions."""

from typing import Any

from django.contrib import messages
from django.contrib.auth.models import Group
from django.db import IntegrityError
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_safe

from servers import access
from servers.accounts import catalog, people, reads
from servers.accounts.authority import Authority, Refused, held_by_groups, in_words
from servers.accounts.catalog import MANAGE
from servers.accounts.forms import GroupForm
from servers.audit.record import Actor


@require_safe
def index(request: HttpRequest) -> HttpResponse:
    access.require(request.user, MANAGE)
    return render(request, "users/groups.html", {"nav": "users", "rows": reads.groups()})


@require_http_methods(["GET", "POST"])
def add(request: HttpRequest) -> HttpResponse:
    access.require(request.user, MANAGE)
    return _form(request, None, {})


@require_http_methods(["GET", "POST"])
def detail(request: HttpRequest, group_id: int) -> HttpResponse:
    found = _group(request, group_id)
    return _form(request, found, _as_shown(found))


def _as_shown(group: Group) -> dict[str, Any]:
    own = sorted(catalog.permissions_of_groups([group]))
    return {"name": group.name, "own": own, "seen": people.group_mark(group)}


def _form(request: HttpRequest, found: Group | None, initial: dict[str, Any]) -> HttpResponse:
    posted = request.method == "POST"
    authority = Authority.of(request.user)
    form = GroupForm(authority, found, request.POST if posted else None, initial=initial)
    problem, status = "", 200
    if posted and form.is_valid():
        data = form.cleaned_data
        try:
            saved = people.save_group(
                Actor.of(request),
                request.user,
                found,
                name=data["name"],
                given=data["own"],
                seen=data["seen"] if found else None,
            )
        except Refused as refused:
            problem, status = str(refused), 409
            found = Group.objects.filter(pk=found.pk).first() if found else None
            form = GroupForm(authority, found, initial=_as_shown(found) if found else {})
        except IntegrityError:  # another administrator took the name in this moment
            form.add_error("name", "A group with this name already exists.")
        else:
            messages.success(request, f"{saved.name} was saved. Its members now have these permissions.")
            return redirect("users:groups")
    context = {
        "nav": "users",
        "group": found,
        "form": form,
        "problem": problem,
        "members": list(found.user_set.order_by("username")[:20]) if found else [],
        "member_count": found.user_set.count() if found else 0,
        "reached": found is None or authority.may_give(held_by_groups([found])),
    }
    return render(request, "users/group.html", context, status=422 if form.errors else status)


@require_http_methods(["GET", "POST"])
def delete(request: HttpRequest, group_id: int) -> HttpResponse:
    found = _group(request, group_id)
    if request.method == "POST":
        try:
            people.delete_group(Actor.of(request), request.user, found)
        except Refused as refused:
            messages.error(request, str(refused))
        else:
            messages.success(request, f"The group {found.name} was deleted.")
        return redirect("users:groups")
    context = {
        "nav": "users",
        "group": found,
        "members": found.user_set.count(),
        "permissions": in_words(held_by_groups([found])),
        "references": found.reference_grants.exists(),
    }
    return render(request, "users/delete_group.html", context)


def _group(request: HttpRequest, group_id: int) -> Group:
    access.require(request.user, MANAGE)
    found = Group.objects.filter(pk=group_id).first()
    if found is None:
        raise Http404("This group does not exist.")
    return found
