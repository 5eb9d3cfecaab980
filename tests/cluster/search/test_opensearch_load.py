"""Loading a knowledge base into a real OpenSearch node, with every way for it to end in the middle."""

import socket
from pathlib import Path

import httpx
import orjson
import pytest

from qinglan.errors import DataError, OutageError
from qinglan.files.files import sha256_file
from qinglan.rag.contract import Passage
from tests.cluster.search.opensearch import Node
from tests.cluster.search.search_world import (
    MANY,
    aliased,
    ended,
    get,
    indexed_count,
    indexes,
    load_now,
    loader,
    many,
    write_kb,
)
from tests.cluster.waiting import until

SOME = 2000


def counted(search: Node, tenant: str) -> tuple[int, int]:
    """Passages under the alias, and how many of them were ever written anew."""
    (stats,) = get(search, f"/qinglan.{tenant}.default/_stats/docs")["indices"].values()
    return stats["primaries"]["docs"]["count"], stats["primaries"]["docs"]["deleted"]


def test_a_load_says_how_far_it_is_and_the_next_one_finds_it_done(search: Node, tmp_path: Path) -> None:
    kb = write_kb(tmp_path / "kb.jsonl", many(count=SOME))
    name = f"qinglan.told.default.{sha256_file(kb)}"

    answer = ended(loader(search, kb, "told"))
    again = ended(loader(search, kb, "told"))

    assert f"[read told/default] {SOME}" in answer
    assert f"[load told/default] {SOME}/{SOME}" in answer
    assert orjson.loads(answer.splitlines()[-1]) | {"seconds": 0} == {
        "served": name, "passages": SOME, "added": SOME, "seconds": 0,
    }  # fmt: skip
    assert orjson.loads(again.splitlines()[-1])["added"] == 0
    assert "[load" not in again
    assert aliased(search, "told") == [name]
    assert counted(search, "told") == (SOME, 0)


def test_a_loader_killed_in_the_middle_goes_on_where_it_was(search: Node, tmp_path: Path) -> None:
    kb = write_kb(tmp_path / "kb.jsonl", many())
    first = loader(search, kb, "killed")
    until(lambda: indexed_count(search, "killed") >= 2000, "some of it is there")
    first.kill()
    first.communicate()
    half = indexed_count(search, "killed")
    served = aliased(search, "killed")

    added = load_now(search, kb, "killed").added

    assert 2000 <= half < MANY
    assert served == [], "half a knowledge base must not be searched"
    assert added <= MANY - half
    assert counted(search, "killed") == (MANY, 0)


def test_a_node_killed_in_the_middle_is_waited_for(search: Node, tmp_path: Path) -> None:
    kb = write_kb(tmp_path / "kb.jsonl", many())
    process = loader(search, kb, "outlived")
    until(lambda: indexed_count(search, "outlived") >= 2000, "some of it is there")

    search.kill()
    search.start()
    answer = ended(process)

    assert "no answer, waiting" in answer
    assert orjson.loads(answer.splitlines()[-1])["passages"] == MANY
    assert counted(search, "outlived") == (MANY, 0)


def test_a_cluster_that_stays_away_is_not_waited_for_for_ever(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        nowhere = Node(tmp_path)
        nowhere.url = f"http://127.0.0.1:{taken.getsockname()[1]}"
    kb = write_kb(tmp_path / "kb.jsonl", many(count=10))

    with pytest.raises(OutageError, match=r"no answer within 1 s: .*\n?.*Run the same command again"):
        load_now(nowhere, kb, "away", patience=1.0)


def test_passages_that_are_refused_are_named_and_nothing_is_switched(search: Node, tmp_path: Path) -> None:
    """The node's own limit: no identifier of more than 32,766 bytes."""
    good = write_kb(tmp_path / "good.jsonl", many(count=20))
    load_now(search, good, "refused")
    before = aliased(search, "refused")
    wrong = [Passage(id=f"{number}-" + "长" * 11_000, content="鱼油") for number in range(7)]
    bad = write_kb(tmp_path / "bad.jsonl", [*many("乙", count=20), *wrong])

    with pytest.raises(DataError) as caught:
        load_now(search, bad, "refused")

    message = str(caught.value)
    assert "7 of 27 passages were refused" in message
    assert "line 21, id '0-长" in message
    assert "immense term in field=" in message
    assert "at most 32766 in length" in message
    assert message.count("  line ") == 5, "the first few are shown"
    assert all(len(line) < 600 for line in message.splitlines()), "what is untrusted is cut short"
    report = [orjson.loads(line) for line in (tmp_path / "bad.refused.jsonl").read_bytes().splitlines()]
    assert [row["line"] for row in report] == list(range(21, 28))
    assert report[6]["id"] == wrong[6].id
    assert aliased(search, "refused") == before


def test_two_loaders_of_the_same_file_do_no_harm(search: Node, tmp_path: Path) -> None:
    kb = write_kb(tmp_path / "kb.jsonl", many(count=3000))

    both = [loader(search, kb, "twice") for _ in range(2)]
    answer = [ended(process) for process in both]

    assert sum(orjson.loads(text.splitlines()[-1])["added"] for text in answer) == 3000
    assert counted(search, "twice") == (3000, 0)


def test_the_snapshot_before_is_kept_and_older_ones_are_deleted(search: Node, tmp_path: Path) -> None:
    names = []
    for mark in "甲乙丙":
        kb = write_kb(tmp_path / f"{mark}.jsonl", many(mark, count=10))
        names.append(load_now(search, kb, "versions").served)
    left_over, served = indexes(search, "versions"), aliased(search, "versions")
    back = load_now(search, tmp_path / "乙.jsonl", "versions")

    assert left_over == sorted(names[1:])
    assert served == [names[2]]
    assert (back.served, back.added) == (names[1], 0), "going back only switches"
    assert aliased(search, "versions") == [names[1]]
    assert indexes(search, "versions") == sorted(names[1:])


def test_an_alias_that_was_switched_by_hand_to_another_tenants_index_is_taken_back(
    search: Node, tmp_path: Path
) -> None:
    kb = write_kb(tmp_path / "kb.jsonl", many(count=3))
    older = write_kb(tmp_path / "older.jsonl", many("乙", count=3))
    load_now(search, older, "mine")
    own_index, foreign_index = load_now(search, kb, "mine").served, load_now(search, kb, "theirs").served
    alias = "qinglan.mine.default"
    by_hand = {
        "actions": [
            {"remove": {"index": own_index, "alias": alias}},
            {"add": {"index": foreign_index, "alias": alias}},
        ]
    }
    httpx.post(f"{search.url}/_aliases", json=by_hand, trust_env=False).raise_for_status()
    before = aliased(search, "mine")

    load_now(search, kb, "mine")

    assert before == [foreign_index]
    assert aliased(search, "mine") == [own_index]
    assert aliased(search, "theirs") == [foreign_index]
    assert len(indexes(search, "mine")) == 2, "the snapshot before stays"


def test_foreign_indices_with_a_similar_name_are_reported_and_left(
    search: Node, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Somebody's backup, whether empty or a copy with our notes, and what another version made."""
    caplog.set_level("INFO")
    prefix = "qinglan.beside.default"
    files = [write_kb(tmp_path / f"{mark}.jsonl", many(mark, count=3)) for mark in "甲乙丙"]
    first = load_now(search, files[0], "beside").served
    notes = get(search, f"/{first}/_mapping")[first]["mappings"]["_meta"]["qinglan"]
    for name, meta in (("backup", {}), ("copy", {"qinglan": notes}), ("old", {"qinglan": {**notes, "format": 0}})):
        mapping = {"mappings": {"_meta": meta}}
        httpx.put(f"{search.url}/{prefix}.{name}", json=mapping, trust_env=False).raise_for_status()

    served = [load_now(search, file, "beside").served for file in files[1:]]

    assert aliased(search, "beside") == [served[1]]
    assert indexes(search, "beside") == sorted([*served, *(f"{prefix}.{name}" for name in ("backup", "copy", "old"))])
    assert f"{prefix}.backup: not an index of ours" in caplog.text
    assert f"{prefix}.copy: a copy of another index" in caplog.text
    assert f"{prefix}.old: has format 0" in caplog.text


def test_an_older_snapshot_that_cannot_be_deleted_now_is_left_for_a_later_load(
    search: Node, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files = [write_kb(tmp_path / f"{mark}.jsonl", many(mark, count=3)) for mark in "甲乙丙丁"]
    names = [load_now(search, file, "held").served for file in files[:2]]
    settings = f"{search.url}/{names[0]}/_settings"
    httpx.put(settings, json={"index.blocks.read_only": True}, trust_env=False).raise_for_status()

    names.append(load_now(search, files[2], "held").served)
    held = indexes(search, "held")
    httpx.put(settings, json={"index.blocks.read_only": False}, trust_env=False).raise_for_status()
    names.append(load_now(search, files[3], "held").served)

    assert f"{names[0]}: an older snapshot, not deleted: status 403" in caplog.text
    assert held == sorted(names[:3])
    assert aliased(search, "held") == [names[3]]
    assert indexes(search, "held") == sorted(names[2:])


def test_an_older_format_in_the_snapshots_place_is_to_be_deleted(search: Node, tmp_path: Path) -> None:
    kb = write_kb(tmp_path / "kb.jsonl", many(count=3))
    name = load_now(search, kb, "older").served
    notes = get(search, f"/{name}/_mapping")[name]["mappings"]["_meta"]["qinglan"]
    older = {"_meta": {"qinglan": {**notes, "format": 0}}}
    httpx.put(f"{search.url}/{name}/_mapping", json=older, trust_env=False).raise_for_status()

    with pytest.raises(DataError, match=r"has format 0 .* delete that index, then load again"):
        load_now(search, kb, "older")
    httpx.delete(f"{search.url}/{name}", trust_env=False).raise_for_status()

    assert load_now(search, kb, "older").added == 3


def test_names_that_run_together_are_different_knowledge_bases(search: Node, tmp_path: Path) -> None:
    load_now(search, write_kb(tmp_path / "1.jsonl", many("甲", count=1)), "a-b", "c")
    load_now(search, write_kb(tmp_path / "2.jsonl", many("乙", count=2)), "a", "b-c")
    load_now(search, write_kb(tmp_path / "3.jsonl", many("丙", count=3)), "a", "b")

    result = {pair: aliased(search, *pair) for pair in (("a-b", "c"), ("a", "b-c"), ("a", "b"))}

    assert all(len(names) == 1 for names in result.values())
    assert len({names[0] for names in result.values()}) == 3


def test_an_index_that_somebody_else_wrote_to_is_not_served(search: Node, tmp_path: Path) -> None:
    kb = write_kb(tmp_path / "kb.jsonl", many(count=10))
    name = load_now(search, kb, "meddled").served
    unmark = {"_meta": {"qinglan": {**get(search, f"/{name}/_mapping")[name]["mappings"]["_meta"]["qinglan"]}}}
    unmark["_meta"]["qinglan"]["whole"] = False
    with httpx.Client(base_url=search.url, timeout=30, trust_env=False) as http:
        http.delete(f"/{name}/_alias/*").raise_for_status()
        http.put(f"/{name}/_mapping", json=unmark).raise_for_status()
        http.put(f"/{name}/_doc/other?refresh=true", json={"content": "别人的"}).raise_for_status()

    with pytest.raises(DataError, match="holds 11 passages and the file 10"):
        load_now(search, kb, "meddled")

    assert aliased(search, "meddled") == []
