"""Nominations as the API shows them: which pod was promised which node, and what came of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from policy.audit.documents import nomination
from policy.server import views
from policy.server.http import invalid
from policy.server.security.access import Principal
from policy.server.security.numbers import Numbered
from policy.server.service import PolicyService
from policy.store import NominationRow


def page(
    service: PolicyService,
    principal: Principal,
    cluster: str,
    *,
    pod: str | None,
    node: str | None,
    standing: bool | None,
    after: str | None,
    limit: int,
) -> tuple[list[dict[str, Any]], str | None]:
    """Nominations of a cluster, newest first, and what the next page begins after.

    A viewer who is limited to namespaces has those of pods there. Raises Failure.
    """
    if pod is not None and not principal.sees(pod.partition("/")[0]):
        return [], None
    read = service.store.read
    before = None if after is None else _place(service, principal, cluster, after)
    found: list[NominationRow] = views.of_clusters(
        principal,
        lambda: read.nominations(
            cluster,
            pod=pod,
            node=node,
            standing=standing,
            namespaces=principal.namespaces,
            before=before,
            limit=limit + 1,
        ),
        [],
    )
    more, found = len(found) > limit, found[:limit]
    kept = read.tries_while_nominated(found)
    lines = [_line(service, principal, row, kept) for row in found]
    return lines, _after(principal, found[-1]) if more else None


def _after(principal: Principal, row: NominationRow) -> str:
    """The place of a nomination in the list: the number of its revision, and its pod."""
    shown = principal.shown(Numbered.REVISION, row.made_revision, within=row.cluster)
    return f"{shown}/{row.pod}"


def _place(
    service: PolicyService, principal: Principal, cluster: str, after: str
) -> tuple[int, str]:
    """Revision and pod that a page ended with. Raises Failure.

    Another place than that of a nomination of the viewer's own would tell when revisions were made.
    """
    shown, _, pod = after.partition("/")
    revision = None
    if views.is_number(shown):
        revision = principal.actual(Numbered.REVISION, int(shown), within=cluster)
    if revision is not None and principal.limited:
        rows: list[NominationRow] = views.of_clusters(
            principal,
            lambda: service.store.read.nominations(
                cluster, pod=pod, namespaces=principal.namespaces
            ),
            [],
        )
        if not any(row.made_revision == revision for row in rows):
            revision = None
    if revision is None:
        raise invalid("query", [("after", f"no list ended with {after}")])
    return revision, pod


def _line(
    service: PolicyService,
    principal: Principal,
    row: NominationRow,
    kept: Mapping[tuple[str, int, str], int],
) -> dict[str, Any]:
    line = {
        **nomination(row, kept=kept.get((row.cluster, row.made_revision, row.pod), 0)),
        "made_decision": _decision(service, principal, row.made_decision),
        "ended_decision": _decision(service, principal, row.ended_decision),
    }
    if principal.limited:
        del line["made_revision"], line["ended_revision"]
    return line


def _decision(service: PolicyService, principal: Principal, number: int | None) -> int | None:
    """Its number as the viewer sees it; None also where it may not know of it."""
    if number is None:
        return None
    if principal.limited and not views.knows(service, principal, Numbered.DECISION, number):
        return None
    return principal.shown(Numbered.DECISION, number)
