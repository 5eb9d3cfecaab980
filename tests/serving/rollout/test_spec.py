"""What a policy may say, for rollouts on one machine: the same that an API server admits."""

from typing import Any

import pytest

from qinglan.errors import ConfigError
from serving.rollout.spec import CHECKS, RolloutSpec

RELEASE = {"name": "demo/rewriter", "digest": "2" * 64, "uri": "s3://q/new", "model": "3" * 64}
WRONG: dict[str, dict[str, Any]] = {
    "only the check `slow` has seconds": {"checks": [{"name": "errors", "margin": 0.1, "seconds": 1.0}]},
    "only the check `costly` has tokens": {"checks": [{"name": "slow", "margin": 0.1, "tokens": 32}]},
    "greater than or equal to 8": {"checks": [{"name": "costly", "margin": 0.1, "tokens": 7}]},
    "greater than or equal to 0.005": {"checks": [{"name": "slow", "margin": 0.1, "seconds": 0.004}]},
    "could only be taken back": {"deadlineSeconds": 899},
    "contradict each other": {"abort": True, "promote": True},
    "at least 1 character": {"predictor": {"runtime": "", "format": "one"}},
    "needs the check `quality`": {"steps": [0, 100], "checks": [{"name": "errors", "margin": 0.1}]},
    "steps must rise": {"steps": [20, 5, 100]},
    "name each check once": {"checks": []},
}


def spec(**changes: Any) -> RolloutSpec:
    return RolloutSpec.parse({"inferenceService": "rewriter", "release": RELEASE} | changes, "a test")


@pytest.mark.parametrize("said", WRONG)
def test_a_wrong_one_is_refused_in_words(said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        spec(**WRONG[said])


def test_the_usual_one_is_taken() -> None:
    assert spec().checks == CHECKS
