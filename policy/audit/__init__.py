"""Answering for past decisions: replay, comparison with other rules, what-if, export."""
