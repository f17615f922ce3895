"""Expressions in rule files: CEL, type-checked when loaded, evaluated over whole columns."""

from policy.rules.expressions.checking import Complaint, ExpressionError
from policy.rules.expressions.columns import (
    BoolColumn,
    Column,
    Columns,
    Evaluated,
    History,
    IntColumn,
    InternedColumn,
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
