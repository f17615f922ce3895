"""What a verification found: places that are not what was written, and what was pruned."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from policy.store.ledger.entries import SUBJECTS, LedgerHead


class TamperKind(StrEnum):
    """What was done to the record."""

    CHANGED = "changed"  # a row, or the entry itself, is not what was written
    INSERTED = "inserted"  # rows that no entry covers
    REMOVED = "removed"  # entries are missing
    REORDERED = "reordered"  # an entry does not follow the one before it
    PRUNED = "pruned"  # what a kept head is the witness of was pruned
    FORGED = "forged"  # a kept head is not signed as it has to be


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One place where the record is not what was written."""

    cluster: str
    harm: TamperKind
    detail: str
    sequence: int | None = None  #: of the ledger entry; of the first one where several are missing
    decision_id: int | None = None  #: None too for a removed one whose number nothing tells
    revision: int | None = None
    subject: str = ""  #: `decision 12`, `activation 3`, `revision 7`; "" where nothing tells


@dataclass(slots=True, kw_only=True)
class Findings:
    """The first findings in full, and how many more there are."""

    limit: int
    shown: list[Finding] = field(default_factory=list)
    more: int = 0

    def add(self, finding: Finding) -> None:
        if len(self.shown) < self.limit:
            self.shown.append(finding)
        else:
            self.more += 1

    def take(self, others: Findings) -> None:
        """Put the findings of another list behind these."""
        for finding in others.shown:
            self.add(finding)
        self.more += others.more


@dataclass(frozen=True, slots=True, kw_only=True)
class Pruning:
    """An old stretch of a cluster's record that was taken out, as the record says."""

    cluster: str
    at_ms: int
    actor: str  #: who claimed to
    process_uid: int | None
    process_user: str
    database_user: str
    older_than_ms: int
    entries: int  #: ledger entries that went
    decisions: int
    versions: int
    last_sequence: int  #: of the newest entry that went
    last_hash: str


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyResult:
    """`findings` is empty where the record is untouched; the first in ledger order is first."""

    entries: int
    heads: tuple[LedgerHead, ...]
    findings: tuple[Finding, ...]
    more: int  #: findings beyond those
    prunings: tuple[Pruning, ...]  #: of the ledgers that were read: what nobody can verify any more

    @property
    def ok(self) -> bool:
        return not self.findings


def subject(ids: Mapping[str, int | None]) -> str:
    """What the columns of an entry, or of an orphan, are about."""
    for column in SUBJECTS:
        number = ids.get(column)
        if number is not None:
            return f"{column.removesuffix('_id')} {number}"
    return ""
