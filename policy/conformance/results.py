"""The verdict on one scenario, and the sum over many."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from policy.text.words import number


class RecordingError(Exception):
    """A file that is no recording, or a line of it that is none; the text says which."""

    def __init__(self, message: str, *, help: str = "") -> None:
        super().__init__(message)
        self.help = help


class Agreement(StrEnum):
    """How a decision of ours relates to a recorded one."""

    AGREE = "agree"  # the same, or something that the real scheduler may also have done
    TIE = "tie"  # only the order among equal pods differs, and a witness was found
    DIFFER = "differ"  # everything else


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioResult:
    """The verdict on one scenario."""

    id: str
    family: str
    source: str  #: file that holds the scenario
    verdict: Agreement
    differences: tuple[str, ...]  #: what differs, one short line each; for a tie: where it tied


@dataclass(frozen=True, slots=True, kw_only=True)
class ConformanceSummary:
    """Numbers of a run."""

    agree: int
    tie: int
    differ: int

    @classmethod
    def of(cls, verdicts: Iterable[Agreement]) -> ConformanceSummary:
        counts = Counter(verdicts)
        return cls(
            agree=counts[Agreement.AGREE],
            tie=counts[Agreement.TIE],
            differ=counts[Agreement.DIFFER],
        )

    @property
    def total(self) -> int:
        return self.agree + self.tie + self.differ

    def __str__(self) -> str:
        counted = f"{self.agree} agree, {self.tie} tie, {self.differ} differ"
        return f"{number(self.total, 'scenario')}: {counted}"
