"""The hash chain over the record: entries, heads, verification, pruning."""
