"""Run a training command: here as a process of its own; the same command in the pods of a job on a cluster."""

from qinglan.jobs.local import Command, run

__all__ = ["Command", "run"]
