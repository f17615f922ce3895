"""Running a session: open, the actions in order, close, and what came of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from msgspec.structs import replace

from policy.batch.changes import carried_out
from policy.batch.model import Job, TaskStatus
from policy.batch.plugins.base import Arguments, Plugin
from policy.batch.reasons import why_waiting
from policy.batch.registry import ACTIONS, PLUGINS
from policy.batch.result import GroupStatus, OpenFigures, SessionResult
from policy.batch.rules import BatchRules
from policy.batch.semantics import Semantics
from policy.batch.session import Session
from policy.batch.volcano import run as volcano
from policy.cluster.digest import Change
from policy.cluster.objects import PodGroupStatus
from policy.cluster.snapshot import Snapshot

NOT_ENOUGH_RESOURCES: Final = "NotEnoughResources"


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
        pipelined=_placed(session, TaskStatus.PIPELINED),
        allocated=_placed(session, TaskStatus.ALLOCATED),
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


def _placed(session: Session, status: TaskStatus) -> dict[str, str]:
    found = {t.key: t.node for job in session.jobs.values() for t in job.having(status)}
    return dict(sorted(found.items()))


# --- pod groups --------------------------------------------------------------------------------


def _groups(session: Session) -> Iterator[tuple[str, GroupStatus]]:
    unready = set(session.unready)
    for job in session.jobs.values():
        if job.group is not None:
            yield job.uid, _status(job, unschedulable=job.uid in unready)


def _status(job: Job, *, unschedulable: bool) -> GroupStatus:
    running, succeeded = job.count(TaskStatus.RUNNING), job.count(TaskStatus.SUCCEEDED)
    if running and unschedulable:
        phase = "Unknown"
    elif job.ready - succeeded >= job.minimum:
        phase = "Running"
    else:
        phase = "Pending"
    return GroupStatus(
        phase=phase,
        running=running,
        succeeded=succeeded,
        failed=job.count(TaskStatus.FAILED),
        reason=NOT_ENOUGH_RESOURCES if unschedulable else "",
    )


def _group_changes(session: Session, groups: Mapping[str, GroupStatus]) -> Iterator[Change]:
    for uid, status in groups.items():
        group = session.jobs[uid].group
        if group is not None and group.status.phase != status.phase:
            yield "PodGroup", uid, replace(group, status=PodGroupStatus(phase=status.phase))
