"""Which rollouts need shadow pairs, as the controller counts them."""

from typing import Any

import pytest

from serving.rollout.cluster.metrics import judges_quality


def rollout(phase: str, *checks: str) -> dict[str, Any]:
    named = {"checks": [{"name": name, "margin": 0.1} for name in checks]} if checks else {}
    return {"spec": {"inferenceService": "rewriter"} | named, "status": {"phase": phase}}


@pytest.mark.parametrize(
    "item, needs",
    [
        (rollout("Analyse"), False),
        ({"spec": {}, "status": {"phase": "Analyse", "checks": [{"name": "errors"}]}}, False),
        ({"spec": {}, "status": {"phase": "Analyse", "checks": [{"name": "errors"}, {"name": "quality"}]}}, True),
        (rollout("Analyse", "errors", "quality"), True),
        (rollout("Analyse", "errors", "slow"), False),
        (rollout("WaitReady"), False),
        (rollout("Done", "quality"), False),
        ({"spec": {"inferenceService": "rewriter"}}, False),
    ],
)
def test_a_rollout_needs_pairs_while_it_is_judged_by_quality(item: dict[str, Any], needs: bool) -> None:
    assert judges_quality(item) is needs
