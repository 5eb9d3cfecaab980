"""Capabilities that stages and servers share; it knows neither KFP nor KServe.

Only the client in qinglan/kubernetes names objects of theirs, in its table of API paths. What a KFP pod or an
InferenceService holds is read where it is used: components/training/kubeflow, serving/rollout/cluster and pipelines.
"""

__version__ = "0.1.0"
