"""`policy audit`"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import click

from policy.audit.writers import WRITTEN_BY, written_by
from policy.cli import options, output, session
from policy.cli.audit_anchor import anchor
from policy.cli.exits import Exit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from policy.store import Finding, KeptHead, Pruning

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


group.add_command(anchor)


@group.command("verify")
@options.db_option
@options.any_cluster_option
@click.option(
    "--head",
    "heads",
    metavar="HASH",
    multiple=True,
    callback=_hashes,
    help="A hash that `policy audit head` printed, kept elsewhere: it must be in the ledger.",
)
@click.option(
    "--anchors",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False),
    help="Heads that `policy audit anchor` wrote: each must be in the ledger.",
)
@click.option(
    "--public-key",
    "public_key",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False),
    help="Ed25519 key (PEM) that all of these anchors must be signed with.",
)
@click.option(
    "--from",
    "from_hash",
    metavar="HASH",
    callback=_hash,
    help="Begin with the entry that has this hash; rows of earlier entries are not read.",
)
@click.option(
    "--accept-pruning",
    is_flag=True,
    help="Let pass a head whose entry was pruned; without it, that is a finding.",
)
@click.option(
    "--limit",
    metavar="N",
    type=click.IntRange(1),
    default=100,
    help="How many findings are printed; the others are counted.",
)
@options.output_option
def verify(
    db: str,
    cluster: str | None,
    heads: tuple[str, ...],
    anchors: str | None,
    public_key: str | None,
    from_hash: str | None,
    accept_pruning: bool,
    limit: int,
    form: str,
) -> int:
    """Compute every hash again from the rows, and name what was changed.

    The first finding names the first decision, session, activation or revision that was changed,
    inserted, removed or reordered. The exit status is 6 where there is any. Who can write to the
    database could cut off the newest entries, remove a whole cluster, or write a new chain: --head
    and --anchors prove that everything up to a head that was kept elsewhere is still there and as
    it was, in the ledgers that are read. A head whose entries were pruned proves nothing any more
    and is a finding too, unless --accept-pruning is given.

    \b
    Example:
      policy audit verify
      policy audit verify --cluster default --output json
      policy audit anchor --file heads.jsonl
      policy audit verify --anchors heads.jsonl
    """
    if public_key is not None and anchors is None:
        raise click.UsageError("`--public-key` goes with `--anchors`")
    if from_hash is not None and anchors is not None:
        raise click.UsageError("`--anchors` checks the whole ledger: leave `--from` out")
    kept, unsigned = _kept(anchors, public_key, cluster)
    with session.open_store(db) as store, output.progress("verifying") as advance:
        result = store.ledger.verify(
            cluster,
            from_hash=from_hash,
            kept=[*heads, *kept],
            accept_pruning=accept_pruning,
            limit=limit,
            progress=advance,
        )
    every = [*unsigned, *result.findings]
    found, more = every[:limit], result.more + len(every[limit:])
    findings = [_finding(one) for one in found]
    if form in ("json", "yaml"):
        output.document(
            {
                "ok": not every,
                "entries": result.entries,
                "heads": [_head(head) for head in result.heads],
                "findings": findings,
                "more_findings": more,
                "prunings": [_pruning(pruning) for pruning in result.prunings],
            },
            form,
        )
    elif findings or form != "table":
        columns = ("cluster", "sequence", "subject", "revision", "harm", "detail")
        output.rows(findings, form, columns=columns, right=("sequence", "revision"))
    _say_pruned(result.prunings)
    if not every:
        what = "the record" if from_hash is None else "what they recorded"
        entries = "1 ledger entry" if result.entries == 1 else f"{result.entries} ledger entries"
        output.say(f"{entries} verified, {what} is what was written")
        return Exit.OK
    if more:
        output.say(f"not printed: {output.number(more, 'more finding')}; --limit prints more")
    output.say(_first(found[0]))
    return Exit.LEDGER


def _kept(
    anchors: str | None, public_key: str | None, cluster: str | None
) -> tuple[list[KeptHead], list[Finding]]:
    """Heads of a file of anchors, and what is wrong with the anchors themselves."""
    if anchors is None:
        return [], []
    from policy.audit.anchors import read_anchors

    read = read_anchors(anchors, public_key=public_key)
    mine = [head for head in read.heads if cluster in (None, head.cluster)]
    others = len(read.heads) - len(mine)
    counted = output.number(len(mine), "anchor")
    output.say(f"{counted} in {anchors}" + ("" if public_key else _UNCHECKED))
    if others:
        output.say(f"not checked: {output.number(others, 'anchor')} of other clusters")
    return mine, list(read.findings)


_UNCHECKED: Final = ", whose signatures are not checked: no --public-key is given"


def _say_pruned(prunings: Sequence[Pruning]) -> None:
    """What can no longer be verified, by cluster."""
    by_cluster: dict[str, list[Pruning]] = {}
    for pruning in prunings:
        by_cluster.setdefault(pruning.cluster, []).append(pruning)
    for name, found in by_cluster.items():
        count = sum(p.entries for p in found)
        entries, were = ("1 entry", "was") if count == 1 else (f"{count} entries", "were")
        decisions = output.number(sum(p.decisions for p in found), "decision")
        before = session.instant(max(p.older_than_ms for p in found))
        output.say(
            f"cluster {name}: {entries} with {decisions} before {before} {were}"
            " pruned and cannot be verified; `policy audit prunings` lists them"
        )


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
        heads = store.ledger.heads() if cluster is None else [store.ledger.head(cluster)]
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


@group.command("prunings")
@options.db_option
@options.any_cluster_option
@options.output_option
def prunings(db: str, cluster: str | None, form: str) -> int:
    """List the old stretches of the record that were taken out, the oldest first.

    Nothing that was in them can be verified any more; `policy db prune` made them.

    \b
    Example:
      policy audit prunings
    """
    with session.open_store(db) as store:
        lines = [_pruning(found) for found in store.ledger.prunings(cluster)]
    output.rows(lines, form, columns=_PRUNING, right=("entries", "decisions", "versions"))
    if not lines:
        output.say("nothing was pruned")
    return Exit.OK


_PRUNING: Final = (
    "cluster",
    "at",
    "actor",
    *WRITTEN_BY,
    "older_than",
    "entries",
    "decisions",
    "versions",
    "last_sequence",
    "last_hash",
)


def _pruning(found: Pruning) -> dict[str, Any]:
    return {
        "cluster": found.cluster,
        "at": session.instant(found.at_ms),
        "actor": found.actor,
        **written_by(found),
        "older_than": session.instant(found.older_than_ms),
        "entries": found.entries,
        "decisions": found.decisions,
        "versions": found.versions,
        "last_sequence": found.last_sequence,
        "last_hash": found.last_hash,
    }
