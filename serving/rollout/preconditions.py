"""Check the preconditions of a rollout."""

from serving.rollout.ports import Proof, ServiceSnapshot
from serving.rollout.spec import RolloutSpec


def unmet_preconditions(spec: RolloutSpec, service: ServiceSnapshot, canary: Proof, stable: Proof) -> tuple[str, ...]:
    """List all reasons why a rollout may not begin, so that a person can fix all at once; empty if it may begin."""
    reasons = [*spec.beyond_limits(), *verification_failures(spec, canary)]
    reasons += [f"the stable model, to which a rollback would go: {missing}" for missing in stable.missing]
    if canary.model == stable.model and service.desired.percent is None:
        reasons.append(f"model {canary.model[:12]} is what is served already")
    if service.unsupported:
        reasons.append(service.unsupported)
    if spec.mode not in ("Auto", service.mode):
        reasons.append(f"the InferenceService is {service.mode}, and the rollout asks for {spec.mode}")
    if service.desired.percent is not None:
        reasons.append(f"a canary of {service.desired} is under way already: end it first")
    rolled_out = (service.rolled_out.uri or "a revision that is gone") if service.rolled_out else "nothing"
    if not service.settled or rolled_out != service.desired.uri:
        reasons.append(f"{service.desired.uri} is asked for, and {rolled_out} is served: wait until they agree")
    return tuple(reasons)


def verification_failures(spec: RolloutSpec, canary: Proof) -> list[str]:
    """List the reasons why the release may not be served."""
    reasons = [f"release {spec.release.digest[:12]}: {missing}" for missing in canary.missing]
    if not canary.digest:
        return reasons
    if canary.digest != spec.release.digest:
        reasons.append(f"{spec.release.uri} is release {canary.digest[:12]}, not {spec.release.digest[:12]}")
    if canary.model != spec.release.model:
        reasons.append(f"its model is {canary.model[:12]}, not {spec.release.model[:12]}")
    return reasons
