"""Scoring: which of the nodes that a pod fits on is the best place for it."""
