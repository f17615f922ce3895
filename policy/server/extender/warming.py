"""One decision before the first call, so that this call is as fast as later ones.

What decisions derive from a state (the row of each uid, the use of budgets, the pods that rules
allow) is derived when it is first read, and follows the state from then on. On a large cluster that
takes as long as many decisions, and calls would queue up behind the first one.
"""

from __future__ import annotations

from itertools import count
from typing import Final

import numpy as np
from msgspec.structs import replace

from policy.cluster.objects import Pod, key_of
from policy.cluster.snapshot import Snapshot
from policy.cluster.tables import NOWHERE, PRIORITY
from policy.decision.model import OfferedNode
from policy.extenders.protocol import uid_of
from policy.preemption.decide import decide
from policy.rules import RuleSet

_UID: Final = "warm-up"
_PRIORITY: Final = 2_000_000_000
"""That of the most important pods of every cluster."""


def warmed(snapshot: Snapshot, rules: RuleSet) -> Snapshot:
    """The same state, with what decisions by the rules derive from it.

    A pending pod like one that runs is added, decided on with that one as its victim, and removed
    again. If no pod runs, nothing is derived.
    """
    running = np.flatnonzero(snapshot.node != NOWHERE)
    if not running.size:
        return snapshot
    # Of the least important pods that run, whom rules allow as a victim if they allow any.
    like = snapshot.pods[int(running[snapshot.column(PRIORITY)[running].argmin()])]
    assert like is not None  # it is on a node
    preemptor = _waiting(like, snapshot)
    key = key_of(preemptor)
    beside = snapshot.apply([("Pod", key, preemptor)])
    offer = [OfferedNode(node=like.spec.node_name, victims=(uid_of(like),), pdb_violations=0)]
    decision = decide(beside, rules, key, offer=offer)
    _ = decision.digest  # computed from all that is recorded of it
    return beside.apply([("Pod", key, None)], state_digest=snapshot.state_digest)


def _waiting(like: Pod, snapshot: Snapshot) -> Pod:
    """A pending pod, under a name that no pod has."""
    made = (
        replace(
            like,
            metadata=replace(
                like.metadata, name=f"{_UID}-{number}", uid=_UID, deletion_timestamp=None
            ),
            spec=replace(like.spec, node_name="", priority=_PRIORITY),
            status=replace(like.status, phase="Pending"),
        )
        for number in count()
    )
    return next(pod for pod in made if snapshot.pod(key_of(pod)) is None)
