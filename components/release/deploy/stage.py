"""A release that may serve goes to an InferenceService by a ModelRollout; nothing else is written.

The whole lineage is walked first. The controller walks it again before it changes any traffic, each pod's initialiser
verifies every byte, and the server checks what it loads: production is safe by those, and people are told in time by
this.
"""

from pathlib import Path
from typing import Any, NamedTuple, Protocol

from components.release.deploy.config import DeployConfig
from components.release.deploy.deciding import Decided, decide
from qinglan.errors import Altered, Conflict, DataError, Incomplete
from qinglan.lineage.addresses import Address
from qinglan.lineage.deploying import may_serve
from qinglan.lineage.release_folder import MODEL, Release, read_release
from qinglan.lineage.subjects import notes_of, release_subject
from qinglan.lineage.trust import TrustPolicy
from qinglan.lineage.verdicts import VERDICT
from qinglan.rollouts import Object

TRIES = 5


class Rollouts(Protocol):
    """The ModelRollouts of one namespace."""

    def all(self) -> list[Object]: ...

    def create(self, rollout: Object) -> bool:
        """False where the name is taken."""
        ...


class Deployed(NamedTuple):
    rollout: str
    release: str
    model: str
    said: str
    override: str = ""
    """Who let it pass although something was missing, and why."""


def deploy(folder: Path, config: DeployConfig, policy: TrustPolicy, rollouts: Rollouts) -> Deployed:
    """Refused with everything that stands against it; the same again changes nothing."""
    release = read_release(folder)
    override = walked(folder, release, config, policy)
    spec = spec_of(release, config)
    decided = _asked(rollouts, config, spec)
    return Deployed(decided.name, release.digest, spec["release"]["model"], decided.said, override)


def walked(folder: Path, release: Release, config: DeployConfig, policy: TrustPolicy) -> str:
    """The override that it passes by, or ""; Altered or Incomplete with the list where it does not pass."""
    from qinglan.store import open_store

    store = open_store(config.store)
    if not store.has(release.digest):
        raise DataError(
            f"{store.address}: has no release {release.digest}, so that no pod could fetch it. Give the register "
            "stage this store, and run it again."
        )
    one = release_subject(folder, (), config.name, notes=tuple(notes_of(store, release.digest)))
    decision = may_serve(one, policy, config.name)
    if not decision.allowed:
        kind = Altered if decision.grave else Incomplete
        listed = (f"  {reason}" for reason in decision.reasons)
        raise kind(f"{config.name} {release.digest[:12]} may not be deployed:", *listed)
    return f"{decision.override.by}: {decision.override.reason}" if decision.override and decision.reasons else ""


def spec_of(release: Release, config: DeployConfig) -> dict[str, Any]:
    """A ModelRollout's: which bytes, who judged them in which run, and by which policy they are rolled out."""
    made = {part.name: part.digest for part in release.statement.made}
    used = {part.name: part.digest for part in release.statement.used}
    return {
        "inferenceService": config.service,
        "release": {
            "name": release.name, "digest": release.digest, "model": made[MODEL],
            "uri": Address(config.store, release.digest, config.adapter).uri,
        },
        "predictor": {
            "runtime": config.runtime, "format": config.format,
            "minReplicas": config.min_replicas, "maxReplicas": config.max_replicas,
        },
        **config.rollout,
        "run": release.statement.run,
        "verdict": used.get(VERDICT, ""),
    }  # fmt: skip


def _asked(rollouts: Rollouts, config: DeployConfig, spec: dict[str, Any]) -> Decided:
    """Looked again where somebody was faster: whose the name is decides."""
    for _ in range(TRIES):
        decided = decide(rollouts.all(), config.namespace, spec)
        if decided.create is None or rollouts.create(decided.create):
            return decided
    raise Conflict(f"{config.service}: others make rollouts all the time. Run again when they are done.")


def settings(config: DeployConfig) -> dict[str, Any]:
    """As a statement has them: where the store is would say whose machine it was."""
    return config.model_dump(mode="json", exclude={"store"})


def to_markdown(done: Deployed, config: DeployConfig) -> str:
    """For the page."""
    rows = [f"| {what} | `{said}` |" for what, said in done._asdict().items() if said]
    watch = f"`kubectl -n {config.namespace} get modelrollout {done.rollout} --watch`"
    return "\n".join(["| deploy | |", "|---|---|", *rows, "", watch, ""])
