"""The component with a company's own authority changes the gateway that the base has."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from qinglan.http.http_client import CA_VARIABLE

MANIFESTS = Path(__file__).parents[2] / "manifests"


def gateway(path: str) -> tuple[str, dict[str, Any], list[Any]]:
    """The Deployment's name, its container by key, and its volumes."""
    documents = yaml.safe_load_all((MANIFESTS / path).read_text(encoding="utf-8"))
    deployment = next(document for document in documents if document["kind"] == "Deployment")
    pod = deployment["spec"]["template"]["spec"]
    return deployment["metadata"]["name"], pod["containers"][0], pod["volumes"]


@pytest.mark.slow
def test_the_gateway_reads_the_authority_from_a_config_map() -> None:
    base_name, base_container, base_volumes = gateway("base/gateway.yaml")
    name, container, volumes = gateway("company-ca/gateway.yaml")
    [variable], [mount], [volume] = container["env"], container["volumeMounts"], volumes

    assert (name, container["name"]) == (base_name, base_container["name"])
    assert variable == {"name": CA_VARIABLE, "value": f"{mount['mountPath']}/ca.crt"}
    assert volume == {"name": mount["name"], "configMap": {"name": "company-ca"}}
    assert mount["name"] not in {known["name"] for known in base_volumes} and mount["readOnly"]
