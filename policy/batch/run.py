"""Running a session: open, the actions in order, close, and what came of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from msgspec.structs import replace

from policy.batch.changes import carried_out
from policy.batch.model import Job, TaskStatus
from policy.batch.plugins.base import Arguments, Plugin
from policy.batch.reasons import why_waiting
from policy.batch.registry import ACTIONS, PLUGINS
from policy.batch.result import GroupStatus, OpenFigures, SessionResult, placed
from policy.batch.rules import BatchRules
from policy.batch.semantics import Semantics
from policy.batch.session import Session
from policy.batch.volcano import run as volcano
from policy.cluster.digest import Change
from policy.cluster.objects import PodGroupStatus
from policy.cluster.snapshot import Snapshot


def run_session(
    snapshot: Snapshot,
    rules: BatchRules,
    *,
    plugins: Mapping[str, type[Any]] | None = None,
) -> SessionResult:
    """One session on a snapshot. A pure function: nothing but the arguments decides.

    plugins: what the names in the rules stand for, in place of the registered ones.
    """
    if rules.semantics == Semantics.VOLCANO:
        return volcano.run_session(snapshot, rules, plugins=plugins)
    return _run_kube_batch(snapshot, rules, plugins=PLUGINS if plugins is None else plugins)


def _run_kube_batch(
    snapshot: Snapshot, rules: BatchRules, *, plugins: Mapping[str, type[Plugin]]
) -> SessionResult:
    session, opened = open_kube_batch(snapshot, rules, plugins=plugins)
    act(session)
    for plugin in opened:
        plugin.close(session)
    return _result(session)


def open_kube_batch(
    snapshot: Snapshot, rules: BatchRules, *, plugins: Mapping[str, type[Plugin]] = PLUGINS
) -> tuple[Session, list[Plugin]]:
    """A session before its first action, and its plugins."""
    session = Session(snapshot, rules)
    opened = _opened(rules, plugins)
    for plugin in opened:
        plugin.open(session)
    session.arrange()
    return session, opened


def act(session: Session) -> None:
    actions = session.rules.actions
    for turn, action in enumerate(actions):
        session.recorder.begin(action, turn)
        session.later_actions = actions[turn + 1 :]
        ACTIONS[action].run(session)


def _opened(rules: BatchRules, known: Mapping[str, type[Plugin]]) -> list[Plugin]:
    """Listed twice, a plugin is opened once, and the last arguments win."""
    arguments = {use.name: Arguments(use.arguments) for tier in rules.tiers for use in tier}
    return [known[name](given) for name, given in arguments.items()]


def _result(session: Session) -> SessionResult:
    figures = session.figures
    groups = dict(_groups(session))
    return SessionResult(
        rules=session.rules.name,
        rules_digest=session.rules.digest,
        snapshot_digest=session.snapshot.digest,
        binds=dict(session.outbox.binds),
        evicts=tuple(session.outbox.evicts),
        pipelined=placed(session.jobs.values(), TaskStatus.PIPELINED),
        allocated=placed(session.jobs.values(), TaskStatus.ALLOCATED),
        pod_groups=groups,
        drf=figures.drf(),
        queue_share=figures.queue_share(),
        open=OpenFigures(
            total=figures.total, drf=figures.drf_at_open, queues=figures.queues_at_open
        ),
        steps=tuple(session.recorder.steps),
        statements=tuple(session.recorder.statements),
        reasons={reason.job: reason for reason in why_waiting(session)},
        notes=tuple(session.world.notes),
        crashes=tuple(session.nodes.crashes),
        changes=(
            *carried_out(
                session.snapshot, binds=session.outbox.binds, evicts=session.outbox.evicts
            ),
            *_group_changes(session, groups),
        ),
    )


# --- pod groups --------------------------------------------------------------------------------


def _groups(session: Session) -> Iterator[tuple[str, GroupStatus]]:
    unready = set(session.unready)
    for job in session.jobs.values():
        if job.group is not None:
            unschedulable = job.uid in unready
            phase = _phase_of(job, unschedulable=unschedulable)
            yield job.uid, GroupStatus.of(job, phase=phase, unschedulable=unschedulable)


def _phase_of(job: Job, *, unschedulable: bool) -> str:
    if unschedulable and job.count(TaskStatus.RUNNING):
        return "Unknown"
    return "Running" if job.ready - job.count(TaskStatus.SUCCEEDED) >= job.minimum else "Pending"


def _group_changes(session: Session, groups: Mapping[str, GroupStatus]) -> Iterator[Change]:
    for uid, status in groups.items():
        group = session.jobs[uid].group
        if group is not None and group.status.phase != status.phase:
            yield "PodGroup", uid, replace(group, status=PodGroupStatus(phase=status.phase))
