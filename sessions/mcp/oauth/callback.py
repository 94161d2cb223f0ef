"""The OAuth redirect back to us. The caller must first look up `state`: unused, unexpired, and of the same user."""

import hmac
from collections.abc import Mapping

from ..core.errors import AuthorizationError
from .grant import Pending
from .words import error_code, shown

#: seconds; an older sign-in cannot be completed
LIFETIME = 600.0


class SignInRefused(AuthorizationError):
    """The redirect brought an error; `error` is its code."""

    def __init__(self, detail: str, error: str) -> None:
        super().__init__(detail)
        self.error = error


def code_of(pending: Pending, parameters: Mapping[str, str]) -> str:
    """The authorization code. AuthorizationError with a sentence for the user. After a wrong `iss` the error repeats
    nothing of the response (RFC 9207 section 2.4, MCP *Authorization Response Validation*)."""
    if not hmac.compare_digest(parameters.get("state", "").encode(), pending.state.encode()):
        raise AuthorizationError("This response does not match a sign-in started here. Start again.")
    _check_issuer(pending, parameters.get("iss"))
    if "error" in parameters:
        code = error_code(parameters["error"])
        said = shown(code, parameters.get("error_description"), (pending.state,))
        raise SignInRefused(f"The authorization server did not grant access. {said}".strip(), code)
    code = parameters.get("code", "")
    if not code:
        raise AuthorizationError("The authorization server sent neither a code nor an error. Start again.")
    return code


def _check_issuer(pending: Pending, named: str | None) -> None:
    if named is None and not pending.iss_promised:
        return
    if named != pending.issuer:
        raise AuthorizationError(
            "The response does not come from the expected authorization server, so it was not used. Start again; if it happens again, contact the operator of that server."
        )
