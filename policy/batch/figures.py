"""Shares and what queues deserve, as plugins tell them to whoever reads a session."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from policy.batch.resources import Resource

LIMITS: Final = ("capability", "guarantee", "inqueue", "elastic")
"""The most that a queue can come to; what is kept for it; what groups that were let in have
reserved; what its jobs hold beyond their minimums."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueFigures:
    """What a queue deserves, has and asks for."""

    weight: int
    share: float
    deserved: Resource
    allocated: Resource
    request: Resource
    #: of LIMITS, where a plugin knows them
    limits: Mapping[str, Resource] = field(default_factory=dict)


def _nothing() -> Mapping[str, float]:
    return {}


@dataclass(slots=True, kw_only=True)
class SessionFigures:
    """Filled by the plugins that know them; empty where no such plugin is in the tiers."""

    total: Resource | None = None  #: allocatable of all nodes, where a plugin shares it out
    drf_at_open: Mapping[str, float] = field(default_factory=dict)  #: job -> share
    drf: Callable[[], Mapping[str, float]] = _nothing  #: the shares at the moment
    queues_at_open: Mapping[str, QueueFigures] = field(default_factory=dict)
    queue_share: Callable[[], Mapping[str, float]] = _nothing
