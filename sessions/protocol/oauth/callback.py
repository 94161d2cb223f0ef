"""The redirect back to us. Whoever calls looked its `state` up (once, unexpired, of the same person) before."""

import hmac
from collections.abc import Mapping

from ..errors import AuthorizationError
from .grant import Pending
from .words import error_code, shown

#: of the epoch; a sign-in that was begun earlier is not continued
LIFETIME = 600.0


def code_of(pending: Pending, parameters: Mapping[str, str]) -> str:
    """The authorization code. AuthorizationError with a sentence to show; after a wrong `iss` nothing of what came is
    repeated (RFC 9207 section 2.4, MCP *Authorization Response Validation*)."""
    if not hmac.compare_digest(parameters.get("state", "").encode(), pending.state.encode()):
        raise AuthorizationError("This answer belongs to no sign-in that was begun here. Begin again.")
    _check_issuer(pending, parameters.get("iss"))
    if "error" in parameters:
        said = shown(error_code(parameters["error"]), parameters.get("error_description"), (pending.state,))
        raise AuthorizationError(f"The authorization server did not grant access. {said}".strip())
    code = parameters.get("code", "")
    if not code:
        raise AuthorizationError("The authorization server sent neither a code nor an error. Begin again.")
    return code


def _check_issuer(pending: Pending, named: str | None) -> None:
    if named is None and not pending.iss_promised:
        return
    if named != pending.issuer:
        raise AuthorizationError(
            "The answer does not come from the authorization server that was asked, so it was not used. Begin again; "
            "if this happens once more, tell whoever runs that server."
        )
