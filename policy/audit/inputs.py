"""What a replay is made from: states and rule sets as they were, and what is missing of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Generic, TypeVar

from policy.audit.differences import Difference
from policy.audit.past import Damaged, Past
from policy.cluster import canonical
from policy.cluster.digest import HistoryFigures
from policy.cluster.snapshot import Snapshot
from policy.rules.problems import RulesError
from policy.store import DecisionRow, NotFound, SessionRow, Store, StoreError, Unavailable

Row = TypeVar("Row", DecisionRow, SessionRow)
Rules = TypeVar("Rules")


class MissingInput(StrEnum):
    """What a replay would need and does not have. Values are part of the output."""

    ENGINE = "engine-version"  # made by another version of the decision procedure
    RULE_SET = "rule-set"  # its text is not there
    RULE_SET_DIGEST = "rule-set-digest"  # its text is not the one that was used
    RULE_SET_UNREADABLE = "rule-set-unreadable"  # this version cannot read it
    STATE = "state"  # the revision it was made on is not kept
    STATE_DIGEST = "state-digest"  # the rows of the state are not those that were written
    HYPOTHETICAL = "hypothetical-state"  # made on a state that never was
    EXTENDERS = "extender-answers"  # an extender would be queried about something new
    HISTORY = "history"  # the history figures that its rules read are not recorded
    GROUPS = "pod-groups"  # one of the rule sets schedules its pod group as one, the other does not
    SNAPSHOT = "snapshot-digest"  # state and time do not have the digest that was recorded

    @property
    def meaning(self) -> str:
        """What it says, in words."""
        return _MEANINGS[self]


_MEANINGS = {
    MissingInput.ENGINE: "another version of the program made it",
    MissingInput.RULE_SET: "the text of its rule set is not in the database",
    MissingInput.RULE_SET_DIGEST: "the stored text of its rule set is not the one that was used",
    MissingInput.RULE_SET_UNREADABLE: "this version cannot read its rule set",
    MissingInput.STATE: "the state that it was made on is not kept",
    MissingInput.STATE_DIGEST: "the rows of its state are not those that were written",
    MissingInput.HYPOTHETICAL: "it was made on a state that was only supposed",
    MissingInput.EXTENDERS: "an extender would have to be called about something new",
    MissingInput.HISTORY: "the figures of the past that its rules read are not recorded",
    MissingInput.GROUPS: "one of the rule sets schedules its pod group as one, the other does not",
    MissingInput.SNAPSHOT: "its state and time do not have the digest that was recorded",
}


def why(missing: Sequence[MissingInput], detail: str) -> str:
    """Why nothing can be decided again, in words. detail: what happened; "" where that is all."""
    text = "; ".join(item.meaning for item in missing)
    return f"{text}: {detail}" if text and detail else text or detail


class ReplayVerdict(StrEnum):
    """How a replay ended. Values are part of the output."""

    EQUAL = "equal"
    DIFFERENT = "different"
    INCOMPLETE = "incomplete"


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed(Generic[Row]):
    """The result of one replay."""

    row: Row  #: what was recorded
    verdict: ReplayVerdict
    digest: str = ""  #: of what came out now; "" where nothing could be decided
    difference: Difference | None = None
    missing: tuple[MissingInput, ...] = ()
    detail: str = ""

    @property
    def why(self) -> str:
        """Why nothing could be decided, in words."""
        return why(self.missing, self.detail)


def document(result: Replayed[Any]) -> dict[str, Any]:
    """How a replay ended, as programs read it."""
    difference = result.difference
    return {
        "verdict": result.verdict.value,
        "first_difference": difference.path if difference else None,
        "recorded": difference.recorded if difference else None,
        "replayed": difference.replayed if difference else None,
        "missing": [item.value for item in result.missing],
        "detail": result.detail,
        "recorded_digest": result.row.digest,
        "replayed_digest": result.digest,
    }


class Incomplete(Exception):  # what happened, with all that is missing
    """A decision cannot be made again."""

    def __init__(self, missing: Sequence[MissingInput], detail: str = "") -> None:
        super().__init__(why(missing, detail))
        self.missing = tuple(missing)
        self.detail = detail


class Inputs(Generic[Rules]):
    """The inputs of one store's decisions or sessions; ascending order in a cluster is cheap."""

    def __init__(self, store: Store, read: Callable[[str], Rules], *, engine: str) -> None:
        """read: makes a rule set of its canonical text; engine: the version that replays."""
        self._store = store
        self._read = read
        self._engine = engine
        self._pasts: dict[str, Past] = {}
        self._rules: dict[str, Rules | Incomplete] = {}

    def _past(self, cluster: str) -> Past:
        if cluster not in self._pasts:
            self._pasts[cluster] = Past(self._store, cluster)
        return self._pasts[cluster]

    def expect(self, rows: Sequence[DecisionRow | SessionRow]) -> None:
        """Say what will be needed: what leads there is read in one go."""
        for row in rows:
            self._past(row.cluster).expect(row.base_revision)

    def state(
        self, row: DecisionRow | SessionRow, *, history: HistoryFigures | None = None
    ) -> Snapshot:
        """The state that a row was decided on; its digest is for the caller to compare.

        Raises Incomplete, also where another engine version decided.
        """
        if row.engine_version != self._engine:
            detail = f"made by engine version {row.engine_version}, this is {self._engine}"
            raise Incomplete((MissingInput.ENGINE,), detail)
        with _read_whole():
            return self._past(row.cluster).at(row.base_revision, now_ms=row.now_ms, history=history)

    def check(self, row: DecisionRow | SessionRow) -> None:
        """Is the state on which a row came out differently the one of then?

        All the way back, which only a difference is worth. Raises Incomplete.
        """
        with _read_whole():
            self._past(row.cluster).check(row.base_revision)

    def rules(self, digest: str) -> Rules:
        """The rule set with a digest. Raises Incomplete."""
        found = self._rules.get(digest)
        if found is None:
            found = self._rules[digest] = self._rule_set(digest)
        if isinstance(found, Incomplete):
            raise found
        return found

    def _rule_set(self, digest: str) -> Rules | Incomplete:
        try:
            text = self._store.read.rule_set(digest)
            if canonical.sha256(text.encode()) != digest:
                detail = f"the stored text is not that of {digest}"
                return Incomplete((MissingInput.RULE_SET_DIGEST,), detail)
            return self._read(text)
        except NotFound as exc:
            return Incomplete((MissingInput.RULE_SET,), exc.message)
        except RulesError as exc:
            detail = str(exc).partition("\n")[0]
            return Incomplete((MissingInput.RULE_SET_UNREADABLE,), detail)

    def situation(
        self, row: DecisionRow | SessionRow, snapshot: Callable[[], Snapshot]
    ) -> tuple[Snapshot, Rules]:
        """Snapshot and rules of a row. Raises Incomplete with all that is missing of both."""
        gaps: list[Incomplete] = []
        rules: Rules | None = None
        try:
            rules = self.rules(row.rule_set_digest)
        except Incomplete as gap:
            gaps.append(gap)
        try:
            found = snapshot()
        except Incomplete as gap:
            gaps.append(gap)
        if rules is None or gaps:
            raise Incomplete(
                [item for gap in gaps for item in gap.missing],
                "; ".join(gap.detail for gap in gaps if gap.detail),
            )
        return found, rules


@contextmanager
def _read_whole() -> Iterator[None]:
    """Reading a state of the past. Raises Incomplete where it is not there, or not as it was."""
    try:
        yield
    except NotFound as exc:
        raise Incomplete((MissingInput.STATE,), exc.message) from exc
    except Unavailable:
        raise  # it says nothing about the record
    except (Damaged, StoreError) as exc:
        raise Incomplete((MissingInput.STATE_DIGEST,), str(exc)) from exc
