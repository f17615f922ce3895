"""Expressions in rule files: CEL, type-checked when loaded, evaluated over whole columns.

Names are imported when first used: the table of variables is read without CEL and numpy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from policy import lazy

if TYPE_CHECKING:
    from policy.rules.expressions.checking import Complaint, ExpressionError
    from policy.rules.expressions.columns import (
        BoolColumn,
        Column,
        Columns,
        Evaluated,
        History,
        IntColumn,
        InternedColumn,
        NoFigures,
        RowByRow,
        Scalar,
        TimestampColumn,
        ValueTable,
    )
    from policy.rules.expressions.expression import (
        CONDITION,
        ORDER_KEY,
        RANKING_KEY,
        SCORE,
        Expression,
        compile_expression,
    )
    from policy.rules.expressions.semantics import (
        MEANING,
        NoValue,
        OnError,
        default_on_error,
    )
    from policy.rules.expressions.variables import (
        HISTORY_FUNCTIONS,
        NEVER,
        VARIABLES,
        Context,
        Shape,
        ValueType,
    )

__all__ = [
    "CONDITION",
    "HISTORY_FUNCTIONS",
    "MEANING",
    "NEVER",
    "ORDER_KEY",
    "RANKING_KEY",
    "SCORE",
    "VARIABLES",
    "BoolColumn",
    "Column",
    "Columns",
    "Complaint",
    "Context",
    "Evaluated",
    "Expression",
    "ExpressionError",
    "History",
    "IntColumn",
    "InternedColumn",
    "NoFigures",
    "NoValue",
    "OnError",
    "RowByRow",
    "Scalar",
    "Shape",
    "TimestampColumn",
    "ValueTable",
    "ValueType",
    "compile_expression",
    "default_on_error",
]

#: where the names are defined that the columns do not define
_HOMES = {
    "CONDITION": "policy.rules.expressions.expression",
    "HISTORY_FUNCTIONS": "policy.rules.expressions.variables",
    "MEANING": "policy.rules.expressions.semantics",
    "NEVER": "policy.rules.expressions.variables",
    "ORDER_KEY": "policy.rules.expressions.expression",
    "RANKING_KEY": "policy.rules.expressions.expression",
    "SCORE": "policy.rules.expressions.expression",
    "VARIABLES": "policy.rules.expressions.variables",
    "Complaint": "policy.rules.expressions.checking",
    "Context": "policy.rules.expressions.variables",
    "Expression": "policy.rules.expressions.expression",
    "ExpressionError": "policy.rules.expressions.checking",
    "NoValue": "policy.rules.expressions.semantics",
    "OnError": "policy.rules.expressions.semantics",
    "Shape": "policy.rules.expressions.variables",
    "ValueType": "policy.rules.expressions.variables",
    "compile_expression": "policy.rules.expressions.expression",
    "default_on_error": "policy.rules.expressions.semantics",
}

__getattr__ = lazy.names(
    __name__, {**dict.fromkeys(__all__, "policy.rules.expressions.columns"), **_HOMES}
)
