"""Map over parts: the same work on many independent pieces, here, in processes, or on a cluster.

A part is whatever the work takes, and each gives one result. Results come in the order of the parts
whoever does them. The part of a worker that is lost on the way is done again by another one; where
the work raises, its error is raised here as it was there.
"""

from policy.parts.work import HERE, PartsError, Work, WorkerLost, Workers, map_parts

__all__ = ["HERE", "PartsError", "Work", "WorkerLost", "Workers", "map_parts"]
