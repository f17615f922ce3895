"""How often is this one hit, by whom, how long did it run between?"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeVar
from urllib.parse import quote, urlencode

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from policy.audit.documents import instant
from policy.audit.protection import protection
from policy.audit.workload import WorkloadHit, by_preemptor, is_of, lost_time, with_evicted
from policy.cluster import times
from policy.server import views
from policy.server.http import Failure, in_thread
from policy.server.pages.one_cluster import cluster_named, one_cluster
from policy.server.pages.surface import PAGE, Pages, after
from policy.server.pages.timelines import HEIGHT, MARK, WIDTH, Axis, Strip
from policy.server.security.access import Principal
from policy.server.security.numbers import Numbered
from policy.server.service import PolicyService
from policy.store.read.runs import VERSIONS_LOOKED_AT, EvictedPod, PodRun, Runs
from policy.store.record.groups import KIND as GROUP
from policy.text.words import duration

_LANES: Final = 25
"""Pods of the time line."""
_KIND: Final = re.compile(r"[A-Z][A-Za-z0-9]*")
"""Of an owner, as in namespace/Kind/name: the page is about owners of whatever kind."""
_Found = TypeVar("_Found", bound=EvictedPod)


async def show(pages: Pages, request: Request, principal: Principal) -> Response:
    namespace, name = request.path_params["namespace"], request.path_params["name"]
    if not principal.sees(namespace):
        raise Failure(404, "not-found", "there is no such workload")
    looked = _Looked(
        service=pages.service,
        principal=principal,
        namespace=namespace,
        name=name,
        cluster=cluster_named(request),
    )
    shown = await in_thread(_workload, looked, before=after(request))
    kind, _, own = name.partition("/")
    # A name may have a slash itself: what is known by it comes first.
    if own and _KIND.fullmatch(kind) and not (shown["hits"] or shown["line"]):
        query = f"?{request.url.query}" if request.url.query else ""
        return RedirectResponse(_path(namespace, own) + query, status_code=303)
    shown["title"] = f"{namespace}/{name}"
    return await pages.page(request, principal, "workload.html", **shown)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Looked:
    """Who looks at which workload."""

    service: PolicyService
    principal: Principal
    namespace: str
    name: str
    cluster: str | None  #: None for all but those of kept simulations

    def read(self, function: Callable[..., list[_Found]]) -> list[_Found]:
        """Evictions of other than decisions. Raises NotFound."""
        return views.of_clusters(
            self.principal,
            lambda: function(self.namespace, self.name, cluster=self.cluster, limit=PAGE),
            [],
        )


def _workload(looked: _Looked, *, before: int | None) -> dict[str, Any]:
    """The newest page has all there is to know; older ones have the evictions alone."""
    service, principal = looked.service, looked.principal
    hits, older = _decided(looked, before)
    observed: list[WorkloadHit] = []
    held: list[WorkloadHit] = []
    newest = before is None
    if newest:
        observed = _observed(looked)
        held = _held(looked)
    found = sorted((*hits, *observed, *held), key=lambda hit: hit.now_ms, reverse=True)
    # States are not for limited viewers: of a pod that was evicted they see what was told of it.
    known = Runs(runs=(), whole=True)
    if newest and not principal.limited:
        known = service.store.read.runs_of(
            looked.namespace,
            looked.name,
            cluster=looked.cluster,
            also={hit.pod for hit in found},
        )
    path = _path(looked.namespace, looked.name)
    clusters = sorted({run.cluster for run in known.runs} | {hit.cluster for hit in found})
    return {
        "hits": [{"hit": hit, "at": instant(hit.now_ms), "address": _page(hit)} for hit in found],
        "evicted": sum(hit.evicted for hit in found),
        "lost": lost_time(found),
        "clusters": clusters,
        "in_cluster": looked.cluster or "",
        "only": one_cluster(service, looked.cluster, something=bool(clusters)),
        "every_cluster": path,
        "observed": len(observed),
        "held": len(held),
        "preemptors": by_preemptor(found, _workloads(service, principal, found)),
        "line": _time_line(known, found, service.clock()) if newest else None,
        "protections": _protections(service, known, found),
        "page": PAGE,
        "newest": "" if newest else _address(path, looked.cluster),
        "older": _address(path, looked.cluster, after=older) if older else "",
    }


def _path(namespace: str, name: str) -> str:
    return f"/workloads/{quote(namespace, safe='')}/{quote(name, safe='')}"


def _address(path: str, cluster: str | None, **given: int) -> str:
    fields = {**({} if cluster is None else {"cluster": cluster}), **given}
    return f"{path}?{urlencode(fields)}" if fields else path


def _decided(looked: _Looked, before: int | None) -> tuple[list[WorkloadHit], int | None]:
    """Evictions by decisions, and the number that the page ends with where there are older ones."""
    namespace, name = looked.namespace, looked.name
    wanted = {
        "victim_named": (namespace, name),
        "before_id": before,
        "cluster": looked.cluster,
        "simulated": False,
    }
    reads = partial(views.decisions, looked.service, looked.principal, wanted)
    page = views.one_page(reads, limit=PAGE)
    numbers = [row.id for row in page.rows]
    victims = looked.service.store.read.victims_of(numbers)
    outcomes = looked.service.store.read.outcomes_of(numbers)
    # Of several victims one may have left and another one not.
    stayed = {(number, one.pod) for number, of_one in outcomes.items() for one in of_one}
    hits = [
        WorkloadHit(
            now_ms=row.now_ms,
            cluster=row.cluster,
            pod=victim.pod,
            node=victim.node,
            priority=victim.priority,
            started_ms=None if victim.start_ms == times.MISSING else victim.start_ms,
            run_seconds=victim.run_seconds,
            preemptor=line["preemptor"] or "",
            decision=line["id"],
            evicted=row.preempted
            and not victim.already_terminating
            and (row.id, victim.pod) not in stayed,
        )
        for row, line in zip(page.rows, page.lines, strict=True)
        for victim in victims.get(row.id, ())
        if victim.pod.startswith(f"{namespace}/")
        and name in (victim.owner.partition("/")[2], victim.pod.partition("/")[2])
    ]
    return hits, page.after


def _observed(looked: _Looked) -> list[WorkloadHit]:
    principal = looked.principal
    return [
        _hit(
            principal,
            one,
            observation=principal.shown(Numbered.OBSERVATION, one.observation),
            evicted=True,
        )
        for one in looked.read(looked.service.store.read.observed_evictions)
    ]


def _held(looked: _Looked) -> list[WorkloadHit]:
    """Evictions of batch sessions, and of cycles of pod groups."""
    principal = looked.principal
    return [
        _hit(
            principal,
            one,
            session=principal.shown(Numbered.SESSION, one.session),
            group=one.kind == GROUP,
            evicted=one.carried_out,
        )
        for one in looked.read(looked.service.store.read.session_evictions)
    ]


def _hit(principal: Principal, one: EvictedPod, **by: Any) -> WorkloadHit:
    """by: what evicted it, and whether it did."""
    return WorkloadHit(
        now_ms=one.now_ms,
        cluster=one.cluster,
        pod=one.pod,
        node=one.node,
        priority=one.priority,
        started_ms=one.started_ms,
        run_seconds=one.run_seconds,
        preemptor=_seen(principal, one.preemptor),
        **by,
    )


def _seen(principal: Principal, pod: str) -> str:
    """The pod, or "" where the reader may not know it."""
    return pod if principal.sees(pod.partition("/")[0]) else ""


def _workloads(
    service: PolicyService, principal: Principal, hits: Sequence[WorkloadHit]
) -> dict[str, str]:
    """Of each preemptor; a limited viewer knows no owners, which are of the state."""
    if principal.limited:
        return {}
    found: dict[str, str] = {}
    for cluster in {hit.cluster for hit in hits}:
        pods = {hit.preemptor for hit in hits if hit.cluster == cluster and hit.preemptor}
        found |= service.store.read.workloads_of(cluster, pods)
    return found


def _time_line(known: Runs, hits: Sequence[WorkloadHit], now_ms: int) -> dict[str, Any] | None:
    """The newest pods, each with when it ran and where it was evicted."""
    runs = with_evicted(known.runs, hits)
    shown = runs[:_LANES]
    if not shown:
        return None
    end_ms = max([now_ms, *(hit.now_ms for hit in hits)])
    axis = Axis.over([*(run.started_ms for run in shown), end_ms])
    return {
        "axis": (instant(axis.first_ms), instant(axis.last_ms)),
        "lanes": [_lane(axis, run, hits) for run in shown],
        "shown": len(shown),
        "all": len(runs),
        "whole": known.whole,
        "versions": VERSIONS_LOOKED_AT,
        "width": WIDTH,
        "height": HEIGHT,
        "mark": MARK,
    }


def _lane(axis: Axis, run: PodRun, hits: Sequence[WorkloadHit]) -> dict[str, Any]:
    until_ms = axis.last_ms if run.ended_ms is None else run.ended_ms
    its = [hit for hit in hits if hit.evicted and is_of(run, hit)]
    seconds = max(0, until_ms - run.started_ms) // 1000
    lasted = f"ran {duration(seconds)}" if run.start_known else "it is not known since when it ran"
    begun = f"from {instant(run.started_ms)}" if run.start_known else "since it was first seen"
    ended = "there now" if run.ended_ms is None else f"until {instant(run.ended_ms)}"
    strip = Strip(
        label=f"{run.pod} on {run.node} {begun}, {ended}",
        spans=(axis.span(run.started_ms, until_ms, lasted),),
        marks=tuple(
            axis.mark(hit.now_ms, f"evicted {instant(hit.now_ms)} for {_by(hit)}", _page(hit))
            for hit in its
        ),
    )
    return {
        "cluster": run.cluster,
        "pod": run.pod,
        "node": run.node,
        "from": instant(run.started_ms),
        "until": instant(run.ended_ms),
        "leaving": run.leaving,
        "seconds": seconds,
        "start_known": run.start_known,
        "evicted": [{"at": instant(hit.now_ms), "address": _page(hit)} for hit in its],
        "strip": strip,
    }


def _by(hit: WorkloadHit) -> str:
    return hit.preemptor or "a pod of another namespace"


def _page(hit: WorkloadHit) -> str:
    """Of what evicted it."""
    if hit.decision is not None:
        return f"/decisions/{hit.decision}"
    if hit.observation is not None:
        return f"/observed/{hit.observation}"
    return f"/groups/{hit.session}" if hit.group else f"/sessions/{hit.session}"


def _protections(
    service: PolicyService, runs: Runs, hits: Sequence[WorkloadHit]
) -> list[dict[str, Any]]:
    """What rules say of the pods that are there now, by cluster."""
    found: list[dict[str, Any]] = []
    for cluster in sorted({run.cluster for run in runs.runs}):
        here = [run.pod for run in runs.runs if run.cluster == cluster and run.ended_ms is None]
        last = next((hit.preemptor for hit in hits if hit.cluster == cluster and hit.preemptor), "")
        said = protection(
            service.store, cluster, here[:_LANES], preemptor=last, now_ms=service.clock()
        )
        found += [{"of": one, "pods": len(here), "looked_at": len(here[:_LANES])} for one in said]
    return found
