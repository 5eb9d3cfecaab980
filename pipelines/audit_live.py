"""`qinglan audit --live NAME`: what an InferenceService serves, and the audit of each release that it is."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pipelines.live_service import LiveService, inspect_service, service_lines, unmatched_versions
from qinglan.errors import AlteredError, ConfigError, DataError, IncompleteAuditError, QinglanError
from qinglan.lineage.audit import Audit, as_json, audit, audit_error
from qinglan.lineage.findings import Finding
from qinglan.lineage.release_folder import MODEL
from qinglan.lineage.trust import TrustPolicy
from qinglan.terminal import say

PREFIX = "isvc:"
TARGET = re.compile(r"((?P<namespace>[a-z0-9][a-z0-9-]*)/)?(?P<name>[a-z][a-z0-9-]*)")


class LiveAudit(NamedTuple):
    live: LiveService
    audits: tuple[Audit, ...]
    findings: tuple[Finding, ...]
    """Of what is served; each release has its own."""

    @property
    def error(self) -> QinglanError | None:
        """The gravest of all; None where everything that is served is a release, and each is intact."""
        own = [
            AlteredError(_said(one)) if one.state != "missing" else IncompleteAuditError(_said(one))
            for one in self.findings
        ]
        found: list[QinglanError] = [*own, *filter(None, map(audit_error, self.audits))]
        return min(found, key=lambda one: one.exit_code, default=None)


def audit_live(target: str, namespace: str, store: str, files: Sequence[Path], policy: TrustPolicy) -> LiveAudit:
    """By KUBECONFIG; the releases come from the store that they are served from, unless another is named."""
    from qinglan.kubernetes.client import connect

    parts = TARGET.fullmatch(target.removeprefix(PREFIX))
    if parts is None:
        raise ConfigError(
            f"{target}: no InferenceService's name. Give NAME with -n NAMESPACE, or isvc:NAMESPACE/NAME."
        )
    live = inspect_service(connect().within(parts["namespace"] or namespace), parts["name"])
    audits, gone = [], []
    for one in live.addresses:
        try:
            audits.append(audit(one.digest, policy, store=store or one.store, files=files))
        except DataError as error:
            gone.append(Finding(one.uri, "missing", str(error)))
    findings = (
        *live.findings,
        *gone,
        *unmatched_versions(live.versions, {model_digest(one): one.name for one in audits}),
    )
    return LiveAudit(live, tuple(audits), findings)


def model_digest(found: Audit) -> str:
    """The digest of a release's model, as its statement has it."""
    return next((one for one in found.graph.starts if found.graph.things[one].name == MODEL), "")


def print_live(found: LiveAudit) -> None:
    from qinglan.lineage.terminal_tree import print_audit

    say(f"{PREFIX}{found.live.namespace}/{found.live.name}")
    for line in service_lines(found.live):
        say(f"  {line}")
    for finding in found.findings:
        say(f"✗ {finding.state} {finding.what}: {finding.why}")
    for one in found.audits:
        print_audit(one)


def live_as_json(found: LiveAudit) -> Mapping[str, Any]:
    live = found.live
    return {
        "namespace": live.namespace, "name": live.name, "versions": live.versions,
        "seen": [one._asdict() for one in live.seen],
        "findings": [one._asdict() for one in found.findings],
        "releases": [as_json(one) for one in found.audits],
    }  # fmt: skip


def _said(finding: Finding) -> str:
    step = "Find out who put it there" if finding.state != "missing" else "Deploy it by a rollout"
    return f"{finding.what}: {finding.why}. {step}."
