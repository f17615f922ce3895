"""What would other rules have done?"""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from policy.server import cycles, views
from policy.server.http import in_thread
from policy.server.pages.surface import Pages
from policy.server.security.access import Principal


async def show(pages: Pages, request: Request, principal: Principal) -> Response:
    from policy.audit.recorded import Comparing, Skipped

    rules = request.query_params.get("rules", "")
    found: list[Any] = []
    skipped = 0
    if rules:
        chosen = await in_thread(views.rule_set, pages.service, rules[:253])
        rows = await in_thread(pages.service.store.read.decisions, limit=200)
        ids = sorted(row.id for row in rows)
        groups, _ = await in_thread(cycles.cycles, pages.service, principal, limit=200)
        numbers = [row.id for row in groups]
        judged = await in_thread(lambda: list(Comparing(chosen)(pages.service.store, ids)))
        judged += await in_thread(cycles.compared, pages.service, numbers, chosen)
        found = [one for one in judged if not isinstance(one, Skipped)]
        skipped = len(judged) - len(found)
    changed = [one for one in reversed(found) if one.change.value != "same"]
    names = [one["name"] for one in views.rule_sets(pages.service) if one["shipped"]]
    return pages.page(
        request,
        principal,
        "compare.html",
        rules=rules,
        names=names,
        total=len(found),
        skipped=skipped,
        changed=changed,
    )
