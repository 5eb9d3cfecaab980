"""Demonstrate the audit of a release: check its lineage, and show that one changed byte is detected."""

import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

from commands.options import trust_policy
from pipelines.execute.rundir import ARTIFACT_FILES, RunDir
from qinglan.errors import AlteredError, ConfigError
from qinglan.lineage.auditing.audit import Audit, audit, audit_error, audit_target, counts
from qinglan.lineage.auditing.audit_targets import open_target
from qinglan.lineage.auditing.deploy_gate import may_deploy
from qinglan.lineage.trace.evidence import RunFolder
from qinglan.lineage.trace.release_folder import read_release
from qinglan.store import open_store
from qinglan.terminal import in_language, listed, say

LEFT_BEHIND = shutil.ignore_patterns("scratch", "index", "logs", "lock", "retrievals.sqlite*")
"""Files that the audit of a copied run does not need."""


def check_audit(root: Path, store: str) -> None:
    """Audit the run, with the signed notes beside its release in the store, and print the result in one line.

    Raises the audit's error, unless a signed override names everything that is missing.
    """
    with open_target(str(root)) as run:
        notes = tuple(open_store(store).notes(run.digest)) if run.release else ()
        result = audit_target(run._replace(notes=notes), trust_policy())
    _say_audit(result)
    named = {reason for override in result.overrides for reason in override.missing}
    # Overrides never cover altered files.
    if result.verdict == "incomplete" and all(str(finding) in named for finding in result.findings):
        say("What is missing is what the signed override names; only a model that the gate promotes needs none.")
    elif error := audit_error(result):
        raise error


def _say_audit(result: Audit) -> None:
    states = listed(
        f"{count:,} {in_language(state)}" for state, count in reversed(counts(result.graph).items()) if count
    )
    text = f"audit: {result.name} {result.digest[:12]} {result.verdict}: {states}"
    say(f"✓ {in_language(text)}" if result.verdict == "intact" else f"✗ {in_language(text)}")
    for finding in result.findings:
        say(f"✗ {finding.state} {finding.what}: {finding.why}")


def check_may_serve(release: Path) -> None:
    """Walk a release's lineage as the deploy stage does, and print that it may serve; AlteredError if it may not."""
    policy, name = trust_policy(), read_release(release).name
    decision = may_deploy(release, policy, name)
    if not decision.allowed:
        raise AlteredError(f"{name} may not be deployed:", *decision.reasons)
    say(f"May {name} be deployed? Yes: every statement of its lineage is signed and was checked.")


def show_refusal(root: Path, ancestor: str) -> None:
    """Change one byte of an artifact that the release was made from, in a copy of the run. Raises AlteredError if the
    audit or the deploy gate misses the change."""
    release = RunDir(root).files / ARTIFACT_FILES["release"]
    if not release.is_dir():
        raise ConfigError(f"{release}: no release there. `make demo` makes one.")
    policy = trust_policy()
    with TemporaryDirectory(prefix="qinglan-audit-") as folder:
        copy = RunDir(Path(folder) / root.name)
        shutil.copytree(root, copy.root, symlinks=True, ignore=LEFT_BEHIND)
        changed = (copy.files / ARTIFACT_FILES[ancestor]).resolve()
        offset, before, after = change_a_byte(changed)
        say(f"In a copy of {root}: byte {offset:,} of {changed.name} is {after:#04x} now; it was {before:#04x}.")
        result = audit(str(copy.root), policy)
        _say_audit(result)
        name = str(result.name)
        decision = may_deploy(copy.files / ARTIFACT_FILES["release"], policy, name, [RunFolder(copy.root)])
        if decision.allowed or result.verdict != "altered":
            raise AlteredError(f"{ancestor}: a changed byte was not noticed. That is a fault of ours.")
    say(f"May {name} be deployed? No:")
    for reason in decision.reasons:
        say(f"  {reason}")


def change_a_byte(path: Path) -> tuple[int, int, int]:
    """Change the byte in the middle of a file; returns its offset, its old and its new value."""
    content = bytearray(path.read_bytes())
    offset = len(content) // 2
    before = content[offset]
    content[offset] ^= 1
    path.chmod(0o644)
    path.write_bytes(content)
    return offset, before, content[offset]
