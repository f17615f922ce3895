"""Running a session of Volcano: open, the actions in order, close, and what came of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec.structs import replace

from policy.batch.changes import carried_out
from policy.batch.model import OVER, TaskStatus
from policy.batch.result import GroupStatus, OpenFigures, SessionResult, placed
from policy.batch.rules import BatchRules
from policy.batch.volcano.framework.model import SCHEDULED, Job, Phase
from policy.batch.volcano.framework.session import Session
from policy.batch.volcano.plugins.base import Arguments, Plugin
from policy.batch.volcano.reasons import why_waiting
from policy.batch.volcano.registry import ACTIONS, PLUGINS
from policy.batch.volcano.unmodelled import notes_on
from policy.cluster.digest import Change
from policy.cluster.snapshot import Snapshot


def run_session(
    snapshot: Snapshot, rules: BatchRules, *, plugins: Mapping[str, type[Plugin]] | None = None
) -> SessionResult:
    """One session on a snapshot. A pure function: nothing but the arguments decides."""
    session, opened = open_session(snapshot, rules, plugins=plugins)
    act(session)
    for plugin in opened:
        plugin.close(session)
    return _result(session)


def open_session(
    snapshot: Snapshot, rules: BatchRules, *, plugins: Mapping[str, type[Plugin]] | None = None
) -> tuple[Session, list[Plugin]]:
    """A session before its first action, and its plugins."""
    known = PLUGINS if plugins is None else plugins
    session = Session(snapshot, rules)
    # Listed twice, a plugin is built twice; the later one replaces the functions of the name.
    opened = [known[use.name](Arguments(use.arguments)) for tier in rules.tiers for use in tier]
    for plugin in opened:
        plugin.open(session)
    session.arrange()
    return session, opened


def act(session: Session) -> None:
    for turn, action in enumerate(session.rules.actions):
        session.recorder.begin(action, turn)
        ACTIONS[action].run(session)


def _result(session: Session) -> SessionResult:
    figures = session.figures
    groups = dict(_groups(session))
    return SessionResult(
        rules=session.rules.name,
        rules_digest=session.rules.digest,
        snapshot_digest=session.snapshot.digest,
        binds=dict(session.binds),
        evicts=tuple(session.evicts),
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
        notes=(*session.world.notes, *notes_on(session)),
        crashes=tuple(session.crashes),
        changes=(
            *carried_out(session.snapshot, binds=session.binds, evicts=session.evicts),
            *_group_changes(session, groups),
        ),
    )


# --- pod groups --------------------------------------------------------------------------------


def phase_of(job: Job, *, unschedulable: bool) -> str:
    """The phase at the end of a session.

    1. Tasks run, and gang calls the job unschedulable: Unknown.
    2. At least the minimum was placed: Completed where all of that is over, else Running.
    3. A group that was let in stays so; any other waits.
    """
    if job.count(TaskStatus.RUNNING) and unschedulable:
        return Phase.UNKNOWN
    leaving = sum(bool(t.node) for t in job.in_statuses({TaskStatus.RELEASING}))
    scheduled = job.count(*SCHEDULED) + leaving
    if scheduled >= job.minimum:
        return Phase.COMPLETED if scheduled == job.count(*OVER) else Phase.RUNNING
    return Phase.INQUEUE if job.phase == Phase.INQUEUE else Phase.PENDING


def _groups(session: Session) -> Iterator[tuple[str, GroupStatus]]:
    unready = set(session.unready)
    for job in session.jobs.values():
        unschedulable = job.uid in unready
        phase = phase_of(job, unschedulable=unschedulable)
        yield job.uid, GroupStatus.of(job, phase=phase, unschedulable=unschedulable)


def _group_changes(session: Session, groups: Mapping[str, GroupStatus]) -> Iterator[Change]:
    for uid, status in groups.items():
        group = session.jobs[uid].group
        if group is not None and group.status.phase != status.phase:
            after = replace(group.status, phase=str(status.phase))
            yield "PodGroup", uid, replace(group, status=after)
