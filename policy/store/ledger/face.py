"""The hash chain over the record: entries, heads, verification, pruning."""

from __future__ import annotations

from policy.store import totals
from policy.store.faces import Face, reads, writes
from policy.store.ledger import entries, pruning, verify, witnesses


class LedgerFace(Face):
    """Whether the record is what was written, and taking out what is old."""

    heads = reads(entries.heads)
    head = reads(entries.head)
    verify = reads(verify.verify)
    prunings = reads(witnesses.prunings)
    plan_prune = reads(pruning.plan)
    prune = writes(pruning.prune)
    recount = writes(totals.rebuild)
