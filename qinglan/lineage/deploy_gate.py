"""The deploy gate: yes, or everything that stands against it.

decision = may_deploy(release, policy, "fivedoctors/rewriter")
if not decision.allowed:
    print("\\n".join(decision.reasons))
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from qinglan.config import load_yaml
from qinglan.errors import AlteredError, ConfigError
from qinglan.lineage.audit import audit_target, read_overrides
from qinglan.lineage.audit_targets import AuditTarget, open_target, release_target
from qinglan.lineage.evidence_source import CombinedEvidence, Evidence
from qinglan.lineage.explain import read_evaluation
from qinglan.lineage.findings import Finding
from qinglan.lineage.graph import RELEASE_STAGE, Graph, Step, steps_by_time
from qinglan.lineage.override import Override, make_override
from qinglan.lineage.release_folder import BOM, EVALUATION, FOLDERS, PROVENANCE, REPORT, SIGNATURE
from qinglan.lineage.rollout_statement import findings_of_rollouts as of_rollouts
from qinglan.lineage.statement import ArtifactRef
from qinglan.lineage.trust import TrustPolicy

REQUIRED_FILE = Path(__file__).with_name("required_inputs.yaml")


@cache
def required_inputs() -> dict[str, dict[str, list[str]]]:
    """By line and stage: the stages that a model must have come through, and the inputs that each must name."""
    return load_yaml(REQUIRED_FILE)


GRAVE = ("altered", "untrusted")
RELEASE_FILES = (*FOLDERS, SIGNATURE, PROVENANCE, BOM, EVALUATION, REPORT)
"""A release's files and folders."""


class Decision(NamedTuple):
    allowed: bool
    reasons: list[str]
    """What stands against it, also where it was overridden."""

    override: Override | None = None
    grave: bool = False
    """Something is altered or untrusted, which no override covers."""


def may_deploy(
    release: Path,
    policy: TrustPolicy,
    name: str,
    evidence: Sequence[Evidence] = (),
    override: Override | None = None,
    now: datetime | None = None,
) -> Decision:
    """Whether this folder may serve under this name. An override covers what is missing, never what is altered."""
    one = release_target(release, (), name)
    return decide_deployment(
        one._replace(evidence=CombinedEvidence([one.evidence, *evidence])), policy, name, override, now
    )


def may_serve(one: AuditTarget, policy: TrustPolicy, name: str) -> Decision:
    """As `decide`, by the override that lies beside it in its store, if there is one."""
    return decide_deployment(one, policy, name, next(iter(read_overrides(one, policy, datetime.now(UTC))), None))


def decide_deployment(
    one: AuditTarget, policy: TrustPolicy, name: str, override: Override | None = None, now: datetime | None = None
) -> Decision:
    if one.release is None:
        raise ConfigError(f"{one.label}: no release, and only a release can be deployed.")
    found = audit_target(one, policy, name, now=now)
    # How its rollouts ended closes no door: whoever can lay a note beside a release could keep it from its users.
    history = set(of_rollouts(found.rollouts))
    findings = [finding for finding in found.findings if finding not in history]
    grave = [format_finding(finding) for finding in findings if is_grave(finding)]
    lacking = [format_finding(finding) for finding in findings if not is_grave(finding)]
    lacking += chain_faults(found.graph, read_evaluation(one.release), name, policy)
    covered = override is not None and (override.digest, override.name) == (one.digest, name)
    if override is not None and not covered:
        lacking.append(f"the override is for {override.name} {override.digest[:12]}, and this is {name}")
    reasons = [*grave, *lacking]
    allowed = not reasons or (covered and not grave)
    return Decision(allowed, reasons, override if covered else None, bool(grave))


def chain_faults(graph: Graph, evaluation: Mapping[str, Any], name: str, policy: TrustPolicy) -> list[str]:
    """What a chain lacks that may be sound otherwise: a pure function of it and of the release's evaluation."""
    line, lines = name.rpartition("/")[2], required_inputs()
    steps = {one.statement.stage: one for one in steps_by_time(graph)}
    if line not in lines:
        return [f"{name}: no line makes a {line!r}. There are: {', '.join(lines)}"]
    register = steps.get(RELEASE_STAGE)
    bound = register.statement.config.get("name") if register else None
    found = [] if bound == name else [f"the release was signed for {bound or 'no name'}, and not for {name}"]
    found += [f"no statement of {stage} is in its chain" for stage in lines[line] if stage not in steps]
    found += required_faults(steps, lines[line])
    found += gate_faults(steps, evaluation)
    if policy.clean_code:
        found += [f"{stage} ran code that no commit has" for stage, step in steps.items() if _dirty(step)]
    return found


def required_faults(steps: Mapping[str, Step], required: Mapping[str, Sequence[str]]) -> Iterator[str]:
    for stage, names in required.items():
        used = [part.name for part in steps[stage].statement.used] if stage in steps else None
        for wanted in names if used is not None else ():
            if not any(fnmatchcase(one, wanted) for one in used or ()):
                yield f"{stage} does not say which {wanted.replace('*', ' ').strip()} it used"


def gate_faults(steps: Mapping[str, Step], evaluation: Mapping[str, Any]) -> Iterator[str]:
    """The gate promoted, by this very evaluation, and the evaluation was of this very model.

    The release's digests are its statement's: the audit has compared them with the bytes.
    """
    gate, evaluate, register = steps.get("gate"), steps.get("evaluate"), steps.get(RELEASE_STAGE)
    own = {part.name: part.digest for part in register.statement.made} if register else {}
    if gate:
        if (word := gate.statement.facts.get("verdict")) != "promote":
            yield f"the gate says {word or 'nothing'}"
        if own.get(EVALUATION) not in _digests(gate.statement.used):
            yield "the gate judged another evaluation than the release's"
    if evaluate and own.get("model") not in _digests(evaluate.statement.used):
        yield "the evaluation was of another model than the release's"
    digests = evaluation.get("digests")
    models = digests.get("models") if isinstance(digests, dict) else None
    if isinstance(models, dict) and models.get(str(evaluation.get("candidate"))) not in (None, own.get("model")):
        yield "evaluation.json is about another model than the release's"


def break_glass(
    target: str, store: str, files: Sequence[Path], policy: TrustPolicy, reason: str, by: str, name: str = ""
) -> list[str]:
    """Sign an override and lay it beside the release, where every later audit shows it; returns lines for people."""
    from qinglan.lineage.keys import load_signer
    from qinglan.store import open_store

    with open_target(target, store, files, name) as one:
        if one.release is None:
            raise ConfigError(f"{target}: no release. The glass is broken for a release, by name, digest or folder.")
        decision = decide_deployment(one, policy, one.name)
        found = audit_target(one, policy, one.name)
        if not decision.reasons:
            raise ConfigError(f"{target}: nothing stands against it, so there is nothing to override.")
        if grave := [format_finding(finding) for finding in found.findings if is_grave(finding)]:
            raise AlteredError(f"{target}: {'; '.join(grave[:3])}. No override covers what is altered: make it anew.")
        sealed = make_override(
            load_signer("releaser"), one.digest, one.name, by, reason, decision.reasons, datetime.now(UTC)
        )
        open_store(store).attach(one.digest, "break-glass", sealed)
    head = f"{one.name} {one.digest[:12]} may be deployed, by {by}: {reason}"
    return [head, "What stood against it:", *(f"  {line}" for line in decision.reasons or ("nothing",))]


def is_grave(finding: Finding) -> bool:
    """What no override covers: anything altered or untrusted, and a release that lacks files of its own."""
    return finding.state in GRAVE or finding.what.partition("/")[0] in RELEASE_FILES


def format_finding(finding: Finding) -> str:
    return f"{finding.what}: {finding.state}: {finding.why}"


def _dirty(step: Step) -> bool:
    return any(part.name == "code" and part.about.get("dirty") for part in step.statement.used)


def _digests(parts: Sequence[ArtifactRef]) -> set[str]:
    return {part.digest for part in parts}
