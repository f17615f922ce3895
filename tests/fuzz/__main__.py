"""All targets, one after the other: `python -m tests.fuzz --seconds 120`."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.support.tried import Kind, note

TARGETS = ("manifests", "rules", "expressions", "sql", "commands")
CORPUS = Path(__file__).parent / "corpus"
LONGEST_INPUT_SECONDS = 10


def run(target: str, seconds: int, seed: int, findings: Path) -> bool:
    """Whether a target held; what broke it is kept in `findings`."""
    # libFuzzer ends the process at once, which leaves its temporary files where they are.
    with tempfile.TemporaryDirectory() as fresh, tempfile.TemporaryDirectory() as temporary:
        command = [
            *(sys.executable, "-m", "tests.fuzz.one", target, fresh, str(CORPUS / target)),
            f"-max_total_time={seconds}",
            f"-seed={seed}",
            f"-timeout={LONGEST_INPUT_SECONDS}",
            "-rss_limit_mb=2000",
            "-max_len=4096",
            f"-artifact_prefix={findings}/{target}-",
        ]
        environment = {**os.environ, "TMPDIR": temporary}
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    note(Kind.FUZZ_TARGET, 1, by="tests/fuzz/__main__.py", held=done.returncode == 0)
    tail = "\n".join(done.stderr.splitlines()[-1 if done.returncode == 0 else -40 :])
    print(f"{target}: {'held' if done.returncode == 0 else 'FOUND'}\n{tail}")
    return done.returncode == 0


def main() -> int:
    parser = argparse.ArgumentParser(description="Fuzz every target for its share of the time.")
    parser.add_argument("--seconds", type=int, default=120, help="for all targets together")
    parser.add_argument("--seed", type=int, default=0, help="0: another one each time")
    parser.add_argument("--findings", type=Path, default=Path("fuzz-findings"))
    parser.add_argument("targets", nargs="*", default=TARGETS, metavar="TARGET")
    given = parser.parse_args()
    given.findings.mkdir(exist_ok=True)
    share = max(1, given.seconds // len(given.targets))
    held = [run(target, share, given.seed, given.findings) for target in given.targets]
    if all(held):
        return 0
    print(
        f"what broke them is in {given.findings}; keep each as a file of tests/fuzz/corpus/TARGET"
    )
    return 1


if __name__ == "__main__":
    sys.exit(main())
