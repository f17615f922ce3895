"""The package as people get it: a wheel in an empty environment, run in an empty folder."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

import policy

CHECKOUT = Path(__file__).parents[2]
EXAMPLE = CHECKOUT / "examples" / "google2011-mini"


def run(*command: object, folder: Path) -> str:
    """Standard output of a command that must end well, away from the checkout."""
    clean = {
        k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "POLICY", "VIRTUAL"))
    }
    done = subprocess.run(
        [str(part) for part in command],
        cwd=folder,
        env=clean,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{command} ended with {done.returncode}:\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--wheel", "-o", folder, CHECKOUT, folder=folder)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """The scripts folder of an environment that holds the wheel and what it depends on."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=True)
    run(folder / "bin" / "python", "-m", "pip", "install", "-q", wheel, folder=folder)
    return folder / "bin"


def test_the_wheel_holds_the_package_its_rules_and_its_migrations(wheel):
    """Everything that runs is in it, and nothing else: no tests, no compiled leftovers."""
    names = set(zipfile.ZipFile(wheel).namelist())
    expected = {
        str(path.relative_to(CHECKOUT)).replace(folder, inside, 1)
        for folder, inside in (
            ("policy", "policy"),
            ("rules", "policy/_data/rules"),
            ("migrations", "policy/_data/migrations"),
        )
        for path in (CHECKOUT / folder).rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }
    assert {name for name in names if ".dist-info/" not in name} == expected
    assert wheel.name.startswith(f"preemption_policy-{policy.__version__}-")


def test_the_command_runs_in_an_empty_folder(installed, tmp_path):
    """`policy --version` prints the version of the package."""
    assert policy.__version__ in run(installed / "policy", "--version", folder=tmp_path)


def test_the_main_job_runs_from_the_wheel(installed, tmp_path):
    """Import a real cluster, schedule its pending pods, and find the preemptions with SQL."""
    files = [EXAMPLE / "cluster.json.gz", EXAMPLE / "nodes-fit.json.gz"]
    command = installed / "policy"
    run(command, "import", *files, folder=tmp_path)
    run(command, "run", folder=tmp_path)
    query = "SELECT count(*) AS n FROM v_preemptions"
    counted = run(command, "sql", query, "--output", "csv", folder=tmp_path).split()
    assert counted[0] == "n"
    assert int(counted[1]) > 0
    made = {path.name for path in tmp_path.iterdir()}
    assert made - {"policy.db-wal", "policy.db-shm"} == {"policy.db"}
