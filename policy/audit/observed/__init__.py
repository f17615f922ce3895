"""Preemptions of a real scheduler: decided again, recorded, and set against other rules."""
