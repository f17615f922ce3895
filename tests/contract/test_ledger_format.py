"""The ledger's line and chain, held by literal values, and checked by a stranger."""

from __future__ import annotations

import sqlite3

import pytest
from sqlalchemy import Table

from policy.store import Store, rows
from policy.store.ledger import entries
from policy.store.tables import DECISION_SPANS, EVICTED_WORKLOADS, METADATA, TOTALS, covered
from policy.store.tables.base import LEDGER_FORMAT
from tests.contract.filled import fill, fill_more
from tests.contract.stranger import verify

COVERED = {
    "activations": (
        "id environment_id rule_set_id previous_rule_set_id at_ms actor reason source "
        "proofs process_uid process_user database_user"
    ),
    "candidates": (
        "decision_id position node victim_count pdb_violations eliminated_by "
        "criteria_values victims"
    ),
    "clusters": "id name",
    "csi_drivers": "cluster_id key valid_from name digest",
    "csi_nodes": "cluster_id key valid_from name digest",
    "csi_storage_capacities": "cluster_id key valid_from namespace name storage_class digest",
    "cycles": (
        "id cluster_id at_ms actor environment pod attempt queued_ms base_revision "
        "revision process_uid process_user database_user"
    ),
    "decision_filters": "decision_id position phase filter code reasons node_count",
    "decision_rules": (
        "decision_id position cluster_id rule_set_id hypothetical section rule verdict "
        "reason inputs"
    ),
    "decision_traces": "decision_id document",
    "decisions": (
        "id cluster_id digest now_ms preemptor preemptor_namespace preemptor_uid "
        "preemptor_priority outcome node victim_count pdb_violations candidate_count "
        "kept_candidates decided_by nomination eligible fits message rule_set_id "
        "snapshot_digest base_revision revision seed evaluate_all origin hypothetical "
        "engine_version"
    ),
    "cluster_identities": "cluster_id uid server at_ms",
    "follow_positions": "cluster_id kind resource_version at_ms",
    "idempotency_keys": "principal operation key request_digest at_ms status answer",
    "extender_calls": (
        "decision_id mode form caller request_digest request_bytes answer failure from_request "
        "arrived_ms duration_us waited_us"
    ),
    "gaps": (
        "id cluster_id at_ms actor kind reason since_ms until_ms since_version until_version "
        "revision process_uid process_user database_user"
    ),
    "schedulers": (
        "id environment_id profile rule_set_id at_ms actor source notices "
        "process_uid process_user database_user"
    ),
    "simulations": (
        "id cluster_id at_ms actor digest trace trace_digest rule_set_id seed start_ms end_ms "
        "engine_version kept_in options result process_uid process_user database_user"
    ),
    "observations": (
        "id cluster_id at_ms actor source now_ms preemptor preemptor_namespace preemptor_uid "
        "preemptor_kind preemptor_priority node scheduler confidence victim_count base_revision "
        "revision verdict reason rule_set rule_set_digest engine_version evidence detail digest "
        "replaces process_uid process_user database_user"
    ),
    "observed_victims": (
        "observation_id position cluster_id now_ms counted preemptor_namespace victim namespace "
        "uid node priority priority_class owner start_ms run_seconds cpu_milli memory_bytes "
        "pdb_violating evidence event_uid"
    ),
    "candidate_violations": (
        "decision_id position node pod budget disruptions_allowed allowed_before allowed_after"
    ),
    "decision_outcomes": "decision_id position cluster_id pod outcome reason revision at_ms",
    "session_outcomes": "session_id position cluster_id pod outcome reason revision at_ms",
    "environments": (
        "id cluster_id name created_ms created_by process_uid process_user database_user"
    ),
    "ledger": (
        "cluster_id sequence format kind revision decision_id session_id environment_id "
        "activation_id pruning_id observation_id gap_id simulation_id scheduler_id "
        "subject_digest rows_digest at_ms actor "
        "environment previous hash process_uid process_user database_user"
    ),
    "namespaces": "cluster_id key valid_from name digest",
    "nodes": (
        "cluster_id key valid_from name cpu_milli memory_bytes pod_capacity unschedulable digest"
    ),
    "nomination_ends": "cluster_id made_revision pod ended_revision ended_decision cause ended_ms",
    "nominations": "cluster_id made_revision pod uid priority node made_decision made_ms",
    "persistent_volume_claims": (
        "cluster_id key valid_from namespace name volume storage_class digest"
    ),
    "persistent_volumes": "cluster_id key valid_from name claim digest",
    "pod_disruption_budgets": (
        "cluster_id key valid_from namespace name min_available max_unavailable "
        "disruptions_allowed digest"
    ),
    "pod_groups": (
        "cluster_id key valid_from namespace name min_member queue priority_class phase digest"
    ),
    "pods": (
        "cluster_id key valid_from namespace name uid node priority priority_class phase "
        "start_ms nominated_node terminating owner cpu_milli memory_bytes digest"
    ),
    "priority_classes": (
        "cluster_id key valid_from name value global_default preemption_policy digest"
    ),
    "prunings": (
        "id cluster_id at_ms actor older_than_ms last_sequence last_hash last_revision "
        "decision_count version_count checkpoint_digest process_uid process_user "
        "database_user"
    ),
    "queues": "cluster_id key valid_from name weight priority parent reclaimable state digest",
    "resource_quotas": "cluster_id key valid_from namespace name digest",
    "replica_sets": "cluster_id key valid_from namespace name owner digest",
    "replication_controllers": "cluster_id key valid_from namespace name digest",
    "resource_claims": "cluster_id key valid_from namespace name allocated digest",
    "scheduling_pod_groups": "cluster_id key valid_from namespace name uid min_count priority"
    " priority_class disruption_mode scheduled digest",
    "workloads": "cluster_id key valid_from namespace name template_count digest",
    "revisions": "cluster_id number at_ms source cause put_count deleted_count previous digest",
    "rule_sets": "id digest name first_used_ms",
    "services": "cluster_id key valid_from namespace name digest",
    "session_steps": (
        "session_id position action operation queue job task node for_task reason detail"
    ),
    "sessions": (
        "id cluster_id kind subject outcome digest at_ms now_ms actor environment rule_set_id "
        "snapshot_digest "
        "base_revision revision seed bound_count evicted_count hypothetical engine_version "
        "document process_uid process_user database_user"
    ),
    "stateful_sets": "cluster_id key valid_from namespace name digest",
    "storage_classes": "cluster_id key valid_from name provisioner binding_mode digest",
    "victims": (
        "decision_id position cluster_id now_ms evicted preemptor_namespace pod namespace "
        "uid node priority priority_class owner start_ms run_seconds cpu_milli "
        "memory_bytes pdb_violating already_terminating filter reasons"
    ),
}


def table(name: str) -> Table:
    return METADATA.tables[name]


WRITTEN = {"process_uid": 1000, "process_user": "ann", "database_user": ""}
ENVIRONMENT = {
    "id": 7,
    "cluster_id": 3,
    "name": "prod é",
    "created_ms": 1790000000000,
    "created_by": "ann",
    **WRITTEN,
}
NOMINATION = {
    "cluster_id": 3,
    "made_revision": 2,
    "pod": "team/urgent",
    "uid": 'u"1\n',
    "priority": -5,
    "node": "n1",
    "made_decision": None,
    "made_ms": 1790000000001,
}
LINES = [
    b'["environments",7,3,"prod \xc3\xa9",1790000000000,"ann",1000,"ann",""]',
    b'["nominations",3,2,"team/urgent","u\\"1\\n",-5,"n1",null,1790000000001]',
    b'["closed","pods","team/old",1,2]',
]


def test_lines_keep_their_bytes() -> None:
    """A row, a row with null and escapes, and the end of a version."""
    found = [
        rows.line(table("environments"), ENVIRONMENT),
        rows.line(table("nominations"), NOMINATION),
        *rows.closed_lines("pods", [("team/old", 1, 2)]),
    ]
    assert found == LINES


def test_a_line_of_the_first_format_has_no_later_columns() -> None:
    """What format 2 added is left out."""
    found = rows.line(table("environments"), ENVIRONMENT, ledger_format=1)
    assert found == b'["environments",7,3,"prod \xc3\xa9",1790000000000,"ann"]'


def an_entry(**values: object) -> dict[str, object]:
    ids = ("decision_id", "session_id", "environment_id", "activation_id", "pruning_id")
    ids += ("observation_id", "gap_id", "simulation_id", "scheduler_id")
    return {
        "format": 2,
        "revision": None,
        **dict.fromkeys(ids),
        "at_ms": 1790000000000,
        "actor": "ann",
        "environment": "",
        **WRITTEN,
        **values,
    }


def test_a_small_chain_keeps_its_hashes() -> None:
    """Three entries written by hand, one of them of the first format."""
    first = an_entry(
        format=1,
        sequence=1,
        previous=entries.GENESIS,
        kind="import",
        revision=1,
        subject_digest="sha256:" + 64 * "a",
        rows_digest=rows.digest_of([LINES[2], LINES[0]]),
    )
    second = an_entry(
        sequence=2,
        previous=entries.hash_of(3, "prod", first),
        kind="environment",
        environment_id=7,
        environment="prod é",
        subject_digest="",
        rows_digest=rows.digest_of(LINES[:1]),
    )
    third = an_entry(
        sequence=3,
        previous=entries.hash_of(3, "prod", second),
        kind="decision",
        decision_id=9,
        revision=2,
        subject_digest="sha256:" + 64 * "b",
        rows_digest=rows.digest_of([]),
    )
    found = [first["rows_digest"], *(entries.hash_of(3, "prod", e) for e in (first, second, third))]
    assert found == [
        "sha256:5792407a534d6daaa26b8dd2fd379025c913dc2f7ef27bd43535c24404b1dee6",
        "sha256:9a9f3138ccf72b0a6c998da73643364afb1a0b913e874aee7286a02f567f005e",
        "sha256:54f1916cee7da40d4056c747a65208f0230d893d959d5c67aad6bf279aff031d",
        "sha256:8089bbf225e710fdc02febf0d06bec3c8b98bdad05db390c5a898b07b4660aae",
    ]


def test_the_covered_columns_are_these() -> None:
    """In this order for each table: whoever adds one raises LEDGER_FORMAT, and adds it here."""
    # Out of the rest, and counted again at will.
    counted = {*TOTALS, EVICTED_WORKLOADS, DECISION_SPANS}
    kept = [one for one in METADATA.sorted_tables if one not in counted]
    found = {t.name: " ".join(covered(t, LEDGER_FORMAT)) for t in kept}
    assert (LEDGER_FORMAT, found) == (2, COVERED)


@pytest.fixture
def file(database_url):
    with Store.open(database_url) as store:
        for cluster in ("default", "other"):
            fill(store, cluster)
            fill_more(store, cluster)
    return database_url.removeprefix("sqlite:///")


only_sqlite = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)


@only_sqlite
def test_a_stranger_verifies_a_database(file):
    """With `sqlite3`, `hashlib` and `json` alone, by docs/formats.md."""
    assert verify(file) == {"default": (18, []), "other": (18, [])}


@only_sqlite
@pytest.mark.parametrize(
    ("harm", "entry"),
    [
        ("UPDATE victims SET priority = 77 WHERE decision_id = 1", 5),
        ("UPDATE decisions SET fits = NOT fits WHERE id = 2", 6),
        (
            "UPDATE pods SET node = 'n9' WHERE key = 'team/urgent' AND valid_from = 2",
            5,
        ),
        (
            "UPDATE pods SET manifest = '{}' WHERE key = 'team/urgent' AND valid_from = 2",
            5,
        ),
        (
            "UPDATE pods SET valid_to = 4 WHERE key = 'jobs/batch' AND valid_to = 3",
            7,
        ),
        ("UPDATE nomination_ends SET cause = 'x' WHERE ended_revision = 2", 5),
        ("UPDATE ledger SET actor = 'eve' WHERE sequence = 3", 3),
        ("UPDATE ledger SET process_uid = -1 WHERE sequence = 3", 3),
        ("UPDATE session_steps SET task = 'x' WHERE session_id = 1 AND position = 0", 10),
        ("UPDATE activations SET reason = 'x' WHERE id = 1", 3),
        ("DELETE FROM ledger WHERE sequence = 4", 5),
    ],
)
def test_a_stranger_notices_what_was_changed(file, harm, entry):
    """The first entry that does not hold is the one that covers the change."""
    with sqlite3.connect(file) as connection:
        with_cluster = any(name in harm for name in ("pods", "nomination_ends", "ledger"))
        of_first = "cluster_id = 1" if with_cluster else "1"
        assert connection.execute(f"{harm} AND {of_first}").rowcount > 0
    connection.close()
    found = verify(file)
    assert (found["default"][1][:1], found["other"][1]) == ([entry], [])
