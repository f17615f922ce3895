"""What the API and the pages show, read from the store once for both."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import cache
from typing import Any, Final, TypeVar

from msgspec import to_builtins

from policy.audit.documents import instant, verdict
from policy.audit.why_not import WhyNotError, why_not_chosen
from policy.cases import run_beside
from policy.cases.finding import beside
from policy.cases.running import run_suite
from policy.cluster import times
from policy.cluster.objects import Node, Pod
from policy.decision.model import document_of
from policy.rules import RuleSet
from policy.rules.diff import compare
from policy.rules.explain import effective_rules
from policy.rules.files import shipped, shipped_rules
from policy.rules.lint import lint
from policy.server.http import Failure
from policy.server.security import scope
from policy.server.security.access import Principal
from policy.server.service import PolicyService
from policy.store import (
    ActivationRow,
    DecisionRow,
    EnvironmentRow,
    NotFound,
    SessionRow,
    StoredDecision,
)
from policy.store.observed import ObservationRow
from policy.text.words import number

_PAGE: Final = 1000
"""Decisions, or cycles of pod groups, that an export reads at once."""

_Row = TypeVar("_Row", DecisionRow, SessionRow)


def millis(text: str | None, name: str) -> int | None:
    """An RFC 3339 instant. Raises Failure."""
    if text is None or text == "":
        return None
    try:
        return times.parse(text)
    except ValueError as exc:
        raise Failure(400, "invalid", f"query: `{name}`: {exc}") from exc


def decisions(
    service: PolicyService, principal: Principal, wanted: Mapping[str, Any], *, limit: int
) -> tuple[list[DecisionRow], list[dict[str, Any]]]:
    """Rows and lines of a list, newest first; `wanted` as `store.read.decisions` takes it."""
    # Nor by a guess: whether others' pod took a viewer's victim is not for the viewer to know.
    preemptor = wanted.get("preemptor")
    spaces = [wanted.get("namespace"), preemptor and preemptor.partition("/")[0]]
    if any(space and not principal.sees(space) for space in spaces):
        return [], []
    rows = service.store.read.decisions(
        **{**wanted, "namespaces": principal.namespaces}, limit=limit
    )
    victims = service.store.read.victims_of([r.id for r in rows]) if principal.limited else {}
    return rows, scope.lines(principal, rows, victims)


def stored_decision(service: PolicyService, principal: Principal, wanted: str) -> StoredDecision:
    """Raises NotFound, also where the viewer may not know of it."""
    stored = service.store.read.decision(wanted[:80])
    if not scope.concerns(principal, stored):
        raise NotFound(
            f"there is no decision `{wanted[:80]}`",
            help="give a number or the beginning of a digest, as the list shows them",
        )
    return stored


def decision(principal: Principal, stored: StoredDecision) -> dict[str, Any]:
    """One decision with its trace, its sentence, and the call that it answers."""
    told = scope.whole(principal, stored)
    if principal.limited:
        return told
    served = None
    if stored.served is not None:
        served = asdict(stored.served)
        served["arrived"] = instant(served.pop("arrived_ms"))
    return {**told, "explanation": explanation(stored), "served": served}


def explanation(stored: StoredDecision) -> str:
    row = stored.row
    return f"{row.preemptor} (priority {row.preemptor_priority}) {verdict(stored)}"


def why_not(service: PolicyService, stored: StoredDecision, node: str) -> dict[str, Any]:
    try:
        return why_not_chosen(service.store, stored, node)
    except WhyNotError as exc:
        raise Failure(404, "not-found", str(exc), help=exc.help) from exc


# --- observed preemptions --------------------------------------------------------------


def observations(
    service: PolicyService, principal: Principal, wanted: Mapping[str, Any], *, limit: int
) -> tuple[list[ObservationRow], list[dict[str, Any]]]:
    """Rows and documents, newest first; `wanted` as `store.read.observations` takes it."""
    named = [wanted.get(name) for name in ("preemptor", "victim", "pod")]
    spaces = [wanted.get("namespace"), *(pod and pod.partition("/")[0] for pod in named)]
    if any(space and not principal.sees(space) for space in spaces):
        return [], []
    rows = service.store.read.observations(
        **{**wanted, "namespaces": principal.namespaces}, limit=limit
    )
    return rows, [scope.observation(principal, row) for row in rows]


def observation(service: PolicyService, principal: Principal, number: int) -> dict[str, Any]:
    """One of them, with the decision made again for those who see all of it.

    Raises NotFound, also where the viewer may not know of it.
    """
    row = service.store.read.observation(number)
    told = scope.observation(principal, row)
    if not principal.limited:
        return {**told, **_decided_again(service, row)}
    if told["preemptor"] is None and not told["victims"]:
        raise NotFound(f"there is no observed preemption {number}")
    return told


def _decided_again(service: PolicyService, row: ObservationRow) -> dict[str, Any]:
    from policy.audit.observed.again import AgainDecider, CannotDecide, as_observed

    try:
        decision, _ = AgainDecider(service.store).decide(row, as_observed(service.store, row))
    except CannotDecide as exc:
        return {"decided_again": None, "undecided": str(exc)}
    return {"decided_again": document_of(decision), "undecided": ""}


# --- rules and environments ------------------------------------------------------------


def rule_set(service: PolicyService, wanted: str) -> RuleSet:
    """A shipped rule set by name, or a stored one by digest. Never a file of the service's host."""
    if wanted in shipped():
        return RuleSet.load(wanted)
    return RuleSet.from_canonical(service.store.read.rule_set(wanted[:80]))


def rule_sets(service: PolicyService) -> list[dict[str, Any]]:
    """Shipped rule sets, and those that environments made active."""
    found = [{"name": name, "digest": None, "shipped": True} for name in shipped_rules()]
    seen = set()
    for row in service.store.read.environments():
        for activation in service.store.read.activations(row.name):
            if activation.rule_set_digest not in seen:
                seen.add(activation.rule_set_digest)
                found.append(
                    {
                        "name": activation.rule_set,
                        "digest": activation.rule_set_digest,
                        "shipped": False,
                    }
                )
    return found


def described(rules: RuleSet) -> dict[str, Any]:
    return {
        "name": rules.name,
        "digest": rules.digest,
        "canonical": rules.canonical,
        "rules": [asdict(rule) for rule in effective_rules(rules)],
    }


def judged(wanted: str, rules: RuleSet) -> dict[str, Any]:
    """What lint says of a rule set, and how the cases beside a shipped one end; None without."""
    found = [
        {
            "rule": warning.rule,
            "finding": warning.finding.value,
            "message": warning.message,
            "help": warning.help,
        }
        for warning in lint(rules)
    ]
    return {"lint": found, "cases": _cases(wanted) if wanted in shipped() else None}


@cache
def _cases(name: str) -> list[dict[str, Any]] | None:
    """Run once in a process: shipped rule sets and their cases do not change meanwhile."""
    suite = beside(name)
    if suite is None:
        return None
    failed = {mismatch.place: mismatch.differences for mismatch in run_suite(suite)}
    return [
        {"note": case.note, "passed": case.place not in failed, "why": failed.get(case.place, ())}
        for case in suite.cases()
    ]


def differences(old: RuleSet, new: RuleSet) -> list[dict[str, Any]]:
    return [asdict(change) for change in compare(old, new)]


def activation(row: ActivationRow) -> dict[str, Any]:
    return {
        "id": row.id,
        "environment": row.environment,
        "at": instant(row.at_ms),
        "actor": row.actor,
        "rule_set": row.rule_set,
        "digest": row.rule_set_digest,
        "before": row.previous_digest,
        "reason": row.reason,
        "source": row.source,
        "proofs": None if row.proofs is None else to_builtins(row.proofs),
    }


def environment(row: EnvironmentRow) -> dict[str, Any]:
    return {
        "environment": row.name,
        "cluster": row.cluster,
        "created": instant(row.created_ms),
        "created_by": row.created_by,
        "active": activation(row.active) if row.active else None,
    }


def activate(
    service: PolicyService, principal: Principal, name: str, *, rules: str, reason: str
) -> dict[str, Any]:
    """Make a rule set active; the ledger names who did it. Its cases have to pass."""
    _need_reason(reason)
    chosen = rule_set(service, rules)
    failures = run_beside(rules) if rules in shipped() else ()
    if failures:
        raise Failure(409, "conflict", f"{number(len(failures), 'failing case')} of `{rules}`")
    before = service.store.read.environment(name).active
    if before is not None and before.rule_set_digest == chosen.digest:
        raise Failure(409, "conflict", f"`{chosen.name}` is active in `{name}` already")
    return activation(
        service.store.record.activate(
            name,
            rules=chosen,
            reason=reason,
            source=rules,
            at_ms=service.clock(),
            actor=principal.name,
        )
    )


def roll_back(
    service: PolicyService, principal: Principal, name: str, *, reason: str
) -> dict[str, Any]:
    _need_reason(reason)
    return activation(
        service.store.record.roll_back(
            name, reason=reason, at_ms=service.clock(), actor=principal.name
        )
    )


def _need_reason(reason: str) -> None:
    if not reason.strip():
        raise Failure(400, "invalid", "the reason is empty", help="say why, for later readers")


# --- state ------------------------------------------------------------


def state(
    service: PolicyService, cluster: str, kind: str, *, revision: int | None, at_ms: int | None
) -> tuple[int, list[Node] | list[Pod]]:
    """The revision and its objects of a kind, by name."""
    if at_ms is not None:
        revision = service.store.state.revision_at(cluster, at_ms)
        if not revision:
            raise NotFound(
                f"cluster `{cluster}` had no state yet at {instant(at_ms)}",
                help=f"`/api/v1/clusters/{cluster}/revisions` lists since when it is known",
            )
    loaded = service.store.state.load(cluster, at=revision)
    if kind == "nodes":
        nodes = [obj for obj in loaded.objects if isinstance(obj, Node)]
        return loaded.revision, sorted(nodes, key=lambda n: n.metadata.name)
    pods = [obj for obj in loaded.objects if isinstance(obj, Pod)]
    return loaded.revision, sorted(pods, key=pod_key)


def on_node(service: PolicyService, name: str) -> dict[str, tuple[Node | None, list[Pod]]]:
    """By cluster, the node of that name, None where there is none, and its pods, the most
    important ones first.
    """
    return {
        cluster: (node, sorted(pods, key=lambda pod: (-(pod.spec.priority or 0), pod_key(pod))))
        for cluster, (node, pods) in service.store.state.on_node(name).items()
    }


def pod_key(pod: Pod) -> str:
    return f"{pod.metadata.namespace or 'default'}/{pod.metadata.name}"


def exported(
    service: PolicyService,
    principal: Principal,
    wanted: Mapping[str, Any],
    *,
    most: int | None = None,
) -> Iterator[dict[str, Any]]:
    """All lines of a list of decisions; see `in_pages`."""
    return in_pages(
        lambda before, limit: decisions(
            service, principal, {**wanted, "before_id": before}, limit=limit
        ),
        wanted.get("before_id"),
        most=most,
    )


def in_pages(
    page: Callable[[int | None, int], tuple[Sequence[_Row], list[dict[str, Any]]]],
    before_id: int | None,
    *,
    most: int | None = None,
) -> Iterator[dict[str, Any]]:
    """All lines of a list, or at most so many, page by page, newest first.

    page: rows and lines before an id, at most so many. The first one is read at once: a filter that
    is wrong is an error then, and not in the midst of an answer.
    """
    size = _PAGE if most is None else min(most, _PAGE)

    def pages(rows: Sequence[_Row], lines: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        asked, left = size, most
        while True:
            yield from lines
            if len(rows) < asked:
                return
            if left is not None:
                left -= len(rows)
                asked = min(left, _PAGE)
            if not asked:
                return
            rows, lines = page(rows[-1].id, asked)

    return pages(*page(before_id, size))
