"""What groups that were let into their queues have reserved and do not use yet.

Source: Volcano `JobInfo.GetMinResources`, `DeductSchGatedResources`.
"""

from __future__ import annotations

from policy.batch.model import HOLDING, TaskStatus
from policy.batch.volcano.framework import resources
from policy.batch.volcano.framework.model import Job, Phase
from policy.batch.volcano.framework.resources import Amount


def less_gated(job: Job) -> Amount:
    """The group's minimum resources without what its gated tasks ask for, not below 0."""
    assert job.least is not None
    gated = resources.total(t.request for t in job.in_statuses({TaskStatus.PENDING}) if t.gated)
    return resources.exceeded(job.least, gated)


def reserved_at_open(job: Job) -> Amount | None:
    """What the job has reserved in its queue and does not hold; None where nothing."""
    if job.least is None:
        return None
    if job.phase == Phase.INQUEUE or (
        job.phase == Phase.RUNNING and job.count(*HOLDING) >= job.minimum
    ):
        return resources.exceeded(less_gated(job), job.allocated)
    return None
