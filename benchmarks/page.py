"""docs/performance.md and its pictures, made from the figures in docs/performance.json."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, FileSystemLoader

from benchmarks.figures import MEASUREMENTS, Figure

HERE: Final = Path(__file__).parent
DOCS: Final = HERE.parent / "docs"
KEPT: Final = DOCS / "performance.json"
PAGE: Final = DOCS / "performance.md"
PICTURES: Final = DOCS / "performance"

PEERS: Final = (
    # nodes, all nodes examined, 10 % sample: kube-scheduler 1.35's Evaluator, in ms
    (500, 67, 13),
    (5_000, 701, 73),
    (15_000, 1_236, 116),
)
_CHARTS: Final = {
    "decisions": ("One decision over all nodes, ms", ("decide-500", "decide-5000", "decide-15000")),
    "streams": (
        "Recorded preemptions a second",
        ("stream", "stream-one-by-one", "stream-postgres", "stream-kinds"),
    ),
    "data": ("A cluster of 150,000 pods in and out, s", ("importing",)),
}
_UNITS: Final = {"decisions": "ms", "streams": "/s", "data": "s"}


def kept() -> dict[str, Any]:
    """The figures of the last runs, by measurement; each with the machine it was made on.

    A measurement that gives more figures now, or no longer exists, counts as not made.
    """
    if not KEPT.exists():
        return {}
    found: dict[str, Any] = json.loads(KEPT.read_text(encoding="utf-8"))
    counts = {name: len(measurement.figures) for name, measurement in MEASUREMENTS.items()}
    return {name: one for name, one in found.items() if counts.get(name) == len(one["values"])}


def write(found: dict[str, Any]) -> None:
    """Keep the figures, and make the page and the pictures of them."""
    KEPT.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    environment = Environment(
        loader=FileSystemLoader(HERE / "templates"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    PICTURES.mkdir(exist_ok=True)
    for name, (title, measurements) in _CHARTS.items():
        bars = [bar for m in measurements for bar in _bars(m, found, _UNITS[name])]
        if bars:
            top = max(max(bar["value"], bar["mark"] or 0) for bar in bars)
            picture = environment.get_template("bars.svg").render(title=title, bars=bars, top=top)
            (PICTURES / f"{name}.svg").write_text(picture, encoding="utf-8")
    rows = [row for name in MEASUREMENTS for row in _rows(name, found)]
    machines = sorted({_machine_line(one["machine"]) for one in found.values()})
    page = environment.get_template("performance.md").render(
        rows=rows,
        machines=machines,
        peers=PEERS,
        ours=_ours(found),
        pictures=[(name, title) for name, (title, _) in _CHARTS.items()],
    )
    PAGE.write_text(page, encoding="utf-8")


def shown(value: float, unit: str) -> str:
    """A figure with as many digits as mean something."""
    digits = 0 if value >= 100 else 1 if value >= 10 else 2
    text = f"{value:,.{digits}f}"
    return f"{text}{unit}" if unit == "/s" else f"{text} {unit}"


def _rows(name: str, found: dict[str, Any]) -> list[dict[str, str]]:
    values = found.get(name, {}).get("values")
    rows = []
    for i, figure in enumerate(MEASUREMENTS[name].figures):
        value = None if values is None else values[i]
        rows.append(
            {
                "what": figure.what,
                "value": "not measured" if value is None else shown(value, figure.unit),
                "mark": "" if figure.mark is None else shown(figure.mark, figure.unit),
                "goal": "" if figure.goal is None else shown(figure.goal, figure.unit),
                "reached": "" if value is None else reached(figure, value),
            }
        )
    return rows


def reached(figure: Figure, value: float) -> str:
    """Which of the two marks a figure reaches; "" where it has none."""
    if figure.mark is None or figure.goal is None:
        return ""
    ahead = (lambda limit: value >= limit) if figure.more_is_better else (lambda m: value <= m)
    return "goal" if ahead(figure.goal) else "mark" if ahead(figure.mark) else "missed"


def _bars(name: str, found: dict[str, Any], unit: str) -> list[dict[str, Any]]:
    values = found.get(name, {}).get("values")
    if values is None:
        return []
    return [
        {"what": figure.what, "value": value, "text": shown(value, unit), "mark": figure.mark}
        for figure, value in zip(MEASUREMENTS[name].figures, values, strict=True)
        if figure.unit == unit and "CPU of a decision" not in figure.what
    ]


def _ours(found: dict[str, Any]) -> dict[int, str]:
    return {
        nodes: shown(found[f"decide-{nodes}"]["values"][0], "ms")
        for nodes, *_ in PEERS
        if f"decide-{nodes}" in found
    }


def _machine_line(machine: dict[str, Any]) -> str:
    load = " (busy with other work)" if machine["load"] > machine["cores"] / 2 else ""
    cpu = machine["cpu"] or "processor"
    return f"{machine['cores']} cores of {cpu}, Python {machine['python']}{load}"
