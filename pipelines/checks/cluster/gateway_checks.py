"""Compare the profile's gateway settings with those that the cluster's gateway was deployed with.

On a cluster the gateway reads its own gateway.yaml, not the profile, so both must have the same models and RAG
settings.
"""

from collections.abc import Iterator
from typing import Any

from pipelines.checks.checks import Check, failed
from qinglan.config import yaml_mapping
from qinglan.errors import ConfigError
from qinglan.llm.config import GatewayConfig, PaidModel
from qinglan.llm.host_allowlist import is_local
from qinglan.rag.service_shape import RagService

GATEWAY_FILE = "gateway.yaml"
COSTS = ("price", "typical_seconds", "batch_price_factor")
"""Settings of a model that do not change its answers."""

MEND = (
    "Put the profile's settings under `gateway` into gateway.yaml of the tenant's overlay and apply it (kubectl "
    "apply --server-side -k manifests/overlays/...), or submit the profile that is deployed."
)


def gateway_checks(profile: GatewayConfig, deployed: str) -> list[Check]:
    """Report differences in models and RAG settings, which would change the run."""
    try:
        gateway = GatewayConfig.parse(yaml_mapping(deployed, GATEWAY_FILE), GATEWAY_FILE)
    except ConfigError as error:
        return [failed("namespace", ConfigError(f"The gateway's settings on the cluster are not valid: {error}."))]
    differences: list[str] = []
    models = gateway.models()
    for role, model in profile.models().items():
        ignored = (*COSTS, *(["base_url", "api_key_env"] if is_local(model.base_url) else []))
        differences += _differences(role, _settings(model, ignored), _settings(models[role], ignored))
    names = {*RagService.model_fields, *([] if is_local(profile.rag.base_url) else ["base_url"])}
    rag, deployed_rag = (config.rag.model_dump(mode="json", include=names) for config in (profile, gateway))
    differences += _differences("rag", rag, deployed_rag)
    what = f"The gateway on the cluster has other settings than the profile: {'; '.join(differences)}."
    return [Check("error", "namespace", what, MEND)] if differences else []


def _differences(where: str, profile: dict[str, Any], deployed: dict[str, Any]) -> Iterator[str]:
    for name, value in profile.items():
        if value != deployed[name]:
            yield f"{where}.{name} is {deployed[name]!r} and not {value!r}"


def _settings(model: PaidModel, ignored: tuple[str, ...]) -> dict[str, Any]:
    values = model.model_dump(mode="json") | {"answer_format": model.structured_answers}
    return {name: value for name, value in values.items() if name not in ignored}
