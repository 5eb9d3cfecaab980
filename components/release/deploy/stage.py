"""Create a ModelRollout that brings a release to an InferenceService; nothing else is written.

The whole lineage is verified first, so that people learn of a fault early. Production does not rely on this check.
The controller verifies the lineage again before it changes traffic, each pod's initialiser verifies every byte, and
the server checks the files that it loads.
"""

from pathlib import Path
from typing import Any, NamedTuple, Protocol

from components.release.deploy.config import DeployConfig
from components.release.deploy.next_rollout import RolloutDecision, decide_rollout
from qinglan.errors import AlteredError, ConfigError, ConflictError, DataError, IncompleteAuditError
from qinglan.kubernetes.model_rollouts import Object
from qinglan.lineage.auditing.audit_targets import release_target
from qinglan.lineage.auditing.deploy_gate import may_serve
from qinglan.lineage.release.release_address import ReleaseAddress
from qinglan.lineage.signing.trust import TrustPolicy
from qinglan.lineage.trace.release_folder import MODEL, VERDICT, Release, read_release
from qinglan.models.references import ADAPTER_CONFIG, ADAPTER_FOLDER
from qinglan.pages.markdown import markdown_text

TRIES = 5


class Rollouts(Protocol):
    """The ModelRollouts of one namespace."""

    def all(self) -> list[Object]: ...

    def create(self, rollout: Object) -> bool:
        """Create a rollout; False if its name is taken."""
        ...


class Deployed(NamedTuple):
    rollout: str
    release: str
    model: str
    message: str
    override: str = ""
    """Person who signed an override of missing evidence, and the person's reason; empty if no override was needed."""


def deploy(folder: Path, config: DeployConfig, policy: TrustPolicy, rollouts: Rollouts) -> Deployed:
    """Create the release's rollout, or raise an error with all reasons against it. A second call changes nothing."""
    release = read_release(folder)
    # The pods would never start, because the runtime has only the base model, and the release has no adapter to add.
    if config.adapter and not (folder / MODEL / ADAPTER_FOLDER / ADAPTER_CONFIG).is_file():
        raise ConfigError(
            f"{config.name} {release.digest[:12]}: this release has merged weights and no adapter, and "
            f"{config.runtime} serves an adapter over its base. Deploy the merged weights: deploy: "
            f"{{runtime: qinglan-rewriter-vllm-full, namespace: {config.namespace}}}."
        )
    override = verify_lineage(folder, release, config, policy)
    spec = rollout_spec(release, config)
    decided = _create_rollout(rollouts, config, spec)
    return Deployed(decided.name, release.digest, spec["release"]["model"], decided.message, override)


def verify_lineage(folder: Path, release: Release, config: DeployConfig, policy: TrustPolicy) -> str:
    """Return the override by which the release passes, or an empty text without one. An error lists the reasons if
    the release does not pass."""
    from qinglan.store import open_store

    store = open_store(config.store)
    if not store.has(release.digest):
        raise DataError(
            f"{store.address}: has no release {release.digest}, so that no pod could fetch it. Give the register "
            "stage this store, and run it again."
        )
    target = release_target(folder, (), config.name, store=store)
    decision = may_serve(target, policy, config.name)
    if not decision.allowed:
        kind = AlteredError if decision.grave else IncompleteAuditError
        listed = (f"  {reason}" for reason in decision.reasons)
        raise kind(f"{config.name} {release.digest[:12]} may not be deployed:", *listed)
    return f"{decision.override.by}: {decision.override.reason}" if decision.override and decision.reasons else ""


def rollout_spec(release: Release, config: DeployConfig) -> dict[str, Any]:
    """Return the ModelRollout's spec: the release's digests, its run and verdict, and the policy."""
    digests = {part.name: part.digest for part in release.statement.made}
    used = {part.name: part.digest for part in release.statement.used}
    return {
        "inferenceService": config.service,
        "release": {
            "name": release.name, "digest": release.digest, "model": digests[MODEL],
            "uri": ReleaseAddress(config.store, release.digest, config.adapter).uri,
        },
        "predictor": {
            "runtime": config.runtime, "format": config.format,
            "minReplicas": config.min_replicas, "maxReplicas": config.max_replicas,
        },
        **config.rollout,
        "run": release.statement.run,
        "verdict": used.get(VERDICT, ""),
    }  # fmt: skip


def _create_rollout(rollouts: Rollouts, config: DeployConfig, spec: dict[str, Any]) -> RolloutDecision:
    # If another deployment took the name in between, the decision is made again with its rollout.
    for _ in range(TRIES):
        decided = decide_rollout(rollouts.all(), config.namespace, spec)
        if decided.create is None or rollouts.create(decided.create):
            return decided
    raise ConflictError(
        f"{config.service}: other deployments keep taking the rollout's name. Run again when they are done."
    )


def settings(config: DeployConfig) -> dict[str, Any]:
    """Return the settings for the step's statement, without the store, whose address may name a machine."""
    return config.model_dump(mode="json", exclude={"store"})


def to_markdown(done: Deployed, config: DeployConfig) -> str:
    rows = [f"| {what} | {markdown_text(value)} |" for what, value in done._asdict().items() if value]
    watch = f"`kubectl -n {config.namespace} get modelrollout {done.rollout} --watch`"
    return "\n".join(["| deploy | |", "|---|---|", *rows, "", watch, ""])
