"""Shared code of stages and servers; it does not depend on KFP or KServe.

The only exception is the client in qinglan/kubernetes: its table of API paths names objects of KFP and KServe. Code
that reads a KFP pod or an InferenceService is in components/training/kubeflow, serving/rollout/cluster and pipelines.
"""

__version__ = "0.1.0"
