"""All operations of the API."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from itertools import islice
from typing import Any, Final

from policy.audit import fired, health, inputs, node_change, spared
from policy.audit.compare_documents import summary_document
from policy.audit.documents import instant
from policy.audit.newest import judge_newest
from policy.audit.recorded import Comparing
from policy.cluster.names import typed_pod
from policy.cluster.objects import key_of
from policy.server import (
    batch_sessions,
    cycles,
    decided,
    environments,
    nominations,
    rule_sets,
    supposing,
    views,
)
from policy.server.api import answers, models
from policy.server.api.operations import ApiOperation, ApiRequest, Stream, etag
from policy.server.api.result import ApiResult
from policy.server.http import ADVICE, PROBLEMS, TITLES, Failure, invalid
from policy.server.own_sql import TABLES
from policy.server.security.tokens import Role
from policy.server.sql import run_sql
from policy.store.read.saved_queries import saved_queries
from policy.store.read.sql import parameters_in
from policy.store.record.environments import ActivationChanged
from policy.text.plain import plain


def decisions_wanted(query: models.DecisionsExportQuery, *, now_ms: int) -> dict[str, Any]:
    """A query as the store takes it; now_ms: what `7d` is before. Raises Failure."""
    return {
        "cluster": query.cluster,
        **views.span(query.since, query.until, now_ms=now_ms),
        "namespace": query.namespace,
        "node": query.node,
        "rule_set": views.recorded_rules(query.rules),
        "rule": views.recorded_rule(query.rule),
        "preemptor": typed_pod(query.preemptor),
        "pod": typed_pod(query.pod),
        "victim": typed_pod(query.victim),
        "workload": views.workload(query.workload),
        "outcome": query.outcome,
        "origin": query.origin,
        "simulated": None if query.simulated is None else False,
        "before_id": query.after,
    }


def _decisions(asked: ApiRequest) -> ApiResult:
    wanted = decisions_wanted(asked.query, now_ms=asked.service.clock())
    return _listed(asked, "decisions", views.decisions, wanted)


def _listed(
    asked: ApiRequest, name: str, read: Callable[..., views.Page], wanted: Mapping[str, Any]
) -> ApiResult:
    """A page of a list under its name. Raises Failure."""
    reads = partial(read, asked.service, asked.principal, wanted)
    page = views.one_page(reads, limit=asked.query.limit)
    following = {} if page.after is None else {"after": page.after}
    return ApiResult(document={name: page.lines}, next=following)


def _overview(asked: ApiRequest) -> ApiResult:
    now_ms = asked.service.clock()
    found = health.health(
        asked.service.store, cluster=asked.query.cluster, days=asked.query.days, now_ms=now_ms
    )
    return ApiResult(document=health.document(found, now_ms=now_ms))


def _decision(asked: ApiRequest) -> ApiResult:
    stored = views.stored_decision(asked.service, asked.principal, asked.path["id"])
    return ApiResult(
        # It may become another one, also under its digest: where a later state contradicts it, and
        # where the same was decided again.
        document=views.decision(asked.principal, stored),
    )


def _why_not(asked: ApiRequest) -> ApiResult:
    stored = views.stored_decision(asked.service, asked.principal, asked.path["id"])
    return ApiResult(document=views.why_not(asked.service, stored, asked.query.node))


def _decision_rules(asked: ApiRequest) -> ApiResult:
    stored = views.stored_decision(asked.service, asked.principal, asked.path["id"])
    rules = fired.rules_of(asked.service.store, stored)
    found = fired.marked_rules(rules, stored.record)
    return ApiResult(document={"rules": fired.document(found)})


def _decision_node(asked: ApiRequest) -> ApiResult:
    stored = views.stored_decision(asked.service, asked.principal, asked.path["id"])
    found = decided.node(asked.service, stored, fired.rules_of(asked.service.store, stored))
    assert found is not None  # however far back its state is
    return ApiResult(document=node_change.document(found))


def _spared(asked: ApiRequest) -> ApiResult:
    stored = views.stored_decision(asked.service, asked.principal, asked.path["id"])
    kept = decided.protected(asked.service, stored)
    return ApiResult(document=spared.document(spared.reprieved(stored.record), kept))


def _replay(asked: ApiRequest) -> ApiResult:
    stored = views.stored_decision(asked.service, asked.principal, asked.path["id"])
    found = decided.replayed(asked.service, stored)
    return ApiResult(document={"id": stored.row.id, **inputs.document(found)})


def observations_wanted(query: models.ObservationsExportQuery, *, now_ms: int) -> dict[str, Any]:
    """A query as the store takes it; now_ms: what `7d` is before. Raises Failure."""
    return {
        "cluster": query.cluster,
        **views.span(query.since, query.until, now_ms=now_ms),
        "namespace": query.namespace,
        "node": query.node,
        "preemptor": typed_pod(query.preemptor),
        "victim": typed_pod(query.victim),
        "pod": typed_pod(query.pod),
        "verdict": query.verdict,
        "confidence": query.confidence,
        "before_id": query.after,
    }


def _observations(asked: ApiRequest) -> ApiResult:
    wanted = observations_wanted(asked.query, now_ms=asked.service.clock())
    return _listed(asked, "observations", views.observations, wanted)


def _observation(asked: ApiRequest) -> ApiResult:
    return ApiResult(document=views.observation(asked.service, asked.principal, asked.path["id"]))


def sessions_wanted(query: models.SessionsExportQuery, *, now_ms: int) -> dict[str, Any]:
    """A query as the store takes it; now_ms: what `7d` is before. Raises Failure."""
    return {
        "cluster": query.cluster,
        **views.span(query.since, query.until, now_ms=now_ms),
        "before_id": query.after,
    }


def cycles_wanted(query: models.CyclesExportQuery, *, now_ms: int) -> dict[str, Any]:
    """A query as the store takes it; now_ms: what `7d` is before. Raises Failure."""
    return {
        **sessions_wanted(query, now_ms=now_ms),
        "group": typed_pod(query.group),
        "outcome": query.outcome,
    }


def _cycles(asked: ApiRequest) -> ApiResult:
    wanted = cycles_wanted(asked.query, now_ms=asked.service.clock())
    return _listed(asked, "groups", cycles.cycles, wanted)


def _cycle(asked: ApiRequest) -> ApiResult:
    return ApiResult(document=cycles.cycle(asked.service, asked.principal, asked.path["id"]))


def _sessions(asked: ApiRequest) -> ApiResult:
    wanted = sessions_wanted(asked.query, now_ms=asked.service.clock())
    return _listed(asked, "sessions", batch_sessions.sessions, wanted)


def _session(asked: ApiRequest) -> ApiResult:
    return ApiResult(
        document=batch_sessions.session(asked.service, asked.principal, asked.path["id"])
    )


def _environments(asked: ApiRequest) -> ApiResult:
    rows = asked.service.store.read.environments()
    return ApiResult(document={"environments": [environments.environment(row) for row in rows]})


def _environment(asked: ApiRequest) -> ApiResult:
    with asked.service.store.reading() as rooms:
        row = rooms.read.environment(asked.path["name"])
        found = [environments.activation(one) for one in rooms.read.activations(row.name)]
    return ApiResult(document={**environments.environment(row), "activations": found})


def _activate(asked: ApiRequest) -> ApiResult:
    return _changed(asked, environments.activate, rules=asked.body.rules, reason=asked.body.reason)


def _roll_back(asked: ApiRequest) -> ApiResult:
    return _changed(asked, environments.roll_back, reason=asked.body.reason)


def _changed(asked: ApiRequest, change: Callable[..., dict[str, Any]], **given: str) -> ApiResult:
    """A change of an environment that still is as `If-Match` says. Raises Failure, StoreError."""
    name = asked.path["name"]
    try:
        made = change(
            asked.service, asked.principal, name, expected_activation=_expected(asked), **given
        )
    except ActivationChanged as exc:
        raise Failure(412, "changed", f"`If-Match`: {exc.message}", help=exc.help) from exc
    return ApiResult(document=made, status=201)


def _expected(asked: ApiRequest) -> int | None:
    """The activation that must be the newest, 0 for none, when a change is written; None for any.

    What the answer about an environment holds changes by activations alone: the `ETag` of what is
    read here stands for the newest of them. Raises ActivationChanged where it is not the one sent.
    """
    if asked.if_match is None:
        return None
    document = _environment(asked).document
    if etag(document) not in asked.if_match:
        name = asked.path["name"]
        raise ActivationChanged(name, asked.service.store.read.environment(name).active)
    return document["activations"][0]["id"] if document["activations"] else 0


def _rule_sets(asked: ApiRequest) -> ApiResult:
    return ApiResult(document={"rule_sets": rule_sets.rule_sets(asked.service)})


def _rule_set(asked: ApiRequest) -> ApiResult:
    found = rule_sets.any_rules(asked.service, asked.path["name"])
    return ApiResult(
        document=rule_sets.described(found), immutable=asked.path["name"] == found.digest
    )


def _difference(asked: ApiRequest) -> ApiResult:
    old = rule_sets.any_rules(asked.service, asked.path["name"])
    new = rule_sets.any_rules(asked.service, asked.path["other"])
    whole = (asked.path["name"], asked.path["other"]) == (old.digest, new.digest)
    return ApiResult(document={"changes": rule_sets.differences(old, new)}, immutable=whole)


def _uses(asked: ApiRequest) -> ApiResult:
    found = rule_sets.any_rules(asked.service, asked.path["name"])
    return ApiResult(document=rule_sets.uses(asked.service, found))


def _state(asked: ApiRequest) -> ApiResult:
    query = asked.query
    revision, objects = views.state(
        asked.service,
        asked.path["cluster"],
        query.kind,
        revision=query.revision,
        at_ms=views.millis(query.at, "at"),
    )
    keyed = [(key_of(obj), obj) for obj in objects]
    behind = ((key, obj) for key, obj in keyed if query.after is None or key > query.after)
    page = list(islice(behind, query.limit))
    following: dict[str, str | int | None] = {}
    if next(behind, None) is not None:
        following = {"after": page[-1][0], "revision": revision, "at": None}
    return ApiResult(
        document={"revision": revision, query.kind: [obj for _, obj in page]}, next=following
    )


def _revisions(asked: ApiRequest) -> ApiResult:
    query = asked.query
    rows = asked.service.store.state.revisions(
        asked.path["cluster"], limit=query.limit + 1, before=query.after
    )
    more, rows = len(rows) > query.limit, rows[: query.limit]
    following = {"after": rows[-1].number} if more else {}
    told = [
        {
            "revision": row.number,
            "at": instant(row.at_ms),
            "source": row.source,
            "cause": row.cause,
            "put": row.put_count,
            "deleted": row.deleted_count,
            "digest": row.digest,
        }
        for row in rows
    ]
    return ApiResult(document={"revisions": told}, next=following)


def _nominations(asked: ApiRequest) -> ApiResult:
    query = asked.query
    lines, after = nominations.page(
        asked.service,
        asked.principal,
        asked.path["cluster"],
        pod=typed_pod(query.pod),
        node=query.node,
        standing=None if query.standing is None else query.standing == "true",
        after=query.after,
        limit=query.limit,
    )
    following = {} if after is None else {"after": after}
    return ApiResult(document={"nominations": lines}, next=following)


def _dry_run(asked: ApiRequest) -> ApiResult:
    body = asked.body
    return ApiResult(
        document=supposing.dry_run(
            asked.service, body.environment, pod=body.pod, manifest=body.manifest
        )
    )


def _what_if(asked: ApiRequest) -> ApiResult:
    body = asked.body
    return ApiResult(
        document=supposing.what_if(
            asked.service,
            body.environment,
            pods=body.pods,
            manifests=body.manifests,
            priority_classes=body.priority_classes,
            removed_nodes=body.removed_nodes,
            depth=body.depth,
        )
    )


def _compare(asked: ApiRequest) -> ApiResult:
    body, service = asked.body, asked.service
    rules = rule_sets.rule_set(service, body.rules)
    document: dict[str, Any] = {"rules": rules.name, "digest": rules.digest}
    if body.newest is not None:
        found = judge_newest(
            service.store, rules, cluster=body.cluster, limit=body.newest, known=service.judged
        )
        return ApiResult(
            document={
                **document,
                **summary_document(found.summary),
                "decisions": [
                    *(cycles.told(one) for one in found.changed),
                    *(cycles.told(one) for one in found.skipped),
                ],
            }
        )
    judged = [
        *Comparing(rules)(service.store, sorted(set(body.ids))),
        *cycles.compared(service, body.groups, rules),
    ]
    return ApiResult(document={**document, "decisions": [cycles.told(one) for one in judged]})


def _heads(asked: ApiRequest) -> ApiResult:
    told = [
        {
            "cluster": head.cluster,
            "sequence": head.sequence,
            "hash": head.hash,
            "at": instant(head.at_ms),
        }
        for head in asked.service.store.ledger.heads()
    ]
    return ApiResult(document={"heads": told})


def _verify(asked: ApiRequest) -> ApiResult:
    found = asked.service.store.ledger.verify(asked.path["cluster"])
    return ApiResult(
        document={
            "cluster": asked.path["cluster"],
            "ok": found.ok,
            "findings": [str(finding) for finding in found.findings],
        }
    )


def _saved(_: ApiRequest) -> ApiResult:
    told = [
        {"name": q.name, "about": q.about, "sql": q.sql, "parameters": q.parameters}
        for q in saved_queries().values()
    ]
    return ApiResult(document={"queries": told})


def _sql(asked: ApiRequest) -> ApiResult:
    body = asked.body
    unused = sorted(set(body.parameters).difference(parameters_in(body.sql)))
    if unused:
        told = f"the query has no parameter `{unused[0][:80]}`"
        raise invalid("body", [("parameters", told)])
    found = run_sql(asked.service, asked.principal, body.sql, body.parameters, limit=body.limit)
    return ApiResult(document={**found, "rows": plain(found["rows"])})


def _problem(asked: ApiRequest) -> ApiResult:
    kind = asked.path["kind"]
    if kind not in TITLES:
        raise Failure(404, "not-found", f"there is no problem `{kind[:40]}`")
    document = {"type": PROBLEMS + kind, "title": TITLES[kind], "help": ADVICE[kind]}
    return ApiResult(document=document)


DECISIONS: Final = ApiOperation(
    method="GET",
    path="/decisions",
    name="listDecisions",
    call=_decisions,
    answers=(answers.DecisionList,),
    pages=True,
    limited=True,
    query=models.DecisionsQuery,
    summary="Recorded decisions, newest first.",
)
OBSERVATIONS: Final = ApiOperation(
    method="GET",
    path="/observations",
    name="listObservations",
    call=_observations,
    answers=(answers.ObservationList, answers.OwnObservationList),
    pages=True,
    limited=True,
    query=models.ObservationsQuery,
    summary="Preemptions by clusters' own schedulers, newest first.",
)
CYCLES: Final = ApiOperation(
    method="GET",
    path="/groups",
    name="listGroupCycles",
    call=_cycles,
    answers=(answers.CycleList,),
    pages=True,
    limited=True,
    query=models.CyclesQuery,
    summary="Recorded cycles of pod groups, newest first.",
)
SESSIONS: Final = ApiOperation(
    method="GET",
    path="/sessions",
    name="listBatchSessions",
    call=_sessions,
    answers=(answers.BatchSessionList, answers.OwnBatchSessionList),
    pages=True,
    limited=True,
    query=models.SessionsQuery,
    summary="Recorded batch sessions, newest first.",
)
OPERATIONS: Final = (
    DECISIONS,
    ApiOperation(
        method="GET",
        path="/decisions/{id}",
        name="getDecision",
        call=_decision,
        answers=(answers.Decision, answers.OwnDecision),
        limited=True,
        summary="One decision by id or digest, with trace, candidates, victims and explanation.",
    ),
    ApiOperation(
        method="GET",
        path="/decisions/{id}/why-not",
        name="whyNot",
        call=_why_not,
        long=True,
        answers=(answers.WhyNot,),
        query=models.NodeQuery,
        summary="Why a node was not chosen.",
    ),
    ApiOperation(
        method="GET",
        path="/decisions/{id}/rules",
        name="getDecisionRules",
        call=_decision_rules,
        answers=(answers.DecisionRules,),
        summary="The rules of its rule set, each with what it did in the decision.",
    ),
    ApiOperation(
        method="GET",
        path="/decisions/{id}/node",
        name="getDecisionNode",
        call=_decision_node,
        long=True,
        answers=(answers.DecisionNode,),
        summary="Its node before and after it: who stays, who leaves, who comes, what is free.",
    ),
    ApiOperation(
        method="GET",
        path="/decisions/{id}/spared",
        name="getSparedPods",
        call=_spared,
        long=True,
        answers=(answers.SparedPods,),
        summary="Pods of its node that stay: reprieved, or protected, with the rule and the reason."
        " Its rules are evaluated again, on the state of then, which is loaded for it.",
    ),
    ApiOperation(
        method="GET",
        path="/decisions/{id}/replay",
        name="replayDecision",
        call=_replay,
        long=True,
        answers=(answers.Replay,),
        summary="Make it again, on the state of then, and compare it with the record.",
    ),
    OBSERVATIONS,
    ApiOperation(
        method="GET",
        path="/observations/{id}",
        name="getObservation",
        call=_observation,
        long=True,
        answers=(answers.ObservationAgain, answers.OwnObservation),
        limited=True,
        summary="One of them with its evidence, its verdict, and the decision made again for it.",
    ),
    CYCLES,
    ApiOperation(
        method="GET",
        path="/groups/{id}",
        name="getGroupCycle",
        call=_cycle,
        answers=(answers.Cycle, answers.OwnCycle),
        limited=True,
        summary="One cycle of a pod group: members, units, passes, victims and effects.",
    ),
    SESSIONS,
    ApiOperation(
        method="GET",
        path="/sessions/{id}",
        name="getBatchSession",
        call=_session,
        answers=(answers.BatchSession, answers.OwnBatchSession),
        limited=True,
        summary="One batch session: what it did, shares of queues and jobs, who waits and why, and"
        " every step that it tried.",
    ),
    ApiOperation(
        method="POST",
        path="/decide",
        name="decide",
        call=_dry_run,
        long=True,
        answers=(answers.Decided, answers.DecidedCycle),
        body=models.DryRunRequest,
        summary="What would be decided for a pod now; nothing is recorded. A member of a pod group"
        " stands for the group where the environment's rules schedule groups.",
        problems=(409,),
    ),
    ApiOperation(
        method="POST",
        path="/what-if",
        name="whatIf",
        call=_what_if,
        long=True,
        answers=(answers.Supposed,),
        body=models.WhatIf,
        summary="Which decisions would follow from a change, down to the victims of the victims.",
        problems=(409,),
    ),
    ApiOperation(
        method="POST",
        path="/compare",
        name="compare",
        call=_compare,
        long=True,
        answers=(answers.Comparison,),
        body=models.CompareRequest,
        summary="What other rules would have decided: of `newest`, sums and those that differ.",
    ),
    ApiOperation(
        method="GET",
        path="/environments",
        name="listEnvironments",
        call=_environments,
        answers=(answers.EnvironmentList,),
        summary="Environments with their active rule sets.",
    ),
    # Names may hold slashes, so what is below a name comes before the name itself.
    ApiOperation(
        method="POST",
        path="/environments/{name}/activations",
        name="activate",
        call=_activate,
        answers=(answers.Activation,),
        role=Role.OPERATOR,
        body=models.Activation,
        problems=(409, 412, 422),
        writes=True,
        conditional=True,
        summary="Make a rule set decide from the next decision on.",
    ),
    ApiOperation(
        method="POST",
        path="/environments/{name}/rollback",
        name="rollBack",
        call=_roll_back,
        answers=(answers.Activation,),
        role=Role.OPERATOR,
        body=models.Rollback,
        problems=(409, 412, 422),
        writes=True,
        conditional=True,
        summary="Go back to the rule set that was active before.",
    ),
    ApiOperation(
        method="GET",
        path="/environments/{name}",
        name="getEnvironment",
        call=_environment,
        answers=(answers.EnvironmentHistory,),
        summary="One environment with all its activations, newest first.",
    ),
    ApiOperation(
        method="GET",
        path="/rule-sets",
        name="listRuleSets",
        call=_rule_sets,
        answers=(answers.RuleSetList,),
        summary="Shipped rule sets of every kind, and those that were active.",
    ),
    ApiOperation(
        method="GET",
        path="/rule-sets/{name}/diff/{other}",
        name="diffRuleSets",
        call=_difference,
        answers=(answers.RuleSetDifference,),
        summary="What changes from one rule set to another.",
    ),
    ApiOperation(
        method="GET",
        path="/rule-sets/{name}/uses",
        name="getRuleUses",
        call=_uses,
        answers=(answers.RuleUses,),
        summary="How often each rule decided: in 7 and in 90 days, today included, and over all.",
    ),
    ApiOperation(
        method="GET",
        path="/rule-sets/{name}",
        name="getRuleSet",
        call=_rule_set,
        answers=(answers.RuleSetText,),
        summary="One rule set by name or digest: its rules and its canonical text.",
    ),
    ApiOperation(
        method="GET",
        path="/clusters/{cluster}/state",
        name="getState",
        call=_state,
        long=True,
        answers=(answers.StatePods, answers.StateNodes),
        pages=True,
        query=models.StateQuery,
        summary="Pods or nodes, now or at a revision or an instant.",
    ),
    ApiOperation(
        method="GET",
        path="/clusters/{cluster}/revisions",
        name="listRevisions",
        call=_revisions,
        answers=(answers.RevisionList,),
        pages=True,
        query=models.RevisionsQuery,
        summary="Revisions of the state, newest first.",
    ),
    ApiOperation(
        method="GET",
        path="/clusters/{cluster}/nominations",
        name="listNominations",
        call=_nominations,
        answers=(answers.NominationList, answers.OwnNominationList),
        pages=True,
        limited=True,
        query=models.NominationsQuery,
        summary="Which pod was promised which node, and what came of it, newest first.",
    ),
    ApiOperation(
        method="GET",
        path="/clusters/{cluster}/verify",
        name="verify",
        call=_verify,
        long=True,
        answers=(answers.Verification,),
        summary="Compute every hash of the record again; takes as long as the record is.",
    ),
    ApiOperation(
        method="GET",
        path="/ledger",
        name="listHeads",
        call=_heads,
        answers=(answers.HeadList,),
        summary="The newest ledger entry of each cluster.",
    ),
    ApiOperation(
        method="GET",
        path="/queries",
        name="listQueries",
        call=_saved,
        answers=(answers.QueryList,),
        summary="Saved queries.",
    ),
    ApiOperation(
        method="POST",
        path="/sql",
        name="runSql",
        call=_sql,
        long=True,
        answers=(answers.SqlResult,),
        body=models.Query,
        problems=(501,),
        limited=True,
        summary="One statement that reads; ends after 10 seconds. For an admin on tables and views,"
        " for others on the views and, where it is a saved query to the letter, on what that reads."
        " For a token that is limited to namespaces on a copy of what it may see: the tables "
        + ", ".join(f"`{name}`" for name in TABLES)
        + ".",
    ),
    ApiOperation(
        method="GET",
        path="/overview",
        name="getOverview",
        call=_overview,
        answers=(answers.Overview,),
        query=models.OverviewQuery,
        summary="How preemption goes, as the first page shows it: by cluster, by hour, who waits.",
    ),
    ApiOperation(
        method="GET",
        path="/problems/{kind}",
        name="getProblem",
        call=_problem,
        answers=(answers.ProblemKind,),
        public=True,
        summary="What a kind of problem means.",
    ),
)

EXPORT: Final = Stream(
    path="/export/decisions",
    name="exportDecisions",
    media_type="application/x-ndjson",
    parts=(answers.DecisionLine,),
    query=models.DecisionsExportQuery,
    summary="All decisions of a list as lines of JSON, newest first.",
)
EXPORT_CSV: Final = Stream(
    path="/export/decisions.csv",
    name="exportDecisionsAsCsv",
    media_type="text/csv",
    query=models.DecisionsExportQuery,
    summary="All decisions of a list as CSV, newest first; a text that a spreadsheet would take for"
    " a formula begins with an apostrophe. The last column, `answer`, tells preemptions from calls"
    " in shadow mode (`offered`).",
)
EXPORT_CYCLES: Final = Stream(
    path="/export/groups",
    name="exportGroupCycles",
    media_type="application/x-ndjson",
    parts=(answers.CycleLine,),
    query=models.CyclesExportQuery,
    summary="All cycles of pod groups as lines of JSON, newest first.",
)
EXPORT_SESSIONS: Final = Stream(
    path="/export/sessions",
    name="exportBatchSessions",
    media_type="application/x-ndjson",
    parts=(answers.BatchSessionLine, answers.OwnBatchSessionLine),
    query=models.SessionsExportQuery,
    summary="All batch sessions as lines of JSON, newest first.",
)
EXPORT_OBSERVATIONS: Final = Stream(
    path="/export/observations",
    name="exportObservations",
    media_type="application/x-ndjson",
    parts=(answers.Observation, answers.OwnObservation),
    query=models.ObservationsExportQuery,
    summary="All observed preemptions of a list as lines of JSON, newest first.",
)
EVENTS: Final = Stream(
    path="/events",
    name="streamEvents",
    media_type="text/event-stream",
    headers={"Last-Event-ID": "Id of the last event that was seen; those after it follow."},
    summary="New decisions (`decision`), cycles of pod groups (`group`) and batch sessions"
    " (`session`) as they are recorded (server-sent events), until the client leaves. Their data"
    " are as in the lists.",
)
DOCUMENT: Final = Stream(
    path="/openapi.json",
    name="getDocument",
    media_type="application/json",
    summary="This document.",
)
STREAMS: Final = (
    EXPORT,
    EXPORT_CSV,
    EXPORT_CYCLES,
    EXPORT_SESSIONS,
    EXPORT_OBSERVATIONS,
    EVENTS,
)
