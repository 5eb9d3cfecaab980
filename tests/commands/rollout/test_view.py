"""Texts that people read of a ModelRollout, and the effects of their commands on it."""

from typing import Any

import pytest

from commands.rollout.commands import change_for_command
from commands.rollout.rollout_client import RolloutClient
from commands.rollout.view import (
    RolloutView,
    detail,
    evidence_lines,
    find_rollout,
    missing_for_next_share,
    outcome_error,
    read_rollout,
    rollout_json,
    table_row,
    waiting_reasons,
)
from qinglan.errors import ConfigError, DataError, GateHeldError
from qinglan.kubernetes.client import Api
from serving.rollout.sequential import Count, Score
from serving.rollout.spec import default_checks
from serving.rollout.state import StableRelease, State

SPEC = {
    "inferenceService": "rewriter",
    "release": {"name": "fivedoctors/rewriter", "digest": "2" * 64, "model": "3" * 64, "uri": "s3://q/releases/2"},
}
MEASURED = Score(check="errors", margin=0.05, canary=Count(500, 3), stable=Count(9500, 20), until=1.0)
ANALYSED = State(
    phase="Analyse",
    percent=5,
    step_seconds=60.0,
    stable=StableRelease(uri="s3://q/old", digest="1" * 64, model="4" * 64),
    evidence=(MEASURED,),
)


def rollout(number: int = 1, state: State | None = None, service: str = "rewriter", **spec: Any) -> dict[str, Any]:
    rollout_object: dict[str, Any] = {
        "metadata": {"name": f"{service}-{number}", "namespace": "qinglan", "creationTimestamp": "2026-11-22T08:00Z"},
        "spec": {**SPEC, "inferenceService": service, **spec},
    }  # fmt: skip
    return rollout_object | ({"status": state.model_dump(mode="json", by_alias=True)} if state else {})


def shown(state: State | None = None, **spec: Any) -> RolloutView:
    return read_rollout(rollout(1, state, **spec))


def done(outcome: str) -> State:
    return ANALYSED.model_copy(update={"phase": "Done", "outcome": outcome, "reasons": ("errors: worse",)})


def test_a_name_is_a_rollouts_or_a_services_whose_turn_it_is() -> None:
    rollouts = [rollout(10), rollout(2, ANALYSED), rollout(1, done("Promoted")), rollout(3, service="other")]

    assert find_rollout(rollouts, "rewriter-10", "qinglan")["metadata"]["name"] == "rewriter-10"
    assert find_rollout(rollouts, "rewriter", "qinglan")["metadata"]["name"] == "rewriter-2", (
        "what waits is not spoken to"
    )
    assert find_rollout(rollouts[:1] + rollouts[2:], "rewriter", "qinglan")["metadata"]["name"] == "rewriter-10"
    with pytest.raises(DataError, match=r"nothing: .* There are: other-3, rewriter-1, rewriter-10, rewriter-2\."):
        find_rollout(rollouts, "nothing", "qinglan")


def test_where_all_have_ended_a_services_name_means_the_newest() -> None:
    rollouts = [rollout(number, done("Promoted")) for number in (2, 10, 9)]

    assert find_rollout(rollouts, "rewriter", "qinglan")["metadata"]["name"] == "rewriter-10", "counted, not spelled"


def test_a_rollout_without_a_status_is_shown_as_not_begun() -> None:
    view = shown()

    assert (view.phase, table_row(view)[5:7]) == ("not begun", ("", ""))
    assert missing_for_next_share(view) == () and evidence_lines(view) == []


def test_a_controllers_status_is_read_back_and_foreign_fields_are_ignored() -> None:
    written = rollout(1, ANALYSED)
    written["status"]["observedGeneration"] = 7

    assert read_rollout(written).state == ANALYSED
    with pytest.raises(ConfigError, match=r"modelrollout qinglan/rewriter-1, status"):
        read_rollout({**written, "status": {"phase": "Guessing"}})


def test_the_detail_tells_the_numbers_and_what_they_lack() -> None:
    lines = "\n".join(detail(shown(ANALYSED, paused=True)))

    assert "Analyse: the canary at 5 %, step 1 of 4; steps 5, 20, 50, 100 %; asked: paused" in lines
    assert "stable: 111111111111, version 444444444444" in lines
    assert "errors 3 of 500 (0.60 %) beside 20 of 9,500 (0.21 %): worse 1 to 1 (back at 100)" in lines
    assert "  measured for 60 s of 300" in lines
    assert rollout_json(shown(ANALYSED))["lacking"] == list(missing_for_next_share(shown(ANALYSED)))


@pytest.mark.parametrize("shadowed", [False, True])
def test_the_checks_that_the_controller_chose_are_shown_once_it_has_noted_them(shadowed: bool) -> None:
    checks = default_checks(shadowed)
    noted = shown(ANALYSED.model_copy(update={"checks": checks}))

    names = ", ".join(check.name for check in checks)
    assert f"judged by {names}" in detail(noted)
    assert [check["name"] for check in rollout_json(noted)["spec"]["checks"]] == names.split(", ")
    assert "judged by the controller's default checks, which its first look notes here" in detail(shown())
    assert "checks" not in rollout_json(shown())["spec"]
    assert "judged by errors" in detail(shown(checks=[{"name": "errors", "margin": 0.1}]))
    assert shown(steps=[0, 5, 100]).spec.steps == (0, 5, 100), "admitted without checks, and a shadow may be there"


def test_a_waiting_rollout_names_the_rollout_before_it() -> None:
    rollouts = [rollout(3, ANALYSED), rollout(4), rollout(2, done("Promoted")), rollout(1, service="other")]
    turn, waiting, ended, other = (read_rollout(view, rollouts) for view in rollouts)

    assert waiting.behind == "rewriter-3" and table_row(waiting)[3] == "not begun, waits for rewriter-3"
    assert "waits for:\n  rewriter-3, which is older and has not ended" in "\n".join(detail(waiting))
    assert [view.behind for view in (turn, ended, other)] == ["", "", ""]


def test_a_first_model_says_that_nobody_is_served_until_its_pods_are_ready() -> None:
    first = State(phase="Promote", percent=100).with_record(1.79e9, "first", "nothing was compared")
    failing = first.with_record(1.79e9, "blind", "its pods fail: ImagePullBackOff")

    assert "the first model of rewriter, and nobody is served until they are ready" in "\n".join(detail(shown(first)))
    assert rollout_json(shown(failing))["waits_for"][1] == "so far its pods fail: ImagePullBackOff"
    assert waiting_reasons(shown(ANALYSED.model_copy(update={"phase": "Promote"}))) == (), (
        "one with a stable model is no first"
    )


def test_a_blind_one_says_why_and_one_that_sees_again_does_not() -> None:
    noted = ANALYSED.with_record(1.79e9, "blind", "Prometheus has no answer").with_record(
        1.79e9, "paused", "by a person"
    )
    blind, short = (noted.model_copy(update={"blind": seconds}) for seconds in (90.0, 5.0))

    assert waiting_reasons(shown(blind)) == ("evidence: for 90 s Prometheus has no answer",)
    assert waiting_reasons(shown(short)) == ("evidence: for 5 s nothing credible is seen of the canary",), (
        "that was before"
    )
    assert (
        waiting_reasons(shown(noted)) == waiting_reasons(shown(blind.model_copy(update={"phase": "Rollback"}))) == ()
    )


@pytest.mark.parametrize(
    ("word", "spec", "changed"),
    [
        ("pause", {}, {"paused": True}), ("pause", {"paused": True}, {}),
        ("resume", {"paused": True}, {"paused": False}), ("resume", {}, {}),
        ("promote", {}, {"promote": True}), ("promote", {"promote": True}, {}),
        ("abort", {}, {"abort": True, "promote": False}), ("abort", {"abort": True}, {}),
        ("abort", {"promote": True}, {"abort": True, "promote": False}),
    ],
)  # fmt: skip
def test_a_word_changes_its_own_field_and_nothing_when_it_was_said_before(
    word: Any, spec: dict[str, bool], changed: dict[str, bool]
) -> None:
    change = change_for_command(word, shown(ANALYSED, **spec))

    assert change.spec == changed
    assert ("controller of qinglan" in change.message) is bool(changed)


def test_words_that_contradict_each_other_are_explained() -> None:
    with pytest.raises(ConfigError, match="contradicts promote"):
        change_for_command("promote", shown(ANALYSED, abort=True))
    with pytest.raises(ConfigError, match="a pause would change nothing"):
        change_for_command("pause", shown(ANALYSED, abort=True))
    assert "takes back the promote" in change_for_command("abort", shown(ANALYSED, promote=True)).message
    assert "`qinglan rollout resume`" in change_for_command("promote", shown(ANALYSED, paused=True)).message


@pytest.mark.parametrize("word", ["pause", "resume", "promote", "abort"])
def test_nothing_is_said_to_a_rollout_that_has_ended(word: Any) -> None:
    with pytest.raises(ConfigError, match=f"ended RolledBack: there is nothing to {word}"):
        change_for_command(word, shown(done("RolledBack")))


def test_the_way_back_is_not_paused_and_needs_no_abort() -> None:
    back = ANALYSED.model_copy(update={"phase": "Rollback", "reasons": ("errors: worse",)})

    with pytest.raises(ConfigError, match=r"on its way back to the stable model \(errors: worse\)"):
        change_for_command("pause", shown(back))
    assert change_for_command("abort", shown(back)).spec == {}


def test_only_a_promotion_ends_well() -> None:
    assert outcome_error(shown(ANALYSED)) is None and outcome_error(shown(done("Promoted"))) is None
    for outcome in ("RolledBack", "Refused", "Aborted"):
        error = outcome_error(shown(done(outcome)))
        assert isinstance(error, GateHeldError) and outcome in str(error) and "errors: worse" in str(error)


@pytest.mark.parametrize("namespace", ["bad/ns", "../pods", "Qinglan", "-a", "a" * 64, "a\n"])
def test_an_impossible_namespace_is_refused_before_any_request(namespace: str) -> None:
    with pytest.raises(ConfigError, match="is no namespace's name"):
        RolloutClient(namespace, Api(None, "qinglan"))
    assert RolloutClient("", Api(None, "qinglan")).namespace == "qinglan"
