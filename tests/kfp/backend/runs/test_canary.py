"""Canaries on KFP: which profile they are trained by, and when none is begun."""

from pathlib import Path
from typing import Any

import pytest

from pipelines.lines.config import load_config
from qinglan.errors import ConfigError
from tests.kfp.backend.runs.canary import candidate_profile, previous_release, require_served
from tests.kfp.backend.runs.rewriter_run import SERVICE
from tests.kfp.backend.runs.tenant import TENANT, profile_text
from tests.kfp.backend.runs.test_tenant import DEMO


def test_a_candidate_differs_from_the_tenants_profile_in_its_seeds_alone(tmp_path: Path) -> None:
    profile = tmp_path / "profile.yaml"
    profile.write_text(profile_text(DEMO.read_text()))

    candidate = load_config(TENANT, str(candidate_profile(profile, 2)))

    before = load_config(TENANT, str(profile))
    assert (candidate.sft.seed, candidate.ppo.seed) == (2, 2)
    with_seeds = {name: getattr(before, name).model_copy(update={"seed": 2}) for name in ("sft", "ppo")}
    assert before.model_copy(update=with_seeds) == candidate


@pytest.mark.parametrize("rollout", [{}, {"status": {"phase": "Analyse"}}])
def test_without_a_model_that_is_served_no_canary_is_begun(rollout: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match="First: make kfp-run"):
        require_served(rollout)


def rollout(number: int, uri: str, outcome: str) -> dict[str, Any]:
    release = {"uri": uri, "digest": f"digest of {uri}"}
    spec = {"inferenceService": SERVICE, "release": release}
    return {"metadata": {"name": f"{SERVICE}-{number}"}, "spec": spec, "status": {"outcome": outcome}}


def test_the_model_before_is_the_last_promoted_one_that_is_not_served() -> None:
    history = [rollout(10, "c", "Promoted"), rollout(2, "b", "RolledBack"), rollout(1, "a", "Promoted")]

    assert previous_release(history) == "digest of a"
