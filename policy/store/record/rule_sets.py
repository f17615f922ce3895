"""Rule sets, kept whole under the digest of their canonical form."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, Protocol, Self

from sqlalchemy import Connection

from policy.cluster.canonical import sha256
from policy.store import bulk
from policy.store.errors import StoreError
from policy.store.tables import RULE_SETS

_C = RULE_SETS.c
_COVERED: Final = ("id", "digest", "name", "first_used_ms")
_BY_DIGEST: Final = f"SELECT {', '.join(_COVERED)} FROM {RULE_SETS.name} WHERE digest = ?"

_MAKE: Final = (
    f"INSERT INTO {RULE_SETS.name} (digest, name, canonical, first_used_ms) VALUES (?, ?, ?, ?)"
    " ON CONFLICT DO NOTHING"
)

_BATCH_TEXT: Final = '{"apiVersion":"policy/v1","kind":"BatchRules",'
"""How the canonical text of batch rules begins, and that of no rule set."""

IS_BATCH: Final = _C.canonical.startswith(_BATCH_TEXT, autoescape=True)


def is_batch(text: str) -> bool:
    """Is it the canonical text of batch rules?"""
    return text.startswith(_BATCH_TEXT)


class AnyRuleSet(Protocol):
    """A rule set of any kind, as far as the record is concerned."""

    @property
    def digest(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def canonical(self) -> str: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleSetText:
    """A rule set as it is kept. Raises StoreError where the text does not have the digest."""

    digest: str
    name: str
    canonical: str

    def __post_init__(self) -> None:
        if _digest_of(self.canonical) != self.digest:
            raise StoreError(
                f"the text of rule set `{self.name}` does not have the digest {self.digest}"
            )

    @classmethod
    def of(cls, rules: AnyRuleSet) -> Self:
        """Raises StoreError."""
        return cls(digest=rules.digest, name=rules.name, canonical=rules.canonical)


@lru_cache(maxsize=64)
def _digest_of(text: str) -> str:
    """Of few rule sets, again and again: every decision that is recorded alone names one."""
    return sha256(text.encode())


class AskedRow:
    """The row of a rule set, which was asked for."""

    def __init__(self, connection: Connection, rule_set: RuleSetText) -> None:
        self._connection = connection
        self._rule_set = rule_set
        self._asked = bulk.Asked(connection, _BY_DIGEST, (rule_set.digest,))

    def ensure(self, *, at_ms: int) -> dict[str, Any]:
        """Its covered columns; it is written where the rule set is used for the first time."""
        found = _covered(self._asked.rows())
        if found is not None:
            return found
        connection, rule_set = self._connection, self._rule_set
        values = (rule_set.digest, rule_set.name, rule_set.canonical, at_ms)
        bulk.execute(connection, _MAKE, values)
        found = _covered(bulk.fetch(connection, _BY_DIGEST, (rule_set.digest,)))
        assert found is not None  # it was inserted in this transaction, or before it
        return found


def ensure(connection: Connection, rule_set: RuleSetText, *, at_ms: int) -> dict[str, Any]:
    """The covered columns of a rule set's row, written where it is used for the first time."""
    return AskedRow(connection, rule_set).ensure(at_ms=at_ms)


def _covered(found: Sequence[bulk.Row]) -> dict[str, Any] | None:
    return dict(zip(_COVERED, found[0], strict=True)) if found else None
