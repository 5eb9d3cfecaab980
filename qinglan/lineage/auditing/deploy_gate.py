"""Deploy gate: decide if a release may be deployed, and list every reason against it.

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
from qinglan.errors import AlteredError, ConfigError, QinglanError
from qinglan.evaluation.gates.gate_limits import Limits
from qinglan.evaluation.gates.kinds import kind_of
from qinglan.evaluation.gates.verdict import Description
from qinglan.lineage.auditing.audit import audit_target
from qinglan.lineage.auditing.audit_targets import AuditTarget, open_target, release_target
from qinglan.lineage.release.release_notes import Override, make_override, note_findings, read_overrides
from qinglan.lineage.signing.findings import GRAVE, Finding
from qinglan.lineage.signing.keys import load_signer
from qinglan.lineage.signing.statement import RELEASE_STAGE, ArtifactRef
from qinglan.lineage.signing.statement_index import Step
from qinglan.lineage.signing.trust import TrustPolicy
from qinglan.lineage.trace.evidence import Evidence
from qinglan.lineage.trace.release_folder import BOM, EVALUATION, FOLDERS, PROVENANCE, REPORT, SIGNATURE, read_figures
from qinglan.lineage.trace.walk import Graph, stage_steps, steps_by_time
from qinglan.store import open_store

REQUIRED_FILE = Path(__file__).with_name("required_inputs.yaml")


@cache
def required_inputs() -> dict[str, dict[str, list[str]]]:
    """Return, for each model line, its required stages and the inputs that each stage's statement must name."""
    return load_yaml(REQUIRED_FILE)


RELEASE_FILES = (*FOLDERS, SIGNATURE, PROVENANCE, BOM, EVALUATION, REPORT)
"""Files and folders of a release."""


class Decision(NamedTuple):
    allowed: bool
    reasons: list[str]
    """All reasons against the deployment, including those that an override covers."""

    override: Override | None = None
    grave: bool = False
    """True if an override cannot cover some of the reasons (`is_grave`)."""


def may_deploy(
    release: Path,
    policy: TrustPolicy,
    name: str,
    evidence: Sequence[Evidence] = (),
    override: Override | None = None,
    now: datetime | None = None,
) -> Decision:
    """Decide if a release may serve under a name. An override covers missing evidence, never changed bytes."""
    return decide_deployment(release_target(release, evidence, name), policy, name, override, now)


def may_serve(target: AuditTarget, policy: TrustPolicy, name: str) -> Decision:
    """Decide if a release may serve, with the override that is stored beside the release, if there is one."""
    overrides = read_overrides(target.notes, policy, target.digest, target.tenant, datetime.now(UTC))
    return decide_deployment(target, policy, name, next(iter(overrides), None))


def decide_deployment(
    target: AuditTarget,
    policy: TrustPolicy,
    name: str,
    override: Override | None = None,
    now: datetime | None = None,
) -> Decision:
    if target.release is None:
        raise ConfigError(f"{target.label}: no release, and only a release can be deployed.")
    result = audit_target(target, policy, name, now=now)
    # An untrusted note is no reason against the release: else anyone who can write a note could block a release.
    notes = set(note_findings(result.changed_notes, result.rollouts))
    findings = [finding for finding in result.findings if finding not in notes]
    grave = [str(finding) for finding in findings if is_grave(finding)]
    lacking = [str(finding) for finding in findings if not is_grave(finding)]
    figures = read_figures(target.release)
    lacking += chain_faults(result.graph, figures, name, policy)
    covered = override is not None and (override.digest, override.name) == (target.digest, name)
    if override is not None and not covered:
        lacking.append(f"the override is for {override.name} {override.digest[:12]}, and this is {name}")
    reasons = [*grave, *lacking]
    # An override covers missing evidence, never changed bytes or wrong signatures.
    allowed = not reasons or (covered and not grave)
    return Decision(allowed, reasons, override if covered else None, bool(grave))


def chain_faults(graph: Graph, evaluation: Mapping[str, Any], name: str, policy: TrustPolicy) -> list[str]:
    """List the deployment requirements that the chain of statements does not meet."""
    line, lines = name.rpartition("/")[2], required_inputs()
    steps = stage_steps(graph)
    if line not in lines:
        return [f"{name}: no pipeline makes a model {line!r}. There are: {', '.join(lines)}"]
    register = steps.get(RELEASE_STAGE)
    bound = register.statement.config.get("name") if register else None
    faults = [] if bound == name else [f"the release was signed for {bound or 'no name'}, and not for {name}"]
    faults += [f"no statement of {stage} is in its chain" for stage in lines[line] if stage not in steps]
    faults += required_faults(steps, lines[line])
    faults += gate_faults(steps, evaluation, tuple(lines[line]), policy.evaluate)
    if policy.clean_code:
        used = ((step.statement.stage, part) for step in steps_by_time(graph) for part in step.statement.used)
        dirty = dict.fromkeys(stage for stage, part in used if part.name == "code" and part.about.get("dirty"))
        faults += [f"{stage} ran code with uncommitted changes" for stage in dirty]
    return faults


def required_faults(steps: Mapping[str, Step], required: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """List the required inputs that a stage's statement does not name. Stages without a statement are skipped."""
    for stage, names in required.items():
        if stage not in steps:
            continue
        used = [part.name for part in steps[stage].statement.used]
        for pattern in names:
            if not any(fnmatchcase(name, pattern) for name in used):
                yield f"{stage} does not say which {pattern.replace('*', ' ').strip()} it used"


def gate_faults(
    steps: Mapping[str, Step], evaluation: Mapping[str, Any], required: Sequence[str], limits: Limits
) -> Iterator[str]:
    """Check that the gate promoted within the policy's limits, and that gate, evaluation and release fit together.

    The gate must have judged the release's evaluation, and the evaluation must be of the release's model. `required`
    lists the stages of the model line. The release's digests are taken from its statement, because the audit has
    already compared them with the bytes.
    """
    # A smaller model's line has gate_small and evaluate_small beside its teacher's stages.
    gate, evaluate = (
        next((steps[stage] for stage in required if stage.partition("_")[0] == word and stage in steps), None)
        for word in ("gate", "evaluate")
    )
    register = steps.get(RELEASE_STAGE)
    released = {part.name: part.digest for part in register.statement.made} if register else {}
    if gate:
        if (verdict := gate.statement.facts.get("verdict")) != "promote":
            yield f"the gate says {verdict or 'nothing'}"
        else:
            yield from limit_reasons(evaluation, limits)
        if released.get(EVALUATION) not in _digests(gate.statement.used):
            yield "the gate judged another evaluation than the release's"
    if evaluate and released.get("model") not in _digests(evaluate.statement.used):
        yield "the evaluation was of another model than the release's"
    digests = evaluation.get("digests")
    models = digests.get("models") if isinstance(digests, dict) else None
    if isinstance(models, dict) and models.get(str(evaluation.get("candidate"))) not in (None, released.get("model")):
        yield "evaluation.json is about another model than the release's"


def limit_reasons(evaluation: Mapping[str, Any], limits: Limits) -> Iterator[str]:
    """List the reasons why a gate within the trust policy's limits would hold this evaluation."""
    try:
        verdict = kind_of(evaluation, EVALUATION).strict_verdict(evaluation, EVALUATION, limits)
    except (QinglanError, ArithmeticError, LookupError, TypeError, ValueError) as error:
        yield f"no gate can judge its figures ({str(error)[:200]})"
        return
    if not verdict.promote:
        reasons = (reason for reason in verdict.reasons if not isinstance(reason, Description))
        yield from (f"a gate within the trust policy's limits would hold it: {reason}" for reason in reasons)


def break_glass(
    target: str, store: str, files: Sequence[Path], policy: TrustPolicy, reason: str, by: str
) -> list[str]:
    """Sign an override and store it beside the release, where every later audit shows it; returns lines to print."""
    with open_target(target, store, files) as release:
        digest, name = release.digest, release.name
        if release.release is None:
            raise ConfigError(
                f"{target}: no release. Only a release can be overridden: give its name, digest or folder."
            )
        decision = decide_deployment(release, policy, name)
        if not decision.reasons:
            raise ConfigError(f"{target}: it may be deployed as it is, so there is nothing to override.")
        if decision.grave:
            raise AlteredError(
                f"{target}: {'; '.join(decision.reasons[:3])}. No override covers what is altered: make it again."
            )
        sealed = make_override(load_signer("releaser"), digest, name, by, reason, decision.reasons)
        open_store(store).attach(digest, "break-glass", sealed)
    head = f"{name} {digest[:12]} may be deployed, by {by}: {reason}"
    return [head, "Reasons against it:", *(f"  {line}" for line in decision.reasons)]


def is_grave(finding: Finding) -> bool:
    """Return True if no override can cover a finding: altered or untrusted artifacts, or missing release files."""
    return finding.state in GRAVE or finding.what.partition("/")[0] in RELEASE_FILES


def _digests(parts: Sequence[ArtifactRef]) -> set[str]:
    return {part.digest for part in parts}
