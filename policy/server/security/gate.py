"""What a route asks of whoever makes the request."""

from __future__ import annotations

from starlette.requests import Request

from policy.server.http import Failure
from policy.server.security.access import Access, Principal
from policy.server.security.tokens import Role


def allowed(access: Access, request: Request, role: Role, *, unlimited: bool = False) -> Principal:
    """Who makes the request, where the role is theirs. Raises Failure.

    unlimited: not for a token that is limited to namespaces.
    """
    principal = access.principal(request)
    if principal is None:
        raise _no_token()
    if not principal.may(role):
        raise Failure(
            403, "not-allowed", f"that needs role `{role}`, and the token has `{principal.role}`"
        )
    if unlimited and principal.limited:
        raise Failure(403, "not-allowed", "a token that is limited to namespaces may not see this")
    return principal


def viewer(access: Access, request: Request, *, unlimited: bool = False) -> Principal:
    """Who reads. Raises Failure."""
    return allowed(access, request, Role.VIEWER, unlimited=unlimited)


def require_still(access: Access, request: Request, principal: Principal) -> None:
    """Refuse what was allowed where the token is revoked, or is another one, by now.

    A body may take half a minute to come, and what waits for its turn longer. Raises Failure.
    """
    if access.principal(request) != principal:
        raise _no_token()


def _no_token() -> Failure:
    return Failure(
        401,
        "not-authenticated",
        "the request has no valid token",
        help="send `Authorization: Bearer TOKEN`; `policy token create` makes one",
    )
