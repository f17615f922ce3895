"""The pages: each reads what the API reads, by the same functions; one file a page."""

from __future__ import annotations

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
from policy.server.pages.rendering import static
from policy.server.pages.surface import Pages, Show
from policy.server.security.access import Access
from policy.server.security.tokens import Role
from policy.server.service import PolicyService


def routes(service: PolicyService, access: Access) -> list[Route]:
    """Where each page is, and who may see it."""
    pages = Pages(service, access)

    def shown(path: str, show: Show, *, unlimited: bool = True) -> Route:
        return Route(path, pages.guarded(show, unlimited=unlimited), methods=["GET"])

    def changed(path: str, change: Show, role: Role) -> Route:
        return Route(path, pages.guarded(change, role=role, unlimited=True), methods=["POST"])

    return [
        Route("/static/{name}", static),
        Route("/login", pages.for_everybody(sessions.login), methods=["GET", "POST"]),
        Route("/logout", pages.for_everybody(sessions.logout), methods=["POST"]),
        shown("/", overview.show, unlimited=False),
        shown("/decisions", decisions.show, unlimited=False),
        shown("/decisions/{id}", decision.show, unlimited=False),
        shown("/groups", groups.show, unlimited=False),
        shown("/groups/{id}", groups.show_one, unlimited=False),
        shown("/sessions", batch_sessions.show, unlimited=False),
        shown("/sessions/{id}", batch_sessions.show_one, unlimited=False),
        # Names that the API server does not check may have a slash in them.
        shown("/workloads/{namespace}/{name:path}", workload.show, unlimited=False),
        shown("/nodes/{name}", node.show),
        shown("/rules", rules.show),
        # Names of shipped ones have, too: environments/prod.
        shown("/rules/{name:path}", rules.show_one),
        shown("/compare", compare.show),
        shown("/observed", observed.show, unlimited=False),
        shown("/observed/{id}", observation.show, unlimited=False),
        shown("/environments", environments.show),
        shown("/environments/{name:path}", environments.opened),
        *(
            changed(f"/environments/{{name:path}}/{form}", change, Role.OPERATOR)
            for form, change in environments.FORMS.items()
        ),
        shown("/sql", sql.show, unlimited=False),
        shown("/simulations", simulation.show),
        shown("/simulations/{id}", simulation.show_one),
        shown("/api", reference.show, unlimited=False),
    ]
