"""A live service is matched to releases place by place; a place that names no release is found."""

import copy
from collections.abc import Callable
from typing import Any

import pytest

from commands.audit.live_service import (
    ServiceObjects,
    fetch_server_versions,
    match_releases,
    service_lines,
    unmatched_versions,
)
from tests.servers.echo_servers import Reply, Scripted, running

OLD, NEW = (f"s3://qinglan/fivedoctors/releases/{digit * 64}" for digit in "12")
Change = Callable[[dict[str, Any]], None]


def pod(name: str, uri: str, revision: str = "") -> dict[str, Any]:
    first = {"name": "storage-initializer", "command": ["python", "-m", "serving.initialiser"],
             "args": [uri, "/mnt/models"]}  # fmt: skip
    return {
        "metadata": {"name": name, "labels": {"serving.knative.dev/revision": revision} if revision else {}},
        "spec": {"initContainers": [first], "containers": [{"name": "kserve-container"}]},
    }


def world() -> dict[str, Any]:
    """A canary with ten per cent, in Knative's mode."""
    traffic = [{"revisionName": "r-1", "percent": 90}, {"revisionName": "r-2", "percent": 10}]
    source = "internal.serving.kserve.io/storage-initializer-sourceuri"
    return {
        "service": {
            "metadata": {"name": "rewriter"},
            "spec": {"predictor": {"canaryTrafficPercent": 10, "model": {"storageUri": NEW}}},
            "status": {"components": {"predictor": {"traffic": traffic}}},
        },
        "revisions": {
            name: {"metadata": {"annotations": {source: uri}}} for name, uri in (("r-1", OLD), ("r-2", NEW))
        },
        "pods": (pod("one", OLD, "r-1"), pod("two", NEW, "r-2")),
        "rollouts": (rollout(1, OLD, "Done", "Promoted"), rollout(2, NEW, "Analyse", stable=OLD)),
    }  # fmt: skip


def rollout(number: int, uri: str, phase: str = "", outcome: str = "", stable: str = "") -> dict[str, Any]:
    rollout_object: dict[str, Any] = {
        "metadata": {"name": f"rewriter-{number}"},
        "spec": {"inferenceService": "rewriter", "release": {"uri": uri}},
    }
    status = {"phase": phase, "outcome": outcome, "stable": {"uri": stable} if stable else None}
    return {**rollout_object, "status": status} if phase else rollout_object


def live_of(change: Change = lambda served: None) -> Any:
    result = copy.deepcopy(world())
    change(result)
    return match_releases(ServiceObjects(**result), "qinglan")


def test_every_place_names_a_release_and_each_release_is_audited_once() -> None:
    live = live_of()

    assert live.findings == ()
    assert [address.digest for address in live.addresses] == ["2" * 64, "1" * 64]
    lines = list(service_lines(live))
    assert "spec: 222222222222, 10 % of the traffic" in lines
    assert "revision r-1: 111111111111, 90 % of the traffic" in lines
    assert "pod one: 111111111111" in lines


@pytest.mark.parametrize(
    ("change", "what", "state", "why"),
    [
        (lambda k8s: k8s["service"]["spec"]["predictor"]["model"].update(storageUri="s3://models/latest"),
         "spec", "untrusted", "no release by its digest"),
        (lambda k8s: k8s["service"]["spec"].update(predictor={"containers": [{"image": "evil"}]}),
         "spec", "untrusted", "names no release"),
        (lambda k8s: k8s["service"]["spec"].update(canary=[{"predictor": {"model": {"storageUri": "pvc://a"}}}]),
         "spec.canary", "untrusted", "pvc://a is no release"),
        (lambda k8s: k8s["revisions"]["r-1"].update(metadata={}), "revision r-1", "untrusted", "names no release"),
        (lambda k8s: k8s["pods"][0]["spec"].pop("initContainers"), "pod one", "untrusted", "names no release"),
        (lambda k8s: k8s["pods"][0]["spec"]["initContainers"][0].update(command=["/storage-initializer"]),
         "pod one", "untrusted", "names no release that was verified"),
        (lambda k8s: k8s["pods"][0]["spec"]["initContainers"][0].update(args=[OLD.replace("1", "3"), "/mnt/models"]),
         "pod one", "altered", "does not ask for"),
        (lambda k8s: k8s.update(rollouts=()), "rollout", "missing", f"no ModelRollout has brought {NEW} to rewriter"),
    ],
)  # fmt: skip
def test_a_served_model_that_matches_no_release_is_found(change: Change, what: str, state: str, why: str) -> None:
    findings = live_of(change).findings

    assert any((finding.what, finding.state) == (what, state) and why in finding.why for finding in findings), (
        findings
    )


FIRST = rollout(1, OLD, "Done", "Promoted")


@pytest.mark.parametrize(
    ("rollouts", "unbrought"),
    [
        ([FIRST, rollout(2, NEW, "Done", "Promoted", OLD)], []),
        ([rollout(2, NEW, "Done", "Promoted", OLD)], []),  # whoever brought OLD was deleted since
        ([FIRST, rollout(2, NEW, "Analyse", stable=OLD)], []),
        ([FIRST, rollout(2, NEW, "Rollback", stable=OLD)], []),
        ([FIRST], [NEW]),  # an orphaned canary: its rollout was deleted under way
        ([FIRST, rollout(3, NEW)], [NEW]),  # and another that nobody has begun
        ([FIRST, rollout(3, NEW, "Verify")], [NEW]),
        ([FIRST, rollout(3, NEW, "Done", "Refused")], [NEW]),
        ([FIRST, rollout(2, NEW, "Done", "RolledBack", OLD)], [NEW]),
        ([rollout(2, NEW, "Done", "Promoted")], [OLD]),  # not asked for any more, and it still has traffic
    ],
)
def test_a_served_model_needs_a_promotion_or_a_rollout_under_way(
    rollouts: list[dict[str, Any]], unbrought: list[str]
) -> None:
    findings = live_of(lambda k8s: k8s.update(rollouts=tuple(rollouts))).findings

    assert [(finding.what, finding.state) for finding in findings] == [("rollout", "missing")] * len(unbrought)
    assert [uri for uri in (OLD, NEW) if any(uri in finding.why for finding in findings)] == unbrought


def test_pods_of_a_revision_without_traffic_are_only_going() -> None:
    live = live_of(lambda k8s: k8s["pods"][0]["metadata"]["labels"].update({"serving.knative.dev/revision": "r-0"}))

    assert live.findings == ()


def test_where_rollouts_cannot_be_read_nothing_is_said_of_them() -> None:
    assert live_of(lambda k8s: k8s.update(rollouts=None)).findings == ()


def test_the_servers_own_word_is_held_against_the_releases() -> None:
    metrics_line = 'qinglan_rewriter_requests_total{outcome="answered",version="aaaaaaaaaaaa"} 3'
    text = f'{metrics_line}\nother{{version="bbbbbbbbbbbb"}} 1\n'

    with running(Scripted(Reply(200, text.encode()))) as host:
        url = {"status": {"url": "http://127.0.0.1:1", "address": {"url": host}}}
        versions = fetch_server_versions(url)

    assert versions == ("aaaaaaaaaaaa",)
    assert unmatched_versions(versions, {"a" * 64: "fivedoctors/rewriter"}) == []
    [finding] = unmatched_versions(versions, {"c" * 64: "fivedoctors/rewriter"})
    assert finding.state == "altered" and "answers as aaaaaaaaaaaa" in finding.why
    assert fetch_server_versions({"status": {"url": "http://127.0.0.1:1"}}) is None
