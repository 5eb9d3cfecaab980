"""Each state, and why: by small worlds of signed statements."""

import json
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import pytest

from qinglan.lineage.signing.dsse import IN_TOTO, sign_envelope
from qinglan.lineage.signing.findings import verdict_of
from qinglan.lineage.signing.statement import Statement, to_payload
from qinglan.lineage.signing.trust import TrustPolicy
from qinglan.lineage.trace.evidence import CombinedEvidence, FileEvidence, RunFolder
from qinglan.lineage.trace.walk import Graph, findings_of, walk
from tests.releases.lineage_world import DAWN, NOW, TENANT, Keys, Statements, at, output, sealed, sha, source


def walked(*envelopes: bytes, start: str, policy: TrustPolicy, tenant: str = TENANT) -> Graph:
    return walk([sha(start)], Statements(*envelopes), policy, tenant, now=NOW)


def states(graph: Graph) -> dict[str, str]:
    return {thing.name: thing.state for thing in graph.things.values()}


def verdict(graph: Graph) -> str:
    return verdict_of(item.state for item in findings_of(graph))


def line(keys: Keys, hours: Sequence[tuple[float, float]] = ((1, 2), (3, 4))) -> tuple[bytes, bytes]:
    return (
        sealed(keys.builder, "generate", [output("rewrites")], [source("questions")], hours[0]),
        sealed(keys.builder, "sft", [output("model")], [output("rewrites"), source("code")], hours[1]),
    )


def test_signed_steps_are_attested_back_to_the_inputs(keys: Keys) -> None:
    graph = walked(*line(keys), start="model", policy=keys.policy)

    assert states(graph) == dict.fromkeys(("model", "rewrites", "questions", "code"), "attested")
    assert list(graph.things)[-1] == sha("model"), "what is used comes before what uses it"
    assert verdict(graph) == "intact"


def test_bytes_at_hand_make_it_verified(keys: Keys, tmp_path: Path) -> None:
    for name in ("model", "questions"):
        (tmp_path / name).write_text(name)

    graph = walk(
        [sha("model")],
        CombinedEvidence([Statements(*line(keys)), FileEvidence(tmp_path)]),
        keys.policy,
        TENANT,
        now=NOW,
    )

    assert states(graph) == {
        "model": "verified", "questions": "verified", "rewrites": "attested", "code": "attested",
    }  # fmt: skip
    assert graph.things[sha("model")].size == 5


def test_an_artifact_without_a_statement_is_missing(keys: Keys) -> None:
    graph = walked(line(keys)[1], start="model", policy=keys.policy)

    assert states(graph)["rewrites"] == "missing"
    assert states(graph)["model"] == "attested"
    assert verdict(graph) == "incomplete"


def test_a_key_that_does_not_count_leaves_its_work_untrusted(keys: Keys) -> None:
    graph = walked(*line(keys), start="model", policy=TrustPolicy())

    assert (graph.things[sha("model")].state, states(graph)["questions"]) == ("untrusted", "untrusted")
    assert verdict(graph) == "altered"


def test_a_rewritten_envelope_counts_only_if_its_signature_is_over_its_payload(keys: Keys) -> None:
    generate, sft = line(keys)
    other = json.loads(sealed(keys.builder, "sft", [output("model")], [output("rewrites")], (3, 4)))
    changes = {"untrusted": {"signatures": []}, "altered": {"payload": other["payload"]}, "attested": {"note": "x"}}
    for state, change in changes.items():
        rewritten = json.dumps({**json.loads(sft), **change}).encode()

        assert states(walked(generate, rewritten, start="model", policy=keys.policy))["model"] == state


def test_a_builder_signs_no_release(keys: Keys) -> None:
    by_builder = sealed(keys.builder, "release", [output("model.sig")], [])
    by_releaser = sealed(keys.releaser, "release", [output("model.sig")], [])

    assert states(walked(by_builder, start="model.sig", policy=keys.policy)) == {"model.sig": "untrusted"}
    assert states(walked(by_releaser, start="model.sig", policy=keys.policy)) == {"model.sig": "attested"}


def test_a_broken_statement_is_a_finding_and_the_walk_goes_on(keys: Keys) -> None:
    graph = walked(*line(keys), b"{", start="model", policy=keys.policy)

    assert states(graph)["model"] == "attested"
    assert [item.what for item in findings_of(graph)] == ["statement statement-2.dsse.json"]
    assert verdict(graph) == "altered"


@pytest.mark.parametrize("about", [[1], "x", 7])
def test_a_statement_of_another_shape_is_a_finding(keys: Keys, about: object) -> None:
    body = json.loads(to_payload(Statement("sft", (output("model"),), (), {}, {}, "", at(1), at(2), {})))
    body["subject"][0]["annotations"] = about

    odd = sign_envelope(json.dumps(body).encode(), IN_TOTO, [keys.stranger])

    assert verdict(walked(odd, start="model", policy=keys.policy)) == "altered"


@pytest.mark.parametrize(
    ("hours", "why"),
    [
        (((1, 2), (1.5, 4)), "before rewrites was made"),
        (((1, 2), (4, 3)), "before it started"),
    ],
)
def test_times_that_cannot_be_are_altered(keys: Keys, hours: Sequence[tuple[float, float]], why: str) -> None:
    graph = walked(*line(keys, hours), start="model", policy=keys.policy)

    assert states(graph)["model"] == "altered"
    assert why in graph.things[sha("model")].why


def test_dates_in_the_future_are_one_finding_that_says_by_how_much_and_what_to_do(keys: Keys) -> None:
    """Each artifact keeps its own state: a wrong clock hides no other fault."""
    late = 24 * 365.0
    foreign = sealed(keys.stranger, "ppo", [output("rl_model")], [output("model")], (late, late + 1))

    graph = walk(
        [sha("rl_model")], Statements(*line(keys, ((1, 2), (3, late))), foreign), keys.policy, TENANT, now=NOW
    )

    [dates] = [finding for finding in findings_of(graph) if finding.what == "dates"]
    assert dates.state == "altered"
    assert dates.why.startswith("signed statements dated up to 335.0 d in the future: 1 (it is 2026-02-04 08:00:00Z")
    assert "wait, or set that clock and run the same command again" in dates.why
    assert states(graph) == {
        "questions": "attested", "rewrites": "attested", "code": "attested", "model": "attested",
        "rl_model": "untrusted",
    }  # fmt: skip


def test_what_was_dated_ahead_and_is_made_again_under_the_right_clock_is_intact(keys: Keys) -> None:
    """The same command again makes the same bytes; the statements of before stay in the run's folder."""
    late = 24 * 365.0
    ahead = line(keys, ((late, late + 1), (late + 2, late + 3)))

    assert verdict(walked(*ahead, start="model", policy=keys.policy)) == "altered"
    assert verdict(walked(*ahead, *line(keys), start="model", policy=keys.policy)) == "intact"


def test_a_statement_about_a_time_to_come_vouches_for_no_input(keys: Keys) -> None:
    late = 24 * 365.0
    ahead = sealed(keys.builder, "sft", [output("model")], [source("questions")], (late, late + 1))

    assert walked(ahead, start="questions", policy=keys.policy).things[sha("questions")].state == "untrusted"


def test_an_unsigned_date_in_the_future_is_no_matter_of_clocks(keys: Keys) -> None:
    late = 24 * 365.0
    graph = walked(sealed(None, "sft", [output("model")], [], (1, late)), start="model", policy=keys.policy)

    assert [finding.what for finding in findings_of(graph)] == [f"model {sha('model')[:12]}"]


def test_nothing_is_younger_than_its_release(keys: Keys) -> None:
    graph = walk([sha("model")], Statements(*line(keys)), keys.policy, TENANT, now=NOW, until=DAWN)

    assert "after the release" in graph.things[sha("model")].why


def test_of_two_makers_the_one_that_counts_is_kept(keys: Keys) -> None:
    foreign = sealed(keys.stranger, "sft", [output("model")], [output("poison")], (0, 0.5))

    graph = walked(foreign, *line(keys), start="model", policy=keys.policy)

    assert states(graph)["model"] == "attested"
    assert "poison" not in states(graph)


def test_a_stage_that_ran_again_on_the_same_bytes_is_one_maker(keys: Keys) -> None:
    again = sealed(keys.builder, "generate", [output("rewrites")], [source("questions")], (5, 6))

    assert verdict(walked(*line(keys), again, start="model", policy=keys.policy)) == "intact"


def test_of_equal_outputs_a_run_shows_the_one_of_its_newest_steps(keys: Keys, tmp_path: Path) -> None:
    """An empty file of set-aside rows is the same before and after another sheet was given."""
    old = sealed(
        keys.builder, "generate", [output("rewrites"), output("set aside", "")], [source("old sheet")], (1, 2)
    )
    new = sealed(
        keys.builder, "generate", [output("new rewrites"), output("set aside", "")], [source("new sheet")], (5, 6)
    )
    earlier_user = sealed(keys.builder, "report", [output("report")], [output("set aside", "")], (3, 4))
    run = tmp_path / "run"
    for folder, sealed_bytes in (
        ("records", new),
        ("artifacts/line-1/lineage", old),
        ("artifacts/line-2", earlier_user),
    ):
        (run / folder).mkdir(parents=True)
        (run / folder / f"{folder[-1]}.dsse.json").write_bytes(sealed_bytes)

    graph = walk([sha("set aside"), sha("report")], RunFolder(run), keys.policy, TENANT, now=NOW)

    assert {thing.name for thing in graph.things.values()} == {"set aside", "new sheet", "report"}
    assert {step.state for step in graph.steps.values()} == {"attested"}, "the bytes were there before the report"


def test_an_artifact_that_a_step_only_passes_on_is_not_its_output(keys: Keys) -> None:
    released = sealed(keys.releaser, "release", [output("model"), output("model.sig")], [output("model")], (5, 6))

    graph = walked(*line(keys), released, start="model.sig", policy=keys.policy)

    assert states(graph)["rewrites"] == "attested"
    assert graph.steps[graph.things[sha("model")].step].statement.stage == "sft"


def test_a_circle_is_altered(keys: Keys) -> None:
    circle = [
        sealed(keys.builder, "a", [output("x")], [output("y")], (1, 1)),
        sealed(keys.builder, "b", [output("y")], [output("x")], (1, 1)),
    ]

    graph = walked(*circle, start="x", policy=keys.policy)

    assert states(graph) == {"x": "altered", "y": "altered"}
    assert "made from its own output" in graph.things[sha("x")].why


@pytest.mark.slow
def test_a_chain_of_thousands_is_walked(keys: Keys) -> None:
    chain = [
        sealed(keys.builder, "s", [output(f"t{n}")], [output(f"t{n - 1}") if n else source("root")], (n, n + 1))
        for n in range(2000)
    ]

    graph = walk([sha("t1999")], Statements(*chain), keys.policy, TENANT, now=NOW + timedelta(days=999))

    assert len(graph.things) == 2001
    assert set(states(graph).values()) == {"attested"}
