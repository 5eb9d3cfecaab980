"""Objects of the API server, read as what a model asks for and does: case by case, without a cluster."""

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml

from serving.rollout.cluster import standard_mode
from serving.rollout.cluster.inference_service import FIELD_MANAGER, SOURCE_ANNOTATION, ServiceObjects
from serving.rollout.cluster.target import service_snapshot
from serving.rollout.state import DesiredModel

OLD, NEW = "s3://q/releases/" + "1" * 64, "s3://q/releases/" + "2" * 64
RECORDED: dict[str, Any] = yaml.safe_load((Path(__file__).parent / "objects/standard.yaml").read_text())


def recorded() -> ServiceObjects:
    result = copy.deepcopy(RECORDED)
    return ServiceObjects(result["service"], deployments=result["deployments"])


def revision(name: str, uri: str, ready: str = "True", **why: str) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "annotations": {SOURCE_ANNOTATION: uri}},
        "status": {"conditions": [{"type": "Ready", "status": ready, **why}]},
    }


def knative(requested: str = NEW, percent: int | None = 20, **status: Any) -> ServiceObjects:
    """rev-1 has the old model and is rolled out, rev-2 has the new one and a share of 20 %."""
    predictor = {
        "latestCreatedRevision": "rev-2", "latestReadyRevision": "rev-2", "latestRolledoutRevision": "rev-1",
        "traffic": [
            {"revisionName": "rev-2", "latestRevision": True, "percent": 20},
            {"revisionName": "rev-1", "percent": 80, "tag": "prev"},
        ],
    }  # fmt: skip
    service = {
        "metadata": {"name": "rewriter", "uid": "u", "resourceVersion": "9", "generation": 3},
        "spec": {"predictor": {"model": {"storageUri": requested}, "canaryTrafficPercent": percent}},
        "status": {
            "deploymentMode": "Knative", "components": {"predictor": {**predictor, **status}},
            "conditions": [{"type": "PredictorRouteReady", "status": "True"}],
        },
    }  # fmt: skip
    return ServiceObjects(service, revisions={"rev-1": revision("rev-1", OLD), "rev-2": revision("rev-2", NEW)})


def test_a_serverless_canary_is_read_from_its_revisions() -> None:
    observed = service_snapshot(knative())

    assert observed.settled and observed.mode == "Serverless" and observed.unsupported == ""
    assert observed.newest and (observed.newest.uri, observed.newest.ready) == (NEW, True)
    assert observed.rolled_out and observed.rolled_out.uri == OLD
    assert observed.traffic == {NEW: 20, OLD: 80} and observed.desired == DesiredModel(uri=NEW, percent=20)


def test_a_revision_that_is_not_the_latest_ready_one_is_not_ready_and_says_why() -> None:
    objects = knative(latestReadyRevision="rev-1")
    assert service_snapshot(objects).newest.ready is False  # type: ignore[union-attr]
    failing = {**objects.revisions, "rev-2": revision("rev-2", NEW, "False", reason="ExitCode1", message="it died")}

    assert service_snapshot(objects._replace(revisions=failing)).newest.failed == "ExitCode1: it died"  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "objects",
    [knative(requested=OLD), knative(percent=50), knative(percent=None), knative(latestCreatedRevision="rev-1")],
    ids=["another model", "another share", "no share", "not made yet"],
)
def test_a_service_whose_change_is_not_carried_out_is_not_settled(objects: ServiceObjects) -> None:
    assert not service_snapshot(objects).settled


def test_the_fingerprint_sees_everything_but_model_and_share() -> None:
    def rest(**changes: Any) -> str:
        objects = knative()
        predictor = objects.service["spec"]["predictor"]
        predictor |= changes.pop("predictor", {})
        predictor["model"] |= changes.pop("model", {})
        objects.service["metadata"]["annotations"] = changes.pop("annotations", {})
        return service_snapshot(objects).rest

    same = rest()
    assert rest(predictor={"canaryTrafficPercent": 50}, model={"storageUri": OLD}) == same
    assert rest(annotations={"internal.serving.kserve.io/localmodel": "one", "sim/state": "hold"}) == same
    assert same not in (
        rest(predictor={"maxReplicas": 3}), rest(predictor={"containers": [{"image": "other"}]}),
        rest(model={"runtime": "other"}), rest(model={"storage": {"path": "other"}}),
        rest(annotations={"serving.kserve.io/s3-endpoint": "other"}),
        rest(annotations={"autoscaling.knative.dev/minScale": "0"}),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("book", "editor"),
    [
        ([("made-it", "08:00:00Z"), (FIELD_MANAGER, "08:00:05Z")], ""),
        ([("made-it", "08:00:00Z"), (FIELD_MANAGER, "08:00:05Z"), ("a-person", "08:00:06Z")], "a-person"),
        ([("made-it", "08:00:05Z"), (FIELD_MANAGER, "08:00:05Z"), ("a-person", "08:00:05Z")], "a-person or made-it"),
    ],
)
def test_the_last_editors_of_a_service_are_named(book: list[tuple[str, str]], editor: str) -> None:
    objects = knative()
    entries = [{"manager": who, "time": f"2026-11-24T{at}", "fieldsV1": {"f:spec": {}}} for who, at in book]
    objects.service["metadata"]["managedFields"] = entries

    assert service_snapshot(objects).editor == editor


def test_a_standard_canary_is_refused_unless_this_kserve_is_said_to_split() -> None:
    assert "KServe 0.20" in service_snapshot(recorded()).unsupported
    assert service_snapshot(recorded(), standard_canary=True).unsupported == ""


def test_a_standard_canary_is_read_from_deployments_as_the_source_of_0_21_has_it() -> None:
    observed = service_snapshot(recorded(), standard_canary=True)

    assert observed.settled and observed.desired == DesiredModel(uri=NEW, percent=10)
    assert observed.newest and (observed.newest.uri, observed.newest.ready) == (NEW, True)
    assert observed.rolled_out and observed.rolled_out.uri == OLD
    assert observed.traffic == {NEW: 10, OLD: 90}


def test_a_deployment_whose_old_pods_hold_it_up_is_not_rolled_out() -> None:
    """Ready and Available stay True while its new pods crash."""
    result = copy.deepcopy(RECORDED)
    result["service"]["spec"].pop("canary")
    result["service"]["status"].pop("canaryStatuses")
    result["deployments"]["rewriter-predictor"]["status"] |= {"replicas": 2, "updatedReplicas": 1}
    objects = ServiceObjects(result["service"], deployments=result["deployments"])
    pod = {
        "metadata": {"name": "rewriter-predictor-x"},
        "status": {"containerStatuses": [{"state": {"waiting": {"reason": "CrashLoopBackOff"}}}]},
    }
    observed = service_snapshot(objects._replace(pods=(pod,)), standard_canary=True)

    assert observed.newest and not observed.newest.ready and observed.newest.failed == "CrashLoopBackOff"
    assert observed.traffic == {}


def test_a_standard_canary_is_asked_for_as_a_copy_of_what_is_served_without_what_kserve_refuses() -> None:
    patch: Any = standard_mode.spec_patch(RECORDED["service"], DesiredModel(uri=NEW, percent=5))
    [canary] = patch["canary"]

    assert "predictor" not in patch, "what is served stays as it is"
    assert canary["trafficPercent"] == 5 and canary["predictor"] == {
        "name": "c-22222222", "serviceAccountName": "qinglan-serving",
        "model": {
            "name": "", "modelFormat": {"name": "qinglan-rewriter-adapter"}, "runtime": "qinglan-rewriter-vllm",
            "storageUri": NEW,
        },
    }  # fmt: skip
    whole: Any = standard_mode.spec_patch(RECORDED["service"], DesiredModel(uri=NEW))
    assert whole == {"predictor": {"model": {"storageUri": NEW}}, "canary": None}
