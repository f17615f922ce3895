"""The documentation of the commands is their help, and every example in it runs."""

from __future__ import annotations

import inspect
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import click
import pytest
import yaml

from policy.cli import docs
from policy.cli.app import run
from tests.support.api_server import kubeconfig, serving
from tests.support.live import initial

ROOT = Path(__file__).parents[2]
COMMANDS = {ctx.command_path: command for ctx, command in docs.commands()}

CLUSTER = """\
apiVersion: v1
kind: List
items:
- apiVersion: v1
  kind: Node
  metadata: {name: node-1}
  status: {allocatable: {cpu: 4, pods: 10}, nodeInfo: {kubeletVersion: v1.30.8}}
- apiVersion: v1
  kind: Node
  metadata: {name: node-7}
  status: {allocatable: {cpu: 4, pods: 10}, nodeInfo: {kubeletVersion: v1.30.8}}
- apiVersion: v1
  kind: Pod
  metadata: {name: old, namespace: shop}
  spec: {nodeName: node-1, priority: 0, containers: [{name: c, resources: {requests: {cpu: 3}}}]}
- apiVersion: v1
  kind: Pod
  metadata: {name: older, namespace: shop}
  spec: {nodeName: node-7, priority: 5, containers: [{name: c, resources: {requests: {cpu: 3}}}]}
- apiVersion: v1
  kind: Pod
  metadata: {name: web-1}
  spec: {priority: 10, containers: [{name: c, resources: {requests: {cpu: 2}}}]}
"""


def test_the_page_is_up_to_date() -> None:
    """docs/cli.md is what `python -m policy.cli.docs` prints."""
    assert (ROOT / "docs" / "cli.md").read_text() == docs.markdown()


@pytest.mark.parametrize("path", COMMANDS)
def test_help_starts_with_one_sentence_and_holds_an_example(path: str) -> None:
    """Each command says in one line what it does, and shows how it is used."""
    text = inspect.cleandoc(COMMANDS[path].help or "")
    first, _, rest = text.partition("\n")
    assert first.endswith(".")
    assert first[:1].isupper()
    assert rest == "" or rest.startswith("\n")
    assert docs.examples(COMMANDS[path])


@pytest.mark.parametrize("path", COMMANDS)
def test_every_option_is_explained(path: str) -> None:
    """No option stands without a sentence."""
    for param in COMMANDS[path].params:
        if isinstance(param, click.Option):
            assert param.help, param.name
            assert param.help.endswith((".", "?")), param.name


@pytest.fixture(scope="module")
def databases(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a database that knows the cluster, and one in which the pod is decided too."""
    folder = tmp_path_factory.mktemp("databases")
    (folder / "all.yaml").write_text(CLUSTER)
    for name in ("imported.db", "decided.db"):
        assert run(["import", str(folder / "all.yaml"), "--db", str(folder / name)]) == 0
    assert run(["preempt", "web-1", "--db", str(folder / "decided.db")]) == 0
    return folder


@pytest.fixture
def workplace(tmp_path: Path) -> Path:
    """A folder with what the examples name: a cluster, a decided database, recordings, kubectl."""
    (tmp_path / "cluster.json").write_text(_as_json(CLUSTER))
    (tmp_path / "dumps").mkdir()
    (tmp_path / "dumps" / "all.yaml").write_text(CLUSTER)
    configs = ROOT / "tests" / "data" / "scheduler-config"
    shutil.copy(configs / "extender" / "tidb-scheduler-config.yaml", tmp_path / "scheduler.yaml")
    recordings = ROOT / "tests" / "data" / "conformance"
    (tmp_path / "tests" / "data").mkdir(parents=True)
    (tmp_path / "tests" / "data" / "conformance").symlink_to(recordings)
    shutil.copy(recordings / "kube-1.28.jsonl.gz", tmp_path)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    programs = tmp_path / "bin"
    programs.mkdir()
    _program(programs / "kubectl", f"exec cat {tmp_path / 'dumps' / 'all.yaml'}")
    _program(programs / "policy", f'exec "{sys.executable}" -m policy "$@"')
    return tmp_path


def _as_json(text: str) -> str:
    return json.dumps(yaml.safe_load(text))


def _program(file: Path, line: str) -> None:
    file.write_text(f"#!/bin/sh\n{line}\n")
    file.chmod(0o755)


def shell(folder: Path, script: str, *, db: str = "") -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ,
        "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
    }
    environment.pop("POLICY_DB", None)
    environment.pop("POLICY_READER_DB", None)
    if db:
        environment["POLICY_DB"] = db
    return subprocess.run(
        ["bash", "-e", "-c", script],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


ON_A_SERVER = ("policy db reader", "policy db partition")


@pytest.mark.parametrize("path", [path for path in COMMANDS if path.startswith(ON_A_SERVER)])
def test_the_example_of_a_server_runs(
    workplace: Path, make_postgres: Callable[[str | None], str], postgres_template: str, path: str
) -> None:
    """What is for Postgres alone is typed in where it runs, and roles are removed again."""
    url = make_postgres(postgres_template)
    lines = docs.examples(COMMANDS[path])
    if path == "policy db reader create":
        lines.append("policy db reader drop dashboards")
    done = shell(workplace, "\n".join(lines), db=url)
    assert done.returncode == 0, done.stderr


OWN_TESTS = (*ON_A_SERVER, "policy follow", "policy serve")


def test_the_example_of_a_cluster_runs(workplace: Path, tmp_path: Path) -> None:
    """What follows a real cluster is typed in where there is one, and ends with SIGTERM."""
    with serving(initial("single")) as server:
        config = json.loads(Path(kubeconfig(tmp_path, server.url)).read_text())
        config["contexts"][0]["name"] = "prod"
        (tmp_path / "kubeconfig").write_text(json.dumps(config))
        for line in docs.examples(COMMANDS["policy follow"]):
            running = subprocess.Popen(
                ["bash", "-c", f"exec {line}"],
                cwd=workplace,
                env={
                    **os.environ,
                    "KUBECONFIG": str(tmp_path / "kubeconfig"),
                    "PATH": f"{workplace / 'bin'}:{os.environ['PATH']}",
                    "PYTHONPATH": str(ROOT),
                },
                stderr=subprocess.PIPE,
                text=True,
            )
            assert running.stderr is not None
            began = json.loads(running.stderr.readline())
            running.terminate()
            ended = json.loads(running.communicate(timeout=60)[1].splitlines()[-1])
            assert (began["event"], ended["event"], running.returncode) == ("following", "ended", 0)


def test_the_example_of_the_service_serves(workplace: Path, databases: Path) -> None:
    """Each line of the example starts a service that runs, and ends well by SIGTERM."""
    shutil.copy(databases / "decided.db", workplace / "policy.db")
    made = [
        'policy env create prod; policy env activate prod environments/prod --reason "first rules"',
        *(
            f"rm -f log; {line} --port 0 2>log & pid=$!\n"
            "until grep -qs 'running on' log; do kill -0 $pid; sleep 0.1; done\n"
            "kill $pid; wait $pid"
            for line in docs.examples(COMMANDS["policy serve"])
            if "--follow" not in line  # needs an API server: test_follow_process
        ),
    ]
    done = shell(workplace, "\n".join(made))
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("path", [path for path in COMMANDS if not path.startswith(OWN_TESTS)])
def test_the_example_runs(workplace: Path, databases: Path, path: str) -> None:
    """An example typed in as it stands ends without an error."""
    if path in ("policy preempt", "policy run"):
        shutil.copy(databases / "imported.db", workplace / "policy.db")
    elif path not in ("policy", "policy import"):
        shutil.copy(databases / "decided.db", workplace / "policy.db")
    done = shell(workplace, "\n".join(docs.examples(COMMANDS[path])))
    assert done.returncode == 0, done.stderr
