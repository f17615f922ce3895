"""Cases beside rules: a small cluster in YAML, and what a rule set has to decide on it.

The one part of this package that makes decisions; nothing else in it imports this one.
"""

from policy.cases.finding import Suite, beside, suites
from policy.cases.model import Case, CaseMismatch
from policy.cases.running import run, run_beside, run_suite

__all__ = [
    "Case",
    "CaseMismatch",
    "Suite",
    "beside",
    "run",
    "run_beside",
    "run_suite",
    "suites",
]
