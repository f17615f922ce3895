"""What is on a node, and what would go first?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response

from policy.audit.documents import instant
from policy.audit.on_node import NodeNow, on_node
from policy.server import views
from policy.server.http import in_thread
from policy.server.pages.occupancy import WIDTH, resources, words
from policy.server.pages.one_cluster import OneCluster, cluster_named
from policy.server.pages.surface import PAGE, Pages
from policy.server.pages.timelines import HEIGHT, MARK, Axis, Strip
from policy.server.pages.timelines import WIDTH as TIME
from policy.server.security.access import Principal
from policy.store import DecisionRow
from policy.text.words import number


async def show(pages: Pages, request: Request, principal: Principal) -> Response:
    name = request.path_params["name"]
    service = pages.service
    cluster = cluster_named(request)
    wanted = {"node": name, "cluster": cluster, "simulated": False}
    rows, lines = await in_thread(views.decisions, service, principal, wanted, limit=PAGE)
    now_ms = service.clock()
    here = await in_thread(on_node, service.store, name, now_ms=now_ms)
    kept = set((await in_thread(service.store.read.kept_simulations)).values())
    return pages.page(
        request,
        principal,
        "node.html",
        name=name,
        lines=lines,
        more=len(lines) == PAGE,
        past=past(rows),
        axis=(instant(rows[-1].now_ms), instant(rows[0].now_ms)) if rows else None,
        found=[
            {**_shown(one), "simulated": one.cluster in kept}
            for one in here
            if cluster in (None, one.cluster)
        ],
        only=None if cluster is None else OneCluster(name=cluster, simulated=cluster in kept),
        every_cluster=f"/nodes/{quote(name, safe='')}",
        width=WIDTH,
        time=TIME,
        tall=HEIGHT,
        mark=MARK,
    )


def past(rows: Sequence[DecisionRow]) -> list[Strip]:
    """What was decided for a node, and what left it, over the time of these decisions."""
    if not rows:
        return []
    axis = Axis.over(row.now_ms for row in rows)
    evicting = [row for row in rows if row.outcome == "preempt" and row.victim_count]
    others = [row for row in rows if row not in evicting]

    def strip(what: str, some: Sequence[DecisionRow]) -> Strip:
        return Strip(
            label=what,
            spans=(),
            marks=tuple(axis.mark(row.now_ms, _words(row), f"/decisions/{row.id}") for row in some),
        )

    return [strip("Preemptions", evicting), strip("Other decisions", others)]


def _words(row: DecisionRow) -> str:
    leaving = f", {number(row.victim_count, 'victim')}" if row.victim_count else ""
    return f"{instant(row.now_ms)}: decision {row.id}, {row.outcome} for {row.preemptor}{leaving}"


def _shown(now: NodeNow) -> dict[str, Any]:
    return {
        "cluster": now.cluster,
        "node": now.node is not None,
        "bars": [] if now.node is None else resources(now.node, now.objects),
        "first_to_go": now.first_to_go,
        "pods": [
            {
                "pod": one.pod,
                "priority": one.priority,
                "class": one.priority_class,
                "started": instant(one.started_ms),
                "cpu": words("cpu", one.cpu_milli),
                "memory": words("memory", one.memory_bytes),
                "phase": one.phase,
                "leaving": one.leaving,
            }
            for one in now.pods
        ],
        "nominated": [
            {
                "pod": one.pod,
                "priority": one.priority,
                "since": instant(one.since_ms),
                "decision": one.decision,
                "cpu": words("cpu", one.cpu_milli),
                "memory": words("memory", one.memory_bytes),
            }
            for one in now.nominated
        ],
    }
