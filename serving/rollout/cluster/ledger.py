"""Ledger on Kubernetes: a ModelRollout. Its status is written only if the object is unchanged since its read."""

from collections.abc import Collection
from typing import Any

from qinglan.errors import ConfigError, OutageError
from qinglan.kubernetes.client import Api
from qinglan.kubernetes.model_rollouts import GROUP, KIND, VERSION
from serving.rollout.cluster.api_errors import translate_refusals
from serving.rollout.cluster.inference_service import Object
from serving.rollout.cluster.object_cache import ObjectCache
from serving.rollout.ports import RolloutSnapshot
from serving.rollout.spec import RolloutSpec, default_checks
from serving.rollout.state import State

ROLLOUTS = "modelrollouts"


class UnreadableSpecError(ConfigError):
    """Raised for a spec that the API server accepts but this controller cannot follow."""


class ClusterLedger:
    """Ledger of one ModelRollout. `shadowed` are the InferenceServices for which a shadow runs."""

    def __init__(self, api: Api, cache: ObjectCache, name: str, shadowed: Collection[str] = ()) -> None:
        self.api, self.cache, self.name, self.shadowed = api, cache, name, shadowed

    def read(self) -> RolloutSnapshot:
        return parse_rollout(self._object(), self.shadowed)

    def write(self, state: State, expected: str) -> None:
        """Write the status. Raises a ConflictError if the object, even only its spec, has changed since its read."""
        rollout = self._object()
        metadata = {**rollout["metadata"], "resourceVersion": expected}
        metadata.pop("managedFields", None)  # half of the object's size, and the API server keeps its own
        body = {"apiVersion": f"{GROUP}/{VERSION}", "kind": KIND, "spec": rollout["spec"], "metadata": metadata}
        body["status"] = dump_status(state)
        # A write with a resourceVersion fails with 409 if the object has changed since.
        # https://kubernetes.io/docs/reference/using-api/api-concepts/#resource-versions
        with translate_refusals(self.api):
            self.cache.put(ROLLOUTS, self.api.replace(ROLLOUTS, f"{self.name}/status", body))

    def refuse(self, why: str, now: float) -> None:
        """End a rollout whose spec cannot be read, with the outcome Refused. It has not changed anything yet."""
        rollout = self._object()
        done = State(phase="Done", outcome="Refused", reasons=(why,)).with_record(now, "Refused", why)
        self.write(done, str(rollout["metadata"]["resourceVersion"]))

    def _object(self) -> Object:
        rollout = self.cache.get(ROLLOUTS, self.name)
        if rollout is None:
            raise OutageError(f"modelrollout {self.name} is gone: it was deleted. What it asked for last stays so.")
        return rollout


def parse_rollout(rollout: Object, shadowed: Collection[str] = ()) -> RolloutSnapshot:
    """Read a ModelRollout, and add the default checks if its spec names none.

    The default checks are stored in the state at the first write. So a shadow that is installed or removed later does
    not change them.
    """
    metadata = rollout["metadata"]
    where = f"modelrollout {metadata['namespace']}/{metadata['name']}"
    state, policy = parse_state(rollout), dict(rollout["spec"])
    has_shadow = policy.get("inferenceService") in shadowed
    if "checks" not in policy:
        checks = state.checks or default_checks(has_shadow)
        state = state.model_copy(update={"checks": checks})
        policy["checks"] = [check.model_dump(by_alias=True) for check in checks]
    try:
        spec = RolloutSpec.parse(policy, f"{where}: spec")
    except ConfigError as error:
        raise UnreadableSpecError(str(error)) from error
    if state.phase == "Verify" and not has_shadow and "quality" in {check.name for check in spec.checks}:
        raise UnreadableSpecError(
            f"{where}: the check `quality` has no evidence without a shadow, and this controller is told of none for "
            f"{spec.inference_service}: install manifests/shadow, which passes --shadow, or name the other checks."
        )
    return RolloutSnapshot(spec, state, str(metadata["resourceVersion"]))


def parse_state(rollout: Object) -> State:
    where = f"modelrollout {rollout['metadata']['namespace']}/{rollout['metadata']['name']}"
    return State.parse(rollout.get("status") or {}, f"{where}: status")


def dump_status(state: State) -> dict[str, Any]:
    return state.model_dump(mode="json", by_alias=True, exclude_none=True)
