"""rule: what an expression of the rule file says of a node.

Several may stand in one file, each under a name of its own: `rule/prefer-spot`. The expression sees
the pod and the node; whoever has compiled it evaluates it.
"""

from __future__ import annotations

from typing import Final

from policy.filters.base import Parameter
from policy.scoring.base import ScorerInfo

INFO: Final = ScorerInfo(
    name="rule",
    plugin="none",
    doc=(
        "Prefers nodes by an expression over `preemptor.*`, `node.*` and `now`: true is 100, false"
        " 0, a number counts from 0 to 100 and is limited to that. Further ones are named"
        " `rule/NAME`."
    ),
    score=None,
    parameters={
        "score": Parameter(
            doc="the expression, a truth value or a whole number",
            default="",
            before="",
        )
    },
)
