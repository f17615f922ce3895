"""Queue, used cpu and nominations of the pods of each priority."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from policy.cluster.requests import CPU
from policy.simulation.lives import Lives
from policy.simulation.nominations import NominationCounter


@dataclass(frozen=True, slots=True, kw_only=True)
class PriorityUse:
    """What the pods of one priority wait for, take up, and are promised."""

    waiting: tuple[float, ...]  #: over time: means over stretches of equal length
    waiting_mean: float
    waiting_highest: int
    used_cpu: tuple[float, ...]  #: over time, as parts of what the nodes have then
    used_cpu_mean: float  #: as part of what the nodes have
    nominations: int | None  #: None where nothing tells of nominations
    nominations_broken: int | None


def by_priority(lives: Lives, nominations: NominationCounter | None) -> dict[int, PriorityUse]:
    """Of a finished simulation, from the highest priority; nominations: None where none tells."""
    length = lives.end_ms - lives.start_ms
    capacity = lives.capacity[CPU]
    there = capacity.means()
    made = None if nominations is None else _summed(nominations.made, lives)
    broken = None if nominations is None else _summed(nominations.broken, lives)
    found = {}
    for priority, waiting in sorted(lives.waiting_of.items(), reverse=True):
        cpu = lives.cpu_of[priority]
        found[priority] = PriorityUse(
            waiting=tuple(waiting.means()),
            waiting_mean=round(waiting.total / length, 3) if length else 0.0,
            waiting_highest=waiting.highest,
            used_cpu=tuple(
                round(used / of, 6) if of else 0.0
                for used, of in zip(cpu.means(), there, strict=True)
            ),
            used_cpu_mean=round(cpu.total / capacity.total, 6) if capacity.total else 0.0,
            nominations=None if made is None else made.get(priority, 0),
            nominations_broken=None if broken is None else broken.get(priority, 0),
        )
    return found


def _summed(by_pod: Mapping[str, int], lives: Lives) -> dict[int, int]:
    found: dict[int, int] = {}
    for pod, number in by_pod.items():
        priority = lives.by_key[pod].priority
        found[priority] = found.get(priority, 0) + number
    return found
