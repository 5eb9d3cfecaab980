"""Every digest has the name of its function, by which others can compute it."""

import base64
import hashlib
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

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
from qinglan.lineage.trace.release_folder import BOM, MODEL, PROVENANCE
from qinglan.lineage.trace.walk import walk
from tests.qinglan.lineage.tampering import Scene
from tests.releases.lineage_world import NOW, Keys, Statements, make_keys, sealed, write_run

HASHLIB = {"sha256": "sha256", "sha3_256": "sha3_256", "SHA-256": "sha256", "SHA3-256": "sha3_256"}
LISTING = r"find . -type f -printf '%P\n' | LC_ALL=C sort | xargs -d '\n' sha256sum"
"""As docs/audit.md has it."""


def computed(path: Path, algorithm: str) -> str:
    """By the function of that name: of a file's bytes, or of a folder's listing."""
    content = path.read_bytes() if path.is_file() else subprocess.check_output(LISTING, shell=True, cwd=path)
    return hashlib.new(HASHLIB[algorithm], content).hexdigest()


def resources(release: Path) -> Iterator[dict[str, Any]]:
    """The resources that the statements of the release name by digest."""
    for path in (release / PROVENANCE, *release.glob("lineage/*.dsse.json")):
        statement = orjson.loads(base64.b64decode(orjson.loads(path.read_bytes())["payload"]))
        yield from statement["subject"]
        yield from statement["predicate"]["buildDefinition"]["resolvedDependencies"]


def components(release: Path) -> Iterator[dict[str, Any]]:
    bill = orjson.loads((release / BOM).read_bytes())
    about = bill["metadata"]["component"]
    yield {**about, "name": MODEL}
    yield from ({**ancestor, "name": "base_model"} for ancestor in about["pedigree"]["ancestors"])
    yield from bill["components"]


@pytest.fixture
def keys(tmp_path: Path) -> Keys:
    return make_keys(tmp_path / "keys")


@pytest.fixture
def paths(scene: Scene) -> dict[str, Path]:
    """Paths of the artifacts that statements and bill name."""
    release, inputs = scene.folder, scene.original.inputs
    run = inputs.evaluation.parent / "run"
    inside = {path.relative_to(release).as_posix(): path for path in release.rglob("*")}
    return {
        **inside, "rl_model": inputs.model, "evaluation": inputs.evaluation, "report": inputs.report,
        "chats": run / "chats", "base_model": run / "base_model", "verdict": scene.path("lineage/verdict-"),
        "environment": Path(__file__).parents[4] / "requirements.lock",
    }  # fmt: skip


def test_every_digest_of_a_release_is_made_again_by_the_function_that_it_names(
    scene: Scene, paths: dict[str, Path]
) -> None:
    named = [
        (resource["name"], algorithm, value)
        for resource in resources(scene.folder)
        for algorithm, value in resource["digest"].items()
        if resource["name"] != "code"
    ]
    billed = [
        (component["name"], entry["alg"], entry["content"])
        for component in components(scene.folder)
        for entry in component["hashes"]
    ]

    wrong = [item for item in (*named, *billed) if computed(paths[item[0]], item[1]) != item[2]]

    assert wrong == []
    assert {
        (MODEL, FOLDER_ALGORITHM),
        ("lineage", FOLDER_ALGORITHM),
        ("rl_model", FOLDER_ALGORITHM),
        ("evaluation", FILE_ALGORITHM),
    } <= {item[:2] for item in named}
    assert {(MODEL, "SHA3-256"), ("model/model.safetensors", "SHA-256"), ("environment", "SHA-256")} <= {
        item[:2] for item in billed
    }


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
