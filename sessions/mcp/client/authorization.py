"""Authorization of one server: holds the token, renews it, and gets a new one when the server demands it.

Transports call `Authorization` through transports/authorizing.py. It takes a `TokenStore` (rows in the host, memory in
tests) and a `Consent` (a person); neither sees how a token is obtained.
"""

import asyncio
import secrets
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final, TypeVar

from ..core.errors import AuthorizationError, McpError, SignInNeeded
from ..oauth import flows
from ..oauth.callback import LIFETIME, SignInRefused
from ..oauth.challenges import Demand
from ..oauth.exchange import Exchange, HttpResponse
from ..oauth.grant import Grant, Pending, Registration, Source
from ..oauth.settings import AuthorizationSettings, IdentityProvider
from ..oauth.tokens import TokenRefused
from ..oauth.urls import covers, http_twin
from ..transports.authorizing import Trial
from .authorization_needs import Consent, Http, TokenStore
from .authorization_signing import Signing
from .authorization_trial import RequestTrial
from .single_flight import SingleFlight

__all__ = [
    "Authorization",
    "AuthorizationSettings",
    "Consent",
    "Grant",
    "Http",
    "IdentityProvider",
    "Pending",
    "Registration",
    "SignInNeeded",
    "TokenStore",
]
Result = TypeVar("Result")
#: times that one operation may request the same additional scopes, and how many such requests we meet in total
_STEP_UPS: Final = 2
_STEP_UP_KINDS: Final = 32
#: if nobody came back from a sign-in after so many seconds, the server may not know the client any more, or could not
#: fetch our document: it says so only on a page of its own
_NOT_BACK: Final = 60.0
#: seconds between two attempts to renew a token that is still valid, and how long a request waits for one
_EARLY_PAUSE: Final = 5.0
_EARLY_WAIT: Final = 2.0


class Authorization:
    """One for each server and identity in a process; belongs to one event loop. Raises McpError only."""

    def __init__(
        self,
        settings: AuthorizationSettings,
        store: TokenStore,
        http: Http,
        *,
        consent: Consent | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`http` is the guarded engine (transports/authorization_http.py). Without `consent`, every request that
        needs a person fails with SignInNeeded."""
        self.settings = settings
        self.signing = Signing(settings, clock)
        self._store, self._http, self._consent, self._clock = store, http, consent, clock
        self._grant: Grant | None = None
        self._loaded = False
        self._early_at = 0.0
        self._step_ups: Counter[tuple[str, frozenset[str]]] = Counter()
        self._flights = SingleFlight()

    def trial(self, operation: str, *, interactive: bool = True) -> Trial:
        """What a transport asks for each request (transports/authorizing.py)."""
        return RequestTrial(self, operation, interactive=interactive)

    async def begin(self, *, metadata_url: str = "", scopes: tuple[str, ...] = (), scheme: str = "") -> Pending:
        """Find the authorization server, register there if needed, and build the URL to send the person to."""
        return await self._begin(Demand(scheme, (metadata_url,) if metadata_url else (), scopes))

    async def finish(self, pending: Pending, parameters: Mapping[str, str]) -> Grant:
        """Check the redirect's parameters (`iss`, error), exchange the code, save and return the grant."""
        if self._clock() - pending.created_at > LIFETIME:
            raise AuthorizationError("This sign-in has expired. Start again.")
        if not covers(pending.grant.resource, http_twin(self.settings.server_url)):
            raise AuthorizationError("The server's address has changed since this sign-in began. Start again.")
        try:
            grant = await self._run(flows.redeem(pending, parameters, self.signing, self._clock()))
        except (TokenRefused, SignInRefused) as exc:
            await self._learn(pending.grant, exc)
            raise
        async with self._store.refreshing():
            last = await self._store.load()
            await self._keep(replace(grant, generation=max(grant.generation, last.generation + 1 if last else 1)))
        assert self._grant is not None  # noqa: S101  just kept
        return self._grant

    async def settle(self) -> None:
        """Wait until no token request is pending: a token that was issued and not saved is lost."""
        await self._flights.settle()

    # -- for a request (authorization_trial.py)

    @property
    def generation(self) -> int:
        return self._grant.generation if self._grant is not None else 0

    @property
    def allowed(self) -> frozenset[str]:
        """The scopes of the token in use."""
        return frozenset(self._grant.scopes_granted if self._grant is not None else ())

    def may_step_up(self, operation: str, scopes: tuple[str, ...]) -> bool:
        """Stops a server that keeps demanding the same scopes. Where a person has to sign in first there is no loop to
        stop, and each request reports it."""
        if self.settings.flow == "code" and self._consent is None:
            return True
        key = (operation, frozenset(scopes))
        self._step_ups[key] += 1
        return self._step_ups[key] <= _STEP_UPS and len(self._step_ups) <= _STEP_UP_KINDS

    async def current(self) -> Grant | None:
        """The grant in use, renewed if it is about to expire."""
        if not self._loaded:
            self._grant, self._loaded = await self._store.load(), True
        grant = self._grant
        if grant is not None and grant.signed_in and grant.stale(self._clock()):
            await self._renew_early(grant)
        return self._grant if self._grant is not None and self._grant.signed_in else None

    async def _renew_early(self, grant: Grant) -> None:
        """While the token is valid, a slow or unreachable authorization server delays no request and is rarely
        asked."""
        if not flows.renewable(self.settings, grant):
            return
        now = self._clock()
        if grant.expired(now):
            await self.renewed(grant.generation)
        elif now >= self._early_at:
            self._early_at = now + _EARLY_PAUSE
            try:
                async with asyncio.timeout(_EARLY_WAIT):
                    await self.renewed(grant.generation)
            except (McpError, TimeoutError):
                pass  # the current token is sent; a later request tries again

    async def renewed(self, sent: int) -> bool:
        """True: there is a token newer than this generation. False: only a new sign-in helps."""
        return await self._flights.join(("renewed", sent), lambda: self._renewed(sent))

    async def authorized(self, sent: int, demand: Demand) -> bool:
        """Run the full flow for a new token, as the server demands it. SignInNeeded when no person is available."""
        return await self._flights.join(("authorized", sent, demand), lambda: self._authorized(sent, demand))

    # -- one at a time

    async def _renewed(self, sent: int) -> bool:
        if self._newer(self._grant, sent):
            return True
        async with self._store.refreshing():
            self._grant = grant = await self._store.load()
            if self._newer(grant, sent):
                return True
            if grant is None or not flows.renewable(self.settings, grant):
                return False
            try:
                given = await self._given()
                await self._keep(await self._run(flows.renew(self.settings, grant, self.signing, given, self._clock())))
            except TokenRefused as exc:
                if self.settings.flow != "code":
                    raise
                if exc.error in ("invalid_grant", "invalid_client") or _forgotten(grant, exc):
                    await self._keep(_signed_out(grant, exc))
                return False
        return True

    async def _authorized(self, sent: int, demand: Demand) -> bool:
        if self._newer(self._grant, sent):
            return True
        if self.settings.flow == "code":
            await self._person(demand)
        else:
            async with self._store.refreshing():
                await self._service(demand)
        return True

    async def _person(self, demand: Demand) -> None:
        if self._consent is None:
            hint = next(iter(demand.metadata_urls), "")
            words, scheme = "The server requires sign-in.", demand.scheme
            raise SignInNeeded(words, metadata_url=hint, scopes=demand.scopes, scheme=scheme)
        pending = await self._begin(demand)
        try:
            await self.finish(pending, await self._consent(pending))
        except (TokenRefused, SignInRefused) as exc:
            if not _forgotten(pending.grant, exc):
                raise
            again = await self._begin(demand)
            await self.finish(again, await self._consent(again))

    async def _service(self, demand: Demand) -> None:
        known, given = await self._store.load(), await self._given()
        blank = await self._run(flows.prepare(self.settings, demand, known, self.signing))
        await self._keep(await self._run(flows.renew(self.settings, blank, self.signing, given, self._clock())))

    async def _begin(self, demand: Demand) -> Pending:
        known, now, settings = await self._store.load(), self._clock(), self.settings
        if known is not None and (lost := _unheard(known, now)):
            settings = replace(settings, document_last=settings.document_last or lost == "metadata_document")
            known = replace(known, registration=None)
        made = flows.FlowSecrets(secrets.token_urlsafe(32), secrets.token_urlsafe(32), now)
        pending = await self._run(flows.sign_in(settings, demand, known, self.signing, made))
        await self._keep_registration(pending.grant, now)
        return pending

    # -- small steps

    @staticmethod
    def _newer(grant: Grant | None, sent: int) -> bool:
        return grant is not None and grant.signed_in and grant.generation != sent

    async def _given(self) -> str:
        """The token signed by a third party, for the flows that start with one."""
        provider, source = self.settings.identity_provider, self.settings.workload_token
        if self.settings.flow == "enterprise" and provider is not None:
            return await provider.id_token()
        if self.settings.flow == "workload":
            if source is None:
                raise AuthorizationError("No source for the workload token is set up for this server.")
            return await source()
        return ""

    async def _keep(self, grant: Grant) -> None:
        await self._store.save(grant)
        self._grant, self._loaded = grant, True

    async def _keep_registration(self, grant: Grant, now: float) -> None:
        """Keep the permanent registration, whether or not the person comes back; drop another issuer's tokens. A refresh
        token works for the client that it was given to, so that one stays with it until there is a new token."""
        async with self._store.refreshing():
            last = await self._store.load()  # its token may have been renewed meanwhile
            if last is None or last.issuer != grant.issuer:
                await self._keep(replace(grant, begun_at=now))
            elif last.registration is None or (last.registration != grant.registration and not last.refresh_token):
                await self._keep(replace(last, registration=grant.registration, begun_at=now))
            elif last.registration == grant.registration and not (last.begun_at or last.refresh_token):
                await self._keep(replace(last, begun_at=now))

    async def _learn(self, grant: Grant, refused: TokenRefused | SignInRefused) -> None:
        """If the server no longer knows us, the next sign-in registers again. Any other refusal shows that it does. If it no
        longer knows a scope, the next one requests only what the server names now."""
        async with self._store.refreshing():
            last = await self._store.load()
            if last is None or last.registration != grant.registration:
                return
            if _forgotten(grant, refused):
                await self._keep(replace(last, registration=None))
            elif refused.error == "invalid_scope" and not last.refresh_token:
                await self._keep(replace(last, scopes_requested=(), scopes_granted=(), begun_at=0.0))
            elif last.begun_at:
                await self._keep(replace(last, begun_at=0.0))

    async def _run(self, exchange: Exchange[Result]) -> Result:
        response: HttpResponse | None = None
        try:
            while True:
                response = await self._http(exchange.send(response))  # type: ignore[arg-type]  # None only at first
        except StopIteration as stop:
            result: Result = stop.value
            return result
        finally:
            exchange.close()


def _forgotten(grant: Grant, refused: TokenRefused | SignInRefused) -> bool:
    """Whether the server no longer knows the client id that it issued to us. The official SDK's server then says
    `unauthorized_client`."""
    known = grant.registration
    said = refused.error in ("invalid_client", "unauthorized_client")
    return said and known is not None and known.source == "dynamic"


def _unheard(grant: Grant, now: float) -> Source | None:
    """The source of our client id, if a sign-in with it was begun and nothing came back; None also for one that a person
    entered."""
    known = grant.registration
    begun = bool(grant.begun_at) and now - grant.begun_at > _NOT_BACK
    if not begun or grant.refresh_token or known is None or known.source == "registered_by_hand":
        return None
    return known.source


def _signed_out(grant: Grant, refused: TokenRefused) -> Grant:
    """The refresh token is no longer valid, and neither is the grant."""
    gone = replace(grant, access_token="", refresh_token="", expires_at=None)
    return replace(gone, registration=None) if _forgotten(grant, refused) else gone
