"""resourcequota: groups enter their queues while the quotas of their namespace have room.

Source: Volcano `pkg/scheduler/plugins/resourcequota`. Scopes of quotas are not looked at.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from policy.batch.limits import Limit, LimitKind
from policy.batch.volcano.framework import resources
from policy.batch.volcano.framework.functions import Vote
from policy.batch.volcano.framework.model import Job
from policy.batch.volcano.framework.resources import Amount
from policy.batch.volcano.framework.session import Session
from policy.batch.volcano.plugins.base import Plugin
from policy.cluster import quantities
from policy.cluster.objects import Quantity, ResourceQuota
from policy.cluster.requests import MEMORY, PODS

_REQUESTS = "requests."


@dataclass(slots=True, eq=False)
class _Quota:
    name: str
    hard: Amount
    used: Amount


@dataclass(slots=True, eq=False)
class _Namespace:
    quotas: list[_Quota] = field(default_factory=list)
    pending: Amount = field(default_factory=dict)  #: of groups that were let in by this session


class ResourceQuotas(Plugin):
    name = "resourcequota"
    doc = "Lets groups in while the resource quotas of their namespace have room."

    def open(self, session: Session) -> None:
        self._namespaces: dict[str, _Namespace] = {}
        for key, quota in sorted(session.snapshot.of_kind("ResourceQuota").items()):
            assert isinstance(quota, ResourceQuota)
            namespace = key.partition("/")[0]
            self._namespaces.setdefault(namespace, _Namespace()).quotas.append(
                _Quota(
                    name=quota.metadata.name,
                    # The status says what is enforced; before it is written, the spec.
                    hard=_amounts(quota.status.hard or quota.spec.hard),
                    used=_amounts(quota.status.used),
                )
            )
        session.register(
            self.name, job_enqueueable=self.job_enqueueable, job_enqueued=self.job_enqueued
        )

    def job_enqueueable(self, job: Job) -> Vote | Limit:
        of_namespace = self._namespaces.get(job.namespace)
        least = _least(job)
        if least is None or of_namespace is None:
            return Vote.PERMIT
        for quota in of_namespace.quotas:
            asked = {name: value for name, value in least.items() if name in quota.hard}
            used = resources.plus(quota.used, of_namespace.pending)
            over = tuple(n for n, v in asked.items() if used.get(n, 0.0) + v > quota.hard[n])
            if over:
                return Limit(
                    plugin=self.name,
                    rule=LimitKind.QUOTA,
                    subject=quota.name,
                    exceeded=over,
                    asked=asked,
                    used=used,
                    allowed=quota.hard,
                )
        return Vote.PERMIT

    def job_enqueued(self, job: Job) -> None:
        least = _least(job)
        of_namespace = self._namespaces.get(job.namespace)
        if least is not None and of_namespace is not None:
            resources.add(of_namespace.pending, least)


def _least(job: Job) -> Amount | None:
    """What the group asks for, by the names that quotas use."""
    assert job.group is not None
    least = job.group.spec.min_resources
    return None if least is None else _amounts(least)


def _amounts(amounts: dict[str, Quantity] | None) -> Amount:
    """As amounts are counted; a quota writes `requests.cpu` and `cpu` for the same."""
    return {name: _counted(name.removeprefix(_REQUESTS), q) for name, q in (amounts or {}).items()}


def _counted(name: str, quantity: Quantity) -> float:
    whole = name in {MEMORY, PODS}
    return float(quantities.units(quantity) if whole else quantities.milli(quantity))
