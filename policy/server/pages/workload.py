"""How often is this one hit, by whom, how long did it run between?"""

from __future__ import annotations

from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response

from policy.server import views
from policy.server.http import Failure, in_thread
from policy.server.pages.surface import PAGE, Pages, after
from policy.server.security.access import Principal


async def show(pages: Pages, request: Request, principal: Principal) -> Response:
    namespace, name = request.path_params["namespace"], request.path_params["name"]
    if not principal.sees(namespace):
        raise Failure(404, "not-found", "there is no such workload")
    wanted = {"victim_named": (namespace, name), "before_id": after(request)}
    rows, lines = await in_thread(views.decisions, pages.service, principal, wanted, limit=PAGE)
    victims = await in_thread(pages.service.store.read.victims_of, [r.id for r in rows])
    hit = [
        (line, victim)
        for row, line in zip(rows, lines, strict=True)
        for victim in victims.get(row.id, ())
        if victim.pod.startswith(f"{namespace}/")
        and name in (victim.owner.partition("/")[2], victim.pod.partition("/")[2])
    ]
    path = f"/workloads/{quote(namespace, safe='')}/{quote(name, safe='')}"
    return pages.page(
        request,
        principal,
        "workload.html",
        title=f"{namespace}/{name}",
        hit=hit,
        newest=path if wanted["before_id"] is not None else "",
        older=f"{path}?after={rows[-1].id}" if len(rows) == PAGE else "",
    )
