"""`policy audit`"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import click

from policy.cli import options, output, session
from policy.cli.exits import Exit

if TYPE_CHECKING:
    from policy.store import Finding

_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")


def _hash(_: click.Context, param: click.Parameter, text: str | None) -> str | None:
    if text is not None and _DIGEST.fullmatch(text) is None:
        raise click.BadParameter(
            f"`{text}` is not `sha256:` and 64 hexadecimal digits", param=param
        )
    return text


def _hashes(
    context: click.Context, param: click.Parameter, texts: tuple[str, ...]
) -> tuple[str, ...]:
    return tuple(text for text in texts if _hash(context, param, text))


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
@options.any_cluster_option
@click.option(
    "--head",
    "signed",
    metavar="HASH",
    multiple=True,
    callback=_hashes,
    help="A hash that `policy audit head` printed, kept elsewhere: it must be in the ledger.",
)
@click.option(
    "--from",
    "from_hash",
    metavar="HASH",
    callback=_hash,
    help="Begin with the entry that has this hash; rows of earlier entries are not read.",
)
@options.output_option
def verify(
    db: str, cluster: str | None, signed: tuple[str, ...], from_hash: str | None, form: str
) -> int:
    """Compute every hash again from the rows, and name what was changed.

    The first finding names the first decision, session, activation or revision that was changed,
    inserted, removed or reordered. The exit status is 6 where there is any. Who can write to the
    database could cut off the newest entries, or write a new chain: with --head it is proven that
    everything up to a head that was kept elsewhere is still there and as it was.

    \b
    Example:
      policy audit verify
      policy audit verify --cluster default --output json
    """
    with session.open_store(db) as store, output.progress("verifying") as advance:
        result = store.verify_ledger(cluster, from_hash=from_hash, signed=signed, progress=advance)
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
        what = "the record" if from_hash is None else "what they recorded"
        output.say(f"{result.entries} ledger entries verified, {what} is what was written")
        return Exit.OK
    output.say(_first(result.findings[0]))
    return Exit.LEDGER


def _first(found: Finding) -> str:
    """The sentence about the first finding."""
    entry = f"ledger entry {found.sequence}" if found.sequence is not None else ""
    record = "the record" if found.cluster else "an entry of a ledger"
    of = f" of cluster {found.cluster}" if found.cluster else ""
    return f"{found.subject or entry or record}{of} was {found.harm.value}: {found.detail}"


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
@options.any_cluster_option
@options.output_option
def head(db: str, cluster: str | None, form: str) -> int:
    """Print the newest ledger entry of each cluster, for keeping elsewhere.

    Whoever has the hash can prove later that nothing up to it was changed: give it to
    `policy audit verify --head`.

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
