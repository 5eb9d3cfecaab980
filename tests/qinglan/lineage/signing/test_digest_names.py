"""Every digest has the name of its function, by which others can compute it."""

import json
import subprocess
from pathlib import Path

import orjson
import pytest

from qinglan.files.digests import FILE_ALGORITHM, FOLDER_ALGORITHM, digest, tree_digest
from qinglan.lineage.release.release_notes import (
    ROLLOUT_TYPE,
    RolloutStatement,
    is_same_statement,
    make_override,
    read_override,
    read_rollout_notes,
    rollout_payload,
)
from qinglan.lineage.signing.dsse import IN_TOTO, open_envelope, sign_envelope
from qinglan.lineage.signing.statement import (
    STATEMENT_TYPE,
    ArtifactRef,
)
from qinglan.lineage.signing.trust import TrustPolicy
from qinglan.lineage.trace.release_folder import MODEL
from qinglan.lineage.trace.walk import walk
from tests.qinglan.lineage.tampering import Scene
from tests.releases.lineage_world import NOW, Keys, Statements, make_keys, sealed, write_run

LISTING = r"find . -type f -printf '%P\n' | LC_ALL=C sort | xargs -d '\n' sha256sum"
"""As docs/audit.md has it."""


@pytest.fixture
def keys(tmp_path: Path) -> Keys:
    return make_keys(tmp_path / "keys")


def test_a_folder_is_called_by_what_find_sha256sum_and_openssl_print(scene: Scene) -> None:
    for folder in (scene.folder, scene.folder / MODEL):
        printed = subprocess.check_output(f"{LISTING} | openssl dgst -sha3-256 -r", shell=True, cwd=folder, text=True)
        assert printed.split()[0] == digest(folder)


def test_a_name_with_a_line_in_it_passes_for_no_second_file() -> None:
    first, second = "a" * 64, "b" * 64

    assert tree_digest({f"x\n{second}  y": first}) != tree_digest({"x": first, "y": second})


@pytest.mark.parametrize(
    ("algorithm", "state"), [(FOLDER_ALGORITHM, "verified"), (FILE_ALGORITHM, "altered"), ("sha512", "altered")]
)
def test_a_folder_under_a_files_name_is_found_where_its_bytes_are_at_hand(
    keys: Keys, tmp_path: Path, algorithm: str, state: str
) -> None:
    """Its bytes are right either way: values decide what a thing is, and no function's value is another's."""
    from qinglan.lineage.trace.evidence import CombinedEvidence, FileEvidence

    folder = write_run(tmp_path / "run", keys) / "artifacts/line-1/sft/model"
    artifact = ArtifactRef("sft_model", digest(folder), algorithm=algorithm)
    evidence = CombinedEvidence([Statements(sealed(keys.builder, "sft", [artifact], [])), FileEvidence(folder)])

    graph = walk([artifact.digest], evidence, keys.policy, "fivedoctors", now=NOW)

    assert graph.things[artifact.digest].state == state
    assert graph.things[artifact.digest].algorithm == algorithm


def test_an_override_names_the_releases_folder_and_one_of_before_is_read(keys: Keys) -> None:
    from qinglan.lineage.signing.dsse import IN_TOTO, sign_envelope

    note = make_override(keys.releaser, "a" * 64, "fivedoctors/rewriter", "who", "reason enough", ["x"], at=NOW)
    body = orjson.loads(open_envelope(note).payload)
    assert body["subject"][0]["digest"] == {FOLDER_ALGORITHM: "a" * 64}

    body["subject"][0]["digest"] = {FILE_ALGORITHM: "a" * 64}
    before = sign_envelope(orjson.dumps(body), IN_TOTO, [keys.releaser])
    assert read_override(before, keys.policy, "fivedoctors", NOW).digest == "a" * 64


def test_a_rollouts_history_of_before_is_read_and_is_the_same_history(keys: Keys) -> None:
    from qinglan.lineage.signing.dsse import IN_TOTO, sign_envelope

    history = RolloutStatement(
        "a" * 64, "fivedoctors/rewriter", "ns/name", "rewriter", "Promoted", ("better",), "2026-01-05T08:00:00Z",
        "2026-01-05T09:00:00Z", {"steps": [5, 100]}, {}, ({"at": "2026-01-05T08:30:00Z"},),
    )  # fmt: skip
    body = orjson.loads(rollout_payload(history))
    assert body["subject"][0]["digest"] == {FOLDER_ALGORITHM: "a" * 64}

    body["subject"][0]["digest"] = {FILE_ALGORITHM: "a" * 64}
    before = sign_envelope(orjson.dumps(body), IN_TOTO, [keys.releaser])
    assert is_same_statement(before, history)
    assert not is_same_statement(before, history._replace(outcome="RolledBack"))
    [note] = read_rollout_notes([before], keys.policy, "a" * 64, "fivedoctors", NOW)
    assert rollout_payload(note.statement) == rollout_payload(history)


@pytest.mark.parametrize("number", [10**30, -(10**25)])
def test_a_note_with_a_number_beyond_64_bits_ends_no_audit(number: int) -> None:
    """Anybody may lay a note beside a release; an audit writes it anew, which orjson does of no such number."""
    predicate = dict.fromkeys(("rollout", "service", "outcome", "began"), "a") | {
        "ended": "2026-11-25T08:00:00+00:00", "reasons": [], "history": [], "spec": {"steps": number}, "stable": {},
    }  # fmt: skip
    subject = {"name": "fivedoctors/rewriter", "digest": {"sha256": "a" * 64}}
    payload = {"_type": STATEMENT_TYPE, "predicateType": ROLLOUT_TYPE, "subject": [subject], "predicate": predicate}
    note = sign_envelope(json.dumps(payload).encode(), IN_TOTO, [])

    [item] = read_rollout_notes([note], TrustPolicy(), "a" * 64, "fivedoctors")

    assert item.state == "untrusted"
