"""Cases of Volcano's own tests: configuration, cluster, and what the test expects.

Every flag is written out in a case, because Volcano's tests take a flag that is not set for false
and its configuration files for true. A case has only what the original checks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import msgspec

from policy.conformance.results import Agreement, ScenarioResult
from policy.typed import prepared

if TYPE_CHECKING:
    from policy.batch.rules import BatchRules
    from policy.batch.volcano.framework.session import Session
    from policy.conformance.run import RecordingLine
    from policy.conformance.scenario import LineHead
    from policy.rules import RuleSet

NOW_MS: Final = 1_767_268_800_000
"""2026-01-01T12:00:00Z: the instant of the cases."""

_HIERARCHY: Final = "enableHierarchy"

_SCORE: Final = 1e-8

_MISSING: Final = (
    "networkTopology",
    "hyperNodes",
    "subGroupPolicy",
    "sharding",
    "dra",
    "volumes",
)
"""What a case may need that sessions here do not model."""


class VolcanoConfig(msgspec.Struct, frozen=True):
    actions: list[str] = []
    tiers: list[dict[str, Any]] = []
    configurations: list[dict[str, Any]] = []


class VolcanoExpect(msgspec.Struct, frozen=True, rename="camel"):
    """What the original checks; None where it does not."""

    binds: dict[str, str] | None = None
    bind_count: int | None = None
    binds_per_hyper_node: list[int] | None = None
    evicted: list[str] | None = None
    pipelined: dict[str, list[str]] | None = None
    pod_group_phase: dict[str, str] | None = None
    task_status_counts: dict[str, dict[str, int]] | None = None
    job_enqueueable: bool | None = None
    node_scores: dict[str, dict[str, float]] | None = None


class VolcanoCase(msgspec.Struct, frozen=True):
    id: str
    group: str
    config: VolcanoConfig
    cluster: dict[str, Any]
    expect: VolcanoExpect
    needs: list[str] = []
    core: bool = True


class VolcanoCases:
    """One case of Volcano's tests per line."""

    def knows(self, head: LineHead) -> bool:
        return head.group is not None and bool(head.config) and bool(head.expect)

    def judge(self, task: RecordingLine, rules: RuleSet | None, *, strict: bool) -> ScenarioResult:
        return compare(parse(task.text), source=task.source)


_DECODER: Final = msgspec.json.Decoder(prepared(VolcanoCase))


def parse(line: bytes) -> VolcanoCase:
    """Raises msgspec.DecodeError for a line that is no such case."""
    return _DECODER.decode(line)


def compare(case: VolcanoCase, *, source: str = "") -> ScenarioResult:
    """Run the case with its own configuration, and judge what came of it."""
    from policy.batch.volcano.run import act, open_session
    from policy.cluster.snapshot import Snapshot
    from policy.conformance.volcano_plugins import plugins_of
    from policy.manifests import read_dicts

    # Priorities are taken as they stand: this scheduler never resolves the class of a pod.
    objects = read_dicts(case.cluster.get("items") or [], admission=False).objects
    plugins = plugins_of(case.needs)
    rules = _rules(case, plugins)
    session, _ = open_session(Snapshot.from_objects(objects, now_ms=NOW_MS), rules, plugins=plugins)
    if case.config.actions:
        act(session)
    differences = list(_differences(session, case))
    if differences:
        missing = [need for need in case.needs if need in _MISSING]
        differences += [f"not modelled: {need}" for need in missing]
    return ScenarioResult(
        id=case.id,
        family=case.group,
        source=source,
        verdict=Agreement.DIFFER if differences else Agreement.AGREE,
        differences=tuple(differences),
    )


def _rules(case: VolcanoCase, plugins: Mapping[str, Any]) -> BatchRules:
    from policy.batch.rules import BatchRules

    config = case.config
    rules = BatchRules.load(
        {
            # A probe runs no action, and rules name at least one.
            "actions": ", ".join(config.actions) or "allocate",
            "tiers": [
                {"plugins": [{**plugin, _HIERARCHY: False} for plugin in tier["plugins"]]}
                for tier in config.tiers
            ],
            "configurations": config.configurations,
        },
        plugins=plugins,
    )
    # Volcano's tests may put together what its configuration files may not.
    trees = {
        plugin["name"] for t in config.tiers for plugin in t["plugins"] if plugin.get(_HIERARCHY)
    }
    tiers = tuple(
        tuple(
            replace(use, disabled=use.disabled - {_HIERARCHY}) if use.name in trees else use
            for use in tier
        )
        for tier in rules.tiers
    )
    return replace(rules, tiers=tiers)


# --- comparing ---------------------------------------------------------------------------------


def _differences(session: Session, case: VolcanoCase) -> Iterator[str]:
    from policy.batch.model import TaskStatus
    from policy.batch.volcano.run import phase_of

    expect, jobs = case.expect, session.jobs
    if expect.binds is not None:
        yield from _unequal("binds", session.binds, expect.binds)
    if expect.bind_count is not None and len(session.binds) != expect.bind_count:
        yield f"binds: {len(session.binds)}, expected {expect.bind_count}"
    if expect.binds_per_hyper_node is not None:
        yield "binds per hyper node: none are known here"
    if expect.evicted is not None and sorted(session.evicts) != sorted(expect.evicted):
        yield f"evicted: {sorted(session.evicts)}, expected {sorted(expect.evicted)}"
    for uid, nodes in (expect.pipelined or {}).items():
        placed = {t.key: t.node for t in jobs[uid].having(TaskStatus.PIPELINED)}
        if not placed or not set(placed.values()) <= set(nodes):
            yield f"pipelined of {uid}: {placed}, expected on {nodes}"
    for uid, phase in (expect.pod_group_phase or {}).items():
        # The original looks before plugins say that a job is unschedulable.
        found = phase_of(jobs[uid], unschedulable=False)
        if found != phase:
            yield f"phase of {uid}: {found}, expected {phase}"
    for uid, counts in (expect.task_status_counts or {}).items():
        have = {name: jobs[uid].count(TaskStatus(name.lower())) for name in counts}
        yield from _unequal(f"tasks of {uid}", have, counts)
    if expect.job_enqueueable is not None:
        yield from _enqueueable(session, case)
    for key, scores in (expect.node_scores or {}).items():
        yield from _scores(session, key, scores)


def _enqueueable(session: Session, case: VolcanoCase) -> Iterator[str]:
    job = next(iter(session.jobs.values()))
    # Overcommit's test lets the group in before it asks.
    if case.group == "overcommit":
        session.dispatch.enqueued(job)
    found = session.dispatch.not_enqueueable(job) is None
    if found != case.expect.job_enqueueable:
        yield f"enqueueable: {found}, expected {case.expect.job_enqueueable}"


def _scores(session: Session, key: str, expected: Mapping[str, float]) -> Iterator[str]:
    import numpy as np

    task = next(t for t in session.tasks if t.key == key)
    every = np.arange(len(session.nodes.names), dtype=np.int64)
    found = dict(zip(session.nodes.names, session.answers.scores(task, every), strict=True))
    for node, score in expected.items():
        if not abs(found[node] - score) <= _SCORE * max(1.0, abs(score)):
            yield f"score of {node} for {key}: {found[node]}, expected {score}"


def _unequal(what: str, ours: Mapping[str, Any], expected: Mapping[str, Any]) -> Iterator[str]:
    for name in sorted(ours.keys() | expected.keys()):
        if ours.get(name) != expected.get(name):
            yield f"{what} {name}: {ours.get(name)}, expected {expected.get(name)}"
