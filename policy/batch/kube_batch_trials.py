"""One node, as a session of kube-batch sees it for a task that it tries to place."""

from __future__ import annotations

import numpy as np

from policy.batch.model import Task
from policy.batch.session import Session
from policy.batch.trials import PlacementTrial, Room, Search, compared


def trial_at(session: Session, task: Task, search: Search | None, node: int) -> PlacementTrial:
    """search: of actions that evict."""
    nodes, need = session.nodes, task.start_request
    one = np.array([node], dtype=np.int64)
    idle, released = nodes.idle.at(node).amounts(), nodes.releasing.at(node).amounts()
    usable = session.passing(task)
    if search is None:
        usable &= nodes.room_for(need)
    best, scores = compared(
        node, usable, nodes.names, lambda among: session.scores_by_plugin(task, among)
    )
    return PlacementTrial(
        action=session.recorder.action,
        task=task.key,
        job=task.job,
        node=nodes.names[node],
        rejected_by=tuple(name for name, rejects in session.rejecting(task) if rejects[node]),
        room={
            name: Room(asked=asked, idle=idle.get(name, 0.0), released=released.get(name, 0.0))
            for name, asked in need.amounts().items()
            if asked
        },
        fits=bool(nodes.room_for(need, one)[0]),
        best=best,
        scores=scores,
        answer=None if search is None else search.at(node).answer,
    )
