"""Recorded decisions of the real schedulers, compared with what a rule set decides.

A recording is a file of JSON lines, one scenario each: a cluster, and what the real scheduler
did there. `scenario` reads them, `compare` gives a verdict on one (agree, tie, differ), `run`
goes through files with several processes. Another form of recording is one more comparer in
`run.FORMS`.
"""

from policy.conformance.results import Agreement, ConformanceSummary, RecordingError, ScenarioResult
from policy.conformance.run import run

__all__ = ["Agreement", "ConformanceSummary", "RecordingError", "ScenarioResult", "run"]
