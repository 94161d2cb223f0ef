"""How large the body of a request may be: what its route needs, and much less before a sign-in."""

from collections.abc import Callable, Mapping
from functools import partial
from http.cookies import CookieError, SimpleCookie
from importlib import import_module
from typing import Any

from django.conf import settings
from django.contrib.auth import get_user
from django.db import connections
from django.http import HttpRequest
from django.urls import Resolver404, resolve

from servers.agents.addresses import API_PREFIX, PREFIX

ANONYMOUS, FORM, ARGUMENTS, IMPORT, AGENT = (
    "body_anonymous_bytes",
    "body_form_bytes",
    "body_arguments_bytes",
    "body_import_bytes",
    "agent_body_bytes",
)
#: routes that accept more than a form: the arguments of a call or an answer, and a configuration
_LARGER = {
    "servers:import": IMPORT,
    "servers:tool_form": ARGUMENTS,
    "servers:call": ARGUMENTS,
    "servers:get_prompt": ARGUMENTS,
    "servers:read": ARGUMENTS,
    "servers:expand": ARGUMENTS,
    "servers:prompts": ARGUMENTS,
    "servers:tools": ARGUMENTS,
    "calls:values": ARGUMENTS,
    "calls:repeat": ARGUMENTS,
    "inbox:answer": ARGUMENTS,
}


def is_of_agents(path: str) -> bool:
    return path.startswith(PREFIX)


def is_of_api(path: str) -> bool:
    return path.startswith(API_PREFIX)


def has_bearer_token(path: str, authorization: str) -> bool:
    """Whether a request to a path that accepts tokens has one, valid or not."""
    return (is_of_agents(path) or is_of_api(path)) and authorization.partition(" ")[0].lower() == "bearer"


def limit_of(path: str) -> str:
    """The name of the limit for a signed-in user."""
    if is_of_agents(path):
        return AGENT
    if is_of_api(path):
        return ARGUMENTS
    try:
        return _LARGER.get(resolve(path).view_name, FORM)
    except Resolver404:
        return FORM


def proof_of(path: str, cookie: str, authorization: str) -> Callable[[], bool] | None:
    """A function that checks, in a thread, whether the sender of a large body may send it: by the token of an agent, or
    by the sign-in of a browser. None if there is neither."""
    if has_bearer_token(path, authorization):
        return partial(_is_genuine, authorization.partition(" ")[2].strip())
    if is_of_agents(path) or is_of_api(path):
        return None
    key = session_key(cookie)
    return partial(signed_in, key) if key else None


def _is_genuine(token: str) -> bool:
    from servers.agents import tokens  # noqa: PLC0415  # this module is loaded before Django is ready

    try:
        return tokens.is_genuine(token)
    finally:
        connections.close_all()


def session_key(cookie: str) -> str:
    """From the Cookie header; empty when there is none."""
    try:
        found = SimpleCookie(cookie).get(settings.SESSION_COOKIE_NAME)
    except CookieError:
        return ""
    return found.value if found is not None else ""


def signed_in(key: str) -> bool:
    """Whether this browser session belongs to a user who may sign in. Reads the database; for a thread."""
    request: Any = HttpRequest()
    request.session = import_module(settings.SESSION_ENGINE).SessionStore(key)
    try:
        return bool(get_user(request).is_authenticated)
    finally:
        connections.close_all()


def sent_by_script(headers: Mapping[str, str]) -> bool:
    """Our own modules and htmx identify themselves; over https and on loopback the browser marks every other fetch.
    Header names must be in lower case, unless `headers` ignores case."""
    named = headers.get("hx-request") == "true" or headers.get("x-requested-with") == "XMLHttpRequest"
    return named or headers.get("accept") == "application/json" or headers.get("sec-fetch-dest") == "empty"
