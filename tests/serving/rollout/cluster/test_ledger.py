"""A ModelRollout that names no checks is judged by those that have evidence at its InferenceService."""

from typing import Any

import pytest

from serving.rollout.cluster.ledger import UnreadableSpecError, dump_status, parse_rollout
from serving.rollout.spec import CHECKS, QUALITY, Check

RELEASE = {"name": "demo/rewriter", "digest": "2" * 64, "uri": "s3://q/new", "model": "3" * 64}
SHADOWED = frozenset({"rewriter"})


def rollout(status: dict[str, Any] | None = None, service: str = "rewriter", **spec: Any) -> dict[str, Any]:
    meta = {"name": f"{service}-1", "namespace": "qinglan", "resourceVersion": "1"}
    item = {"metadata": meta, "spec": {"inferenceService": service, "release": RELEASE, **spec}}
    return item if status is None else item | {"status": status}


def checks(item: dict[str, Any], shadowed: frozenset[str] = frozenset()) -> tuple[Check, ...]:
    return parse_rollout(item, shadowed).spec.checks


def test_quality_is_asked_for_where_a_shadow_runs_for_that_service_and_nowhere_else() -> None:
    assert checks(rollout()) == CHECKS
    assert checks(rollout(), SHADOWED) == (*CHECKS, QUALITY)
    assert checks(rollout(service="style"), SHADOWED) == CHECKS


@pytest.mark.parametrize("before, after", [(SHADOWED, frozenset()), (frozenset(), SHADOWED)])
def test_a_shadow_that_goes_or_comes_under_way_changes_no_policy(
    before: frozenset[str], after: frozenset[str]
) -> None:
    first = parse_rollout(rollout(), before)
    written = dump_status(first.state.model_copy(update={"phase": "Analyse"}))

    assert [check["name"] for check in written["checks"]] == [check.name for check in first.spec.checks]
    assert checks(rollout(written), after) == first.spec.checks


def test_a_spec_that_names_its_checks_keeps_them_and_its_status_notes_none() -> None:
    named = [{"name": "errors", "margin": 0.02}]
    entry = parse_rollout(rollout(checks=named), SHADOWED)

    assert entry.spec.checks == (Check(name="errors", margin=0.02),)
    assert entry.state.checks == ()


def test_quality_without_a_shadow_is_refused_before_anything_is_changed() -> None:
    requested = rollout(checks=[{"name": "quality", "margin": 0.1}])

    with pytest.raises(UnreadableSpecError, match=r"told of none for rewriter: install manifests/shadow, .*--shadow"):
        parse_rollout(requested)
    assert checks(requested, SHADOWED) == (QUALITY,)
    assert checks(requested | {"status": {"phase": "Analyse"}}) == (QUALITY,), "what is under way goes on"


def test_a_step_of_no_users_needs_a_shadow() -> None:
    with pytest.raises(UnreadableSpecError, match="a step of 0 % needs the check `quality`"):
        parse_rollout(rollout(steps=[0, 5, 100]))
    assert QUALITY in checks(rollout(steps=[0, 5, 100]), SHADOWED)
