"""What a simulation assumes beside the trace and the rules; every value is part of its result."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from policy.scheduling.order import DEFAULT_SCHEDULER


class Restart(StrEnum):
    """With how much of its work an evicted pod comes back."""

    WHOLE = "whole"  # from the beginning: what it did is lost
    REMAINING = "remaining"  # it goes on where it was: nothing is lost but time


class Durations(StrEnum):
    """How long a pod works whose end the trace does not show."""

    OBSERVED = "observed"  # to the end of the simulation: as long as it was seen, and longer
    #: as the median of the pods of its workload that ended, if there are any; one that runs at the
    #: start works that long from then on, whatever it did before
    SIBLINGS = "siblings"


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Times in milliseconds."""

    restart: Restart = Restart.WHOLE
    #: from the instant at which an evicted pod has gone until it is created anew
    return_ms: int = 0
    #: the same for a pod without a controller; None: it does not come back
    bare_return_ms: int | None = 0
    #: how long a scheduling cycle takes
    cycle_ms: int = 5
    durations: Durations = Durations.OBSERVED
    #: how long after its start the simulation ends; None: with the trace
    length_ms: int | None = None
    scheduler: str = DEFAULT_SCHEDULER  #: pods that name it are scheduled
    #: what rules that read `history.*` know of the time before the start; nothing, also where the
    #: trace comes from a record
    history: Literal["empty"] = "empty"
