"""What a cluster or its rules ask for and sessions here do not do, or no plugin reads."""

from __future__ import annotations

from collections.abc import Iterator

from policy.batch.notes import Note, Oddity
from policy.batch.volcano.framework.session import Session
from policy.cluster.unmodelled import unmodelled_fields

_READ_BY = {
    "capability": {"proportion", "capacity"},
    "deserved": {"capacity"},
    "guarantee": {"proportion", "capacity"},
    "priority": {"proportion", "capacity"},
    "parent": {"capacity"},
    "affinity": {"nodegroup"},
}
"""Field of a queue -> plugins that read it."""


def notes_on(session: Session) -> Iterator[Note]:
    """In order: the rules, queues, pod groups."""
    for notice in session.rules.unmodelled:
        yield Note(oddity=Oddity.NOT_MODELLED, subject=notice, detail="rules")
    used = {use.name for tier in session.rules.tiers for use in tier}
    for name, queue in session.queues.items():
        spec = queue.queue.spec
        for field, readers in _READ_BY.items():
            if getattr(spec, field) and not used & readers:
                yield Note(oddity=Oddity.QUEUE_FIELD_IGNORED, subject=name, detail=field)
        for field in unmodelled_fields(queue.queue):
            yield Note(oddity=Oddity.QUEUE_FIELD_IGNORED, subject=name, detail=field)
    for uid, job in session.jobs.items():
        assert job.group is not None
        for field in unmodelled_fields(job.group):
            yield Note(oddity=Oddity.NOT_MODELLED, subject=uid, detail=field)
