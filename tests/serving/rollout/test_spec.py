"""Limits of a policy for rollouts on one machine: the same as those of the API server."""

from typing import Any

import pytest

from qinglan.errors import ConfigError
from serving.rollout.spec import (
    LEAST_SAMPLE,
    LEAST_STEP_SECONDS,
    MOST_FIRST_PERCENT,
    MOST_MARGIN,
    RolloutSpec,
    policy_problems,
)
from tests.manifests.manifest_objects import MANIFESTS, objects

ERRORS = {"name": "errors", "margin": 0.1}
RELEASE = {"name": "demo/rewriter", "digest": "2" * 64, "uri": "s3://q/new", "model": "3" * 64}
WRONG: list[tuple[str, dict[str, Any]]] = [
    ("only the check `slow` has seconds", {"checks": [{"name": "errors", "margin": 0.1, "seconds": 1.0}]}),
    ("could only be taken back", {"deadlineSeconds": 899}),
    ("contradict each other", {"abort": True, "promote": True}),
    ("needs the check `quality`", {"steps": [0, 20, 100], "checks": [{"name": "errors", "margin": 0.1}]}),
    ("steps must rise", {"steps": [20, 5, 100]}),
    ("name each check once", {"checks": []}),
    ("steps must rise", {"steps": [5, 50]}),
    ("stepsSeconds", {"stepsSeconds": 3}),
]


def spec(**changes: Any) -> RolloutSpec:
    return RolloutSpec.parse({"inferenceService": "rewriter", "release": RELEASE} | changes, "a test")


@pytest.mark.parametrize(("message", "policy"), WRONG)
def test_a_wrong_one_is_refused_in_words(message: str, policy: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=message):
        spec(**policy)


@pytest.mark.parametrize(
    ("message", "policy"),
    [
        ("the first with users is 51 %, and 50 is the most", {"steps": [51, 100]}),
        (
            "the first with users is 100 %",
            {"steps": [0, 100], "checks": [ERRORS, {"name": "quality", "margin": 0.1}]},
        ),
        ("stepSeconds is 4, and 5 is the least", {"stepSeconds": 4}),
        ("minimumSample is 29, and 30 is the least", {"minimumSample": 29}),
        ("the margin of errors is more than 0.1", {"checks": [{"name": "errors", "margin": 0.11}]}),
        ("the check `errors` is missing", {"checks": [{"name": "slow", "margin": 0.05}]}),
        ("the check `errors` is missing", {"steps": [0, 5, 100], "checks": [{"name": "quality", "margin": 0.1}]}),
    ],
)
def test_a_policy_beyond_the_limits_can_be_read_and_says_which(message: str, policy: dict[str, Any]) -> None:
    [problem] = spec(**policy).beyond_limits()

    assert message in problem
    assert policy_problems(policy) == (problem,)
    assert "steps must rise" in policy_problems({"steps": [20, 5, 100]})[0], "one that cannot be read"


@pytest.mark.parametrize(
    "policy", [{}, {"steps": [50, 100]}, {"stepSeconds": 5}, {"minimumSample": 30}, {"checks": [ERRORS]}]
)
def test_the_limits_themselves_are_admitted(policy: dict[str, Any]) -> None:
    assert policy_problems(policy) == ()


def test_the_api_server_holds_a_policy_to_the_same_limits() -> None:
    """The numbers stand twice: the API server cannot read them from Python."""
    [crd] = objects(MANIFESTS / "platform/modelrollout.yaml")
    policy = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    fields = policy["properties"]
    rules = [
        rule["rule"] for rule in (*policy["x-kubernetes-validations"], *fields["steps"]["x-kubernetes-validations"])
    ]

    assert fields["stepSeconds"]["minimum"] == LEAST_STEP_SECONDS
    assert fields["minimumSample"]["minimum"] == LEAST_SAMPLE
    assert fields["checks"]["items"]["properties"]["margin"]["maximum"] == MOST_MARGIN
    assert f"self.filter(s, s > 0)[0] <= {MOST_FIRST_PERCENT}" in rules
    assert any("c.name == 'errors'" in rule for rule in rules)
