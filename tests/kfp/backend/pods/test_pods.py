"""Which pods are run, and which workflows are ended."""

from typing import Any

import pytest

from tests.kfp.backend.pods.__main__ import is_canceled, must_start


@pytest.mark.parametrize(
    ("spec", "status", "expected"),
    [
        ({}, {"phase": "Pending"}, False),
        ({"nodeName": "gpu-0"}, {"phase": "Pending"}, True),
        ({"nodeName": "gpu-0"}, {}, True),
        ({"nodeName": "gpu-0"}, {"phase": "Running"}, False),
        ({"nodeName": "gpu-0"}, {"phase": "Failed"}, False),
    ],
)
def test_a_pod_is_run_when_the_scheduler_has_bound_it(
    spec: dict[str, Any], status: dict[str, Any], expected: bool
) -> None:
    assert must_start({"spec": spec, "status": status}) is expected


@pytest.mark.parametrize(
    ("spec", "phase", "expected"),
    [
        ({}, "Running", False),
        ({"activeDeadlineSeconds": 0}, "Running", True),
        ({"shutdown": "Terminate"}, "Running", True),
        ({"activeDeadlineSeconds": 3600}, "Running", False),
        ({"activeDeadlineSeconds": 0}, "Failed", False),
    ],
)
def test_a_workflow_that_kfp_canceled_is_ended_once(spec: dict[str, Any], phase: str, expected: bool) -> None:
    assert is_canceled({"spec": spec, "status": {"phase": phase}}) is expected
