"""What runs in a process of its own: one `policy import`, from the command line to its exit."""

from __future__ import annotations

import sys

from policy.cli.app import run


def import_file(url: str, file: str) -> None:
    """The cluster becomes what the file holds."""
    sys.exit(run(["import", "--db", url, "--prune", file]))
