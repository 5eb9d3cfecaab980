"""`qinglan doctor` at a real API server: its version and kinds, and what a profile's runs would miss there."""

from typing import Any

import pytest

from commands.doctor.cluster import cluster_checks, platform_checks
from pipelines.checks.cluster.cluster_reader import connect, read_platform
from tests.cluster.plane.cluster import Cluster


@pytest.fixture
def here(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig))
    monkeypatch.delenv("KFP_ENDPOINT", raising=False)
    return connect()


def test_versions_and_kinds_are_the_api_servers_own(here: Any) -> None:
    platform = read_platform(here)
    states = {check.subject: check.state for check in platform_checks(platform)}

    assert platform.version.startswith("v1.")
    assert platform.groups["apps"] == "v1"
    assert states["cluster"] == "ok"
    assert states["training-operator"] == ("ok" if "kubeflow.org" in platform.groups else "error")


def test_a_namespace_without_anything_is_told_what_a_run_waits_for(here: Any, namespace: str) -> None:
    from pipelines.lines.config import load_config

    checks = list(cluster_checks(load_config("fivedoctors", "gpt"), "fivedoctors", "gpt", namespace))
    missing = [check for check in checks if check.subject == "namespace" and check.state == "error"]

    assert any("Service qinglan-gateway is not in namespace" in check.what for check in missing)
    assert any("kubectl" in check.command for check in missing)
