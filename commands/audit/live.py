"""`qinglan audit --live NAME`: find the releases that an InferenceService serves, and audit each of them."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from commands.audit.live_service import LiveService, inspect_service, service_lines, unmatched_versions
from qinglan.errors import AlteredError, ConfigError, DataError, IncompleteAuditError, QinglanError
from qinglan.lineage.auditing.audit import Audit, as_json, audit, audit_error
from qinglan.lineage.signing.findings import Finding
from qinglan.lineage.signing.trust import TrustPolicy
from qinglan.lineage.trace.release_folder import MODEL
from qinglan.terminal import say

PREFIX = "isvc:"
TARGET = re.compile(r"((?P<namespace>[a-z0-9][a-z0-9-]*)/)?(?P<name>[a-z][a-z0-9-]*)")


class LiveAudit(NamedTuple):
    live: LiveService
    audits: tuple[Audit, ...]
    findings: tuple[Finding, ...]
    """Problems of the service, such as a URI that names no release; problems of a release are in `audits`."""

    @property
    def error(self) -> QinglanError | None:
        """The most serious error; None if everything that is served is a release and every release is intact."""
        errors = [*map(_finding_error, self.findings), *filter(None, map(audit_error, self.audits))]
        # 8 (altered) is more serious than 9 (incomplete).
        return min(errors, key=lambda error: error.exit_code, default=None)


def audit_live(target: str, namespace: str, store: str, files: Sequence[Path], policy: TrustPolicy) -> LiveAudit:
    """Audit a service in the cluster that KUBECONFIG names. If `store` is set, the releases are read from that store
    instead of the stores in their addresses."""
    from qinglan.kubernetes.client import connect

    parts = TARGET.fullmatch(target.removeprefix(PREFIX))
    if parts is None:
        raise ConfigError(
            f"{target}: no InferenceService's name. Give NAME with -n NAMESPACE, or isvc:NAMESPACE/NAME."
        )
    live = inspect_service(connect().within(parts["namespace"] or namespace), parts["name"])
    audits, gone = [], []
    for address in live.addresses:
        try:
            audits.append(audit(address.digest, policy, store=store or address.store, files=files))
        except DataError as error:
            gone.append(Finding(address.uri, "missing", str(error)))
    models = {model_digest(release_audit): release_audit.name for release_audit in audits}
    findings = (*live.findings, *gone, *unmatched_versions(live.versions, models))
    return LiveAudit(live, tuple(audits), findings)


def model_digest(release_audit: Audit) -> str:
    """Return the digest of a release's model, from its signed statement; empty if the graph has no model."""
    graph = release_audit.graph
    return next((digest for digest in graph.starts if graph.things[digest].name == MODEL), "")


def print_live(live_audit: LiveAudit) -> None:
    from qinglan.lineage.auditing.terminal_tree import print_audit

    say(f"{PREFIX}{live_audit.live.namespace}/{live_audit.live.name}")
    for line in service_lines(live_audit.live):
        say(f"  {line}")
    for finding in live_audit.findings:
        say(f"✗ {finding.state} {finding.what}: {finding.why}")
    for release_audit in live_audit.audits:
        print_audit(release_audit)


def live_as_json(live_audit: LiveAudit) -> Mapping[str, Any]:
    live = live_audit.live
    return {
        "namespace": live.namespace, "name": live.name, "versions": live.versions,
        "seen": [served._asdict() for served in live.served_uris],
        "findings": [finding._asdict() for finding in live_audit.findings],
        "releases": [as_json(release_audit) for release_audit in live_audit.audits],
    }  # fmt: skip


def _finding_error(finding: Finding) -> QinglanError:
    if finding.state == "missing":
        return IncompleteAuditError(f"{finding.what}: {finding.why}. Deploy it by a rollout.")
    return AlteredError(f"{finding.what}: {finding.why}. Find out who put it there.")
