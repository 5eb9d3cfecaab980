"""A small world of statements: keys, a policy, a line of stages, a run's folder, a release."""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

from qinglan.files.digests import algorithm_of, digest
from qinglan.lineage.signing.dsse import IN_TOTO, sign_envelope
from qinglan.lineage.signing.keys import Role, Signer, load_signer, make_key, parse_public_key
from qinglan.lineage.signing.statement import EXTERNAL_INPUT, ArtifactRef, Statement, to_payload
from qinglan.lineage.signing.trust import Revocation, TrustedKey, TrustPolicy
from qinglan.lineage.trace.evidence import Evidence
from qinglan.llm.paid.journal import call_key

DAWN = datetime(2026, 1, 5, 8, tzinfo=UTC)
"""Past, by any clock."""

NOW = DAWN + timedelta(days=30)
TENANT = "fivedoctors"


def at(hour: float) -> str:
    return (DAWN + timedelta(hours=hour)).isoformat(timespec="milliseconds")


def sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def source(name: str, text: str = "", **about: Any) -> ArtifactRef:
    return ArtifactRef(name, sha(text or name), "", {EXTERNAL_INPUT: True, **about})


def output(name: str, text: str = "", **about: Any) -> ArtifactRef:
    return ArtifactRef(name, sha(text or name), "", about)


def part_of(name: str, path: Path) -> ArtifactRef:
    """A file or a folder by its digest, under the name of its function."""
    return ArtifactRef(name, digest(path), algorithm=algorithm_of(path))


class Keys(NamedTuple):
    builder: Signer
    releaser: Signer
    stranger: Signer
    policy: TrustPolicy

    def limited(self, of: Role = "builder", **changes: Any) -> TrustPolicy:
        """The policy, with something else about a role's key."""
        signer = self.builder if of == "builder" else self.releaser
        changed = self.policy.keys[signer.id].model_copy(update=changes)
        return self.policy.model_copy(update={"keys": {**self.policy.keys, signer.id: changed}})

    def revoked(self, hour: float) -> TrustPolicy:
        return self.limited(revoked=Revocation(at=DAWN + timedelta(hours=hour), reason="laptop lost"))


def make_keys(folder: Path) -> Keys:
    keys: dict[str, TrustedKey] = {}

    def signer(role: Role, place: str = "") -> Signer:
        public = make_key(folder / place / f"{role}.pem")
        if not place:
            keys[parse_public_key(public).id] = TrustedKey(role=role, since=DAWN - timedelta(days=1), public=public)
        return load_signer(role, folder / place)

    builder, releaser, stranger = signer("builder"), signer("releaser"), signer("builder", "stranger")
    return Keys(builder, releaser, stranger, TrustPolicy(keys=keys))


def sealed(
    signer: Signer | None,
    stage: str,
    outputs: Sequence[ArtifactRef],
    used: Sequence[ArtifactRef],
    hours: tuple[float, float] = (1, 2),
    config: Mapping[str, Any] | None = None,
    facts: Mapping[str, Any] | None = None,
) -> bytes:
    statement = Statement(
        stage, tuple(outputs), tuple(used), config or {}, facts or {}, "run-1", at(hours[0]), at(hours[1]),
        {"python": "3.11"},
    )  # fmt: skip
    return sign_envelope(to_payload(statement), IN_TOTO, [signer] if signer else [])


class Statements(Evidence):
    """Evidence that consists only of statements."""

    def __init__(self, *envelopes: bytes) -> None:
        self.envelopes = envelopes

    def statements(self) -> Iterator[tuple[str, bytes]]:
        return ((f"statement-{number}.dsse.json", envelope) for number, envelope in enumerate(self.envelopes))


def write_run(root: Path, keys: Keys, hours: float = 0.0, release: bool = False) -> Path:
    """A run of two stages, as the recorder leaves it: generate makes rewrites, sft a model; paid answers."""
    (root / "records").mkdir(parents=True)
    outside = root.parent / "questions.xlsx"
    outside.write_text("问题", encoding="utf-8")
    (root / "config.yaml").write_text(f"tenant_id: {TENANT}\n", encoding="utf-8")
    tasks = root / "artifacts" / "line-1"
    rewrites, model = tasks / "generate" / "rewrites", tasks / "sft" / "model"
    model.mkdir(parents=True)
    rewrites.parent.mkdir(parents=True)
    rewrites.write_text("改写", encoding="utf-8")
    (model / "model.safetensors").write_bytes(b"weights")
    paper = paid_paper({"k1": b"one", "k2": b"two"})
    journal = ArtifactRef(
        "journal", hashlib.sha256(paper).hexdigest(), "", {EXTERNAL_INPUT: True, "answers": 2, "cost": 0.02}
    )
    question = ArtifactRef("questions", digest(outside), "", {EXTERNAL_INPUT: True})
    first = sealed(
        keys.builder, "generate", [ArtifactRef("rewrites", digest(rewrites), "", {"rows": 1})], [question, journal],
        (hours + 1, hours + 2), {"tenant_id": TENANT, "seed": 1},
    )  # fmt: skip
    second = sealed(
        keys.builder, "sft", [part_of("sft_model", model)], [ArtifactRef("rewrites", digest(rewrites))],
        (hours + 3, hours + 4), {"seed": 1, "train": {"epochs": 3}},
    )  # fmt: skip
    record(root, "generate", {"questions": outside}, {"rewrites": rewrites}, first)
    record(root, "sft", {"rewrites": rewrites}, {"sft_model": model}, second)
    lineage = tasks / "sft" / "lineage"
    lineage.mkdir()
    (lineage / "generate-1.dsse.json").write_bytes(first)
    (lineage / "sft-2.dsse.json").write_bytes(second)
    (lineage / "paid-generate.jsonl").write_bytes(paper)
    return root


def record(root: Path, stage: str, inputs: Mapping[str, Path], outputs: Mapping[str, Path], statement: bytes) -> None:
    def parts(paths: Mapping[str, Path]) -> dict[str, Any]:
        return {name: {"uri": str(path.absolute()), "sha256": digest(path)} for name, path in paths.items()}

    body = {"stage": stage, "status": "done", "inputs": parts(inputs), "outputs": parts(outputs)}
    (root / "records" / f"{stage}.json").write_text(json.dumps(body))
    (root / "records" / f"{stage}.dsse.json").write_bytes(statement)


def request_named(name: str) -> bytes:
    return json.dumps({"model": "m", "messages": name}).encode()


def call_named(name: str) -> str:
    """The key of a made-up call."""
    return call_key(request_named(name), 0)


def paid_paper(answers: Mapping[str, bytes]) -> bytes:
    rows = (
        {
            "call": call_named(call),
            "role": "teacher",
            "model": "m",
            "answer": hashlib.sha256(answer).hexdigest(),
            "cost": 0.01,
        }
        for call, answer in sorted(answers.items())
    )
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)
