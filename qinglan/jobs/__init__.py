"""Run a training command: as a process on this machine, or in the pods of a job on a cluster."""

from qinglan.jobs.local import LocalRunner, run_command
from qinglan.jobs.spec import Command, JobSpec, Outcome, Runner

__all__ = ["Command", "JobSpec", "LocalRunner", "Outcome", "Runner", "run_command"]
