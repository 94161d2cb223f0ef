"""An MCP server of the official SDK behind the SDK's authorization server, in one process: `--port N`.

Every person consents at once. `PROTECTED_LOG` gets a line of JSON for each request to the authorization server.

- `PROTECTED_ACCOUNT`: the token endpoint accepts only this service account (service_accounts.py).
- `PROTECTED_METHOD`: the metadata announces only this method of client authentication.
- `PROTECTED_DPOP`: both metadata documents announce proofs of possession, so that clients create a key. The server
  checks no proof, and its tokens are bearer tokens.
- `PROTECTED_ISSUER_KEY`: it issues tokens for assertions signed by others (federation.py).
- `PROTECTED_STEP_UP`: the tool `publish` also needs the scope `write`; with "never" it is refused whatever the scopes.

`POST /control/expire` ends every access token, `POST /control/revoke` every grant. Runs in the environment of sdk2.
"""

import argparse
import json
import os
import secrets
import time
from typing import Any

import uvicorn
from federation import ID_JAG, Federation
from mcp.server.auth.provider import (
    AccessToken,
    AuthorizationCode,
    AuthorizationParams,
    OAuthAuthorizationServerProvider,
    RefreshToken,
    construct_redirect_uri,
)
from mcp.server.auth.routes import build_metadata
from mcp.server.auth.settings import AuthSettings, ClientRegistrationOptions, RevocationOptions
from mcp.server.mcpserver import MCPServer
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken
from pydantic import AnyHttpUrl
from service_accounts import Account
from serving import AnnouncingServer
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

LIFE_SECONDS = 3600
STEP_UP = os.environ.get("PROTECTED_STEP_UP", "")
SCOPES = ["tools", "write"] if STEP_UP else ["tools"]
OPTIONS = ClientRegistrationOptions(enabled=True, valid_scopes=SCOPES, default_scopes=SCOPES)


def note(event: str, **more: str) -> None:
    with open(os.environ["PROTECTED_LOG"], "a") as log:
        log.write(json.dumps({"event": event, **more}) + "\n")


class Provider(OAuthAuthorizationServerProvider[AuthorizationCode, RefreshToken, AccessToken]):
    def __init__(self) -> None:
        self.clients: dict[str, OAuthClientInformationFull] = {}
        self.codes: dict[str, AuthorizationCode] = {}
        self.access: dict[str, AccessToken] = {}
        self.refresh: dict[str, RefreshToken] = {}
        self.account: Account
        self.federation: Federation | None = None

    def assertions(self) -> list[str]:
        return self.federation.given if self.federation else []

    async def get_client(self, client_id: str) -> OAuthClientInformationFull | None:
        return self.clients.get(client_id)

    async def register_client(self, client_info: OAuthClientInformationFull) -> None:
        note("register", name=str(client_info.client_name))
        self.clients[str(client_info.client_id)] = client_info

    async def authorize(self, client: OAuthClientInformationFull, params: AuthorizationParams) -> str:
        note("authorize", scopes=" ".join(params.scopes or []))
        code = AuthorizationCode(
            code=secrets.token_urlsafe(24),
            scopes=params.scopes or ["tools"],
            expires_at=time.time() + 60,
            client_id=str(client.client_id),
            code_challenge=params.code_challenge,
            redirect_uri=params.redirect_uri,
            redirect_uri_provided_explicitly=params.redirect_uri_provided_explicitly,
            resource=params.resource,
        )
        self.codes[code.code] = code
        return construct_redirect_uri(str(params.redirect_uri), code=code.code, state=params.state)

    async def load_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: str
    ) -> AuthorizationCode | None:
        return self.codes.get(authorization_code)

    async def exchange_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: AuthorizationCode
    ) -> OAuthToken:
        note("code")
        del self.codes[authorization_code.code]
        return self._issued(str(client.client_id), authorization_code.scopes, authorization_code.resource)

    async def load_refresh_token(self, client: OAuthClientInformationFull, refresh_token: str) -> RefreshToken | None:
        found = self.refresh.get(refresh_token)
        if found is None:
            note("refresh_refused")
        return found

    async def exchange_refresh_token(
        self, client: OAuthClientInformationFull, refresh_token: RefreshToken, scopes: list[str]
    ) -> OAuthToken:
        note("refresh")
        del self.refresh[refresh_token.token]
        return self._issued(str(client.client_id), scopes, refresh_token.resource)

    async def load_access_token(self, token: str) -> AccessToken | None:
        return self.access.get(token)

    async def revoke_token(self, token: AccessToken | RefreshToken) -> None:
        self.access.pop(token.token, None)

    async def account_token(self, request: Request) -> JSONResponse:
        form = await request.form()
        how, right = self.account.shown(request, form)
        note("account", how=how)
        if form["grant_type"] != "client_credentials" or not right:
            note("account_refused")
            return JSONResponse({"error": "invalid_client"}, 401)
        token = self._issued("account", ["tools"], str(form["resource"]))
        return JSONResponse(token.model_dump(exclude_none=True, exclude={"refresh_token"}))

    async def asserted_token(self, request: Request) -> JSONResponse:
        assert self.federation
        form = await request.form()
        whom = self.federation.asserted(form)
        note("assertion", whom=whom)
        if not whom:
            return JSONResponse({"error": "invalid_grant"}, 400)
        token = self._issued(whom, ["tools"], str(form["resource"]))
        return JSONResponse(token.model_dump(exclude_none=True, exclude={"refresh_token"}))

    async def exchanged_token(self, request: Request) -> JSONResponse:
        assert self.federation
        assertion = self.federation.exchanged(request, await request.form())
        note("exchange", given=str(bool(assertion)))
        if not assertion:
            return JSONResponse({"error": "invalid_grant"}, 400)
        answer = {"access_token": assertion, "issued_token_type": ID_JAG, "token_type": "N_A", "expires_in": 60}
        return JSONResponse(answer)

    def _issued(self, client_id: str, scopes: list[str], resource: str | None) -> OAuthToken:
        access, refresh = f"canary-access-{secrets.token_urlsafe(20)}", f"canary-refresh-{secrets.token_urlsafe(20)}"
        self.access[access] = AccessToken(token=access, client_id=client_id, scopes=scopes, resource=resource)
        self.refresh[refresh] = RefreshToken(token=refresh, client_id=client_id, scopes=scopes, resource=resource)
        return OAuthToken(
            access_token=access,
            token_type="Bearer",
            expires_in=LIFE_SECONDS,
            scope=" ".join(scopes),
            refresh_token=refresh,
        )


class StepUp:
    """Refuses a call of `publish` whose token lacks the scope `write` (RFC 6750 section 3.1). The SDK never sees it."""

    def __init__(self, app: Any, provider: Provider, base: str) -> None:
        self._app, self._provider, self._base = app, provider, base

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http" or scope["path"] != "/mcp" or scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        request = Request(scope, receive)
        body, token = await request.body(), request.headers.get("authorization", "").partition(" ")[2]
        known = self._provider.access.get(token)
        if known is None or b'"publish"' not in body or (STEP_UP != "never" and "write" in known.scopes):
            waiting = [{"type": "http.request", "body": body, "more_body": False}]
            await self._app(scope, lambda: _next(waiting, receive), send)
            return
        note("refused_scope")
        where = f"{self._base}/.well-known/oauth-protected-resource/mcp"
        words = f'Bearer error="insufficient_scope", scope="write", resource_metadata="{where}"'
        await JSONResponse({}, 403, {"WWW-Authenticate": words})(scope, receive, send)


async def _next(waiting: list[dict[str, Any]], receive: Any) -> Any:
    return waiting.pop() if waiting else await receive()


def metadata(port: int) -> dict[str, Any]:
    """The SDK's authorization server metadata, with the additions that the environment requests."""
    base = f"http://127.0.0.1:{port}"
    made = build_metadata(AnyHttpUrl(base), None, OPTIONS, RevocationOptions())
    said = made.model_dump(mode="json", exclude_none=True) | {"issuer": base}
    if method := os.environ.get("PROTECTED_METHOD"):
        said["token_endpoint_auth_methods_supported"] = [method]
    if "PROTECTED_DPOP" in os.environ:
        said["dpop_signing_alg_values_supported"] = ["ES256"]
    return said


def of_resource(port: int) -> dict[str, Any]:
    base = f"http://127.0.0.1:{port}"
    return {
        "resource": f"{base}/mcp",
        "authorization_servers": [base],
        "scopes_supported": ["tools"],
        "dpop_signing_alg_values_supported": ["ES256"],
    }


def build(port: int, provider: Provider) -> MCPServer:
    base = f"http://127.0.0.1:{port}"
    auth = AuthSettings(
        issuer_url=base,  # type: ignore[arg-type]  # pydantic converts it
        resource_server_url=f"{base}/mcp",  # type: ignore[arg-type]  # converted to a URL
        client_registration_options=OPTIONS,
        required_scopes=["tools"],
        validate_token_resource=True,
    )
    server = MCPServer("protected", auth_server_provider=provider, auth=auth, log_level="WARNING")

    @server.tool()
    async def greet(name: str) -> str:
        note("call", name=name)
        return f"Hello {name}"

    if STEP_UP:

        @server.tool()
        async def publish(name: str) -> str:
            note("published", name=name)
            return f"Published {name}"

    @server.tool()
    async def echo_token() -> str:
        """Gives away the tokens that it knows, as no server should."""
        return "seen: " + ", ".join([*provider.access, *provider.assertions()])

    return server


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("transport", choices=["http"])
    parser.add_argument("--port", type=int, required=True)
    port = parser.parse_args().port
    provider = Provider()

    async def expire(request: Request) -> JSONResponse:
        provider.access.clear()
        return JSONResponse({})

    async def revoke(request: Request) -> JSONResponse:
        provider.access.clear()
        provider.refresh.clear()
        return JSONResponse({})

    async def tokens(request: Request) -> JSONResponse:
        """All tokens that are valid now, for a test that searches for them elsewhere."""
        return JSONResponse([*provider.access, *provider.refresh, *provider.assertions()])

    async def client(request: Request) -> JSONResponse:
        """Register a client manually."""
        known = OAuthClientInformationFull.model_validate(await request.json())
        provider.clients[str(known.client_id)] = known
        return JSONResponse({})

    app = build(port, provider).streamable_http_app()
    if {"PROTECTED_METHOD", "PROTECTED_DPOP"} & os.environ.keys():
        where = "/.well-known/oauth-authorization-server"
        app.router.routes.insert(0, Route(where, lambda request: JSONResponse(metadata(port)), methods=["GET"]))
    if "PROTECTED_DPOP" in os.environ:
        where = "/.well-known/oauth-protected-resource/mcp"
        app.router.routes.insert(0, Route(where, lambda request: JSONResponse(of_resource(port)), methods=["GET"]))
    if "PROTECTED_ACCOUNT" in os.environ:
        provider.account = Account(f"http://127.0.0.1:{port}")
        app.router.routes.insert(0, Route("/token", provider.account_token, methods=["POST"]))
    if "PROTECTED_ISSUER_KEY" in os.environ:
        provider.federation = Federation(f"http://127.0.0.1:{port}")
        app.router.routes.insert(0, Route("/token", provider.asserted_token, methods=["POST"]))
        app.router.routes.insert(0, Route("/provider/token", provider.exchanged_token, methods=["POST"]))
    app.router.routes += [
        Route("/control/expire", expire, methods=["POST"]),
        Route("/control/revoke", revoke, methods=["POST"]),
        Route("/control/tokens", tokens, methods=["GET"]),
        Route("/control/client", client, methods=["POST"]),
    ]
    served = StepUp(app, provider, f"http://127.0.0.1:{port}") if STEP_UP else app
    AnnouncingServer(uvicorn.Config(served, host="127.0.0.1", port=port, log_level="warning")).run()


if __name__ == "__main__":
    main()
