"""The pages: each reads what the API reads, by the same functions; one file a page."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from policy.server.pages import (
    batch_sessions,
    compare,
    decision,
    decisions,
    environments,
    groups,
    node,
    observation,
    observed,
    overview,
    reference,
    rules,
    sessions,
    simulation,
    sql,
    workload,
)
from policy.server.pages.parameters import require_known, require_whole
from policy.server.pages.rendering import static
from policy.server.pages.surface import UNSENT, Pages, Show
from policy.server.security.access import Access, Principal
from policy.server.security.tokens import Role
from policy.server.service import PolicyService


def routes(service: PolicyService, access: Access) -> list[Route]:
    """Where each page is, and who may see it."""
    pages = Pages(service, access)

    def shown(
        path: str,
        show: Show,
        *,
        unlimited: bool = True,
        known: Collection[str] | None = (),
        whole: Collection[str] = (),
    ) -> Route:
        """known: parameters of the page; None where it looks at them itself.

        whole: further ones, for those who see everything.
        """
        knowing = show if known is None else partial(_knowing, show, known, whole)
        return Route(path, pages.guarded(knowing, unlimited=unlimited), methods=["GET"])

    def changed(path: str, change: Show, role: Role) -> Route:
        return Route(path, pages.guarded(change, role=role, unlimited=True), methods=["POST"])

    return [
        Route("/static/{name}", static),
        Route("/login", pages.for_everybody(sessions.login), methods=["GET", "POST"]),
        Route("/logout", pages.for_everybody(sessions.logout), methods=["POST"]),
        shown("/", overview.show, unlimited=False, known=("days", "cluster")),
        shown("/decisions", decisions.show, unlimited=False, known=None),
        shown(
            "/decisions/{id}",
            decision.show,
            unlimited=False,
            whole=("show", "why_not", "rules", "replay"),
        ),
        shown("/groups", groups.show, unlimited=False, known=None),
        shown("/groups/{id}", groups.show_one, unlimited=False),
        shown("/sessions", batch_sessions.show, unlimited=False, known=None),
        shown(
            "/sessions/{id}",
            batch_sessions.show_one,
            unlimited=False,
            known=("after",),
            whole=("show",),
        ),
        # Names that the API server does not check may have a slash in them.
        shown(
            "/workloads/{namespace}/{name:text}",
            workload.show,
            unlimited=False,
            known=("cluster", "after"),
        ),
        shown("/nodes/{name}", node.show, known=("cluster",)),
        shown("/rules", rules.show),
        # Names of shipped ones have, too: environments/prod.
        shown("/rules/{name:text}", rules.show_one, known=("diff",)),
        shown("/compare", compare.show, known=("rules", "n", "cluster", "open")),
        shown("/observed", observed.show, unlimited=False, known=None),
        shown("/observed/{id}", observation.show, unlimited=False, whole=("again",)),
        shown("/environments", environments.show),
        shown("/environments/{name:text}", environments.opened, known=("candidate", "n", UNSENT)),
        *(
            changed(f"/environments/{{name:text}}/{form}", change, Role.OPERATOR)
            for form, change in environments.FORMS.items()
        ),
        shown("/sql", sql.show, unlimited=False, known=None),
        shown("/simulations", simulation.show),
        shown("/simulations/{id}", simulation.show_one),
        shown("/api", reference.show, unlimited=False),
    ]


async def _knowing(
    show: Show,
    known: Collection[str],
    whole: Collection[str],
    pages: Pages,
    request: Request,
    principal: Principal,
) -> Response:
    """A page that refuses parameters that it does not know, or not for everybody. Raises Failure"""
    require_known(request.query_params, [*known, *whole])
    require_whole(principal, request.query_params, whole)
    return await show(pages, request, principal)
