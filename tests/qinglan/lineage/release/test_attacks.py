"""Attacks on a release and their exact findings, a row for each attack.

KINDS and CHANGES: each kind of file, each simple change. ROWS: everything cleverer. Faults in the statements before
the release are in test_walk.py.
"""

import os
import re
import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson
import pytest

from qinglan.evaluation.gates.rewriter_gate import GateConfig
from qinglan.lineage.release.release_check import check_release
from qinglan.lineage.signing.findings import Finding, State
from qinglan.lineage.signing.trust import Revocation, TrustPolicy
from qinglan.lineage.trace.release_folder import BOM, EVALUATION, MODEL, PROVENANCE, REPORT, SIGNATURE
from tests.qinglan.lineage import tampering as do
from tests.qinglan.lineage.attacks import (
    BROKEN,
    LATER,
    MODEL_FILES,
    OTHER,
    UNSIGNED,
    WEIGHTS,
    Expected,
    Row,
    all_but_statement,
    edit_bom,
    edit_signature,
    foreign_signature,
    hold,
    linked,
    moved,
    not_used,
    nothing,
    other_figures,
    other_rule,
    other_sub,
    pickled,
    provenance,
    refitted,
    relabelled,
    releaser,
    resealed,
    rewritten,
    signatures,
    signed_leaving_out,
    signed_with,
    twin,
    without,
    write,
)
from tests.qinglan.lineage.tampering import Scene
from tests.releases.registered_release import NAME


def lax_and_worse(figures: dict[str, Any]) -> None:
    figures["settings"] = {"gate": {"p": 1}}
    figures["paired"]["rl_vs_teacher"].update(difference=-0.04, low=-0.06, high=-0.01)


def wrong(findings: list[Finding]) -> set[Expected]:
    return {(finding.what, finding.state) for finding in findings if finding.state != "verified"}


def test_an_untouched_release_has_no_findings(scene: Scene) -> None:
    assert wrong(check_release(scene.folder, scene.policy, NAME)) == set()
    assert wrong(check_release(scene.other.folder, scene.policy, OTHER)) == set()


KINDS = (
    WEIGHTS, "model/config.json", "model/tokenizer.json", "model/rewriter.json", "model/chat_template.jinja",
    SIGNATURE, BOM, EVALUATION, REPORT, "lineage/convert-", "lineage/ppo-", "lineage/gate-", "lineage/verdict-",
)  # fmt: skip
"""Every kind of file: weights, configuration, tokenizer, the prompts' card, the template, signatures, papers."""

CHANGES: dict[str, tuple[Callable[[Scene, Path, Path], object], State]] = {
    "a bit flipped": (lambda scene, path, other: do.flip(path), "altered"),
    "truncated": (lambda scene, path, other: do.truncate(path), "altered"),
    "a byte more": (lambda scene, path, other: do.append(path), "altered"),
    "emptied": (lambda scene, path, other: do.empty(path), "altered"),
    "dropped": (lambda scene, path, other: path.unlink(), "missing"),
    "replayed from another release": (lambda scene, path, other: shutil.copyfile(other, path), "altered"),
    "swapped with another file": (lambda scene, path, other: do.swap(path, another(scene, path)), "altered"),
}


NO_VERDICT = ("a bit flipped", "truncated", "emptied", "swapped with another file")
"""Changes after which the gate's verdict cannot be read."""


def another(scene: Scene, path: Path) -> Path:
    return scene.path(REPORT if path.name != REPORT else EVALUATION)


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("kind", KINDS)
def test_altered(scene: Scene, kind: str, change: str) -> None:
    path = scene.path(kind)
    name = path.relative_to(scene.folder).as_posix()
    attack, state = CHANGES[change]
    attack(scene, path, scene.other_path(kind))

    expected: set[Expected] = {(name, state)}
    if kind.startswith("model/"):
        expected.add(("model/", "altered"))
    if kind == "lineage/gate-":
        expected.add(("verdict", "missing"))
    if kind == "lineage/verdict-" and change in NO_VERDICT:
        expected.add(("verdict", "altered"))
    if change.startswith("swapped"):
        expected.add((another(scene, path).name, "altered"))
    assert wrong(check_release(scene.folder, scene.policy, NAME)) == expected


STAGES = ("convert", "base", "ppo", "evaluate", "gate", "verdict")
PASTED: set[Expected] = {
    ("name", "untrusted"), ("verdict", "missing"),
    *((name, "altered") for name in (SIGNATURE, BOM, EVALUATION, REPORT)),
    *((f"model/{name}", "altered") for name in MODEL_FILES),
    *((f"lineage/{stage}-", "altered") for stage in STAGES),
    *((f"lineage/{stage}-", "missing") for stage in STAGES),
}  # fmt: skip
"""All that one release's statement says of another's files."""

ROWS = [
    # The statement's bytes.
    Row("statement emptied", provenance(do.empty), BROKEN, "untrusted"),
    Row("statement dropped", provenance(Path.unlink), {(PROVENANCE, "missing")}, "untrusted"),
    Row("statement is JSON of something else", provenance(lambda p: p.write_text("[]")), BROKEN, "untrusted"),
    Row("statement behind a link", linked(PROVENANCE), BROKEN, "untrusted"),
    Row("statement of another stage in its place",
        lambda s: shutil.copyfile(s.path("lineage/gate-"), s.folder / PROVENANCE), BROKEN, "untrusted"),
    Row("statement says another digest", provenance(lambda p: do.unsealed(p, lambda body: body["subject"].reverse())),
        BROKEN, "untrusted"),
    Row("statement says another name", provenance(lambda p: do.unsealed(p, do.named(OTHER))),
        {*BROKEN, ("name", "untrusted"), (BOM, "altered")}, "untrusted"),
    Row("payload serialised again", provenance(lambda p: do.unsealed(p, lambda body: body.update(x=1))),
        BROKEN, "untrusted"),
    Row("envelope serialised again", provenance(lambda p: p.write_bytes(
        orjson.dumps(do.envelope(p), option=orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS))), set()),
    Row("envelope with a field more", rewritten(lambda b: b.update(note="x")), set()),
    Row("payload twice in the JSON", provenance(lambda p: p.write_bytes(
        p.read_bytes()[:-1] + b',"payload":"e30="}')), BROKEN, "untrusted"),
    Row("signatures twice, the genuine ones last", provenance(lambda p: p.write_bytes(
        b'{"signatures":[],' + p.read_bytes()[1:])), BROKEN, "untrusted"),
    Row("a field of the payload twice, signed", lambda s: do.reseal_bytes(s.folder / PROVENANCE, s.signer(),
        lambda text: text.replace(b'{', b'{"predicate":{},', 1)), BROKEN, "untrusted"),
    Row("a payload that is deep JSON, signed", lambda s: do.reseal_bytes(s.folder / PROVENANCE, s.signer(),
        lambda text: b"[" * 100_000), BROKEN, "untrusted"),
    Row("dated at the edge of time, signed", resealed(lambda body: body["predicate"]["runDetails"]["metadata"].update(
        finishedOn="9999-12-31T23:59:59-23:59")), BROKEN, "untrusted"),
    Row("payload in base64 with more padding", rewritten(lambda b: b.update(payload=b["payload"] + "====")),
        BROKEN, "untrusted"),
    Row("payload is a number", rewritten(lambda b: b.update(payload=1)), BROKEN, "untrusted"),
    Row("payload's type changed", rewritten(lambda b: b.update(payloadType="text/plain")), UNSIGNED, "untrusted"),
    Row("payload's type changed and signed", lambda s: do.reseal(
        s.folder / PROVENANCE, s.signer(), kind="application/json"), UNSIGNED, "untrusted"),
    # Its signatures.
    Row("unsigned", signatures(lambda signed, s: []), UNSIGNED, "untrusted"),
    Row("signatures are no list", signatures(lambda signed, s: {"sig": 1}), BROKEN, "untrusted"),  # type: ignore[arg-type, return-value]
    Row("the signature twice", signatures(lambda signed, s: signed * 2), set()),
    Row("a foreign signature beside", signatures(lambda signed, s: [foreign_signature(s), *signed]), set()),
    Row("two signatures, one bad", signatures(lambda signed, s: [{**signed[0], "sig": "AAAA"}, *signed]), set()),
    Row("a foreign signature alone", signatures(lambda signed, s: [foreign_signature(s)]), UNSIGNED, "untrusted"),
    Row("a foreign signature under the releaser's id",
        signatures(lambda signed, s: [{**foreign_signature(s), "keyid": signed[0]["keyid"]}]), BROKEN, "untrusted"),
    Row("the key's id taken out", signatures(lambda signed, s: [{"sig": signed[0]["sig"]}]), UNSIGNED, "untrusted"),
    Row("the signature of another release", signatures(
        lambda signed, s: do.envelope(s.other.folder / PROVENANCE)["signatures"]), BROKEN, "untrusted"),
    Row("an empty signature", signatures(lambda signed, s: [{**signed[0], "sig": ""}]), BROKEN, "untrusted"),
    Row("signed by a foreign key", resealed(foreign=True), UNSIGNED, "untrusted"),
    Row("signed by the house's builder", resealed(role="builder"), UNSIGNED, "untrusted"),
    # Times and names that a releaser signs.
    Row("dated before the key", resealed(do.dated(datetime(2020, 1, 1, tzinfo=UTC))),
        {*UNSIGNED, *BROKEN}, "untrusted"),
    Row("dated before the gate", lambda s: do.reseal(
        s.folder / PROVENANCE, s.signer(), do.dated(do.before(do.ended(s.path("lineage/gate-"))))), BROKEN),
    Row("dated by no time", resealed(lambda body: body["predicate"]["runDetails"]["metadata"].update(finishedOn="x")),
        BROKEN, "untrusted"),
    Row("dated without a zone", resealed(
        lambda body: body["predicate"]["runDetails"]["metadata"].update(finishedOn="2026-11-22T08:00:00")),
        BROKEN, "untrusted"),
    Row("another name asked for", nothing, {("name", "untrusted")}, requested="fivedoctors/style"),
    Row("the statement of another release pasted in",
        lambda s: shutil.copyfile(s.other.folder / PROVENANCE, s.folder / PROVENANCE),
        PASTED),
    Row("another release under this name", lambda s: do.replace_folder(s.folder, s.other.folder),
        {("name", "untrusted")}),
    Row("signed without a name", resealed(do.unnamed), BROKEN, "untrusted"),
    # The policy.
    Row("the key is not trusted", nothing, UNSIGNED, "untrusted",
        lambda policy, s: TrustPolicy(keys={k: v for k, v in policy.keys.items() if k != s.signer().id})),
    Row("the key was rotated out before", nothing, UNSIGNED, "untrusted", releaser(until=lambda since: since)),
    Row("the key was revoked before", nothing, UNSIGNED, "untrusted",
        releaser(revoked=lambda since: Revocation(at=since, reason="laptop lost"))),
    Row("the key was revoked after", nothing, set(),
        policy=releaser(revoked=lambda since: Revocation(at=since + LATER, reason="laptop lost"))),
    Row("the key is another tenant's", nothing, UNSIGNED, "untrusted", releaser(tenants=("chengla",))),
    Row("the key is a builder's", nothing, UNSIGNED, "untrusted", releaser(role="builder")),
    # Files that should not be there.
    Row("a file more", write("README.md", b"x"), {("README.md", "altered")}),
    Row("a file more in the model", write("model/extra.json", b"{}"),
        {("model/extra.json", "altered"), ("model/", "altered")}),
    Row("code in the model", write("model/modeling_qwen.py", b"import os"),
        {("model/modeling_qwen.py", "altered"), ("model/", "altered")}),
    Row("git's file in the model", write("model/.gitattributes", b"* x"),
        {("model/.gitattributes", "altered"), ("model/", "altered")}),
    Row("a statement more", lambda s: shutil.copy(s.other_path("lineage/gate-"), s.folder / "lineage"),
        {("lineage/gate-", "altered")}),
    Row("an empty folder more", lambda s: (s.folder / "model/sub").mkdir(),
        {("model/sub", "altered"), ("model/", "altered")}),
    Row("a pipe", lambda s: os.mkfifo(s.folder / "model/pipe.json"),
        {("model/pipe.json", "altered"), ("model/", "altered")}),
    Row("a second file by case alone", twin("model/config.json", "model/Config.json"),
        {("model/config.json", "altered"), ("model/Config.json", "altered"), ("model/", "altered")}),
    Row("a name with a line break that reads as two", write("x\n" + "0" * 64 + "  y", b"x"),
        {("x\\n" + "0" * 64 + "  y", "altered")}),
    Row("a name that is no UTF-8", lambda s: Path(os.fsdecode(os.fsencode(s.folder) + b"/\xff.txt")).write_text("x"),
        {("\\udcff.txt", "altered")}),
    Row("the model's folder renamed", moved("model", "Model"),
        {*((f"model/{name}", "missing") for name in MODEL_FILES),
         *((f"Model/{name}", "altered") for name in MODEL_FILES)}),
    Row("weights behind a link", linked(WEIGHTS), {(WEIGHTS, "altered"), ("model/", "altered")}),
    Row("the model's folder behind a link", linked(MODEL),
        {(MODEL, "altered"), ("model/", "altered"), *((f"model/{name}", "missing") for name in MODEL_FILES)}),
    Row("the report behind a link", linked(REPORT), {(REPORT, "altered")}),
    # Everything made to fit again, by a key that does not count, or by a releaser who was deceived.
    Row("other weights, all signed by a foreign key", refitted(other_sub, foreign=True), UNSIGNED, "untrusted"),
    Row("other weights, all but the statement fitted",
        all_but_statement, {(WEIGHTS, "altered"), ("model/", "altered"), (BOM, "altered")}),
    Row("model.sig by a foreign key, named by the releaser", signed_with("foreign"), {(SIGNATURE, "untrusted")}),
    Row("model.sig by the builder, named by the releaser", signed_with("builder"), {(SIGNATURE, "untrusted")}),
    Row("model.sig of another release, named by the releaser",
        refitted(lambda s: shutil.copyfile(s.other.folder / SIGNATURE, s.folder / SIGNATURE), sign=False),
        {("model/", "altered")}),
    Row("model.sig that leaves a file out", signed_leaving_out, {(SIGNATURE, "altered")}),
    Row("model.sig without its key's name",
        edit_signature(lambda b: b["verificationMaterial"].update(publicKey={})), {(SIGNATURE, "altered")}),
    Row("model.sig with another signature in it", edit_signature(
        lambda b: b["dsseEnvelope"]["signatures"][0].update(sig="MEUCIQ==")), {(SIGNATURE, "altered")}),
    Row("model.sig without signatures", edit_signature(lambda b: b["dsseEnvelope"].update(signatures=[])),
        {(SIGNATURE, "altered")}),
    Row("a bill that is no CycloneDX", edit_bom(lambda b: b.update(extra=1)), {(BOM, "altered")}),
    Row("a bill about another model", edit_bom(lambda b: b["metadata"]["component"].update(name=OTHER)),
        {(BOM, "altered")}),
    Row("a bill without a model card", edit_bom(lambda b: b["metadata"]["component"].pop("modelCard")),
        {(BOM, "altered")}),
    Row("a bill with another digest of the weights", edit_bom(
        lambda b: next(c for c in b["components"] if c["name"] == WEIGHTS)["hashes"][0].update(content="0" * 64)),
        {(BOM, "altered")}),
    Row("a bill without the weights", edit_bom(lambda b: b.update(
        components=[c for c in b["components"] if c["name"] != WEIGHTS], dependencies=[])), {(BOM, "altered")}),
    Row("a pickle for weights, signed", pickled(WEIGHTS), {(WEIGHTS, "altered")}),
    Row("a pickle as JSON, signed", pickled("model/vocab.json"), {("model/vocab.json", "altered")}),
    Row("bytes behind the weights, signed", refitted(lambda s: do.append(s.path(WEIGHTS))),
        {(WEIGHTS, "altered")}),
    Row("an index that leads out of the release, signed",
        refitted(write("model/model.safetensors.index.json", b'{"weight_map": {"embed": "../../w.safetensors"}}')),
        {("model/model.safetensors.index.json", "altered")}),
    Row("code named by a configuration, signed",
        refitted(write("model/config.json", b'{"auto_map": {"AutoModel": "attacker/code--m.M"}}')),
        {("model/config.json", "altered")}),
    Row("a chat template without an end, signed",
        refitted(write("model/chat_template.jinja",
                       b"{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}")),
        {("model/chat_template.jinja", "altered")}),
    Row("a folder's digest under a file's name, signed", resealed(relabelled("model", "sha256")),
        {("model", "altered"), (BOM, "altered")}),
    Row("a folder's digest called a commit, signed", resealed(relabelled("model", "gitCommit")),
        {("model", "altered"), (BOM, "altered")}),
    Row("a file's digest under a folder's name, signed", resealed(relabelled(WEIGHTS, "sha3_256")),
        {(WEIGHTS, "altered")}),
    Row("a bill that calls the model's digest a file's",
        edit_bom(lambda b: b["metadata"]["component"]["hashes"][0].update(alg="SHA-256")), {(BOM, "altered")}),
    Row("no weights, signed", refitted(lambda s: s.path(WEIGHTS).unlink()), {("model/", "altered")}),
    Row("weights without a tensor, signed", refitted(write(WEIGHTS, b"\x02" + bytes(7) + b"{}")),
        {("model/", "altered")}),
    Row("the evaluation not spoken of, signed", resealed(without(EVALUATION)),
        {(EVALUATION, "altered"), (EVALUATION, "untrusted"), ("verdict", "missing")}),
    Row("the model's origin not spoken of, signed", resealed(not_used("rl_model")), {(MODEL, "missing")}),
    Row("the verdict not spoken of, signed", resealed(not_used("verdict")), {("verdict", "missing")}),
    Row("another evaluation, signed", refitted(lambda s: do.append(s.path(EVALUATION))), {("verdict", "missing")}),
    Row("the gate's statement taken out, signed", refitted(lambda s: s.path("lineage/gate-").unlink()),
        {("verdict", "missing")}),
    Row("a verdict of hold, signed", hold, {("verdict", "altered")}),
    Row("figures that hold, signed as promoted",
        other_figures(lambda signed: signed["paired"]["rl_vs_teacher"].update(low=-0.2, p=0.9)),
        {("verdict", "altered")}),
    Row("figures that are not there, signed as promoted", other_figures(lambda signed: signed["paired"].clear()),
        {(EVALUATION, "altered")}),
    Row("settings of a gate that there are none of, signed",
        other_figures(lambda signed: signed.update(settings={"gate": {"margins": 1}})), {(EVALUATION, "altered")}),
    Row("a rule of the gate's own that the figures fail, signed",
        other_rule({**GateConfig().model_dump(mode="json"), "rows": 100_000}), {("verdict", "altered")}),
    Row("a rule of the gate's own that the figures meet, signed",
        other_rule(GateConfig().model_dump(mode="json")), set()),
    Row("a profile's gate that lets everything pass, signed as promoted",
        other_figures(lambda signed: signed.update(settings={"draws": 1, "gate": {"p": 1, "rows": 1, "margin": 1}})),
        {("verdict", "missing")}),
    Row("a lax gate and a model that is worse, signed as promoted", other_figures(lax_and_worse),
        {("verdict", "altered")}),
    Row("a cost below nothing, signed as promoted",
        other_figures(lambda signed: signed["systems"]["rl"]["cost"].update(value=-5)), {("verdict", "altered")}),
    Row("a verdict's paper that says otherwise, signed",
        refitted(lambda s: s.path("lineage/verdict-").write_text('{"word": "promote", "reasons": ["Much better."]}')),
        {("lineage/verdict-", "altered")}),
    Row("a paper that no statement names, signed", refitted(write("lineage/more.json", b"{}")),
        {("lineage/more.json", "altered")}),
    Row("a statement that is none, signed", refitted(write("lineage/x.dsse.json", b"{}")),
        {("lineage/x.dsse.json", "altered")}),
]  # fmt: skip


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_attacked(scene: Scene, row: Row) -> None:
    row.attack(scene)

    findings = check_release(scene.folder, row.policy(scene.policy, scene), row.requested)

    result = {(kind_of(finding.what), finding.state) for finding in findings}
    assert row.expected <= result
    assert {state for what, state in result - row.expected} <= {row.rest}


def kind_of(name: str) -> str:
    """Statements and papers have a digest in their names, which no table can know."""
    return re.sub(r"^(lineage/\w+-)[0-9a-f]{12}\..*", r"\1", name)
