"""The index finds what descends from a digest, reads a file once, and believes no signature."""

import sqlite3
from pathlib import Path

import pytest

from qinglan.lineage import index as indexing
from qinglan.lineage.index import open_index, update, which_models
from tests.lineage_release import write_release
from tests.lineage_world import TENANT, Keys, given, made, make_keys, sealed, sha, write_run


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Keys:
    return make_keys(tmp_path_factory.mktemp("keys"))


def test_what_descends_from_a_digest_is_told_releases_first(keys: Keys, tmp_path: Path) -> None:
    write_release(tmp_path / "store" / "release", keys)

    with open_index([tmp_path / "store"], folder=tmp_path / "cache") as index:
        hits = which_models(sha("questions"), index, keys.policy)

    assert (hits[0].stage, hits[0].names, hits[0].counts) == ("release", (f"{TENANT}/rewriter",), "")
    named = [one.what for one in hits]
    assert {"rl_model", "sft_model", "rewrites", "evaluation"} <= set(named)
    assert named.index("rl_model") < named.index("rewrites")
    assert hits[0].total == len(hits)


def test_the_first_characters_of_a_digest_are_enough(keys: Keys, tmp_path: Path) -> None:
    write_release(tmp_path / "store" / "release", keys)

    with open_index([tmp_path / "store"], folder=tmp_path / "cache") as index:
        whole, short = (which_models(sha("questions")[:length], index, keys.policy) for length in (64, 12))

    assert whole == short != []


def test_what_nothing_descends_from_has_no_hits(keys: Keys, tmp_path: Path) -> None:
    write_release(tmp_path / "release", keys)

    with open_index([tmp_path / "release"], folder=tmp_path / "cache") as index:
        assert which_models("f" * 64, index, keys.policy) == []


def test_a_hit_says_why_its_signature_does_not_count(keys: Keys, tmp_path: Path) -> None:
    (tmp_path / "x.dsse.json").write_bytes(sealed(keys.stranger, "sft", [made("sft_model")], [given("questions")]))

    with open_index([tmp_path], folder=tmp_path / "cache") as index:
        [hit] = which_models(sha("questions"), index, keys.policy)

    assert "not in the trust policy" in hit.counts


def test_names_of_the_store_point_to_their_releases(
    keys: Keys, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_release(tmp_path / "releases" / "abc", keys)
    monkeypatch.setattr(indexing, "_pointers", lambda store: {"abc": ["fivedoctors/rewriter"]})

    with open_index([], str(tmp_path), tmp_path / "cache") as index:
        hits = which_models(sha("questions"), index, keys.policy)

    assert hits[0].names == ("fivedoctors/rewriter (now)",)


def test_a_file_is_read_again_only_where_it_changed(keys: Keys, tmp_path: Path) -> None:
    write_run(tmp_path / "run", keys)
    roots = [str(tmp_path / "run")]
    with open_index([tmp_path / "run"], folder=tmp_path / "cache") as index:
        assert update(index.database, roots) == (0, 0)

        changed = tmp_path / "run" / "records" / "sft.dsse.json"
        changed.write_bytes(sealed(keys.builder, "sft", [made("other_model")], [given("questions")]))
        assert update(index.database, roots) == (1, 0)
        assert [one.what for one in which_models(sha("questions"), index, keys.policy)] == ["other_model"]

        changed.unlink()
        assert update(index.database, roots) == (0, 1)
        assert which_models(sha("questions"), index, keys.policy) == []


def test_the_same_statement_in_many_lineages_is_one(keys: Keys, tmp_path: Path) -> None:
    one = sealed(keys.builder, "sft", [made("sft_model")], [given("questions")])
    for name in "abc":
        (tmp_path / f"{name}.dsse.json").write_bytes(one)
    (tmp_path / "broken.dsse.json").write_text("{")

    with open_index([tmp_path], folder=tmp_path / "cache") as index:
        assert len(which_models(sha("questions"), index, keys.policy)) == 1
        assert _count(index.database, "statements") == 1
        assert _count(index.database, "files") == 4


def test_links_are_not_followed(keys: Keys, tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "loop").symlink_to(tmp_path)

    with open_index([tmp_path / "there"], folder=tmp_path / "cache") as index:
        assert _count(index.database, "files") == 0


def _count(database: sqlite3.Connection, table: str) -> int:
    [(count,)] = database.execute(f"SELECT count(*) FROM {table}")
    return int(count)
