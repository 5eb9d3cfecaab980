"""The decorator that makes a stage's function a KFP component.

    @step_component(CPU_IMAGE)
    def convert(validated: dsl.Input[dsl.Dataset], ...) -> None:

KFP puts a component's source and 250 characters of shell into the graph, and its back end repeats them in the
workflow's status eight times for each step. The images have this code, so the graph holds a line that imports it.
"""

import logging
from collections.abc import Callable
from typing import Any

from kfp import dsl

RUN = (
    'f=$(mktemp -d)/step.py; echo "$0" >$f; '
    '_KFP_RUNTIME=true python3 -m kfp.dsl.executor_main --component_module_path $f "$@"'
)
"""The shell's part of a step's command: KFP's executor reads the component from a file."""

QUIET = {"httpx": logging.WARNING, "httpx2": logging.WARNING, "stamina": logging.ERROR}
"""Loggers that would write a line for every call: KFP's executor shows INFO, and a step's progress drowns in it."""


def step_component(image: str, launches_job: bool = False) -> Callable[[Callable[..., Any]], Any]:
    """Make a component that runs in this image; one that launches a job hands its task's machine on to it."""

    def decorate(function: Callable[..., Any]) -> Any:
        if not hasattr(dsl, "component"):  # in a step, where KFP has its runtime part alone
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
    """Fields of the task that Kubeflow hands on to the job.

    The GPUs and where they are go to the job alone: the step itself launches, follows and collects, on any machine.
    Its environment and its volumes both have.
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
