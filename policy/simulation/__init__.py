"""What a stretch of time would look like under other rules: simulated, counted, compared.

`folder`, `workload` and `from_record` make a `Trace`; `run.simulate` goes through it under one
rule set with the engine's own queue, cycle and effects; `figures` counts what happened, and
`paired` compares rule sets seed by seed.
"""
