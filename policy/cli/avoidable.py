"""`policy avoidable`"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from policy.cli import options, output, session
from policy.cli.exits import Exit
from policy.text.words import duration

if TYPE_CHECKING:
    from policy.audit.avoidable import Avoidable, Cost, Counterfactual


@click.command("avoidable")
@click.argument("id", metavar="ID")
@click.option("--victim", metavar="NAMESPACE/NAME", help="Only this one is to be spared.")
@options.db_option
@options.output_of("table", "json", "yaml")
def command(id: str, victim: str | None, db: str, form: str) -> int:
    """Say what would have spared the victims of a decision, and at whose cost.

    The nodes that lost, with what each would have cost; each shipped rule included alone, and the
    rules of each environment; and the smallest parameter, rule, budget, priority or node with which
    the victims stay. Every answer is decided again on the state, time, seed and figures of the
    decision, and among the nodes that a scheduler offered for it; nothing is recorded.

    \b
    Example:
      policy avoidable 1
      policy avoidable 1 --victim shop/old --output json
    """
    from msgspec import to_builtins

    from policy.audit.avoidable import NothingToAvoid, avoidable
    from policy.audit.inputs import Incomplete
    from policy.preemption.decide import DecisionError

    if id.startswith((options.GROUP, options.SESSION, options.OBSERVED)):
        raise options.Misused(
            f"`{id}` is no decision, and `policy avoidable` takes decisions only",
            help=f"`policy explain {id}` says why its victims left",
        )
    with session.open_store(db) as store:
        row = store.read.decision(options.decision_id(id)).row
        try:
            found = avoidable(store, row.id, victim)
        except NothingToAvoid as exc:
            output.say(str(exc))
            return Exit.ERROR
        except (Incomplete, DecisionError) as exc:
            output.say(f"decision {row.id} cannot be made again: {exc}")
            return Exit.ERROR
    if form == "table":
        _print(found, row.preemptor)
    else:
        document: dict[str, Any] = to_builtins(found)
        output.document(document, form)
    return Exit.OK


def _print(found: Avoidable, preemptor: str) -> None:
    spared = ", ".join(found.victims)
    if found.changes:
        first = found.changes[0]
        output.line(f"{spared} would have stayed with {first.what}: {_instead(first, preemptor)}")
    else:
        output.line(f"nothing of what was tried would have kept {spared}")
    output.line(f"decision {found.id} took {_taken(found.taken)}")
    _section("The smallest change of each kind, decided again", found.changes, preemptor)
    for sentence in found.not_possible:
        output.line()
        output.line(sentence)
    if found.alternatives:
        rows = [
            {
                "node": one.node,
                "would have left": one.victims,
                "run time lost": duration(one.run_seconds),
                "pdb violations": one.pdb_violations,
                "highest priority": one.highest_priority,
                "lost by": one.eliminated_by,
            }
            for one in found.alternatives
        ]
        output.line()
        output.line("Nodes that lost, best first")
        output.print_table(rows, columns=tuple(rows[0]), right=("pdb violations",))
    _section("Each shipped rule alone", found.rules, preemptor)
    _section("The rules of each environment", found.environments, preemptor)


def _section(title: str, found: Sequence[Counterfactual], preemptor: str) -> None:
    if not found:
        return
    output.line()
    output.line(title)
    rows = [
        {
            "": "spared" if one.spared else "unknown" if one.instead is None else "not spared",
            "with": one.what,
            "instead": _instead(one, preemptor),
        }
        for one in found
    ]
    output.print_table(rows, columns=tuple(rows[0]))


def _instead(one: Counterfactual, preemptor: str) -> str:
    """What would have happened, and at whose cost."""
    cost = one.instead
    if cost is None:
        return one.why_not
    if cost.outcome == "bind":
        return f"{preemptor} fits on {cost.node}, and no pod leaves"
    if cost.outcome != "preempt":
        return f"{preemptor} waits ({cost.outcome})"
    return _taken(cost)


def _taken(cost: Cost) -> str:
    if not cost.victims:
        return f"no pod on {cost.node}"
    text = f"{', '.join(cost.victims)} on {cost.node} ({duration(cost.run_seconds)} of run time"
    if cost.pdb_violations:
        text += f", {output.number(cost.pdb_violations, 'violated budget')}"
    return f"{text})"
