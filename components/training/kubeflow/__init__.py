"""Run a training step as a task of Kubeflow Pipelines, and clean up: `job_runner.py` runs its job, and `janitor.py`
deletes jobs of ended runs."""
