"""What is on a node, and what would go first?"""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from policy.server import views
from policy.server.http import in_thread
from policy.server.pages.occupancy import WIDTH, resources
from policy.server.pages.surface import PAGE, Pages
from policy.server.security.access import Principal


async def show(pages: Pages, request: Request, principal: Principal) -> Response:
    name = request.path_params["name"]
    wanted = {"node": name}
    _, lines = await in_thread(views.decisions, pages.service, principal, wanted, limit=PAGE)
    found = []
    at_present = await in_thread(views.on_node, pages.service, name)
    for cluster, (node, pods) in at_present.items():
        bars = [] if node is None else resources(node, pods)
        found.append({"cluster": cluster, "pods": pods, "bars": bars})
    return pages.page(
        request,
        principal,
        "node.html",
        name=name,
        lines=lines,
        found=found,
        width=WIDTH,
    )
