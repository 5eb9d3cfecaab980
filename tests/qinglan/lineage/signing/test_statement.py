"""A step's statement: in-toto and SLSA by the book, signed, with everything that was used, and no person's name."""

import json
from pathlib import Path

import pytest

from qinglan.errors import ConfigError, DataError
from qinglan.files.digests import digest
from qinglan.lineage.signing.dsse import open_envelope
from qinglan.lineage.signing.keys import KEYS_VARIABLE, load_signer
from qinglan.lineage.signing.statement import ArtifactRef, Statement, from_payload, to_payload
from qinglan.lineage.steps.record import recorded
from qinglan.lineage.steps.step_inputs import add_supporting_file
from qinglan.run_id import RUN_VARIABLE
from tests.releases.kfp_artifacts import File

PARTS = (
    ArtifactRef("rewrites", "a" * 64, "s3://bucket/rewrites", {"rows": 3}),
    ArtifactRef("code", "b" * 40, "", {}, "gitCommit"),
)


def statement(**changes: object) -> Statement:
    rewrites = Statement(
        "generate", PARTS[:1], PARTS, {"seed": 1, "deep": {"seed": 42}}, {"rows": 3}, "run-1",
        "2026-11-22T08:00:00.000+00:00", "2026-11-22T08:00:01.000+00:00", {"python": "3.11"},
    )  # fmt: skip
    return rewrites._replace(**changes)  # type: ignore[arg-type]


def test_a_statement_has_the_form_of_in_toto_and_slsa() -> None:
    body = json.loads(to_payload(statement()))

    assert body["_type"] == "https://in-toto.io/Statement/v1"
    assert body["predicateType"] == "https://slsa.dev/provenance/v1"
    assert body["predicate"]["buildDefinition"]["internalParameters"] == {"seeds": {"seed": 1, "deep.seed": 42}}
    assert body["predicate"]["buildDefinition"]["resolvedDependencies"][1]["digest"] == {"gitCommit": "b" * 40}


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"[]",
        b"{}",
        b'{"_type": "https://in-toto.io/Statement/v1"}',
        to_payload(statement()).replace(b"slsa", b"sls"),
    ],
)
def test_a_payload_that_is_no_statement_is_refused(payload: bytes) -> None:
    with pytest.raises(DataError, match=r"here: no"):
        from_payload(payload, "here")


@pytest.mark.parametrize(
    "sealed", [b"", b"[]", b'{"payload": "e30="}', b'{"payload": "***", "payloadType": "x", "signatures": []}']
)
def test_bytes_that_are_no_dsse_envelope_are_refused(sealed: bytes) -> None:
    with pytest.raises(DataError, match="here: not a DSSE envelope"):
        open_envelope(sealed, "here")


def test_a_step_signs_what_it_made_and_used_and_carries_what_came_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(RUN_VARIABLE, "run-7")
    (tmp_path / "questions").write_text("张三问：一天吃几次？")
    questions, rewrites, last = (File(str(tmp_path / name)) for name in ("questions", "rewrites", "validated"))
    first, second = File(str(tmp_path / "first")), File(str(tmp_path / "second"))

    with recorded("generate", {"questions": questions}, {"rewrites": rewrites}, {"seed": 1}, first) as step:
        Path(rewrites.path).write_text("一天几次\n")
        add_supporting_file(step, "prices", "prices-generate.json", b"{}")
        step.facts["rows"] = 1
    with recorded("validate", {"rewrites": rewrites}, {"validated": last}, {}, second, first):
        Path(last.path).write_text("好\n")

    assert sorted(path.name.split("-")[0] for path in Path(second.path).iterdir()) == [
        "generate", "prices", "validate",
    ]  # fmt: skip
    [path] = Path(second.path).glob("generate-*")
    envelope = open_envelope(path.read_bytes())
    signed = from_payload(envelope.payload)
    assert envelope.signatures[0].key == load_signer("builder").id
    assert (signed.run, signed.stage, signed.facts) == ("run-7", "generate", {"rows": 1})
    assert signed.made == (ArtifactRef("rewrites", digest(Path(rewrites.path)), "", {"rows": 1}),)
    used = {part.name: part for part in signed.used}
    assert used["questions"].is_external and used["questions"].digest == digest(Path(questions.path))
    assert {"prices", "environment"} <= set(used)
    assert b"\xe5\xbc\xa0\xe4\xb8\x89" not in envelope.payload and str(tmp_path).encode() not in envelope.payload
    [path] = Path(second.path).glob("validate-*")
    assert not from_payload(open_envelope(path.read_bytes()).payload).used[0].is_external, "what we made is not given"


def test_without_a_key_a_step_does_not_begin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEYS_VARIABLE, str(tmp_path / "none"))
    began = []

    with (
        pytest.raises(ConfigError, match="no builder's key"),
        recorded("sft", {}, {}, {}, File(str(tmp_path / "lineage"))),
    ):
        began.append(1)

    assert not began
