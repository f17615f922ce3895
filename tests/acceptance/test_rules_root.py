"""`--rules-root` keeps every command that takes rules inside of one folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.acceptance.commands import Policy

OVERLAY = """\
apiVersion: policy/v1
kind: %s
metadata: {name: mine}
extends: %s
"""


@pytest.mark.parametrize(
    "command",
    [
        ("rules", "show", "RULES"),
        ("rules", "explain", "RULES"),
        ("rules", "lint", "RULES"),
        ("rules", "test", "RULES"),
        ("rules", "diff", "kube-1.35", "RULES"),
        ("run", "--rules", "RULES"),
        ("preempt", "a/b", "--rules", "RULES"),
        ("compare", "--rules", "RULES"),
        ("what-if", "shop/high", "--rules", "RULES"),
        ("env", "activate", "prod", "RULES", "--reason", "x"),
        ("batch", "run", "--rules", "BATCH"),
    ],
    ids=" ".join,
)
def test_no_command_reads_rules_outside_of_the_folder(
    command: tuple[str, ...], policy: Policy, decided: str, tmp_path: Path
) -> None:
    """Each command says that the file is outside, and nothing else happens."""
    root = tmp_path / "root"
    root.mkdir()
    for name, kind, base in (
        ("RULES", "PreemptionRules", "kube-1.35"),
        ("BATCH", "BatchRules", "kube-batch"),
    ):
        (tmp_path / f"{name}.yaml").write_text(OVERLAY % (kind, base))
    paths = {name: str(tmp_path / f"{name}.yaml") for name in ("RULES", "BATCH")}
    arguments = [paths.get(word, word) for word in command]
    database = [] if command[0] == "rules" else ["--db", decided]
    done = policy(*arguments, "--rules-root", root, *database)
    assert (done.status, done.out) == (1, "")
    assert f"is outside of the rules folder `{root}`" in done.err
