"""Decorator that turns a stage's function into a KFP component.

    @step_component(CPU_IMAGE)
    def convert(validated: dsl.Input[dsl.Dataset], ...) -> None:

KFP would put a component's source and 250 characters of shell into the graph, and its back end repeats them in the
workflow's status eight times for each step. The images have this code, so the graph holds only a line that imports
it.
"""

import logging
from collections.abc import Callable
from typing import Any

from kfp import dsl

RUN = (
    'f=$(mktemp -d)/step.py; echo "$0" >$f; '
    '_KFP_RUNTIME=true python3 -m kfp.dsl.executor_main --component_module_path $f "$@"'
)
"""Shell command of a step. KFP's executor reads the component from the file that it writes."""

QUIET = {"httpx": logging.WARNING, "httpx2": logging.WARNING, "stamina": logging.ERROR}
"""Loggers with their levels. Otherwise KFP's executor would show a line for every call, between a step's progress."""


def step_component(image: str, launches_job: bool = False) -> Callable[[Callable[..., Any]], Any]:
    """Make a component that runs in this image. With `launches_job`, its job gets the requested machine."""

    def decorate(function: Callable[..., Any]) -> Any:
        if not hasattr(dsl, "component"):  # in a step, where only KFP's runtime part is installed
            for name, level in QUIET.items():
                logging.getLogger(name).setLevel(level)
            return function
        component = dsl.component(
            function,
            base_image=image,
            install_kfp_package=False,
            task_config_passthroughs=_passthroughs(launches_job),
        )
        container = component.component_spec.implementation.container
        container.command = ["sh", "-ec", RUN, f"from {function.__module__} import {function.__name__}"]
        return component

    return decorate


def _passthroughs(launches_job: bool) -> list[Any] | None:
    """Return the fields of the task that Kubeflow passes on to the job.

    GPUs and node selection are for the job only. The step itself starts and follows the job and collects its results,
    on any machine. Environment and volumes are for both.
    """
    if not launches_job:
        return None
    field, passed = dsl.TaskConfigField, dsl.TaskConfigPassthrough
    job_alone = (
        field.RESOURCES,
        field.KUBERNETES_TOLERATIONS,
        field.KUBERNETES_NODE_SELECTOR,
        field.KUBERNETES_AFFINITY,
    )
    return [
        *(passed(field=part, apply_to_task=False) for part in job_alone),
        *(passed(field=part, apply_to_task=True) for part in (field.ENV, field.KUBERNETES_VOLUMES)),
    ]
