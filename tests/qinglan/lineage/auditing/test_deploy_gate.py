"""The deploy gate: every reason by a table, and what an override covers."""

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from qinglan.errors import ConfigError, DataError
from qinglan.evaluation.gates.gate_limits import Limits
from qinglan.files.digests import digest
from qinglan.lineage.auditing import audit_page
from qinglan.lineage.auditing.audit import as_json, audit_target
from qinglan.lineage.auditing.audit_targets import open_target, release_target, resolve_digest
from qinglan.lineage.auditing.deploy_gate import Decision, decide_deployment, limit_reasons, may_deploy
from qinglan.lineage.auditing.terminal_tree import print_audit
from qinglan.lineage.release.release_notes import make_override, read_override
from qinglan.lineage.signing.findings import Finding
from qinglan.lineage.signing.trust import TrustPolicy
from qinglan.lineage.trace.release_folder import read_figures
from qinglan.store import open_store
from tests.qinglan.lineage import golden_release
from tests.releases.lineage_release import add_sibling, code, write_release
from tests.releases.lineage_world import DAWN, NOW, TENANT, Keys, output, source

NAME = f"{TENANT}/rewriter"
Line = dict[str, dict[str, Any]]

pytestmark = pytest.mark.usefixtures("no_release_check")


def decided(release: Path, policy: TrustPolicy, name: str = NAME, **options: Any) -> Decision:
    return may_deploy(release, policy, name, now=NOW, **options)


def without(stage: str, name: str) -> Callable[[Line], None]:
    def change(line: Line) -> None:
        line[stage]["used"] = [part for part in line[stage]["used"] if part.name != name]

    return change


def test_a_whole_release_may_be_deployed(keys: Keys, tmp_path: Path) -> None:
    assert decided(write_release(tmp_path / "release", keys), keys.policy) == Decision(True, [])


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda line: line.pop("validate"), "no statement says which step made it"),
        (lambda line: line.pop("ppo"), "no statement of ppo is in its chain"),
        (without("generate", "journal"), "generate does not say which journal it used"),
        (without("generate", "prices"), "generate does not say which prices it used"),
        (without("ppo", "reward"), "ppo does not say which reward it used"),
        (without("ppo", "prompt judge"), "ppo does not say which prompt it used"),
        (without("evaluate", "locked_test"), "evaluate does not say which locked_test it used"),
        (lambda line: line["gate"]["facts"].update(verdict="hold"), "the gate says hold"),
        (lambda line: line["gate"].update(facts={}), "the gate says nothing"),
        (lambda line: line["gate"]["used"].__setitem__(0, output("evaluation", "x")), "another evaluation"),
        (lambda line: line["evaluate"]["used"].__setitem__(2, output("rl_model", "x")), "another model"),
        (lambda line: line["sft"]["used"].append(output("judge")), "judge"),
        (lambda line: line["ppo"].update(key=None), "not signed"),
    ],
)
def test_missing_lineage_is_a_reason_not_to_deploy(
    change: Callable[[Line], None], reason: str, keys: Keys, tmp_path: Path
) -> None:
    result = decided(write_release(tmp_path / "release", keys, change), keys.policy)

    assert not result.allowed
    assert any(reason in item for item in result.reasons), result.reasons


def other_input(stage: str, name: str) -> Callable[[Line], None]:
    """The stage took other bytes under this name than the stage before it had signed."""

    def change(line: Line) -> None:
        used = line[stage]["used"]
        used[:] = [output(name, "changed") if part.name == name else part for part in used]

    return change


def other_output(stage: str, name: str) -> Callable[[Line], None]:
    """The stage signed other bytes under this name than the stages after it took."""

    def change(line: Line) -> None:
        parts = line[stage]["made"]
        parts[:] = [output(name, "changed") if part.name == name else part for part in parts]

    return change


def other_fold(line: Line) -> None:
    """A fold's locked test is not the one that its own convert signed."""
    line["fold"] = {"stage": "convert", "made": [output("locked_test", "fold")], "used": [output("validated")],
                    "hours": (12.2, 12.8)}  # fmt: skip
    line["evaluate"]["used"].append(output("fold 1 locked_test", "changed"))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (other_output("evaluate", "evaluation"), "gate took it for evaluation, which evaluate had signed with"),
        (other_input("sft", "chats"), "sft took it for chats, which convert had signed with digest"),
        (other_input("base", "prompts"), "base took it for prompts, which convert had signed with digest"),
        (other_output("gate", "verdict"), "release took it for verdict, which gate had signed with digest"),
        (other_fold, "evaluate took it for locked_test, which convert had signed with digest"),
    ],
)
def test_bytes_that_a_stage_took_for_what_another_had_signed_are_altered_and_no_override_covers_them(
    change: Callable[[Line], None], reason: str, keys: Keys, tmp_path: Path
) -> None:
    """They are not missing: a folder with the missing files would not help."""
    folder = write_release(tmp_path / "release", keys, change)
    note = make_override(keys.releaser, digest(folder), NAME, "mallory", "we need it", ["missing"], DAWN)

    result = decided(folder, keys.policy, override=read_override(note, keys.policy, TENANT, NOW))

    assert (result.allowed, result.grave) == (False, True)
    assert any(f"altered: {reason}" in item for item in result.reasons), result.reasons


def with_figures(**changes: Any) -> Callable[[dict[str, Any]], None]:
    return lambda figures: figures.update(changes)


def lax(figures: dict[str, Any]) -> None:
    """Figures of a model that is worse, and a gate that lets everything pass."""
    figures["settings"] = {"draws": 1, "gate": {"p": 1, "rows": 1, "margin": 1, "kind_margin": 1, "invented": 1}}
    figures["paired"]["rl_vs_teacher"].update(difference=-0.04, low=-0.06, high=-0.01)


@pytest.mark.parametrize(
    ("change", "limits", "reason"),
    [
        (lax, {}, "would hold it: Worse than the teacher."),
        (with_figures(settings={"draws": 1, "gate": {}}), {}, "draws is set to 1: at least 1,000"),
        (with_figures(settings={"gate": {"row": 1}}), {}, "no gate can judge its figures"),
        (with_figures(paired={}), {}, "no gate can judge its figures"),
        (lambda figures: figures["systems"]["rl"]["cost"].update(value=-5), {}, "is -5, which is impossible"),
        (with_figures(), {"gate": {"rows": 2000}}, "1000 queries with gold passages were compared, and 2000 are"),
        (with_figures(), {"gate": {"p": 0.0001}}, "Better than the teacher: not shown."),
        (with_figures(), {"draws": 5000}, "draws is not recorded: at least 5,000 is required."),
        (with_figures(settings={"draws": 2000, "gate": {}}), {"draws": 5000}, "draws is set to 2000: at least 5,000"),
    ],
)
def test_a_release_beyond_the_limits_is_not_deployed(
    change: Callable[[dict[str, Any]], None], limits: dict[str, Any], reason: str, keys: Keys, tmp_path: Path
) -> None:
    policy = TrustPolicy.parse({**keys.policy.model_dump(), "evaluate": {"rewriter": limits}}, "trust.yaml")

    result = decided(write_release(tmp_path / "release", keys, figures=change), policy)

    assert not result.allowed
    assert any(reason in item for item in result.reasons), result.reasons


def test_a_release_of_a_lax_gate_may_be_deployed_if_its_figures_are_within_the_limits(
    keys: Keys, tmp_path: Path
) -> None:
    few = with_figures(settings={"draws": 10_000, "gate": {"rows": 200}})
    policy = TrustPolicy.parse({**keys.policy.model_dump(), "evaluate": {"rewriter": {"gate": {"rows": 900}}}}, "x")

    assert decided(write_release(tmp_path / "release", keys, figures=few), policy) == Decision(True, [])


@pytest.mark.parametrize("folder", golden_release.signed_ones(), ids=lambda path: path.name)
def test_a_golden_release_from_before_there_were_limits_is_judged_by_the_defaults(folder: Path) -> None:
    """Its evaluation records neither draws nor the gate's settings."""
    figures = read_figures(folder / "release")

    assert list(limit_reasons(figures, Limits())) == []
    [reason] = limit_reasons(figures, Limits.parse({"rewriter": {"draws": 5_000}}, "x"))
    assert reason.endswith("draws is not recorded: at least 5,000 is required.")


UNLISTED = "lacks this one: it was counted in another store"


def test_a_release_that_was_counted_elsewhere_is_not_deployed_from_this_store(keys: Keys, tmp_path: Path) -> None:
    """Models that were each tried with a store of their own have the number 1 there; the official list has none."""
    uses = {"test": "a" * 64, "line": "rewriter", "count": 1}
    release = write_release(tmp_path / "release", keys, figures=with_figures(test_uses=uses))
    store = open_store(str(tmp_path / "store"))
    store.push(release, digest(release))

    def reason() -> str:
        with open_target(digest(release), store.address) as target:
            [finding] = audit_target(target, keys.policy, NAME, now=NOW).findings
            assert decide_deployment(target, keys.policy, NAME, now=NOW).reasons == [str(finding)]
        assert (finding.what, finding.state) == ("locked test", "missing"), "an override can cover it"
        return finding.why

    assert UNLISTED in reason()
    store.add_use("a" * 64, "rewriter", "f" * 64, {})
    assert UNLISTED in reason()
    store.add_use("a" * 64, "rewriter", read_figures(release)["digests"]["models"]["rl"], {})
    assert reason() == "its locked test has judged 1 models by the evaluation, and 2 by its store's list"
    (tmp_path / "store" / "tests" / ("a" * 64) / "rewriter" / "000003.json").write_text("{")
    assert "000003.json" in reason()


@pytest.mark.parametrize("planted", [b"", b"{", b"{}", b'{"files": {}}'])
def test_a_planted_digest_with_the_same_beginning_hides_no_release(
    planted: bytes, keys: Keys, tmp_path: Path
) -> None:
    release, store = write_release(tmp_path / "release", keys), open_store(str(tmp_path / "store"))
    store.push(release, digest(release))
    store.backend.create(f"releases/{digest(release)[:12]}{'0' * 52}.json", planted)

    assert resolve_digest(store, digest(release)[:12]) == digest(release)


def test_a_release_is_deployed_under_the_name_it_was_signed_for(keys: Keys, tmp_path: Path) -> None:
    release = write_release(tmp_path / "release", keys)

    assert any("was signed for" in reason for reason in decided(release, keys.policy, "chengla/rewriter").reasons)
    assert any(
        "no pipeline makes a model" in reason for reason in decided(release, keys.policy, f"{TENANT}/poet").reasons
    )


def test_changed_code_is_a_reason_where_the_policy_wants_clean_code(keys: Keys, tmp_path: Path) -> None:
    release = write_release(
        tmp_path / "release", keys, lambda line: line["generate"]["used"].__setitem__(-1, code(dirty=True))
    )

    assert decided(release, keys.policy).allowed
    clean = keys.policy.model_copy(update={"clean_code": True})
    assert decided(release, clean).reasons == ["generate ran code with uncommitted changes"]


@pytest.mark.parametrize("dirty", ["sft", "sft-fold-1"])
def test_a_clean_fold_does_not_hide_changed_code_nor_the_reverse(dirty: str, keys: Keys, tmp_path: Path) -> None:
    def change(line: Line) -> None:
        add_sibling(line)
        line[dirty]["used"] = [*(part for part in line[dirty]["used"] if part.name != "code"), code(dirty=True)]

    clean = keys.policy.model_copy(update={"clean_code": True})

    assert decided(write_release(tmp_path / "release", keys, change), clean).reasons == [
        "sft ran code with uncommitted changes"
    ]


def override(keys: Keys, release: Path, **changes: Any) -> bytes:
    values = {"digest": digest(release), "name": NAME, "by": "Mei", "reason": "the shop is down", "missing": ["x"]}
    return make_override(keys.releaser, at=DAWN, **{**values, **changes})


def test_an_override_lets_pass_what_is_missing_and_keeps_the_reasons(keys: Keys, tmp_path: Path) -> None:
    release = write_release(tmp_path / "release", keys, without("ppo", "reward"))
    signed = read_override(override(keys, release), keys.policy, TENANT, NOW)

    result = decided(release, keys.policy, override=signed)

    assert (result.allowed, result.override) == (True, signed)
    assert result.reasons == ["ppo does not say which reward it used"]


@pytest.mark.parametrize("change", [{"digest": "f" * 64}, {"name": "chengla/rewriter"}])
def test_an_override_is_for_one_release_and_name(change: dict[str, str], keys: Keys, tmp_path: Path) -> None:
    release = write_release(tmp_path / "release", keys, without("ppo", "reward"))
    signed = read_override(override(keys, release, **change), keys.policy, TENANT, NOW)

    result = decided(release, keys.policy, override=signed)

    assert (result.allowed, result.override) == (False, None)


def test_no_override_covers_what_a_release_was_found_to_be(
    keys: Keys, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    release = write_release(tmp_path / "release", keys)
    signed = read_override(override(keys, release), keys.policy, TENANT, NOW)
    cases = [("sft_model", "untrusted", False), ("sft_model", "altered", False), ("sft_model", "missing", True)]
    cases += [(file, "missing", False) for file in ("model/model.safetensors", "model", "model.sig", "lineage")]
    for what, state, allowed in cases:
        faults = [Finding(what, state, "x")]  # type: ignore[arg-type]
        monkeypatch.setattr("qinglan.lineage.auditing.audit.check_release", lambda *options, faults=faults: faults)

        assert decided(release, keys.policy, override=signed).allowed is allowed


def test_an_override_names_a_person_and_a_reason_and_is_a_releasers(keys: Keys, tmp_path: Path) -> None:
    release = write_release(tmp_path / "release", keys)
    for change in ({"reason": "because"}, {"by": " "}):
        with pytest.raises(ConfigError, match="An override needs a person"):
            override(keys, release, **change)
    with pytest.raises(ConfigError, match="only a releaser"):
        make_override(keys.builder, "f" * 64, NAME, "Mei", "the shop is down", [])
    with pytest.raises(DataError, match="is not trusted"):
        read_override(override(keys, release), TrustPolicy(), TENANT, NOW)
    with pytest.raises(DataError, match="not an override"):
        read_override((release / "provenance.dsse.json").read_bytes(), keys.policy, TENANT, NOW)


def test_an_override_in_a_lineage_folder_is_no_statement_of_a_stage(keys: Keys, tmp_path: Path) -> None:
    from qinglan.lineage.trace.walk import walk
    from tests.releases.lineage_world import Statements, sha

    release = write_release(tmp_path / "release", keys)
    only = Statements(override(keys, release))

    assert walk([sha("x")], only, keys.policy, TENANT, now=NOW).findings == ()
    assert source("x").is_external


@pytest.mark.parametrize(
    ("uses", "count"), [({"count": 3}, 3), (None, None), ({}, None), ("many", None), ({"count": 0}, 0)]
)
def test_an_audit_shows_how_many_models_the_locked_test_has_judged(
    uses: Any, count: int | None, keys: Keys, tmp_path: Path
) -> None:
    release = write_release(tmp_path / "release", keys, figures=with_figures(test_uses=uses))
    result, screen = audit_target(release_target(release, ()), keys.policy, NAME, now=NOW), io.StringIO()
    print_audit(result, screen)

    assert as_json(result)["judged_models"] == count
    line = f"Models that its locked test has judged: {count}"
    assert (line in screen.getvalue()) is (line in audit_page.page(result)) is bool(count)
