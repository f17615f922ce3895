"""Fuzzing: whatever is put in, out comes a result or one of our errors, and soon.

`python -m tests.fuzz --seconds 120` runs every target for its share of the time, guided by coverage
(atheris), from the kept corpus. A finding is an exception that is none of our errors, or an input
that takes longer than ten seconds; it goes into the corpus as a file, which `test_corpus` replays.
"""
