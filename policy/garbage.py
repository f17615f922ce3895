"""How often the processes of this product search for garbage."""

from __future__ import annotations

import gc


def collect_seldom() -> None:
    """Search for unreachable cycles seldom; for processes that are wholly ours.

    A cluster is hundreds of thousands of objects that stay, and decisions make hardly a cycle:
    with Python's own thresholds a tenth of a replay goes into searching through them.
    """
    gc.set_threshold(50_000, 20, 20)
