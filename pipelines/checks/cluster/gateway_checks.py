"""Compare the profile's gateway settings with those that the cluster's gateway was deployed with.

On a cluster the gateway reads its own gateway.yaml: a profile's models and RAG settings count only where both agree.
"""

from collections.abc import Iterator
from typing import Any

from pipelines.checks.cluster.cluster_snapshot import Finding
from qinglan.config import yaml_mapping
from qinglan.errors import ConfigError
from qinglan.llm.config import GatewayConfig, PaidModel, RagUpstream
from qinglan.llm.host_allowlist import is_local
from qinglan.rag.service_shape import RagService

GATEWAY_FILE = "gateway.yaml"
COSTS = ("price", "typical_seconds", "batch_price_factor")
"""Settings of a model that change no answer."""

MEND = (
    "Put the profile's settings under `gateway` into gateway.yaml of the tenant's overlay and apply it (kubectl "
    "apply --server-side -k manifests/overlays/...), or submit the profile that is deployed."
)


def gateway_findings(profile: GatewayConfig, deployed: str) -> list[Finding]:
    """Report differences in models and RAG settings, which would change the run; warn of differences in prices."""
    try:
        gateway = GatewayConfig.parse(yaml_mapping(deployed, GATEWAY_FILE), GATEWAY_FILE)
    except ConfigError as error:
        return [Finding("missing", f"The gateway on the cluster was deployed with settings that are none: {error}.")]
    differences = [*_model_differences(profile, gateway), *_rag_differences(profile.rag, gateway.rag)]
    findings = []
    if differences:
        listed = "; ".join(differences)
        findings.append(
            Finding("missing", f"The gateway on the cluster has other settings than the profile: {listed}.", MEND)
        )
    if costs := "; ".join(_cost_differences(profile, gateway)):
        findings.append(Finding("warning", f"The gateway on the cluster counts money otherwise: {costs}.", MEND))
    return findings


def _model_differences(profile: GatewayConfig, gateway: GatewayConfig) -> Iterator[str]:
    deployed = gateway.models()
    for role, model in profile.models().items():
        ignored = (*COSTS, *(["base_url", "api_key_env"] if is_local(model.base_url) else []))
        yield from _differences(role, _settings(model, ignored), _settings(deployed[role], ignored))


def _rag_differences(profile: RagUpstream, gateway: RagUpstream) -> Iterator[str]:
    names = [*RagService.model_fields, *([] if is_local(profile.base_url) else ["base_url"])]
    settings, deployed = profile.model_dump(mode="json"), gateway.model_dump(mode="json")
    yield from _differences("rag", {name: settings[name] for name in names}, {name: deployed[name] for name in names})


def _cost_differences(profile: GatewayConfig, gateway: GatewayConfig) -> Iterator[str]:
    deployed = gateway.models()
    for role, model in profile.models().items():
        if model.price != deployed[role].price:
            yield f"{role}'s price is {_price(deployed[role])} and not {_price(model)}"
    if profile.budget != gateway.budget:
        yield f"its budget is {gateway.budget:g} for all runs of the namespace, the profile's {profile.budget:g}"


def _differences(where: str, profile: dict[str, Any], deployed: dict[str, Any]) -> Iterator[str]:
    for name, value in profile.items():
        if value != deployed[name]:
            yield f"{where}.{name} is {deployed[name]!r} and not {value!r}"


def _settings(model: PaidModel, ignored: tuple[str, ...]) -> dict[str, Any]:
    values = model.model_dump(mode="json") | {"answer_format": model.structured_answers}
    return {name: value for name, value in values.items() if name not in ignored}


def _price(model: PaidModel) -> str:
    price = model.price
    return f"{price.input:g}/{price.cached_input:g}/{price.output:g} {price.currency}"
