"""A training step as a task of Kubeflow Pipelines: what it hands on to its job, what its pod says of its run, and the
janitor that ends jobs whose run is over."""
