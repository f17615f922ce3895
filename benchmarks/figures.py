"""Every figure of docs/performance.md: how it is measured, its first mark and its goal.

A measurement runs in a process of its own and gives several figures.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One line of the page."""

    what: str
    #: `ms`, `s`, `MiB`, `bytes`, `times`, `calls` or `/s`; of all but the last less is better
    unit: str
    mark: float | None = None
    goal: float | None = None

    @property
    def more_is_better(self) -> bool:
        return self.unit == "/s"


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """What one process measures: as many values as figures, in their order."""

    figures: tuple[Figure, ...]
    run: Callable[[], Sequence[float]]
    long: bool = False  #: takes more than a few minutes


def _decide(nodes: int) -> Callable[[], Sequence[float]]:
    def run() -> Sequence[float]:
        from benchmarks import decide

        found = decide.measure(nodes)
        return found["full_ms"], found["class_ms"], found["peak_mib"]

    return run


def _decide_figures(
    nodes: int, marks: tuple[float, float], shared: tuple[float, float] | None = None
) -> tuple[Figure, ...]:
    mark, goal = shared or (None, None)
    return (
        Figure(what=f"one decision, {nodes:,} x 30", unit="ms", mark=marks[0], goal=marks[1]),
        Figure(what=f"the same by class, {nodes:,} x 30", unit="ms", mark=mark, goal=goal),
        Figure(what=f"peak memory of both, {nodes:,} x 30", unit="MiB"),
    )


def _stream(
    shape: str, *, one_by_one: bool = False, postgres: bool = False
) -> Callable[[], Sequence[float]]:
    def run() -> Sequence[float]:
        from benchmarks import postgres as server
        from benchmarks import stream

        with ExitStack() as stack:
            if postgres:
                url = stack.enter_context(server.database())
            else:
                url = stack.enter_context(tempfile.TemporaryDirectory()) + "/policy.db"
            found = stream.measure(
                shape,
                url=url,
                nodes=stream.SHAPES[shape][1],
                decisions=1000,
                one_by_one=one_by_one,
            )
        return found["per_second"], found["cpu_ms"]

    return run


def _stream_figures(what: str, mark: float, goal: float) -> tuple[Figure, ...]:
    return (
        Figure(what=what, unit="/s", mark=mark, goal=goal),
        Figure(what=f"CPU of a decision: {what}", unit="ms"),
    )


def _importing(nodes: int) -> Sequence[float]:
    from benchmarks import importing

    rows = {row["row"]: row for row in importing.run(nodes, 0, None)}
    names = ("import", "newer", "load")
    return [rows[n]["cpu_seconds"] for n in names]


def _memory() -> Sequence[float]:
    from benchmarks import importing

    return [row["peak_mib"] for row in importing.run(0, 15_000, None) if row["row"] == "load"]


def _audit() -> Sequence[float]:
    from benchmarks import audit
    from policy.store import Store

    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "audit.db")
        with Store.open(path) as store:
            audit.make(store, nodes=100, decisions=10_000)
        times = audit.timings(path, jobs=2, alone=False)
    both = [times["replay, 2 processes"], times["compare, 2 processes"]]
    return [*(10_000 / taken.wall for taken in both), *(taken.cpu / 10 for taken in both)]


def _expressions() -> Sequence[float]:
    import statistics

    from benchmarks import expressions

    taken = {n: statistics.median(t[5:]) for n, t in expressions.measure(5000, 40).items()}
    base = taken.pop("kube-1.35")
    return [taken["five rules"] / base, taken["environments/prod"] / base]


def _full_path() -> Sequence[float]:
    from benchmarks import full_path

    found = full_path.measure(5000, 40)
    return [found[name] for name in ("history", "spread", "affinity")]


def _batch(case: str) -> Callable[[], Sequence[float]]:
    def run() -> Sequence[float]:
        from benchmarks import batch

        return [batch.measure(batch.CASES[case])["session_seconds"]]

    return run


def _groups() -> Sequence[float]:
    from benchmarks import groups

    return [float(row["seconds"]) for row in groups.measure(nodes=5000, units=500, members=100)]


def _groups_around() -> Sequence[float]:
    from benchmarks import groups

    size = {"nodes": 5000, "units": 500, "members": 100}
    found = [groups.measure(**size, around=around)[0] for around in ("zone", "spread", "apart")]
    return [float(row["seconds"]) for row in found]


def _startup() -> Sequence[float]:
    from benchmarks import startup

    with tempfile.TemporaryDirectory() as folder:
        url = str(Path(folder) / "policy.db")
        startup.fill(url)
        found = startup.measure(url, str(Path(folder) / "compiled"), runs=5)
    return [found["--help"], found["decisions"], found["explain 1"]]


def _churn() -> Sequence[float]:
    from benchmarks import churn

    rows = churn.run(nodes=5000, pods=150_000, changes=100_000)
    first, last = rows[0], rows[-1]
    return [
        first["median_ms"],
        last["median_ms"] / first["median_ms"],
        last["resident_mib"] / first["resident_mib"],
        max(first["longest_ms"], last["longest_ms"]),
    ]


def _follow(nodes: int, seconds: int, paced: int) -> Callable[[], Sequence[float]]:
    def run() -> Sequence[float]:
        from benchmarks import follow

        found = follow.measure(nodes=nodes, seconds=seconds, paced=paced)
        names = (
            "list_s",
            "list_cpu_s",
            "change_ms",
            "change_bytes",
            "preemption_ms",
            "preemption_bytes",
            "lag_s",
            "grown",
            "peak_mib",
        )
        return [found[name] for name in names]

    return run


def _follow_figures(
    pods: str, day: str, *, first_list: tuple[float, float] | None, mib: tuple[float, float]
) -> tuple[Figure, ...]:
    mark, goal = first_list or (None, None)
    return (
        Figure(what=f"first list of {pods} pods followed", unit="s", mark=mark, goal=goal),
        Figure(what="CPU of it", unit="s"),
        Figure(what=f"{day}: CPU of a change", unit="ms", mark=2, goal=1),
        Figure(what="database growth of a change", unit="bytes"),
        Figure(what="CPU of an observed preemption, decided again", unit="ms"),
        Figure(what="database growth of an observed preemption", unit="bytes"),
        Figure(what="longest lag, 200 changes/s, 20 preemptions/min", unit="s", mark=1, goal=0.5),
        Figure(what="memory at its end to that after a tenth", unit="times", mark=1.2, goal=1.1),
        Figure(what="peak memory of all", unit="MiB", mark=mib[0], goal=mib[1]),
    )


def _history(
    decisions: int, *, saved_only: bool = False, postgres: bool = False
) -> Callable[[], Sequence[float]]:
    def run() -> Sequence[float]:
        from benchmarks import history
        from benchmarks import postgres as server

        with ExitStack() as stack:
            if postgres:
                db = stack.enter_context(server.database())
            else:
                db = stack.enter_context(tempfile.TemporaryDirectory()) + "/policy.db"
            return history.saved_seconds(db, decisions, saved_only=saved_only)

    return run


def _history_figures(what: str, mark: float, goal: float) -> tuple[Figure, ...]:
    return (
        Figure(what=f"slowest saved query, {what}", unit="s", mark=mark, goal=goal),
        Figure(what=f"median saved query, {what}", unit="s"),
        Figure(what=f"slowest over the last 7 days of {what}", unit="s", mark=mark, goal=goal),
        Figure(what=f"slowest over the last 90 days of {what}", unit="s", mark=mark, goal=goal),
    )


def _pages() -> Sequence[float]:
    from benchmarks import history, pages

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "policy.db"
        history.fill(path, 1_000_000)
        found = pages.run(str(path))
    return max(one.p95_ms for one in found), max(one.cpu_ms for one in found)


def _pages_postgres() -> Sequence[float]:
    from benchmarks import history, pages
    from benchmarks import postgres as server

    with server.database() as url:
        history.fill_postgres(url, 1_000_000)
        found = pages.run(url)
    return max(one.p95_ms for one in found), max(one.cpu_ms for one in found)


def _simulated(name: str) -> Callable[[], Sequence[float]]:
    def run() -> Sequence[float]:
        from benchmarks import simulate

        found = simulate.named(name)
        return found["cpu_seconds"], found["peak_mib"]

    return run


def _generated(days: float) -> Callable[[], Sequence[float]]:
    def run() -> Sequence[float]:
        from benchmarks import simulate

        found = simulate.of_days(days)
        return found["cpu_seconds"], found["cpu_ms_a_pod"], found["peak_mib"]

    return run


def _generated_figures(what: str, mark: float, goal: float) -> tuple[Figure, ...]:
    return (
        Figure(what=f"simulated: {what}, CPU", unit="s", mark=mark, goal=goal),
        Figure(what=f"for each pod: {what}", unit="ms", mark=3.6, goal=1.5),
        Figure(what=f"peak memory: {what}", unit="MiB"),
    )


def _serve_figures(what: str, cpu: tuple[float, float]) -> tuple[Figure, ...]:
    return (
        Figure(what=f"p99 of 200 calls a second, {what}", unit="ms", mark=50, goal=25),
        Figure(what=f"calls not in the record, {what}", unit="calls", mark=0, goal=0),
        Figure(what=f"CPU of a call, {what}", unit="ms", mark=cpu[0], goal=cpu[1]),
        Figure(what=f"memory at the end to the start, {what}", unit="times", mark=1.5, goal=1.2),
    )


SERVE_FIGURES: Final = (
    *_serve_figures("meta form, SQLite", (3.5, 2.5)),
    *_serve_figures("full form, SQLite", (4, 3)),
    *_serve_figures("meta form, Postgres", (3.5, 2.5)),
    *_serve_figures("full form, Postgres", (4, 3)),
)


def _serve() -> Sequence[float]:
    from benchmarks import serve

    return [
        value
        for form, postgres in serve.COMBINATIONS
        for value in serve.marked(form, postgres=postgres, seconds=60)
    ]


def _serve_start() -> Sequence[float]:
    from benchmarks import serve

    found = serve.starting(nodes=5000)
    return [found["listens, s"], found["ready, CPU s"], found["first answer, CPU s"]]


MEASUREMENTS: Final[dict[str, Measurement]] = {
    "decide-500": Measurement(figures=_decide_figures(500, (1, 0.6)), run=_decide(500)),
    "decide-5000": Measurement(figures=_decide_figures(5000, (3, 2), (1, 0.5)), run=_decide(5000)),
    "decide-15000": Measurement(figures=_decide_figures(15_000, (8, 5)), run=_decide(15_000)),
    "stream": Measurement(
        figures=_stream_figures("PreemptionAsync shape, SQLite", 500, 900), run=_stream("async")
    ),
    "stream-one-by-one": Measurement(
        figures=_stream_figures("the same, a commit for each decision", 300, 500),
        run=_stream("async", one_by_one=True),
    ),
    "stream-postgres": Measurement(
        figures=_stream_figures("the same on Postgres", 300, 900),
        run=_stream("async", postgres=True),
    ),
    "stream-kinds": Measurement(
        figures=_stream_figures("18 kinds of pods, 1,000 nodes x 30, 40 budgets", 300, 570),
        run=_stream("kinds"),
    ),
    "expressions": Measurement(
        figures=(
            Figure(what="five expression rules to the default", unit="times", mark=2, goal=1.5),
            Figure(what="environments/prod to the default", unit="times", mark=2, goal=1.5),
        ),
        run=_expressions,
    ),
    "full-path": Measurement(
        figures=(
            Figure(what="rules with `history.*`, 5,000 x 30", unit="ms", mark=9, goal=4.5),
            Figure(what="a pod with topology spread, 5,000 x 30", unit="ms", mark=19, goal=9.5),
            Figure(what="a pod with affinity, 5,000 x 30", unit="ms", mark=23, goal=11.5),
        ),
        run=_full_path,
    ),
    "importing": Measurement(
        figures=(
            Figure(what="import of 150,000 pods from a JSON dump, CPU", unit="s", mark=5, goal=4),
            Figure(what="a newer dump of the same, 1 % changed, CPU", unit="s", mark=4, goal=2),
            Figure(what="load of that state, CPU", unit="s", mark=1.5, goal=1),
        ),
        run=lambda: _importing(5000),
    ),
    "memory": Measurement(
        figures=(
            Figure(what="peak memory, 15,000 x 30 from the store", unit="MiB", mark=900, goal=500),
        ),
        run=_memory,
        long=True,
    ),
    "audit": Measurement(
        figures=(
            Figure(what="`replay --all --jobs 2`, of 10,000", unit="/s", mark=400, goal=1000),
            Figure(what="`compare`, the same", unit="/s", mark=400, goal=1000),
            Figure(what="CPU of a decision: replay", unit="ms"),
            Figure(what="CPU of a decision: compare", unit="ms"),
        ),
        run=_audit,
        long=True,
    ),
    "startup": Measurement(
        figures=(
            Figure(what="`policy --help`, CPU of the process", unit="ms", mark=90, goal=70),
            Figure(what="`policy decisions`", unit="ms", mark=400, goal=250),
            Figure(what="`policy explain`", unit="ms", mark=500, goal=350),
        ),
        run=_startup,
    ),
    "serve": Measurement(figures=SERVE_FIGURES, run=_serve, long=True),
    "serve-start": Measurement(
        figures=(
            Figure(what="`policy serve`, 150,000 pods, until it listens", unit="s", mark=2, goal=1),
            Figure(what="until it is ready to decide, CPU", unit="s", mark=4, goal=2),
            Figure(what="until its first answer, CPU", unit="s", mark=5, goal=2.5),
        ),
        run=_serve_start,
    ),
    "batch-1000": Measurement(
        figures=(
            Figure(what="batch session, 1,000 nodes, 500 pending", unit="s", mark=0.25, goal=0.15),
        ),
        run=_batch("allocate and preempt"),
    ),
    "batch-5000": Measurement(
        figures=(
            Figure(what="batch session, 5,000 nodes, 5,000 pending", unit="s", mark=3, goal=1.5),
        ),
        run=_batch("large, allocate and preempt"),
    ),
    "batch-15000": Measurement(
        figures=(
            Figure(what="batch session, 15,000 nodes, 20,000 pending", unit="s", mark=20, goal=10),
        ),
        run=_batch("largest, allocate and preempt"),
        long=True,
    ),
    "groups": Measurement(
        figures=(
            Figure(
                what="a group of 100 on 5,000 x 30, 500 units below it", unit="s", mark=10, goal=2
            ),
            Figure(what="the same by `groups-safe`, which searches", unit="s", mark=10, goal=2),
        ),
        run=_groups,
    ),
    "groups-around": Measurement(
        figures=(
            Figure(what="a group whose members want one zone", unit="s", mark=10, goal=5),
            Figure(what="spread over zones and hosts", unit="s", mark=10, goal=5),
            Figure(what="one to a host, one rack preferred", unit="s", mark=10, goal=5),
        ),
        run=_groups_around,
    ),
    "churn": Measurement(
        figures=(
            Figure(what="a change of 150,000 pods followed, first tenth of 200,000", unit="ms"),
            Figure(what="the last tenth against the first", unit="times"),
            Figure(what="memory then against the first tenth", unit="times"),
            Figure(what="longest of those changes: the snapshot is packed, CPU", unit="ms"),
        ),
        run=_churn,
        long=True,
    ),
    "follow-1000": Measurement(
        figures=_follow_figures("30,000", "one minute of it", first_list=None, mib=(600, 300)),
        run=_follow(1000, 60, 20),
    ),
    "follow": Measurement(
        figures=_follow_figures(
            "150,000", "ten minutes of it", first_list=(60, 30), mib=(1536, 1000)
        ),
        run=_follow(5000, 600, 60),
        long=True,
    ),
    "history": Measurement(
        figures=_history_figures("a million decisions", 2, 0.5),
        run=_history(1_000_000),
        long=True,
    ),
    "history-10m": Measurement(
        figures=_history_figures("ten million decisions", 1, 0.5),
        run=_history(10_000_000, saved_only=True),
        long=True,
    ),
    "history-10m-postgres": Measurement(
        figures=_history_figures("ten million decisions, Postgres", 1, 0.5),
        run=_history(10_000_000, saved_only=True, postgres=True),
        long=True,
    ),
    "pages": Measurement(
        figures=(
            Figure(what="slowest page, p95, a million decisions", unit="ms", mark=200, goal=100),
            Figure(what="slowest page, CPU", unit="ms"),
        ),
        run=_pages,
        long=True,
    ),
    "pages-postgres": Measurement(
        figures=(
            Figure(what="slowest page, p95, the same on Postgres", unit="ms", mark=200, goal=100),
            Figure(what="slowest page, CPU of the service, Postgres", unit="ms"),
        ),
        run=_pages_postgres,
        long=True,
    ),
    "simulate-google2011": Measurement(
        figures=(
            Figure(what="simulated: google2011, CPU", unit="s", mark=30, goal=20),
            Figure(what="peak memory: google2011", unit="MiB", mark=1024, goal=400),
        ),
        run=_simulated("google2011"),
        long=True,
    ),
    "simulate-openb2023": Measurement(
        figures=(
            Figure(what="simulated: openb2023, CPU", unit="s", mark=60, goal=20),
            Figure(what="peak memory: openb2023", unit="MiB", mark=1024, goal=200),
        ),
        run=_simulated("openb2023"),
        long=True,
    ),
    "simulate-day": Measurement(
        figures=_generated_figures("a generated day, 5,000 nodes, 143,000 pods", 514, 214),
        run=_generated(1),
        long=True,
    ),
    "simulate-week": Measurement(
        figures=_generated_figures("the generated week, a million pods", 3600, 1500),
        run=_generated(7),
        long=True,
    ),
}
