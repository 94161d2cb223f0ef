"""One request that a server may refuse: what to send with it, and what to fix before it may be sent again."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from ..core.errors import AuthorizationError, Fault, SignInNeeded
from ..oauth.challenges import Demand, demanded
from ..oauth.urls import origin
from ..transports.authorizing import Refusal

if TYPE_CHECKING:
    from .authorization import Authorization

#: how often one request is sent again, for any reason
_TRIES: Final = 4


class RequestTrial:
    """Implements transports/authorizing.Trial. Each remedy is tried once (a nonce may be too old already): if the
    server still refuses, the refusal is final."""

    def __init__(self, owner: "Authorization", operation: str, *, interactive: bool) -> None:
        self._owner, self._operation, self._interactive = owner, operation, interactive
        self._sent = 0
        self._url = self._nonce = ""
        self._tried: set[str] = set()
        self._times = 0

    async def headers(self, verb: str, url: str) -> Mapping[str, str]:
        """No headers for an origin other than the token's own."""
        if origin(url) != origin(self._owner.settings.server_url):
            return {}
        self._url = url
        grant = await self._owner.current()
        if grant is None:
            self._sent = self._owner.generation
            return {}
        self._sent = grant.generation
        authorization = {"Authorization": f"{grant.token_type} {grant.access_token}"}
        if not grant.dpop_key or grant.token_type != "DPoP":  # noqa: S105  the name of a scheme
            return authorization
        signing = self._owner.signing
        self._nonce = signing.nonce_for(url)
        proof = signing.proof(grant.dpop_key, verb, url, nonce=self._nonce, token=grant.access_token)
        return authorization | {"DPoP": proof}

    def answered(self, dpop_nonce: str) -> None:
        self._owner.signing.keep_nonce(self._url, dpop_nonce)

    async def refused(self, refusal: Refusal) -> bool:
        demand = demanded(refusal.challenges)
        self.answered(refusal.dpop_nonce)
        self._times += 1
        if demand is None or self._times > _TRIES or not self._url:
            return False
        if demand.error == "use_dpop_nonce" and refusal.dpop_nonce not in ("", self._nonce):
            return True
        if refusal.status == 403:
            return await self._stepped_up(demand)
        return await self._remedied(demand)

    async def _remedied(self, demand: Demand) -> bool:
        """401: get another token by the cheapest way not tried yet."""
        if self._first("renewal") and await self._owner.renewed(self._sent):
            return True
        if not self._interactive:
            return False
        if not self._first("authorization"):
            words = "The server does not accept the token that its authorization server just issued."
            raise AuthorizationError(words, Fault.UNAUTHORIZED)
        return await self._owner.authorized(self._sent, demand)

    async def _stepped_up(self, demand: Demand) -> bool:
        """403: get more permissions, if the server says that these are missing."""
        if demand.error != "insufficient_scope" or not self._interactive:
            return False
        if not (self._first("step-up") and self._owner.may_step_up(self._operation, demand.scopes)):
            return False
        try:
            return await self._owner.authorized(self._sent, demand)
        except SignInNeeded as exc:
            raise self._more(demand, exc) from exc

    def _more(self, demand: Demand, needed: SignInNeeded) -> AuthorizationError:
        """Only a person can allow it. If a person has done so already, asking again would loop."""
        named = " ".join(demand.scopes)[:200]
        if demand.scopes and self._owner.allowed.issuperset(demand.scopes):
            words = f"The server still refuses this request although the required permissions were granted ({named}). Only the operator of the server can change that."
            return AuthorizationError(words, Fault.FORBIDDEN)
        words = f"The server requires more permissions ({named or 'it does not say which'})."
        scopes, url, scheme = needed.scopes, needed.metadata_url, needed.scheme
        return SignInNeeded(words, Fault.INSUFFICIENT_SCOPE, metadata_url=url, scopes=scopes, scheme=scheme)

    def _first(self, remedy: str) -> bool:
        if remedy in self._tried:
            return False
        self._tried.add(remedy)
        return True
