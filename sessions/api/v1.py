"""Version 1: its routers, its errors, and its OpenAPI document."""

from typing import Any

from django.conf import settings
from django.http import HttpRequest
from django.urls import reverse
from ninja import NinjaAPI
from ninja.openapi.schema import OpenAPISchema
from ninja.parser import Parser

from servers import limits
from sessions.api import audit_events, calls, problems, servers, subscriptions
from sessions.api.asking import Token
from sessions.api.mount import URLCONF
from sessions.api.shapes import ProblemOut
from sessions.mcp.core import json_text
from sessions.mcp.core.limits import Limits

_ABOUT = """\
Servers, calls, subscriptions and audit events of this mcpadmin installation. Tools, resources and prompts themselves are
reached over MCP, at the `mcp_url` of a server.

Every request needs a token from the *Agents* page: `Authorization: Bearer mca_…`. It can do what both the token and its
owner may do. Lists are paginated: pass `next` of one page as the `cursor` of the following. Errors are problem
details (RFC 9457)."""


class StrictJson(Parser):
    """As at the agent endpoint: duplicate keys, NaN, deep nesting and lone surrogates are rejected, because whatever
    reads them next may interpret them differently."""

    def parse_body(self, request: HttpRequest) -> Any:
        value, mended = json_text.parse(request.body, Limits(message_values=limits.number("agent_body_values")))
        if mended:
            raise ValueError("an unpaired surrogate")
        return value


class Version1(NinjaAPI):
    def get_root_path(self, path_params: dict[str, Any]) -> str:
        """Overridden because the library looks for it in the URLconf of the pages."""
        return reverse("api-1:api-root", URLCONF, kwargs=path_params)

    def get_openapi_schema(self, **given: Any) -> OpenAPISchema:
        """Adds the problem response that every operation may return."""
        schema = super().get_openapi_schema(**given)
        schema["components"]["schemas"]["Problem"] = ProblemOut.model_json_schema()
        problem = {
            "description": "The request was refused or failed.",
            "content": {problems.MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
        }
        for operations in schema["paths"].values():
            for operation in operations.values():
                operation["responses"]["default"] = problem
        return schema


api = Version1(
    title="mcpadmin",
    version=settings.VERSION,
    description=_ABOUT,
    urls_namespace="api-1",
    docs_url=None,
    parser=StrictJson(),
    auth=Token(),
)
api.add_router("/servers", servers.router)
api.add_router("", calls.router)
api.add_router("/subscriptions", subscriptions.router)
api.add_router("/audit-events", audit_events.router)
problems.register(api)
