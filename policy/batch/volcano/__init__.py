"""Sessions as Volcano decides them (1.15 and later): the second semantics of batch rules.

Shared with kube-batch: heaps, orders, the record of what was done, filters and scorers. What a
task asks for, what a statement undoes and how plugin answers are combined differs, and lies here.
"""
