"""Proofs: what a rule file can never do, on whatever cluster.

Conditions are translated for an SMT solver, which either shows that no pod, preemptor and figures
exist for which something happens, or names some; these are replayed by the product before anything
is said of them. The solver is an extra: only `policy.proving` imports it.
"""
