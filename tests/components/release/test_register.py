"""Only the bytes that were judged, and promoted, become a release; and what stands in it others can read."""

import json
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import orjson
import pytest

from components.release.register.baseline import release_baseline
from components.release.register.config import RegisterConfig
from components.release.register.model_card import datasets, known_regressions
from components.release.register.model_kinds import MODEL_KINDS
from components.release.register.publish import current_digest, publish
from components.release.register.stage import Inputs, register, register_held
from qinglan.errors import AlteredError, ConfigError, ConflictError, DataError, GateHeldError
from qinglan.evaluation.gates.kinds import REWRITER, STYLE, kind_of
from qinglan.evaluation.gates.rewriter_gate import decide
from qinglan.evaluation.gates.style_gate import GateStyleConfig
from qinglan.evaluation.gates.style_gate import decide as decide_style
from qinglan.files.digests import digest
from qinglan.lineage.auditing.deploy_gate import break_glass, may_deploy
from qinglan.lineage.release.release_check import check_release
from qinglan.lineage.release.release_notes import read_override
from qinglan.lineage.signing.dsse import IN_TOTO, sign_envelope
from qinglan.lineage.signing.keys import KEYS_VARIABLE, keys_folder, load_signer
from qinglan.lineage.signing.signed_statement import read_lineage
from qinglan.lineage.signing.statement import ArtifactRef, Statement
from qinglan.lineage.signing.trust import TRUST_FILE, ensure_keys, load_trust
from qinglan.lineage.steps.record import recorded
from qinglan.lineage.steps.step_inputs import add_verdict
from qinglan.lineage.trace.release_folder import read_release
from qinglan.lineage.trace.student_prompts import prompt_faults
from qinglan.store import open_store
from tests.qinglan.evaluation.gates.test_rewriter_gate import GATE, changed, cross_fitted, good
from tests.qinglan.evaluation.gates.test_style_gate import good as good_style
from tests.qinglan.lineage import tampering as do
from tests.releases.registered_release import (
    NAME,
    SignedRelease,
    Thing,
    judged,
    make_held_inputs,
    make_inputs,
    make_release,
    tiny_weights,
    use_keys,
    write_judged,
    write_lineage,
)

CONFIG = RegisterConfig(name=NAME)


@pytest.fixture
def signed(keys: Path, tmp_path: Path) -> SignedRelease:
    return make_release(tmp_path / "made", keys)


def bom(signed: SignedRelease) -> Any:
    return orjson.loads((signed.folder / "mlbom.cdx.json").read_bytes())


def test_a_release_has_what_was_judged_byte_for_byte_and_each_file_is_verified(signed: SignedRelease) -> None:
    assert sorted(path.name for path in signed.folder.iterdir()) == [
        "evaluation.json", "lineage", "mlbom.cdx.json", "model", "model.sig", "provenance.dsse.json", "report.html",
    ]  # fmt: skip
    assert digest(signed.folder / "model") == digest(signed.inputs.model) == signed.registered.model
    assert {entry.state for entry in check_release(signed.folder, signed.policy, NAME)} == {"verified"}
    release = read_release(signed.folder)
    assert (release.name, release.tenant) == (NAME, "fivedoctors")
    assert release.digest == signed.registered.release == digest(signed.folder)


def test_the_statement_names_no_machine_and_not_where_the_store_is(signed: SignedRelease, tmp_path: Path) -> None:
    text = orjson.dumps(read_release(signed.folder).statement._asdict(), default=str).decode()

    assert str(tmp_path) not in text and "store" not in read_release(signed.folder).statement.config


def test_a_model_that_was_not_the_one_judged_is_refused_and_nothing_is_left(inputs: Inputs, tmp_path: Path) -> None:
    shutil.rmtree(inputs.model)
    tiny_weights(inputs.model, (9.0, 9.0))

    with pytest.raises(DataError, match="Evaluate the model that shall be released"):
        register(inputs, tmp_path / "release", CONFIG)
    assert not [path for path in tmp_path.iterdir() if "release" in path.name]


def test_a_model_that_is_held_is_no_release_whatever_its_file_calls_it(inputs: Inputs, tmp_path: Path) -> None:
    result = changed("paired.rl_vs_teacher.low", -0.2)
    write_judged(inputs.evaluation, {**result, "verdict": {"promote": True, "reasons": []}})

    with pytest.raises(GateHeldError, match="not shown"):
        register(inputs, tmp_path / "release", CONFIG)


@pytest.fixture
def held(keys: Path, tmp_path: Path) -> Inputs:
    return make_held_inputs(tmp_path)


def test_a_held_model_becomes_a_release_only_where_it_says_so_itself(held: Inputs, tmp_path: Path) -> None:
    with pytest.raises(GateHeldError, match=r"The gate says hold: .*not shown"):
        register(held, tmp_path / "release", CONFIG)
    done = register_held(held, tmp_path / "release", CONFIG)

    facts = read_release(tmp_path / "release").statement.facts
    assert facts["verdict"] == "hold" and "not shown" in " ".join(facts["reasons"])
    assert done.model == digest(held.model)
    findings = check_release(tmp_path / "release", load_trust(keys_folder() / TRUST_FILE))
    faults = [(finding.what, finding.state) for finding in findings if finding.state != "verified"]
    assert faults == [("verdict", "missing")]


def test_a_held_release_is_not_deployed_without_a_signed_override(held: Inputs, tmp_path: Path) -> None:
    policy, store = load_trust(keys_folder() / TRUST_FILE), open_store(str(tmp_path / "store")).prepare()
    done = register_held(held, tmp_path / "release", CONFIG)
    store.push(tmp_path / "release", done.release)
    before = may_deploy(tmp_path / "release", policy, NAME)

    break_glass(str(tmp_path / "release"), store.address, (), policy, "to see it: the gate says hold", "a test")

    assert (before.allowed, before.grave) == (False, False)
    assert any("the gate says hold" in reason for reason in before.reasons)
    [note] = store.notes(done.release)
    assert may_deploy(tmp_path / "release", policy, NAME, override=read_override(note, policy, "fivedoctors")).allowed


def test_a_promoted_model_is_not_registered_as_held(inputs: Inputs, tmp_path: Path) -> None:
    with pytest.raises(GateHeldError, match="The gate says promote"):
        register_held(inputs, tmp_path / "release", CONFIG)
    assert not (tmp_path / "release").exists()


@pytest.mark.parametrize("text", ["[1]", "{}", '{"paired": 1}', '{"paired": {"rl_vs_teacher": 1}}', "{"])
def test_a_file_that_is_no_evaluation_makes_no_release(inputs: Inputs, tmp_path: Path, text: str) -> None:
    inputs.evaluation.write_text(text)

    with pytest.raises((DataError, GateHeldError)):
        register(inputs, tmp_path / "release", CONFIG)


def test_an_evaluation_that_no_gate_has_seen_is_refused(inputs: Inputs, tmp_path: Path) -> None:
    write_judged(inputs.evaluation, {**judged(inputs.model), "notes": ["others"]})

    with pytest.raises(DataError, match=r"no gate has said of .* Run the gate again"):
        register(inputs, tmp_path / "release", CONFIG)


@pytest.mark.parametrize("name", ["verdict-", "more.json"])
def test_a_paper_that_no_statement_names_is_refused(inputs: Inputs, tmp_path: Path, name: str) -> None:
    path = next(inputs.lineage.glob(f"{name}*"), inputs.lineage / name)
    path.write_bytes(b'{"reasons":["Much better."],"word":"promote"}')

    with pytest.raises(AlteredError, match="no statement names these bytes"):
        register(inputs, tmp_path / "release", CONFIG)


def test_a_pickle_in_the_models_folder_is_refused_before_anything_is_signed(inputs: Inputs, tmp_path: Path) -> None:
    (inputs.model / "vocab.txt").write_bytes(b"\x80\x04\x95pickle")

    with pytest.raises(DataError, match=r"vocab.txt: a pickle, which could run code"):
        register(inputs, tmp_path / "release", CONFIG)


def test_a_release_is_of_the_tenant_of_its_steps(keys: Path, tmp_path: Path) -> None:
    """A line's settings name their tenant: another's name on the release would serve one's model to the other."""
    inputs = make_inputs(tmp_path, tiny_weights(tmp_path / "rl_model"))
    path = next(inputs.lineage.glob("convert-*"))
    statement = do.payload(path)
    statement["predicate"]["buildDefinition"]["externalParameters"]["config"]["tenant_id"] = "fivedoctors"
    path.write_bytes(sign_envelope(orjson.dumps(statement), IN_TOTO, [load_signer("builder")]))

    with pytest.raises(ConfigError, match=r"statement of convert.*of tenant 'fivedoctors'"):
        register(inputs, tmp_path / "release", RegisterConfig(name="chengla/rewriter"))
    assert not (tmp_path / "release").exists()
    assert register(inputs, tmp_path / "release", RegisterConfig(name=NAME)).name == NAME


def test_steps_that_a_foreign_key_has_signed_become_no_release(inputs: Inputs, tmp_path: Path) -> None:
    ensure_keys(tmp_path / "foreign")
    for path in inputs.lineage.glob("*.dsse.json"):
        do.reseal(path, load_signer("builder", tmp_path / "foreign"))

    with pytest.raises(AlteredError, match=r"not in the trust policy.*An audit would refuse this release"):
        register(inputs, tmp_path / "release", RegisterConfig(name=NAME, store=str(tmp_path / "store")))
    assert not (tmp_path / "release").exists() and not list((tmp_path / "store").rglob("releases/*"))


def test_a_card_that_does_not_say_its_prompts_digest_becomes_no_release(inputs: Inputs, tmp_path: Path) -> None:
    """Else prompts for another tenant pass with an emptied digest."""
    path = inputs.model / "rewriter.json"
    card = json.loads(path.read_text())
    card["system_prompts"]["chengla"] = "你是老师"
    path.write_text(json.dumps({**card, "prompts_sha256": ""}))

    with pytest.raises(DataError, match="does not say with which prompts"):
        register(inputs, tmp_path / "release", CONFIG)
    path.write_text(json.dumps(card))
    with pytest.raises(DataError, match="was trained with prompts"):
        register(inputs, tmp_path / "release", CONFIG)
    assert not (tmp_path / "release").exists()


def test_the_key_is_asked_for_first(inputs: Inputs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEYS_VARIABLE, str(tmp_path / "none"))
    inputs.evaluation.unlink()

    with pytest.raises(ConfigError, match="no releaser's key"):
        register(inputs, tmp_path / "release", CONFIG)


def test_a_licence_that_spdx_does_not_know_is_a_setting_to_mend(inputs: Inputs, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"register\.licence: 'ours' is no SPDX id"):
        register(inputs, tmp_path / "release", RegisterConfig(name=NAME, licence="ours"))


@pytest.mark.parametrize("name", ["rewriter", "a/b/c", "../rewriter", "A/b", "fivedoctors/"])
def test_a_name_is_tenant_and_model(name: str) -> None:
    with pytest.raises(ConfigError, match="name"):
        RegisterConfig.parse({"name": name}, "register")


def test_the_card_has_figures_with_intervals_data_by_digest_and_rows_and_the_base(signed: SignedRelease) -> None:
    about = bom(signed)["metadata"]["component"]
    card = about["modelCard"]

    metrics = {metric["type"]: metric for metric in card["quantitativeAnalysis"]["performanceMetrics"]}
    assert metrics["top1"] == {
        "type": "top1", "value": "0.88", "confidenceInterval": {"lowerBound": "0.85", "upperBound": "0.91"},
    }  # fmt: skip
    assert metrics["top1 minus teacher's"]["confidenceInterval"] == {"lowerBound": "0.04", "upperBound": "0.08"}
    assert "confidenceInterval" not in metrics["quality"]
    data = {dataset["name"]: dataset["contents"]["properties"] for dataset in card["modelParameters"]["datasets"]}
    assert [item["value"] for item in data["SFT rows (train and dev)"]] == ["b" * 64, "450"]
    assert [item["value"] for item in data["locked test"]] == ["d" * 64, "1000"]
    [base] = about["pedigree"]["ancestors"]
    assert base["name"] == "Qwen/Qwen3-32B"
    entries = read_lineage(signed.inputs.lineage)
    digests = {part.name: part.digest for entry in entries for part in entry.statement.made}
    assert base["hashes"][0]["content"] == digests["base_model"]
    names = {item["name"] for item in about["properties"]}
    assert names >= {"qinglan:stage:ppo", "qinglan:stage:gate", "qinglan:code"}


def test_the_model_card_lists_a_significant_loss_among_the_limits(keys: Path, tmp_path: Path) -> None:
    model = tiny_weights(tmp_path / "rl_model")
    result = judged(model)
    result["paired"]["rl_vs_teacher"]["quality"] = {"difference": -0.2, "low": -0.3, "high": -0.1}
    evaluation = write_judged(tmp_path / "evaluation.json", result)
    (tmp_path / "report.html").write_text("report")
    lineage = write_lineage(tmp_path / "run", model, evaluation, tmp_path / "report.html")
    config = RegisterConfig(name=NAME, limits=("Not on Mondays.",), intended_use="Searches.")

    inputs = Inputs(evaluation, model, tmp_path / "report.html", lineage)
    done = register(inputs, tmp_path / "release", config)

    signed = SignedRelease(tmp_path / "release", inputs, keys, done)
    considerations = bom(signed)["metadata"]["component"]["modelCard"]["considerations"]
    assert considerations["useCases"] == ["Searches."]
    assert "Not on Mondays." in considerations["technicalLimitations"]
    assert considerations["technicalLimitations"][-1].startswith(
        "Yet quality by the examiner (1 to 5) is below the teacher's"
    )


def test_the_model_card_says_that_its_figures_are_of_cross_fitted_siblings() -> None:
    verdict = decide(cross_fitted(), GATE)

    assert known_regressions(verdict) == [verdict.reasons[0]]
    assert known_regressions(decide(good(), GATE)) == []


def test_the_model_card_counts_the_released_models_rows_and_not_those_of_a_younger_fold(
    signed: SignedRelease,
) -> None:
    kind = MODEL_KINDS["rewriter"]
    [convert] = [entry for entry in read_lineage(signed.inputs.lineage) if entry.statement.stage == "convert"]
    fold = convert.statement._replace(facts=dict.fromkeys(convert.statement.facts, 7), ended="2099-01-01T00:00:00Z")

    sets = list(datasets(kind, judged(signed.folder / "model"), [convert, convert._replace(statement=fold)], "acme"))

    assert sets[0]["contents"]["properties"][-1]["value"] == "450"


def test_a_model_that_a_stand_in_taught_is_released_only_where_the_profile_says_so(
    inputs: Inputs, tmp_path: Path
) -> None:
    taught = CONFIG.model_copy(update={"stand_in_teacher": True})
    with pytest.raises(ConfigError, match=r"a stand-in taught this model, so it is not released"):
        register(inputs, tmp_path / "release", taught)
    assert not (tmp_path / "release").exists()

    register(inputs, tmp_path / "release", taught.model_copy(update={"allow_stand_in": True}))
    card = orjson.loads((tmp_path / "release" / "mlbom.cdx.json").read_bytes())["metadata"]["component"]["modelCard"]
    assert card["considerations"]["technicalLimitations"][0].startswith("A stand-in taught this model")


def test_a_style_model_is_released_by_its_own_gate(keys: Path, tmp_path: Path) -> None:
    model = tiny_weights(tmp_path / "style_model")
    result = good_style()
    result["digests"]["model"] = digest(model)
    evaluation = write_judged(tmp_path / "evaluation.json", result)
    (tmp_path / "report.html").write_text("report")
    lineage = Thing(tmp_path / "lineage")
    with recorded("gate", {"evaluation": Thing(evaluation)}, {}, {}, lineage) as step:
        add_verdict(step, decide_style(orjson.loads(evaluation.read_bytes()), GateStyleConfig()))

    inputs = Inputs(evaluation, model, tmp_path / "report.html", Path(lineage.path))
    done = register(inputs, tmp_path / "release", RegisterConfig(name="house/style"))

    signed = SignedRelease(tmp_path / "release", inputs, keys, done)
    assert {entry.state for entry in check_release(signed.folder, signed.policy, "house/style")} == {"verified"}
    card = bom(signed)["metadata"]["component"]["modelCard"]
    metrics = card["quantitativeAnalysis"]["performanceMetrics"]
    presales = [(metric["type"], metric["value"]) for metric in metrics if metric.get("slice") == "售前"]
    assert presales == [("f1", "0.9")]
    assert card["modelParameters"]["approach"]["type"] == "supervised"


def test_each_kind_of_evaluation_has_its_gate() -> None:
    assert kind_of({"paired": {"sft_vs_teacher": {}}}, "x") is REWRITER
    assert kind_of({"paired": {"model_vs_baseline": {}}}, "x") is STYLE
    with pytest.raises(DataError, match="no evaluation of a rewriter or a style model"):
        kind_of({"paired": {"a_vs_b": {}}}, "x")


def test_a_release_is_pushed_by_its_digest_and_its_name_moves_to_it(inputs: Inputs, tmp_path: Path) -> None:
    config = RegisterConfig(name=NAME, store=str(tmp_path / "store"))

    done = [register(inputs, tmp_path / "release", config) for _ in range(2)]

    store = open_store(config.store)
    assert set(store.digests()) == {registered.release for registered in done}
    moves = [(entry.digest, entry.by) for entry in store.history(NAME)]
    assert moves == [(registered.release, registered.signed_by) for registered in done]
    store.pull(done[0].release, tmp_path / "pulled")
    findings = check_release(tmp_path / "pulled", load_trust(keys_folder() / TRUST_FILE), NAME)
    assert {finding.state for finding in findings} == {"verified"}


def test_a_name_that_someone_else_moved_meanwhile_is_left_to_them(signed: SignedRelease, tmp_path: Path) -> None:
    config = RegisterConfig(name=NAME, store=str(tmp_path / "store"))
    before = current_digest(config)
    publish(signed.folder, signed.registered.release, config, before, load_signer("builder"))

    with pytest.raises(ConflictError):
        publish(signed.folder, signed.registered.release, config, before, load_signer("releaser"))

    assert [entry.by for entry in open_store(config.store).history(NAME)] == [load_signer("builder").id]


@pytest.mark.parametrize(
    ("trained", "why"),
    [
        ({"chengla": "你是助教。"}, r"the prompt of 'fivedoctors' is in it, and no training row was that tenant's"),
        ({"fivedoctors": "你是助教。"}, r"the prompt of 'fivedoctors' is another than its training rows showed"),
    ],
)
def test_a_card_with_prompts_that_no_training_row_showed_is_not_released_and_an_audit_finds_it(
    trained: dict[str, str], why: str, keys: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own digest is no proof: whoever exchanges the prompts writes that anew."""
    inputs = make_inputs(tmp_path, tiny_weights(tmp_path / "rl_model"), prompts=trained)

    for make in (register, partial(release_baseline, system="rl")):
        with pytest.raises(AlteredError, match=rf"rewriter\.json: {why}\. Somebody exchanged the card"):
            make(inputs, tmp_path / "release", CONFIG)
    monkeypatch.setattr("components.release.register.stage.refuse_untrained_prompts", lambda *args: None)
    register(inputs, tmp_path / "release", CONFIG)

    findings = check_release(tmp_path / "release", load_trust(keys / TRUST_FILE))
    [finding] = [finding for finding in findings if finding.state != "verified"]
    assert (finding.what, finding.state) == ("model/rewriter.json", "altered")
    assert finding.why == why


def test_statements_that_do_not_count_are_named_before_the_prompts_in_them(
    keys: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A forged statement must not put the blame on the card."""
    inputs = make_inputs(tmp_path, tiny_weights(tmp_path / "rl_model"), prompts={"fivedoctors": "你是助教。"})
    use_keys(tmp_path / "others", monkeypatch)

    with pytest.raises(AlteredError, match=r"is not in the trust policy.*An audit would refuse this release"):
        register(inputs, tmp_path / "release", CONFIG)


def test_a_prompt_in_the_statement_of_another_stage_than_convert_says_nothing_of_the_training_rows() -> None:
    part = ArtifactRef("prompt student.fivedoctors", "0" * 64)
    model = ArtifactRef("rl_model", "1" * 64)
    statements = {stage: Statement(stage, (model,), (part,), {}, {}, "", "", "", {}) for stage in ("convert", "sft")}

    prompts = {"fivedoctors": "你是助教。"}
    faults = {stage: list(prompt_faults(prompts, model.digest, [statements[stage]])) for stage in statements}

    assert [stage for stage in faults if faults[stage]] == ["convert"]
