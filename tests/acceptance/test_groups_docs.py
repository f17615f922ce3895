"""docs/groups.md: every cluster in it is imported, and the commands print what the page says."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.commands import NOW, Policy

PAGE = Path(__file__).parents[2] / "docs" / "groups.md"
_QUIRK = re.compile(
    r"^### (?P<title>.+?)\n.*?```yaml\n(?P<yaml>.*?)```\n\n(?P<table>(?:\|[^\n]*\n)+)",
    re.MULTILINE | re.DOTALL,
)


def quirks() -> Iterator[tuple[str, str, str, str, str]]:
    for quirk in _QUIRK.finditer(PAGE.read_text("utf-8")):
        for line in quirk["table"].splitlines()[2:]:
            rules, command, prints = (cell.strip().strip("`") for cell in line.split("|")[1:-1])
            yield quirk["title"], quirk["yaml"], rules, command, prints


@pytest.mark.parametrize(
    ("title", "cluster", "rules", "command", "prints"),
    [pytest.param(*q, id=f"{q[0]} ({q[2]})") for q in quirks()],
)
def test_the_page_says_what_is_printed(
    policy: Policy, tmp_path: Path, title: str, cluster: str, rules: str, command: str, prints: str
) -> None:
    file = tmp_path / "cluster.yaml"
    file.write_text(cluster)
    own = ("--db", f"sqlite:///{tmp_path / 'own.db'}")
    assert policy("import", *own, str(file)).status == 0
    done = policy(*shlex.split(command)[1:], *own, "--rules", rules, "--now", NOW)
    squeezed = " ".join(done.out.split())
    assert (done.status, " ".join(prints.split()) in squeezed) == (0, True), done.out


def test_every_quirk_has_its_cluster() -> None:
    assert len(list(quirks())) == 8
