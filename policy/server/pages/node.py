"""What is on a node, and what would go first?"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response

from policy.audit.documents import instant, summary
from policy.audit.on_node import NodeNow, on_node
from policy.server import views
from policy.server.http import in_thread
from policy.server.pages.occupancy import WIDTH, resources, words
from policy.server.pages.one_cluster import OneCluster, cluster_named
from policy.server.pages.surface import PAGE, Pages
from policy.server.pages.timelines import HEIGHT, MARK, Axis, Strip
from policy.server.pages.timelines import WIDTH as TIME
from policy.server.security.access import Principal
from policy.server.service import PolicyService
from policy.store import DecisionRow
from policy.store.read.runs import ObservedEviction, OtherEviction, SessionEviction
from policy.store.record.groups import KIND as GROUP
from policy.text.words import number


async def show(pages: Pages, request: Request, principal: Principal) -> Response:
    name, cluster = request.path_params["name"], cluster_named(request)
    values = await in_thread(_found, pages.service, principal, name, cluster)
    return await pages.page(
        request,
        principal,
        "node.html",
        name=name,
        in_cluster=cluster or "",
        every_cluster=f"/nodes/{quote(name, safe='')}",
        width=WIDTH,
        time=TIME,
        tall=HEIGHT,
        mark=MARK,
        **values,
    )


def _found(
    service: PolicyService, principal: Principal, name: str, cluster: str | None
) -> dict[str, Any]:
    """What the page shows. Raises Failure, NotFound."""
    read = service.store.read
    wanted = {"node": name, "cluster": cluster, "simulated": False}
    page = views.one_page(partial(views.decisions, service, principal, wanted), limit=PAGE)
    others = read.evictions_on(name, cluster=cluster, limit=PAGE + 1)
    more_others, others = len(others) > PAGE, others[:PAGE]
    here = on_node(service.store, name, now_ms=service.clock())
    kept = read.kept_simulations()
    return {
        "lines": page.lines,
        "more": page.after is not None,
        "others": [_line(one) for one in others],
        "more_others": more_others,
        **_time_line(page.rows, others),
        "found": [
            {**_shown(one), "simulated": one.cluster in kept}
            for one in here
            if cluster in (None, one.cluster)
        ],
        "only": None if cluster is None else OneCluster(name=cluster, simulated=cluster in kept),
    }


def _time_line(rows: Sequence[DecisionRow], others: Sequence[OtherEviction]) -> dict[str, Any]:
    """What was decided for a node, and what left it, over the time of all that is listed."""
    instants = [*(row.now_ms for row in rows), *(one.now_ms for one in others)]
    if not instants:
        return {"past": [], "axis": None}
    axis = Axis.over(instants)
    evicting = [row for row in rows if row.preempted and row.victim_count]

    def decided(what: str, some: Sequence[DecisionRow]) -> Strip:
        marks = [axis.mark(row.now_ms, _words(row), f"/decisions/{row.id}") for row in some]
        return Strip(label=what, spans=(), marks=tuple(marks))

    def evicted(what: str, some: Sequence[OtherEviction]) -> Strip:
        marks = [axis.mark(one.now_ms, _told(one), _address(one)) for one in some]
        return Strip(label=what, spans=(), marks=tuple(marks))

    observed = [one for one in others if isinstance(one, ObservedEviction)]
    held = [one for one in others if isinstance(one, SessionEviction)]
    return {
        "past": [
            decided("Preemptions", evicting),
            decided("Other decisions", [row for row in rows if row not in evicting]),
            *([evicted("Evictions by the cluster's own scheduler", observed)] if observed else ()),
            *([evicted("Evictions in batch sessions and cycles", held)] if held else ()),
        ],
        "axis": (instant(axis.first_ms), instant(axis.last_ms)),
    }


def _told(one: OtherEviction) -> str:
    return f"{instant(one.now_ms)}: {one.pod} for {one.preemptor}, {_by(one)}"


def _by(one: OtherEviction) -> str:
    if isinstance(one, ObservedEviction):
        return f"observed {one.observation}"
    return f"{'cycle' if one.kind == GROUP else 'batch session'} {one.session}"


def _address(one: OtherEviction) -> str:
    if isinstance(one, ObservedEviction):
        return f"/observed/{one.observation}"
    return f"/groups/{one.session}" if one.kind == GROUP else f"/sessions/{one.session}"


def _line(one: OtherEviction) -> dict[str, Any]:
    return {
        "at": instant(one.now_ms),
        "cluster": one.cluster,
        "pod": one.pod,
        "preemptor": one.preemptor,
        "evicted": isinstance(one, ObservedEviction) or one.carried_out,
        "by": _by(one),
        "address": _address(one),
    }


def _words(row: DecisionRow) -> str:
    leaving = f", {number(row.victim_count, 'victim')}" if row.victim_count else ""
    outcome = summary(row)["outcome"]
    return f"{instant(row.now_ms)}: decision {row.id}, {outcome} for {row.preemptor}{leaving}"


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
