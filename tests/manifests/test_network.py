"""Allowed connections by the policies as they are written."""

import pytest

from tests.manifests.allowed_connections import PODS, outside, pod, reaching_out, wrong_ways
from tests.manifests.manifest_objects import MANIFESTS, objects
from tests.manifests.network import Place, Policy, may_speak


def written(file: str) -> list[Policy]:
    result = objects(MANIFESTS / file)
    return [{**item, "metadata": {**item["metadata"], "namespace": "qinglan"}} for item in result]


BASE, SHADOW = written("base/network.yaml"), written("shadow/network.yaml")
ONE_NAMESPACE, COMPANY_RAG = written("one-namespace/network.yaml"), written("company-rag/network.yaml")


@pytest.mark.parametrize("more", [[], SHADOW, ONE_NAMESPACE, COMPANY_RAG], ids=["base", "shadow", "one", "company"])
def test_every_way_is_as_promised_and_the_gateway_alone_reaches_the_internet(more: list[Policy]) -> None:
    policies = [*BASE, *more]

    assert wrong_ways(policies, "qinglan", shadow=more is SHADOW) == []
    assert reaching_out(policies, "qinglan") == {"gateway"}


@pytest.mark.parametrize("name", ["step", "job"])
def test_a_kfp_of_one_namespace_asks_the_gateway_by_its_component_alone(name: str) -> None:
    gateway, of_kfp = pod("gateway", "qinglan"), pod(name, "kubeflow")

    assert not may_speak(BASE, of_kfp, gateway, 8300)
    assert may_speak([*BASE, *ONE_NAMESPACE], of_kfp, gateway, 8300)
    assert not may_speak([*BASE, *ONE_NAMESPACE], of_kfp, pod("rag", "qinglan"), 8200)
    for stranger in (pod("stranger", "kubeflow"), pod("step", "another-tenant")):
        assert not may_speak([*BASE, *ONE_NAMESPACE], stranger, gateway, 8300)


def test_a_companys_rag_is_reached_by_the_gateway_alone_and_only_with_its_component() -> None:
    rag = outside("chatchat", **{"qinglan.dev/rag": "true"})
    policies = [*BASE, *COMPANY_RAG]

    assert [name for name in PODS if may_speak(policies, pod(name, "qinglan"), rag, 8000)] == ["gateway"]
    assert not may_speak(BASE, pod("gateway", "qinglan"), rag, 8000)
    assert not may_speak(policies, pod("gateway", "qinglan"), outside("other"), 8000)


@pytest.mark.parametrize("name", PODS)
def test_everybody_may_ask_for_names(name: str) -> None:
    dns = Place({"k8s-app": "kube-dns"}, "kube-system", {"kubernetes.io/metadata.name": "kube-system"})

    assert may_speak(BASE, pod(name, "qinglan"), dns, 53, "UDP")
    assert not may_speak(BASE, pod(name, "qinglan"), dns, 9153)


@pytest.mark.parametrize("missing", [item["metadata"]["name"] for item in (*BASE, *SHADOW)])
def test_each_policy_is_needed_but_dns(missing: str) -> None:
    rest = [item for item in (*BASE, *SHADOW) if item["metadata"]["name"] != missing]

    assert bool(wrong_ways(rest, "qinglan", shadow=True)) is (missing != "dns")
