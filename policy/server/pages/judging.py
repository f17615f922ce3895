"""What pages that judge recorded decisions by other rules share: fields, sums, one change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlencode

from policy.audit.compare import Comparison, DecisionChange
from policy.audit.compare_documents import ReportPart, report_parts
from policy.audit.group_compare import PREFIX
from policy.audit.newest import JudgedNewest, judge_newest, judge_one
from policy.audit.recorded import Skipped
from policy.server import rule_sets, views
from policy.server.api.models import MOST_JUDGED
from policy.server.http import Failure, about
from policy.server.service import PolicyService
from policy.store import DecisionRow, SessionRow

SHOWN: Final = 100
"""Changes that a page lists."""


def count_of(given: Mapping[str, str], default: int) -> int:
    """Field `n`, how many of the newest decisions are judged. Raises Failure."""
    text = given.get("n", "").strip()
    if not text:
        return default
    number = int(text) if views.is_number(text) else 0
    if not 1 <= number <= MOST_JUDGED:
        told = f"`n` is a number from 1 to {MOST_JUDGED}"
        raise Failure(400, "invalid", told, field="n")
    return number


def require_rules(given: Mapping[str, str], rules: str, names: Sequence[str]) -> None:
    """Refuse what has no effect without rules to judge by. Raises Failure.

    rules: the field that names them. names: fields that say what is judged.
    """
    for name in names:
        if given.get(name) and not given.get(rules):
            raise Failure(400, "invalid", f"`{name}` goes with `{rules}`", field=name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The newest decisions under other rules, as a page shows them."""

    judged: JudgedNewest
    counts: Mapping[DecisionChange, int]  #: without kinds that did not occur
    parts: list[ReportPart]
    shown: list[Comparison]
    target: str  #: of a link to a change, to which its number is appended

    @property
    def changed(self) -> int:
        return self.judged.summary.total.changed

    @property
    def compared(self) -> int:
        return self.judged.summary.total.decisions


def report(service: PolicyService, rules: str, *, n: int, cluster: str) -> Report:
    """Raises Failure. cluster: "" for all."""
    with about("rules"):
        chosen = rule_sets.rule_set(service, rules)
    with about("cluster"):
        judged = judge_newest(
            service.store, chosen, cluster=cluster or None, limit=n, known=service.judged
        )
    fields = {"rules": rules, "n": n, **({"cluster": cluster} if cluster else {})}
    return Report(
        judged=judged,
        counts={change: count for change, count in judged.summary.changes.items() if count},
        parts=report_parts(judged.summary),
        shown=list(judged.changed[:SHOWN]),
        target=f"/compare?{urlencode({**fields, 'open': ''})}",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """One decision under both rule sets."""

    row: DecisionRow | SessionRow
    found: Comparison | Skipped
    address: str  #: of its page


def opened(service: PolicyService, rules: str, wanted: str) -> Opened:
    """wanted: number of a decision, or `group:` and that of a cycle. Raises Failure, NotFound."""
    number = wanted.removeprefix(PREFIX)
    if not views.is_number(number):
        raise Failure(400, "invalid", f"`open` is the number of a decision, or {PREFIX}NUMBER")
    with about("rules"):
        chosen = rule_sets.rule_set(service, rules)
    group = wanted.startswith(PREFIX)
    key = wanted if group else int(number)
    row, found = judge_one(service.store, chosen, key, known=service.judged)
    address = f"/groups/{row.id}" if group else f"/decisions/{row.id}"
    return Opened(row=row, found=found, address=address)


def sides(found: Comparison) -> dict[str, Any]:
    """Both columns: victims of either with what each side says of them, members likewise."""
    results = (found.before, found.after)
    places = [dict(getattr(result, "bound", ())) for result in results]
    promises = [dict(getattr(result, "nominated", ())) for result in results]
    victims = [{victim.pod: victim for victim in result.victims} for result in results]
    return {
        "bound": _beside(places, sorted({*places[0], *places[1]})),
        "nominated": _beside(promises, sorted({*promises[0], *promises[1]})),
        "victims": _beside(victims, list(dict.fromkeys([*victims[0], *victims[1]]))),
    }


def _beside(
    columns: Sequence[Mapping[str, Any]], keys: Sequence[str]
) -> list[tuple[str, list[Any]]]:
    """Each key with what either column has under it."""
    return [(key, [column.get(key) for column in columns]) for key in keys]
