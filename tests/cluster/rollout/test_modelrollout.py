"""The ModelRollout as the API server knows it: what it takes, what it refuses in words, what kubectl tells of one."""

import copy
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.cluster.kubectl import Kubectl
from tests.manifests.manifest_objects import Object

NEW, MODEL = "2" * 64, "3" * 64


def rollout(namespace: str, name: str = "rewriter-1") -> Object:
    return {
        "apiVersion": "qinglan.dev/v1alpha1", "kind": "ModelRollout",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "inferenceService": "rewriter",
            "release": {
                "name": "fivedoctors/rewriter", "digest": NEW, "model": MODEL,
                "uri": f"s3://qinglan/fivedoctors/releases/{NEW}",
            },
            "predictor": {"runtime": "qinglan-rewriter-cpu", "format": "qinglan-rewriter", "minReplicas": 1},
            "steps": [5, 20, 50, 100], "mode": "Auto", "stepSeconds": 300, "minimumSample": 200,
            "deadlineSeconds": 7200, "foreignEdits": "Stop", "run": "a-run", "verdict": "4" * 64,
            "checks": [
                {"name": "errors", "margin": 0.01}, {"name": "slow", "margin": 0.05, "seconds": 1.0},
                {"name": "costly", "margin": 0.05, "tokens": 32},
            ],
        },
    }  # fmt: skip


def test_a_whole_one_and_the_least_one_are_taken(api: Kubectl, namespace: str) -> None:
    least = rollout(namespace)
    least["spec"] = {name: least["spec"][name] for name in ("inferenceService", "release")}

    assert api.try_to_create(rollout(namespace)) == ""
    assert api.try_to_create(least) == ""


WRONG: dict[str, Callable[[Object], None]] = {
    "steps rise: 5, 20, 50, 100": lambda spec: spec.update(steps=[20, 5, 100]),
    "Duplicate value: 5": lambda spec: spec.update(steps=[5, 5, 100]),
    "the last step is 100": lambda spec: spec.update(steps=[5, 50]),
    "should have at least 2 items": lambda spec: spec.update(steps=[100]),
    "should be less than or equal to 100": lambda spec: spec.update(steps=[5, 200]),
    "needs the check `quality`": lambda spec: spec.update(steps=[0, 20, 100]),
    "with users is at most 50 %": lambda spec: spec.update(steps=[0, 100]),
    "uri names another release than digest": lambda spec: spec["release"].update(digest="5" * 64),
    "another release than digest": lambda spec: spec["release"].update(
        uri=f"s3://qinglan/releases/{NEW}/releases/{'5' * 64}"),
    "spec.release.uri": lambda spec: spec["release"].update(uri="s3://qinglan/fivedoctors/latest"),
    "spec.release.name": lambda spec: spec["release"].update(name="rewriter"),
    "spec.release.model: Required value": lambda spec: spec["release"].pop("model"),
    'unknown field "spec.step"': lambda spec: spec.update(step=[5, 100]),
    "spec.inferenceService": lambda spec: spec.update(inferenceService="../rewriter"),
    "could only be taken back": lambda spec: spec.update(deadlineSeconds=899),
    "minReplicas is more than maxReplicas": lambda spec: spec["predictor"].update(minReplicas=3, maxReplicas=2),
    "contradict each other": lambda spec: spec.update(abort=True, promote=True),
    "cannot skip its evidence": lambda spec: spec.update(promote=True),
    "only the check `slow` has seconds": lambda spec: spec["checks"][0].update(seconds=1.0),
    "only the check `costly` has tokens": lambda spec: spec["checks"][1].update(tokens=32),
    "checks[2].tokens": lambda spec: spec["checks"][2].update(tokens=7),
    "checks[1].seconds": lambda spec: spec["checks"][1].update(seconds=0.004),
    "Duplicate value": lambda spec: spec["checks"].append({"name": "errors", "margin": 0.02}),
    'Unsupported value: "looks"': lambda spec: spec["checks"].append({"name": "looks", "margin": 0.02}),
    "should be less than or equal to 0.1": lambda spec: spec["checks"][0].update(margin=0.11),
    "spec.stepSeconds: Invalid value: 4": lambda spec: spec.update(stepSeconds=4),
    "spec.minimumSample: Invalid value: 29": lambda spec: spec.update(minimumSample=29),
    "the first step with users is at most 50 %": lambda spec: spec.update(steps=[51, 100]),
    "the check `errors` is missing": lambda spec: spec["checks"].pop(0),
    "uri names two releases": lambda spec: spec["release"].update(
        uri=f"s3://qinglan/releases/{'5' * 64}/releases/{NEW}"),
    'Unsupported value: "Fast"': lambda spec: spec.update(mode="Fast"),
}  # fmt: skip


@pytest.mark.parametrize("answer", WRONG)
def test_a_wrong_one_is_refused_in_words(api: Kubectl, namespace: str, answer: str) -> None:
    manifest = rollout(namespace)
    WRONG[answer](manifest["spec"])

    assert answer in api.try_to_create(manifest)


@pytest.mark.parametrize("spec", [{"deadlineSeconds": 899}, {"stepSeconds": 3600}])
def test_a_deadline_is_held_against_the_steps_by_the_usual_values_where_one_is_not_said(
    api: Kubectl, namespace: str, spec: Object
) -> None:
    manifest = rollout(namespace)
    for name in ("stepSeconds", "deadlineSeconds", "steps"):
        del manifest["spec"][name]
    assert api.try_to_create(manifest) == ""

    manifest["spec"] |= spec
    assert "could only be taken back" in api.try_to_create(manifest)


CHANGES: dict[str, Object] = {
    "release": {"release": {"digest": "5" * 64, "uri": f"s3://qinglan/fivedoctors/releases/{'5' * 64}"}},
    "service": {"inferenceService": "other"},
    "predictor": {"predictor": {"runtime": "other"}},
    "predictor gone": {"predictor": None},
    "steps": {"steps": [40, 100]},
    "steps gone": {"steps": None},
    "margin": {"checks": [{"name": "errors", "margin": 0.1}]},
    "sample": {"minimumSample": 30},
    "step's time": {"stepSeconds": 5},
    "deadline": {"deadlineSeconds": 1000},
    "foreign edits": {"foreignEdits": "Restore"},
    "mode": {"mode": "Standard"},
    "run": {"run": ""},
    "verdict": {"verdict": ""},
}


@pytest.fixture(scope="module")
def try_change(api: Kubectl, cluster: Any) -> Iterator[Callable[..., str]]:
    """One that is there; the answer to a change of its spec, tried and not made."""
    from tests.cluster.plane.cluster import fresh_namespace

    with fresh_namespace(cluster) as namespace:
        api.must("create", "-f", "-", manifests=[rollout(namespace)])

        def change(spec: Object) -> str:
            return api.try_to_patch("modelrollout", "rewriter-1", namespace, {"spec": spec})

        yield change


@pytest.mark.parametrize("change", CHANGES)
def test_the_release_and_policy_of_a_modelrollout_cannot_change(try_change: Callable[..., str], change: str) -> None:
    assert "only paused, abort and promote change" in try_change(CHANGES[change])


@pytest.mark.parametrize("word", [{"paused": True}, {"abort": True}, {"promote": True}])
def test_a_persons_word_may_come_at_any_time(try_change: Callable[..., str], word: Object) -> None:
    assert try_change(word) == ""


def test_kubectl_tells_the_story_and_the_status_is_written_apart(api: Kubectl, namespace: str) -> None:
    manifest = rollout(namespace)
    api.must("create", "-f", "-", manifests=[{**copy.deepcopy(manifest), "status": {"phase": "Done"}}])
    assert "status" not in api.get("modelrollout", "rewriter-1", namespace), "status has a way of its own"

    status = {
        "phase": "Rollback", "percent": 20, "step": 1, "outcome": "", "cursor": 17.5,
        "reasons": ["errors: 3.1 % against 0.4 %"], "intent": {"action": "Rollback", "percent": 0},
    }  # fmt: skip
    api.must("patch", "modelrollout", "rewriter-1", "-n", namespace, "--subresource=status", "--type=merge",
             f"-p={json.dumps({'status': status})}")  # fmt: skip
    head, line = api.must("get", "modelrollouts", "-n", namespace).splitlines()

    assert head.split() == ["NAME", "SERVICE", "RELEASE", "PHASE", "PERCENT", "STEP", "OUTCOME", "REASON", "AGE"]
    report = ["rewriter-1", "rewriter", "fivedoctors/rewriter", "Rollback", "20", "1"]
    assert line.split()[:6] == report and "errors: 3.1 % against 0.4 %" in line
    assert api.get("modelrollout", "rewriter-1", namespace)["status"] == status, "what it remembers is kept"


def test_a_phase_that_nobody_knows_is_refused(api: Kubectl, namespace: str) -> None:
    api.must("create", "-f", "-", manifests=[rollout(namespace)])
    answer = api("patch", "modelrollout", "rewriter-1", "-n", namespace, "--subresource=status", "--type=merge",
               '-p={"status": {"phase": "Guessing"}}')  # fmt: skip

    assert answer.code != 0 and 'Unsupported value: "Guessing"' in answer.text
