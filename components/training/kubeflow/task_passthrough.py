"""Fields of a training step's task that Kubeflow hands on to the job that the step launches.

The GPUs and where they are go to the job alone: the step itself launches, follows and collects, on any machine. Its
environment and its volumes both have.
"""

from kfp import dsl

_JOB_ALONE = (
    dsl.TaskConfigField.RESOURCES,
    dsl.TaskConfigField.KUBERNETES_TOLERATIONS,
    dsl.TaskConfigField.KUBERNETES_NODE_SELECTOR,
    dsl.TaskConfigField.KUBERNETES_AFFINITY,
)
_BOTH = (dsl.TaskConfigField.ENV, dsl.TaskConfigField.KUBERNETES_VOLUMES)

TASK_PASSTHROUGH = [
    *(dsl.TaskConfigPassthrough(field=field, apply_to_task=False) for field in _JOB_ALONE),
    *(dsl.TaskConfigPassthrough(field=field, apply_to_task=True) for field in _BOTH),
]
