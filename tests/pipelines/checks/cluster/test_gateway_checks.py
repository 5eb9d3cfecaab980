"""A run is judged by the gateway that the cluster has: where the profile says otherwise, nothing is sent."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from pipelines.checks.cluster.gateway_checks import gateway_checks
from pipelines.lines.config import load_config
from qinglan.config import load_yaml
from qinglan.llm.config import GatewayConfig
from tests.manifests.manifest_objects import MANIFESTS

OVERLAYS = MANIFESTS / "overlays"


def deployed(**changes: Any) -> str:
    values = load_yaml(OVERLAYS / "single-tenant/fivedoctors/gateway.yaml")
    return yaml.safe_dump({**values, **changes})


def profile(name: str, **changes: Any) -> GatewayConfig:
    return load_config("fivedoctors", name, **changes).gateway


@pytest.mark.parametrize(
    ("overlay", "tenant", "name"),
    [
        ("single-tenant/fivedoctors", "fivedoctors", "gpt"),
        ("multi-tenant/fivedoctors", "fivedoctors", "gpt"),
        ("multi-tenant/chengla", "chengla", "gpt"),
        ("laptop-cluster/fivedoctors", "fivedoctors", "demo"),
    ],
)
def test_the_overlays_deploy_the_profile_that_they_are_for(overlay: str, tenant: str, name: str) -> None:
    text = (OVERLAYS / Path(overlay) / "gateway.yaml").read_text(encoding="utf-8")

    findings = gateway_checks(load_config(tenant, name).gateway, text)

    assert [finding for finding in findings if finding.state == "error"] == []


def test_another_profile_than_the_deployed_one_is_named_model_by_model() -> None:
    [finding] = gateway_checks(profile("deepseek"), deployed())

    assert finding.state == "error"
    assert "teacher.model is 'gpt-5.6-sol' and not 'deepseek-flash'" in finding.what
    assert "examiner.model is 'deepseek-flash' and not 'deepseek-v4-pro'" in finding.what
    assert "judge." not in finding.what
    assert "gateway.yaml" in finding.next_step


def test_a_rag_service_that_is_read_otherwise_is_named() -> None:
    rag = {"path": "/v2/search", "calibration": {"fivedoctors": {"scale": "logit", "slope": 1.0, "intercept": 0.0}}}
    config = profile("gpt", gateway={"rag": rag})

    [finding] = gateway_checks(config, deployed())
    assert "rag.path is '/api/chat/general_rag' and not '/v2/search'" in finding.what
    assert "rag.calibration is {}" in finding.what
    assert gateway_checks(config, deployed(rag={"base_url": "http://company-rag:8000", **rag})) == []


def test_an_address_of_this_machine_stands_for_the_clusters_own() -> None:
    config = profile("gpt", gateway={"rag": {"base_url": "https://rag.acme.example"}})

    assert "rag.base_url is 'http://qinglan-rag:8200'" in gateway_checks(config, deployed())[0].what
    assert gateway_checks(profile("gpt"), deployed()) == []


def test_settings_that_are_not_valid_are_an_error() -> None:
    [finding] = gateway_checks(profile("gpt"), "teacher: {}")
    assert finding.state == "error" and "teacher.model" in finding.what
