"""docs/reliability.md, from the results of a run.

    POLICY_TEST_RESULTS=results .venv/bin/pytest
    POLICY_TEST_RESULTS=results .venv/bin/python -m tests.fuzz
    .venv/bin/python -m tests.support.reliability results > docs/reliability.md

The exit status is 1 where a try did not hold, or where a kind was not tried at all.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter, defaultdict
from pathlib import Path

from tests.support.tried import Kind

_HEAD = """\
# Reliability

What the project's own tests try, how often, and what came of it. This page is written by a run of
the tests, not by hand: `tests/support/reliability.py` says how. `.ci/run` tries all of it again;
what concerns the database is tried on SQLite and on Postgres, and both are counted.

| what is tried | what has to come of it | tries | held |
| --- | --- | ---: | ---: |
"""
_FOOT = """
A kill comes at a chance moment of a fixed series; a killed process is a real one, and so are both
databases. Fuzzing is counted by its entry points, since the number of inputs depends on the
machine. Beyond what is counted here, the laws in `tests/property` are tried on generated clusters,
and decisions are compared with recordings of the real schedulers
([generated/generations.md](generated/generations.md)).
"""


def page(folder: Path) -> tuple[str, bool]:
    """The page, and whether everything was tried and held."""
    tries: Counter[Kind] = Counter()
    held: Counter[Kind] = Counter()
    tests: dict[Kind, set[str]] = defaultdict(set)
    for text in (folder / "tried.jsonl").read_text().splitlines():
        line = json.loads(text)
        kind = Kind[line["kind"]]
        tries[kind] += line["tries"]
        held[kind] += line["tries"] if line["held"] else 0
        tests[kind].add(line["by"])
    rows = "".join(
        f"| {kind.what} | {kind.expected} | {tries[kind]:,} |"
        f" {_result(tries[kind], held[kind])} |\n"
        for kind in Kind
    )
    where = "".join(
        f"- {kind.what}: {', '.join(f'`{name}`' for name in sorted(tests[kind])) or 'not tried'}\n"
        for kind in Kind
    )
    good = all(tries[kind] and tries[kind] == held[kind] for kind in Kind)
    return f"{_HEAD}{rows}{_FOOT}\n## Where\n\n{where}", good


def _result(tries: int, held: int) -> str:
    return "all" if tries and held == tries else f"{held:,}"


def main() -> int:
    parser = argparse.ArgumentParser(description="Print docs/reliability.md from a run's results.")
    parser.add_argument("results", type=Path, help="the folder that POLICY_TEST_RESULTS named")
    text, good = page(parser.parse_args().results)
    sys.stdout.write(text)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
