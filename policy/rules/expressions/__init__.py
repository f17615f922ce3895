"""Expressions in rule files: CEL, type-checked when loaded, evaluated over whole columns.

Names are imported when first used: the table of variables is read without CEL and numpy.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

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
        NoHistory,
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
        DEFAULTS,
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
        Variable,
    )

__all__ = [
    "CONDITION",
    "DEFAULTS",
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
    "NoHistory",
    "NoValue",
    "OnError",
    "RowByRow",
    "Scalar",
    "Shape",
    "TimestampColumn",
    "ValueTable",
    "ValueType",
    "Variable",
    "compile_expression",
    "default_on_error",
]

_HOMES = {
    "CONDITION": "policy.rules.expressions.expression",
    "DEFAULTS": "policy.rules.expressions.semantics",
    "HISTORY_FUNCTIONS": "policy.rules.expressions.variables",
    "MEANING": "policy.rules.expressions.semantics",
    "NEVER": "policy.rules.expressions.variables",
    "ORDER_KEY": "policy.rules.expressions.expression",
    "RANKING_KEY": "policy.rules.expressions.expression",
    "SCORE": "policy.rules.expressions.expression",
    "VARIABLES": "policy.rules.expressions.variables",
    "BoolColumn": "policy.rules.expressions.columns",
    "Column": "policy.rules.expressions.columns",
    "Columns": "policy.rules.expressions.columns",
    "Complaint": "policy.rules.expressions.checking",
    "Context": "policy.rules.expressions.variables",
    "Evaluated": "policy.rules.expressions.columns",
    "Expression": "policy.rules.expressions.expression",
    "ExpressionError": "policy.rules.expressions.checking",
    "History": "policy.rules.expressions.columns",
    "IntColumn": "policy.rules.expressions.columns",
    "InternedColumn": "policy.rules.expressions.columns",
    "NoFigures": "policy.rules.expressions.columns",
    "NoHistory": "policy.rules.expressions.columns",
    "NoValue": "policy.rules.expressions.semantics",
    "OnError": "policy.rules.expressions.semantics",
    "RowByRow": "policy.rules.expressions.columns",
    "Scalar": "policy.rules.expressions.columns",
    "Shape": "policy.rules.expressions.variables",
    "TimestampColumn": "policy.rules.expressions.columns",
    "ValueTable": "policy.rules.expressions.columns",
    "ValueType": "policy.rules.expressions.variables",
    "Variable": "policy.rules.expressions.variables",
    "compile_expression": "policy.rules.expressions.expression",
    "default_on_error": "policy.rules.expressions.semantics",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return value
