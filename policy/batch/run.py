"""Running a session: open, the actions in order, close, and what came of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from msgspec.structs import replace

from policy.batch.changes import carried_out
from policy.batch.model import HOLDING, VALID, Job, Status
from policy.batch.plugins.base import Plugin
from policy.batch.recording import Operation, Reason, Step
from policy.batch.registry import ACTIONS, PLUGINS
from policy.batch.result import GroupStatus, JobReason, OpenFigures, SessionResult
from policy.batch.session import Session
from policy.cluster.digest import Change
from policy.cluster.objects import PodGroupStatus
from policy.cluster.snapshot import Snapshot
from policy.rules.batch import BatchRules

NOT_ENOUGH_RESOURCES: Final = "NotEnoughResources"


def run_session(
    snapshot: Snapshot, rules: BatchRules, *, plugins: Mapping[str, type[Plugin]] = PLUGINS
) -> SessionResult:
    """One session on a snapshot. A pure function: nothing but the arguments decides.

    plugins: what the names in the rules stand for.
    """
    session = Session(snapshot, rules, plugins)
    for turn, action in enumerate(rules.actions):
        session.recorder.begin(action, turn)
        session.later_actions = rules.actions[turn + 1 :]
        ACTIONS[action].run(session)
    session.close()
    return _result(session)


def _result(session: Session) -> SessionResult:
    figures = session.figures
    groups = dict(_groups(session))
    return SessionResult(
        rules=session.rules.name,
        rules_digest=session.rules.digest,
        snapshot_digest=session.snapshot.digest,
        binds=dict(session.outbox.binds),
        evicts=tuple(session.outbox.evicts),
        pipelined=_placed(session, Status.PIPELINED),
        allocated=_placed(session, Status.ALLOCATED),
        pod_groups=groups,
        drf=figures.drf(),
        queue_share=figures.queue_share(),
        open=OpenFigures(
            total=figures.total, drf=figures.drf_at_open, queues=figures.queues_at_open
        ),
        steps=tuple(session.recorder.steps),
        statements=tuple(session.recorder.statements),
        reasons=dict(_reasons(session)),
        notes=tuple(session.world.notes),
        drifts=tuple(session.nodes.drifts),
        changes=(
            *carried_out(
                session.snapshot, binds=session.outbox.binds, evicts=session.outbox.evicts
            ),
            *_group_changes(session, groups),
        ),
    )


def _placed(session: Session, status: Status) -> dict[str, str]:
    found = {t.key: t.node for job in session.jobs.values() for t in job.having(status)}
    return dict(sorted(found.items()))


# --- pod groups --------------------------------------------------------------------------------


def _groups(session: Session) -> Iterator[tuple[str, GroupStatus]]:
    unready = set(session.unready)
    for job in session.jobs.values():
        if job.group is not None:
            yield job.uid, _status(job, unschedulable=job.uid in unready)


def _status(job: Job, *, unschedulable: bool) -> GroupStatus:
    running = job.count(Status.RUNNING)
    if running and unschedulable:
        phase = "Unknown"
    elif job.count(*HOLDING) >= job.minimum:
        phase = "Running"
    else:
        phase = "Pending"
    return GroupStatus(
        phase=phase,
        running=running,
        succeeded=job.count(Status.SUCCEEDED),
        failed=job.count(Status.FAILED),
        reason=NOT_ENOUGH_RESOURCES if unschedulable else "",
    )


def _group_changes(session: Session, groups: Mapping[str, GroupStatus]) -> Iterator[Change]:
    for uid, status in groups.items():
        group = session.jobs[uid].group
        if group is not None and group.status.phase != status.phase:
            yield "PodGroup", uid, replace(group, status=PodGroupStatus(phase=status.phase))


# --- reasons -----------------------------------------------------------------------------------


def _reasons(session: Session) -> Iterator[tuple[str, JobReason]]:
    """Every job with tasks that wait, and why; in order of uid."""
    rejections: dict[str, Step] = {}
    for step in session.recorder.steps:
        if step.operation is Operation.REJECT:
            rejections[step.job] = step
    outside = {job.uid for job in session.world.left_out}
    jobs = sorted([*session.jobs.values(), *session.world.left_out], key=lambda j: j.uid)
    for job in jobs:
        pending = job.count(Status.PENDING)
        unsent = job.count(Status.ALLOCATED)
        if not pending and not unsent and not job.waiting:
            continue
        last = rejections.get(job.uid)
        rejection = last.rejection if last is not None and pending else None
        yield (
            job.uid,
            JobReason(
                job=job.uid,
                queue=job.queue,
                reason=(Reason.LEFT_OUT if job.uid in outside else _reason(session, job, last)),
                minimum=job.minimum,
                ready=job.ready,
                waiting=job.waiting,
                pending=pending,
                task=last.task if last is not None and rejection is not None else "",
                action=last.action if last is not None and rejection is not None else "",
                rejection=rejection,
            ),
        )


def _reason(session: Session, job: Job, rejected: Step | None) -> Reason:
    if job.count(*VALID) < job.minimum:
        return Reason.TOO_FEW_TASKS
    if job.waiting and job.is_pipelined and not job.count(Status.PENDING):
        return Reason.WAITS_FOR_RELEASE
    if rejected is not None:
        return Reason.NO_NODE
    if job.count(Status.ALLOCATED):
        return Reason.GANG_INCOMPLETE
    if job.queue in session.recorder.overused:
        return Reason.QUEUE_OVERUSED
    if job.waiting and job.is_pipelined:
        return Reason.WAITS_FOR_RELEASE
    return Reason.NOT_TRIED
