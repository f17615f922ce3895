"""`policy audit`"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from policy.cli import options, output, session
from policy.cli.exits import Exit

if TYPE_CHECKING:
    from policy.store import Finding

_CLUSTER = click.option(
    "--cluster", metavar="NAME", help="Only this cluster; all of them by default."
)


@click.group("audit")
def group() -> None:
    """Check that the record is what was written.

    Every transaction leaves a ledger entry that hashes the one before it and all rows it wrote.

    \b
    Example:
      policy audit verify
    """


@group.command("verify")
@options.db_option
@_CLUSTER
@click.option(
    "--from",
    "from_hash",
    metavar="HASH",
    help="Begin after the entry with this hash, as `policy audit head` printed it.",
)
@options.output_option
def verify(db: str, cluster: str | None, from_hash: str | None, form: str) -> int:
    """Compute every hash again from the rows, and name what was changed.

    The first finding names the first decision, session, activation or revision that was changed,
    inserted, removed or reordered.
    The exit status is 6 where there is any. With the hash of a head that was kept elsewhere,
    it is also proven that everything up to that head is still there.

    \b
    Example:
      policy audit verify
      policy audit verify --cluster default --output json
    """
    with session.open_store(db) as store:
        total = sum(head.sequence for head in store.ledger_heads(cluster))
        with output.progress("verifying") as advance:
            result = store.verify_ledger(
                cluster, from_hash=from_hash, progress=lambda done: advance(done, total)
            )
    findings = [_finding(found) for found in result.findings]
    if form in ("json", "yaml"):
        output.document(
            {
                "ok": result.ok,
                "entries": result.entries,
                "heads": [_head(head) for head in result.heads],
                "findings": findings,
            },
            form,
        )
    elif findings or form != "table":
        columns = ("cluster", "sequence", "subject", "revision", "harm", "detail")
        output.rows(findings, form, columns=columns, right=("sequence", "revision"))
    if result.ok:
        output.say(f"{result.entries} ledger entries verified, the record is what was written")
        return Exit.OK
    output.say(_first(result.findings[0]))
    return Exit.LEDGER


def _first(found: Finding) -> str:
    """The sentence about the first finding."""
    entry = "the ledger" if found.sequence is None else f"ledger entry {found.sequence}"
    what = found.subject or entry
    return f"{what} of cluster {found.cluster} was {found.harm.value}: {found.detail}"


def _finding(found: Finding) -> dict[str, Any]:
    return {
        "cluster": found.cluster,
        "sequence": found.sequence,
        "subject": found.subject,
        "decision": found.decision_id,
        "revision": found.revision,
        "harm": found.harm.value,
        "detail": found.detail,
    }


@group.command("head")
@options.db_option
@_CLUSTER
@options.output_option
def head(db: str, cluster: str | None, form: str) -> int:
    """Print the newest ledger entry of each cluster, for keeping elsewhere.

    Whoever has the hash can prove later that nothing before it was changed: give it to
    `policy audit verify --from`.

    \b
    Example:
      policy audit head
      policy audit head --cluster default --output json
    """
    with session.open_store(db) as store:
        heads = store.ledger_heads() if cluster is None else [store.ledger_head(cluster)]
    lines = [_head(found) for found in heads]
    output.rows(lines, form, columns=("cluster", "sequence", "at", "hash"), right=("sequence",))
    return Exit.OK


def _head(found: Any) -> dict[str, Any]:
    return {
        "cluster": found.cluster,
        "sequence": found.sequence,
        "at": session.instant(found.at_ms),
        "hash": found.hash,
    }
