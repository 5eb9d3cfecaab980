"""A run on Kubeflow Pipelines.

start_run    checks what a graph needs (pipelines/checks/cluster), uploads the graph once, starts the run
kfp_client   KFP's API
follower     follows a run to its end
workflow     the run's Workflow and pods (pods.py) in the cluster, for what KFP does not show
"""
