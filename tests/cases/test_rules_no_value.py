"""What a rule does where its condition has no value: it fails closed, and the trace says so."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from policy import RuleSet, Snapshot, decide
from policy.cases import Case
from policy.decision.model import Decision
from policy.rules.expressions import Context, OnError, default_on_error, kernels, semantics
from policy.rules.problems import RulesError
from tests.support.objects import a_node, a_pod

WITHOUT = {"reason": "test", "why": "test"}


def load(**spec: Any) -> RuleSet:
    return RuleSet.load(
        {
            "apiVersion": "policy/v1",
            "kind": "PreemptionRules",
            "metadata": {"name": "mine"},
            "extends": "kube-1.35",
            "spec": spec,
        }
    )
