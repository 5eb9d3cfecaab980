"""The page and the tree: nothing in them runs, everything in them is found."""

import io
import re
from pathlib import Path
from typing import Any

import pytest

from qinglan.lineage.auditing import audit_page
from qinglan.lineage.auditing.audit import Audit, as_json, audit, next_step
from qinglan.lineage.auditing.terminal_tree import print_audit, tree_lines
from qinglan.lineage.release.release_notes import CheckedRollout, Override, RolloutStatement
from qinglan.lineage.signing.findings import State
from qinglan.lineage.trace.walk import walk
from tests.releases.lineage_release import write_release
from tests.releases.lineage_world import DAWN, NOW, Keys, Statements, output, sealed, sha, source

EVIL = '<script>alert("x")</script>'


@pytest.fixture
def audited(keys: Keys, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Audit:
    def change(line: dict[str, dict[str, Any]]) -> None:
        line["generate"]["used"].append(source(EVIL))
        line["generate"]["config"] = {EVIL: EVIL}
        line["generate"]["facts"] = {"note": EVIL}
        line["sft"]["made"].append(output(EVIL, "made", note=EVIL))
        line["ppo"]["used"] += [output(EVIL, "made"), output("judge_model")]

    monkeypatch.setattr("qinglan.lineage.auditing.audit.check_release", lambda *arguments: [])
    return audit(str(write_release(tmp_path / "release", keys, change)), keys.policy, now=NOW)


def rollout_history(audited: Audit, state: State = "attested", why: str = "", **changes: Any) -> CheckedRollout:
    """One history of a rollout beside the release."""
    document = RolloutStatement(
        audited.digest, audited.name, "qinglan/rewriter-2", "rewriter", "RolledBack",
        ("errors: 6.1 % beside 1.0 %", "back to the stable model"), f"{DAWN}", "2026-11-20T07:08:09+00:00",
        {}, {}, (),
    )  # fmt: skip
    return CheckedRollout(document._replace(**changes), state, why, "" if why else "5" * 64)


def test_nothing_on_the_page_is_markup_but_ours(audited: Audit) -> None:
    glass = Override(audited.digest, audited.name, EVIL, EVIL, f"{DAWN}", (EVIL,))
    words = dict.fromkeys(("rollout", "service", "outcome", "ended", "began"), EVIL)
    wrote = rollout_history(audited, "untrusted", EVIL, reasons=(EVIL, EVIL), **words)

    unchecked: Any = EVIL  # the count is what the evaluation says
    page = audit_page.page(
        audited._replace(overrides=(glass,), rollouts=(wrote,), name=EVIL, target=EVIL, judged_models=unchecked)
    )

    assert "<script" not in page
    assert "&lt;script&gt;" in page
    assert not re.search(r"""(src|href)=["'](?!#)""", page), "it fetches nothing and links to itself alone"


def test_every_link_leads_to_a_record(audited: Audit) -> None:
    page = audit_page.page(audited)

    expected, ids = set(re.findall(r'href="#(\w+)"', page)), re.findall(r'id="(\w+)"', page)
    assert expected <= set(ids)
    assert len(ids) == len(set(ids)) == len(audited.graph.things) + len(audited.graph.steps)


def test_an_override_is_shown_in_red(audited: Audit) -> None:
    glass = Override(audited.digest, audited.name, "Mei", "the shop is down", f"{DAWN}", ("no reward",))

    page = audit_page.page(audited._replace(overrides=(glass,)))
    shown = io.StringIO()
    print_audit(audited._replace(overrides=(glass,)), shown)

    assert 'class="glass"' in page
    assert "BREAK-GLASS" in shown.getvalue()


def test_how_its_rollouts_ended_is_shown_with_who_signed_it_or_why_it_must_not_be_believed(audited: Audit) -> None:
    good = rollout_history(audited)
    forged = rollout_history(
        audited, "altered", "the signature is not of these bytes", outcome="Promoted", reasons=()
    )
    page = audit_page.page(audited._replace(rollouts=(good, forged)))

    _, first, second = page.partition("How its rollouts ended")[2].partition("</table>")[0].split("<tr>")[1:]
    assert "◇ attested" in first and "back to the stable model" in first and "key 55555555" in first
    assert "✗ altered" in second and "not of these bytes" in second and "key" not in second


def test_a_circle_and_an_empty_graph_are_shown_too(keys: Keys, audited: Audit) -> None:
    circle = Statements(
        sealed(keys.builder, "a", [output("x")], [output("y")]),
        sealed(keys.builder, "b", [output("y")], [output("x")]),
    )
    for starts in ([sha("x")], [sha("nothing")], []):
        graph = walk(starts, circle, keys.policy, "", now=NOW)

        assert "</html>" in audit_page.page(audited._replace(graph=graph))
        print_audit(audited._replace(graph=graph), io.StringIO())


def test_the_tree_shows_a_thing_once_and_refers_to_it(audited: Audit) -> None:
    shown = io.StringIO()
    print_audit(audited, shown)
    text = shown.getvalue()

    validated = [tree_line for tree_line in tree_lines(audited.graph) if tree_line.thing.name == "validated"]
    assert [item.again for item in validated] == [False, *[True] * (len(validated) - 1)]
    assert "see above" in text
    assert "? judge_model" in text
    assert next_step(audited) in text
    assert "\x1b" not in text, "plain where it is no terminal"


def test_as_json_holds_things_steps_and_findings(audited: Audit) -> None:
    import json

    document = json.loads(json.dumps(as_json(audited)))

    assert document["verdict"] == "incomplete"
    assert {thing["digest"] for thing in document["things"]} >= {sha("questions"), sha("judge_model")}
    assert document["steps"][0]["statement"]["stage"]
    assert sum(document["counts"].values()) == len(document["things"])


def test_yes_and_no_are_words_in_the_readers_language(audited: Audit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QINGLAN_LANG", "zh")

    page = audit_page.page(audited)

    assert "<dd>是</dd>" in page
    assert not re.search(r"<dd>(True|False)</dd>", page)
