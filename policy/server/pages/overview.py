"""Figures of the first page: is preemption healthy now?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote, urlencode

from starlette.requests import Request
from starlette.responses import Response

from policy.audit import health
from policy.audit.documents import instant
from policy.server import environments, views
from policy.server.http import Failure, in_thread
from policy.server.pages.bars import Bar, bars
from policy.server.pages.surface import Pages
from policy.server.security.access import Principal
from policy.server.service import PolicyService
from policy.store.read.figures import DAY_MS, HOUR_MS, Evicted, WorkloadCount
from policy.store.record.rule_sets import is_batch
from policy.text.words import duration

_DAYS: Final = (1, 7)
_LOOKED_AT: Final = 500
"""Decisions, the newest, out of which preemptions are counted for those who see some only."""
_NEWEST: Final = 10


async def show(pages: Pages, request: Request, principal: Principal) -> Response:
    days = request.query_params.get("days", "1")
    if days not in map(str, _DAYS):
        raise Failure(400, "invalid", f"`days` is `{days[:20]}`", help="it is 1 or 7")
    cluster = request.query_params.get("cluster", "")[:253]
    made = limited if principal.limited else overview
    figures = await in_thread(made, pages.service, principal, days=int(days), cluster=cluster)
    return await pages.page(
        request,
        principal,
        "overview.html",
        days=int(days),
        cluster=cluster,
        choices=[(n, _address(days=n, cluster=cluster)) for n in _DAYS],
        listed=_listed(cluster),
        **figures,
    )


def _address(*, days: int, cluster: str) -> str:
    given = {"days": days, **({"cluster": cluster} if cluster else {})}
    return f"/?{urlencode(given)}"


def _listed(cluster: str) -> dict[str, str]:
    """Which decisions are counted, as their list is asked for them."""
    return {"cluster": cluster} if cluster else {"simulated": "left-out"}


def overview(
    service: PolicyService, principal: Principal, *, days: int, cluster: str
) -> dict[str, Any]:
    """The last days, up to the end of the hour that has begun; of one cluster, or "" for all."""
    now_ms = service.clock()
    found = health.health(service.store, cluster=cluster or None, days=days, now_ms=now_ms)
    wanted = {"cluster": cluster or None, "simulated": False}
    _, lines = views.decisions(service, principal, wanted, limit=_NEWEST)
    return {
        "health": found,
        "lines": lines,
        "preemptions": found.preemptions,
        "bars": _bars(found.by_hour, since_ms=found.since_ms, days=days, cluster=cluster),
        "since": instant(found.since_ms),
        "until": instant(found.until_ms),
        "namespaces": found.evicted.namespaces,
        "hit": [_workload(w) for w in found.evicted.workloads],
        "outcomes": found.outcomes,
        "kept": any(one.simulated for one in found.clusters),
        "environments": [environments.environment(row) for row in found.environments],
        "clusters": [
            {
                "name": one.cluster,
                "figures": one,
                "age": age(now_ms - one.state_at_ms) if one.state_at_ms is not None else "",
                "address": _address(days=days, cluster=one.cluster),
                "active": _active(service, found, one) if one.observed else [],
            }
            for one in found.clusters
        ],
        "all_clusters": _address(days=days, cluster=""),
        "nominated": [(one, age(now_ms - one.since_ms)) for one in found.nominated],
        "observed": [],
        "looked_at": {"verdicts": health.VERDICTS, "budgets": health.BUDGETS, "decisions": 0},
        "spool": service.spool.depth(),
    }


def _active(
    service: PolicyService, found: health.Health, cluster: health.ClusterHealth
) -> list[tuple[str, str]]:
    """The active rule sets of a cluster, and where its scheduler is set against each."""
    sets = []
    for row in found.environments:
        if row.cluster == cluster.cluster and row.active is not None:
            digest = row.active.rule_set_digest
            if not is_batch(service.store.read.rule_set(digest)):
                given = {"cluster": row.cluster, "rules": digest}
                sets.append((row.active.rule_set, f"/observed?{urlencode(given)}"))
    return sets


def limited(
    service: PolicyService, principal: Principal, *, days: int, cluster: str
) -> dict[str, Any]:
    """What a viewer of some namespaces may know: evictions there, and decisions that concern them.

    Totals by the hour are over all namespaces: preemptions are counted out of the newest decisions.
    """
    assert principal.namespaces is not None
    since_ms, until_ms = health.period(service.clock(), days)
    wanted = {
        "since_ms": since_ms,
        "until_ms": until_ms,
        "cluster": cluster or None,
        "simulated": False,
    }
    rows, lines = views.decisions(service, principal, wanted, limit=_LOOKED_AT)
    preempting = [row for row in rows if row.preempted]
    by_hour = Counter(row.now_ms // HOUR_MS * HOUR_MS for row in preempting)
    read = service.store.read
    evicted = views.of_clusters(
        principal,
        lambda: read.evicted_within(
            cluster or None,
            since_ms=since_ms,
            until_ms=until_ms,
            namespaces=principal.namespaces,
            limit=health.LINES,
        ),
        Evicted(namespaces=(), workloads=()),
    )
    observed, _ = views.observations(
        service, principal, {"cluster": cluster or None}, limit=_LOOKED_AT
    )
    verdicts = Counter(row.verdict for row in observed)
    capped = _LOOKED_AT if len(rows) == _LOOKED_AT else 0
    return {
        "health": None,
        "lines": lines[:_NEWEST],
        "preemptions": len(preempting),
        "bars": _bars(by_hour, since_ms=since_ms, days=days, cluster=cluster),
        "since": instant(since_ms),
        "until": instant(until_ms),
        "namespaces": evicted.namespaces,
        "hit": [_workload(w) for w in evicted.workloads],
        "outcomes": Counter(line["outcome"] for line in lines).most_common(),
        "environments": [],
        "clusters": [],
        "all_clusters": _address(days=days, cluster=""),
        "nominated": [],
        "observed": verdicts.most_common(),
        "looked_at": {"verdicts": _LOOKED_AT, "budgets": 0, "decisions": capped},
        "spool": 0,
    }


def _bars(by_hour: Mapping[int, int], *, since_ms: int, days: int, cluster: str) -> list[Bar]:
    also = {"outcome": "preempt", **_listed(cluster)}
    until_ms = since_ms + days * DAY_MS
    return bars(by_hour, since_ms=since_ms, until_ms=until_ms, step_ms=HOUR_MS, given=also)


def _workload(one: WorkloadCount) -> dict[str, Any]:
    """A workload that was hit. Its page is of the cluster that is counted."""
    name = f"{one.namespace}/{one.owner.partition('/')[2]}"
    return {
        "address": f"/workloads/{quote(name)}?{urlencode({'cluster': one.cluster})}",
        "cluster": one.cluster,
        "name": f"{one.namespace}/{one.owner}",
        "evictions": one.evictions,
    }


def age(milliseconds: int) -> str:
    """`45 s`, `3 h 12 min`: how long ago; 0 for what is yet to come."""
    return duration(max(0, milliseconds) // 1000)
