"""A training step as a task of Kubeflow Pipelines: the runner of its job, and the janitor of jobs whose run has
ended."""
