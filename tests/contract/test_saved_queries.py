"""Saved queries read the tables; each answers what the plain query over a view would."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest

from policy.rules import RuleSet
from policy.simulation.folder import read_trace
from policy.simulation.keeping import simulate_and_keep
from policy.simulation.options import Options
from policy.store import SessionRecord, SessionStep, Store
from policy.store.read.saved_queries import DEFAULTS, saved_queries
from tests.contract.builders import BY_HAND, NOW, a_pod, made_on
from tests.contract.filled import fill, observe
from tests.contract.plans import plan

IN_TIME = """now_ms >= :since AND now_ms < :until AND (:cluster = '' OR cluster = :cluster)"""

OVER_VIEWS = {
    "most-preempted-workloads": f"""
        SELECT cluster, victim_namespace, victim_owner, count(*) AS evictions,
               count(DISTINCT preemptor_namespace) AS preemptor_namespaces,
               CAST(sum(run_seconds) AS BIGINT) AS run_seconds_lost,
               substr(min(decided_at), 1, 10) AS first_day,
               substr(max(decided_at), 1, 10) AS last_day
        FROM v_victims
        WHERE evicted AND {IN_TIME} AND (:namespace = '' OR victim_namespace = :namespace)
              AND victim_owner <> ''
        GROUP BY cluster, victim_namespace, victim_owner
        ORDER BY evictions DESC, cluster, victim_namespace, victim_owner
        LIMIT :limit
    """,
    "most-preempting-pods": f"""
        SELECT preemptor, preemptor_priority, count(*) AS preemptions,
               CAST(sum(victim_count) AS BIGINT) AS victims,
               CAST(sum(coalesce(pdb_violations, 0)) AS BIGINT) AS pdb_violations
        FROM v_preemptions
        WHERE {IN_TIME} AND confidence <> 'possible'
              AND (:namespace = '' OR preemptor_namespace = :namespace)
        GROUP BY preemptor, preemptor_priority
        ORDER BY victims DESC, preemptor
        LIMIT :limit
    """,
    "decisions-without-candidate": """
        SELECT g.preemptor, d.preemptor_priority, g.tries, g.last_decision, d.message
        FROM (
            SELECT d.preemptor, count(*) AS tries, max(d.id) AS last_decision
            FROM clusters c
            JOIN decisions d ON d.cluster_id = c.id
            WHERE d.outcome = 'no-candidate' AND NOT d.hypothetical
                  AND d.now_ms >= :since AND d.now_ms < :until
                  AND (:cluster = '' OR c.name = :cluster)
                  AND (:namespace = '' OR d.preemptor_namespace = :namespace)
            GROUP BY d.preemptor
        ) g
        JOIN decisions d ON d.id = g.last_decision
        ORDER BY g.tries DESC, g.preemptor
        LIMIT :limit
    """,
    "filters-that-rejected": """
        SELECT f.filter, f.phase, count(DISTINCT f.decision_id) AS decisions,
               CAST(sum(f.node_count) AS BIGINT) AS nodes
        FROM clusters c
        JOIN decisions d ON d.cluster_id = c.id
        JOIN decision_filters f ON f.decision_id = d.id
        WHERE d.node IS NULL AND f.code <> 0 AND NOT d.hypothetical
              AND d.now_ms >= :since AND d.now_ms < :until
              AND (:cluster = '' OR c.name = :cluster)
              AND (:namespace = '' OR d.preemptor_namespace = :namespace)
        GROUP BY f.filter, f.phase
        ORDER BY nodes DESC, f.filter, f.phase
        LIMIT :limit
    """,
    "outcomes": """
        SELECT r.name AS rule_set, d.outcome, count(*) AS decisions
        FROM clusters c
        JOIN decisions d ON d.cluster_id = c.id
        JOIN rule_sets r ON r.id = d.rule_set_id
        WHERE NOT d.hypothetical AND d.now_ms >= :since AND d.now_ms < :until
              AND (:cluster = '' OR c.name = :cluster)
              AND (:namespace = '' OR d.preemptor_namespace = :namespace)
        GROUP BY r.name, d.outcome
        ORDER BY rule_set, decisions DESC, d.outcome
        LIMIT :limit
    """,
    "pdb-violations": f"""
        SELECT decision_id, decided_at, victim, victim_owner, victim_priority, node, preemptor,
               preemptor_priority, rule_set, budget, disruptions_allowed, allowed_before,
               allowed_after
        FROM v_pdb_violations
        WHERE {IN_TIME} AND (:namespace = '' OR victim_namespace = :namespace)
        ORDER BY decision_id DESC, victim, budget
        LIMIT :limit
    """,
    "rule-usage": """
        SELECT r.name AS rule_set, f.section, f.rule, f.verdict, count(*) AS decisions
        FROM clusters c
        JOIN decisions d ON d.cluster_id = c.id
        JOIN decision_rules f ON f.decision_id = d.id
        JOIN rule_sets r ON r.id = d.rule_set_id
        WHERE NOT d.hypothetical AND d.now_ms >= :since AND d.now_ms < :until
              AND (:cluster = '' OR c.name = :cluster)
        GROUP BY r.name, f.section, f.rule, f.verdict
        ORDER BY r.name, f.section, decisions DESC, f.rule
        LIMIT :limit
    """,
    "tie-breakers": f"""
        SELECT rule_set, decided_by AS criterion, count(*) AS decisions
        FROM v_preemptions
        WHERE {IN_TIME} AND session_id IS NULL AND observation_id IS NULL
        GROUP BY rule_set, decided_by
        ORDER BY decisions DESC, rule_set, criterion
        LIMIT :limit
    """,
    "victims-by-namespace": f"""
        SELECT victim_namespace, count(*) AS evictions,
               count(DISTINCT workload) AS workloads,
               CAST(sum(run_seconds) AS BIGINT) AS run_seconds_lost,
               CAST(sum(CASE WHEN pdb_violating THEN 1 ELSE 0 END) AS BIGINT) AS pdb_violations
        FROM (
            SELECT victim_namespace, run_seconds, pdb_violating,
                   CASE WHEN victim_owner <> '' THEN victim_owner END AS workload
            FROM v_victims
            WHERE evicted AND {IN_TIME}
        ) v
        GROUP BY victim_namespace
        ORDER BY evictions DESC, victim_namespace
        LIMIT :limit
    """,
    "victims-by-priority": f"""
        SELECT preemptor_priority, victim_priority, count(*) AS evictions,
               CAST(sum(run_seconds) AS BIGINT) AS run_seconds_lost
        FROM v_victims
        WHERE evicted AND {IN_TIME} AND (:namespace = '' OR victim_namespace = :namespace)
        GROUP BY preemptor_priority, victim_priority
        ORDER BY preemptor_priority DESC NULLS LAST, victim_priority DESC NULLS LAST
        LIMIT :limit
    """,
    "who-preempts-whom": f"""
        SELECT cluster, preemptor_namespace, victim_namespace, victim_owner,
               count(*) AS evictions,
               CAST(sum(run_seconds) AS BIGINT) AS run_seconds_lost,
               substr(max(decided_at), 1, 10) AS last_day
        FROM v_victims
        WHERE evicted AND {IN_TIME}
              AND (:namespace = '' OR preemptor_namespace = :namespace
                   OR victim_namespace = :namespace)
        GROUP BY cluster, preemptor_namespace, victim_namespace, victim_owner
        ORDER BY evictions DESC, cluster, preemptor_namespace, victim_namespace, victim_owner
        LIMIT :limit
    """,
}

DAY: Final = 86_400_000
ASKED: tuple[dict[str, Any], ...] = (
    {},
    {"since": NOW + 1},
    {"until": NOW + 1},
    {"since": NOW + 6_000, "until": NOW + 7_000},
    {"since": NOW - DAY, "until": NOW + 6_600},
    {"since": NOW + 11, "until": NOW + DAY},
    {"since": NOW // DAY * DAY, "until": (NOW // DAY + 1) * DAY},
    {"since": NOW // DAY * DAY + 1, "until": (NOW // DAY + 1) * DAY - 1},
    {"cluster": "other"},
    {"namespace": "shop"},
    {"cluster": "default", "namespace": "team", "limit": 1},
)


def evicting_session(store: Store, cluster: str) -> None:
    """A session some time later, which evicts again what a decision evicted before."""
    steps = (("jobs/other", "lab/next"), ("shop/web-9", "lab/next"), ("shop/web-9", "lab/next"))
    pods = [a_pod("jobs/other", node="n1"), a_pod("shop/web-9", node="n1", owner="ReplicaSet/web")]
    store.record.import_objects(cluster, pods, at_ms=NOW + 5_000, source="dump3.json")
    session = SessionRecord(
        digest="sha256:" + 64 * "9",
        now_ms=NOW + 6_500,
        snapshot_digest="sha256:" + 64 * "6",
        seed=1,
        engine_version="1",
        bound_count=0,
        evicted_count=len(steps),
        steps=tuple(
            SessionStep(action="preempt", operation="evict", task=task, for_task=pod, node="n1")
            for task, pod in steps
        ),
        document={},
    )
    store.record.session(
        cluster,
        made_on(store, session, cluster),
        [],
        expected_revision=store.state.head_revision(cluster),
        at_ms=NOW + 6_600,
        rules=BY_HAND,
        actor="carl",
    )


OF_THE_QUERY: Final = {
    # Clusters, the days to add up, and what a query made itself.
    *("c", "s", "e", "h", "k", "u", "m", "w", "counted", "dated", "days", "ends", "ever", "hits"),
    *("lost", "made", "newest", "oldest", "sums", "then_only", "tries", "waiting"),
}


def test_a_saved_query_answers_what_the_view_says(database_url: str) -> None:
    """For each span of time, cluster and namespace the rows are those of the query over a view."""
    with Store.open(database_url) as store:
        for cluster in ("default", "other"):
            fill(store, cluster)
            evicting_session(store, cluster)

        def answered(query: str, asked: dict[str, Any]) -> list[tuple[Any, ...]]:
            given = {name: value for name, value in asked.items() if f":{name}" in query}
            with store.sql(query, given, trust_connection=True) as found:
                return [tuple(found.columns), *map(tuple, found)]

        saved = saved_queries()
        asked = [DEFAULTS | given for given in ASKED]
        expected = {name: [answered(q, a) for a in asked] for name, q in OVER_VIEWS.items()}
        actual = {name: [answered(saved[name].sql, a) for a in asked] for name in OVER_VIEWS}
        assert actual == expected
        nowhere = {"decisions-without-candidate", "filters-that-rejected"}
        assert {name for name, answers in expected.items() if len(answers[0]) == 1} == nowhere


def test_with_a_lower_limit_the_first_rows_stay(database_url: str) -> None:
    """Also where rows of several clusters are equal, whichever cluster was there first."""
    with Store.open(database_url) as store:
        for cluster in ("zone-2", "zone-1"):
            fill(store, cluster)
            evicting_session(store, cluster)

        def answered(query: str, **given: int) -> list[tuple[Any, ...]]:
            named = {p: v for p, v in (DEFAULTS | given).items() if f":{p}" in query}
            with store.sql(query, named, trust_connection=True) as rows:
                return list(map(tuple, rows))

        # By totals over all days, and out of the rows at the ends of some.
        for since in (0, 1):
            for query in saved_queries().values():
                whole = answered(query.sql, since=since)
                cut = [answered(query.sql, since=since, limit=n) for n in (1, 2, 3)]
                assert cut == [whole[:n] for n in (1, 2, 3)]


def test_an_hour_of_a_cluster_is_one_row(database_url: str) -> None:
    """What was decided in it, and what was observed of a real scheduler, are added up."""
    query = saved_queries()["hourly"].sql
    by_origin = "SELECT origin, preemptions, victims FROM v_preemptions_hourly ORDER BY origin"
    with Store.open(database_url) as store:
        fill(store)
        observe(store, "default")
        with store.sql(by_origin, trust_connection=True) as rows:
            parts = list(map(tuple, rows))
        asked = {name: DEFAULTS[name] for name in saved_queries()["hourly"].parameters}
        with store.sql(query, asked, trust_connection=True) as rows:
            found = list(map(tuple, rows))
    assert parts == [("decided", 2, 3), ("observed", 1, 1)]
    assert found == [("default", "2026-09-21T14:00:00.000Z", 3, 4, 1)]


@pytest.mark.parametrize("name", OVER_VIEWS)
def test_the_query_over_a_view_has_the_parameters_of_the_saved_one(name: str) -> None:
    """Both answer the same questions."""
    named = tuple(p for p in DEFAULTS if f":{p}" in OVER_VIEWS[name])
    assert saved_queries()[name].parameters == named


def test_a_kept_simulation_is_no_part_of_any_saved_query_but_its_own(database_url: str) -> None:
    """Its decisions, and what waits in its last state, are shown where its cluster is named."""
    trace = read_trace(Path(__file__).parents[2] / "examples" / "simulation" / "trace")
    with Store.open(database_url) as store:
        for cluster in ("default", "other"):
            fill(store, cluster)
            evicting_session(store, cluster)

        def answered(**asked: Any) -> dict[str, list[tuple[Any, ...]]]:
            found = {}
            for name, query in saved_queries().items():
                given = {p: (DEFAULTS | asked)[p] for p in query.parameters}
                with store.sql(query.sql, given, trust_connection=True) as rows:
                    found[name] = list(map(tuple, rows))
            return found

        # By totals over all days, and out of the rows at the ends of some.
        asked: tuple[dict[str, Any], ...] = ({}, {"since": 1}, {"since": 1, "until": NOW + 1})
        before = [answered(**one) for one in asked]
        simulate_and_keep(
            *(store, "kept", trace, RuleSet.load("kube-1.36")),
            seed=0,
            options=Options(length_ms=30_000),  # web-1 is nominated still
            actor="carl",
            clock=lambda: NOW,
        )
        assert [answered(**one) for one in asked] == before
        own = [answered(cluster="kept", **one) for one in asked]
        shown = {name for name, rows in own[0].items() if rows}
        assert own[0]["victims-by-priority"] == [(9, 1, 1, 9)]
        assert own[0]["standing-nominations"][0][:2] == ("kept", "default/web-1")
        # Its pods have no owner, and violate no budget.
        assert shown == set(saved_queries()) - {"most-preempted-workloads", "pdb-violations"}


def test_saved_queries_find_the_rows_of_a_time(tmp_path: Path) -> None:
    """None reads all rows of a table of the record: with a longer one it would take longer."""
    with Store.open(str(tmp_path / "policy.db")) as store:
        scanned = {
            name: [
                step
                for step in plan(store, query.sql, DEFAULTS | {"since": NOW})
                if step.startswith("SCAN") and step.split()[1] not in OF_THE_QUERY
            ]
            for name, query in saved_queries().items()
        }
    assert {name: steps for name, steps in scanned.items() if steps} == {}
