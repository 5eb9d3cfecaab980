"""The page and the tree: nothing in them runs, everything in them is found."""

import io
import re
from pathlib import Path
from typing import Any

import pytest

from qinglan.lineage import audit_page, layout
from qinglan.lineage.audit import Audit, as_json, audit, next_step
from qinglan.lineage.override import Override
from qinglan.lineage.tree import lines, print_audit
from tests.lineage_release import write_release
from tests.lineage_world import DAWN, NOW, Keys, given, made, make_keys, sha

EVIL = '<script>alert("x")</script>'


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Keys:
    return make_keys(tmp_path_factory.mktemp("keys"))


@pytest.fixture
def found(keys: Keys, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Audit:
    def change(line: dict[str, dict[str, Any]]) -> None:
        line["generate"]["used"].append(given(EVIL))
        line["generate"]["config"] = {EVIL: EVIL}
        line["generate"]["facts"] = {"note": EVIL}
        line["sft"]["made"].append(made(EVIL, "made", note=EVIL))
        line["ppo"]["used"] += [made(EVIL, "made"), made("judge_model")]

    monkeypatch.setattr("qinglan.lineage.audit.check_files", lambda *given: [])
    return audit(str(write_release(tmp_path / "release", keys, change)), keys.policy, now=NOW)


def test_nothing_on_the_page_is_markup_but_ours(found: Audit) -> None:
    glass = Override(found.digest, found.name, EVIL, EVIL, f"{DAWN}", (EVIL,))

    page = audit_page.page(found._replace(overrides=(glass,), name=EVIL, target=EVIL))

    assert "<script" not in page
    assert "&lt;script&gt;" in page
    assert not re.search(r"""(src|href)=["'](?!#)""", page), "it fetches nothing and links to itself alone"


def test_every_link_leads_to_a_record(found: Audit) -> None:
    page = audit_page.page(found)

    wanted, there = set(re.findall(r'href="#(\w+)"', page)), re.findall(r'id="(\w+)"', page)
    assert wanted <= set(there)
    assert len(there) == len(set(there)) == len(found.graph.things) + len(found.graph.steps)


def test_the_page_is_the_same_each_time_and_says_what_is_wrong(found: Audit) -> None:
    page = audit_page.page(found)

    assert page == audit_page.page(found)
    assert "Incomplete" in page
    assert "no statement says who made it" in page
    assert "Break-glass" not in page


def test_an_override_is_shown_in_red(found: Audit) -> None:
    glass = Override(found.digest, found.name, "Mei", "the shop is down", f"{DAWN}", ("no reward",))

    page = audit_page.page(found._replace(overrides=(glass,)))
    shown = io.StringIO()
    print_audit(found._replace(overrides=(glass,)), shown)

    assert 'class="glass"' in page
    assert "BREAK-GLASS" in shown.getvalue()


def test_cards_stand_right_of_what_they_use_and_do_not_overlap(found: Audit) -> None:
    placed, width, height = layout.place(found.graph)

    at = {one.card.step.id: one for one in placed if one.card.step}
    assert all(at[one.maker].x < at[one.user].x for one in layout.arrows(found.graph))
    assert all(one.x + layout.CARD <= width and one.y + one.card.height <= height for one in placed)
    for one in placed:
        below = [other for other in placed if other.x == one.x and other.y > one.y]
        assert all(other.y >= one.y + one.card.height for other in below)


def test_the_tree_shows_a_thing_once_and_refers_to_it(found: Audit) -> None:
    shown = io.StringIO()
    print_audit(found, shown)
    text = shown.getvalue()

    validated = [one for one in lines(found.graph) if one.thing.name == "validated"]
    assert [one.again for one in validated] == [False, *[True] * (len(validated) - 1)]
    assert "see above" in text
    assert "? judge_model" in text
    assert next_step(found) in text
    assert "\x1b" not in text, "plain where it is no terminal"


def test_as_json_holds_things_steps_and_findings(found: Audit) -> None:
    import json

    told = json.loads(json.dumps(as_json(found)))

    assert told["verdict"] == "incomplete"
    assert {one["digest"] for one in told["things"]} >= {sha("questions"), sha("judge_model")}
    assert told["steps"][0]["statement"]["stage"]
    assert sum(told["counts"].values()) == len(told["things"])
