"""One node, as a session of Volcano sees it for a task that it tries to place."""

from __future__ import annotations

from policy.batch.trials import PlacementTrial, Room, Search, compared
from policy.batch.volcano.framework.model import Task
from policy.batch.volcano.framework.session import Session


def trial_at(session: Session, task: Task, search: Search | None, node: int) -> PlacementTrial:
    """search: of actions that evict."""
    nodes, answers = session.nodes, session.answers
    if search is None:
        passing = answers.passing(task)
        idle = passing & nodes.fits_idle(task)
        # Idle room comes before room that is being released, whatever the scores.
        usable = idle if idle.any() else passing & nodes.fits_future(task)
    else:
        usable = answers.curable(task)
    best, scores = compared(
        node, usable, nodes.names, lambda among: answers.scores_by_plugin(task, among)
    )
    return PlacementTrial(
        action=session.recorder.action,
        task=task.key,
        job=task.job,
        node=nodes.names[node],
        rejected_by=tuple(name for name, rejects in answers.rejecting(task) if rejects[node]),
        room={
            nodes.resources[row]: Room(
                asked=asked,
                idle=float(nodes.idle[row, node]),
                released=float(nodes.future[row, node] - nodes.idle[row, node]),
            )
            for row, asked in nodes.needs[task.shape]
            if asked
        },
        fits=bool(nodes.has_future(task, node)),
        best=best,
        scores=scores,
        answer=None if search is None else search.at(node).answer,
    )
