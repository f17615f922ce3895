"""Every benchmark, each in a process of its own: docs/performance.md, or ratios between commits.

    python -m benchmarks                          all of them; writes docs/performance.md
    python -m benchmarks --short                  without those that take long
    python -m benchmarks --only stream decide-500
    python -m benchmarks --against HEAD~1         in turns with another commit; writes nothing

With `--against` every measurement runs three times here and three times in a work tree of the
other commit, in turns, and the ratio of the medians is printed: above 1 is slower here.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from benchmarks import page
from benchmarks.figures import MEASUREMENTS

ROOT: Final = Path(__file__).parent.parent
TURNS: Final = 3


def machine() -> dict[str, Any]:
    """What the figures were measured on."""
    model = ""
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        lines = [x for x in cpuinfo.read_text().splitlines() if x.startswith("model name")]
        model = lines[0].partition(":")[2].strip() if lines else ""
    return {
        "python": platform.python_version(),
        "cpu": model,
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 1),
    }


def measured(name: str, folder: Path = ROOT) -> list[float] | None:
    """The values of one measurement by the program in the folder; None where it has none."""
    command = [sys.executable, "-m", "benchmarks", "--one", name]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.stderr.write(done.stderr[-2000:] if folder == ROOT else "")
        return None
    values: list[float] = json.loads(done.stdout.splitlines()[-1])
    return values


@contextmanager
def work_tree(revision: str) -> Iterator[Path]:
    """The files of another commit."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "other"
        git = ["git", "-C", str(ROOT), "worktree"]
        subprocess.run([*git, "add", "--detach", "--quiet", str(path), revision], check=True)
        try:
            yield path
        finally:
            subprocess.run([*git, "remove", "--force", str(path)], check=True)


def against(revision: str, names: Sequence[str]) -> None:
    """Print each figure here and there, and how many times worse it is here."""
    print(f"{'':58} {'here':>12} {revision[:12]:>12} {'ratio':>7}")
    with work_tree(revision) as other:
        for name in names:
            here, there = [], []
            for _ in range(TURNS):
                here.append(measured(name))
                there.append(measured(name, other))
            _compare(name, [v for v in here if v], [v for v in there if v])


def _compare(name: str, here: list[list[float]], there: list[list[float]]) -> None:
    for i, figure in enumerate(MEASUREMENTS[name].figures):
        one, other = _median(here, i), _median(there, i)
        ratio = ""
        if one and other:
            ratio = f"{other / one if figure.more_is_better else one / other:.2f}"
        cells = ["-" if v is None else page.shown(v, figure.unit) for v in (one, other)]
        print(f"{figure.what:58} {cells[0]:>12} {cells[1]:>12} {ratio:>7}", flush=True)


def _median(runs: list[list[float]], figure: int) -> float | None:
    """None where no run gave the figure: another commit may not measure it."""
    found = [values[figure] for values in runs if figure < len(values)]
    return statistics.median(found) if found else None


def ratios(found: dict[str, Any]) -> Iterator[str]:
    """How the time of a decision grows with the cluster."""
    sizes = [(n, found.get(f"decide-{n}")) for n in (500, 5000, 15_000)]
    for (small, one), (large, other) in pairwise(sizes):
        if one and other:
            grown = other["values"][0] / one["values"][0]
            yield f"{large // small} times the nodes: {grown:.1f} times the time of a decision"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", nargs="+", choices=MEASUREMENTS, metavar="NAME")
    parser.add_argument("--short", action="store_true", help="without those that take long")
    parser.add_argument("--against", metavar="REV", help="compare with another commit")
    parser.add_argument("--one", choices=MEASUREMENTS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(list(MEASUREMENTS[options.one].run())))
        return
    names = options.only or [n for n, m in MEASUREMENTS.items() if not (options.short and m.long)]
    if options.against:
        against(options.against, names)
        return
    found = page.kept()
    failed = []
    for name in names:
        on, values = machine(), measured(name)
        if values is None:
            failed.append(name)
            continue
        found[name] = {"machine": on, "values": [round(value, 3) for value in values]}
        for figure, value in zip(MEASUREMENTS[name].figures, values, strict=True):
            line = f"{figure.what:58} {page.shown(value, figure.unit):>12}"
            print(f"{line}  {page.reached(figure, value)}", flush=True)
        page.write(found)  # whoever interrupts the rest keeps what was measured
    for line in ratios(found):
        print(line)
    if failed:
        raise SystemExit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
