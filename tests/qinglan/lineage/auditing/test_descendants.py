"""Everything that was made from a digest is found, and no signature is believed."""

from pathlib import Path

from qinglan.files.digests import digest
from qinglan.lineage.auditing.descendants import which_models
from qinglan.lineage.trace.name_moves import sign_with
from qinglan.store import open_store
from tests.releases.lineage_release import write_release
from tests.releases.lineage_world import TENANT, Keys, output, sealed, sha, source, write_run


def test_descendants_of_a_digest_come_releases_first_then_models(keys: Keys, tmp_path: Path) -> None:
    write_release(tmp_path / "store" / "release", keys)

    result = which_models(sha("questions"), [tmp_path / "store"], keys.policy)

    assert (result[0].stage, result[0].names, result[0].fault) == ("release", (f"{TENANT}/rewriter",), "")
    names = [descendant.what for descendant in result]
    assert {"rl_model", "sft_model", "rewrites", "evaluation"} <= set(names)
    assert names.index("rl_model") < names.index("rewrites")
    assert result[0].total == len(result)


def test_of_what_can_be_shown_the_newest_come_first_and_the_rest_are_counted(keys: Keys, tmp_path: Path) -> None:
    for hour in (3, 1, 2):
        step = sealed(keys.builder, "sft", [output(f"model-{hour}")], [source("questions")], (0, hour))
        (tmp_path / f"{hour}.dsse.json").write_bytes(step)

    result = which_models(sha("questions"), [tmp_path], keys.policy, most=2)

    assert [descendant.what for descendant in result] == ["model-3", "model-2"]
    assert result[0].total == 3


def test_the_first_characters_of_a_digest_are_enough(keys: Keys, tmp_path: Path) -> None:
    write_release(tmp_path / "store" / "release", keys)

    whole, short = (which_models(sha("questions")[:length], [tmp_path], keys.policy) for length in (64, 12))

    assert whole == short != []


def test_a_descendant_says_why_its_signature_does_not_count(keys: Keys, tmp_path: Path) -> None:
    (tmp_path / "x.dsse.json").write_bytes(sealed(keys.stranger, "sft", [output("sft_model")], [source("questions")]))

    [result] = which_models(sha("questions"), [tmp_path], keys.policy)

    assert "not in the trust policy" in result.fault


def test_names_of_the_store_point_to_their_releases_where_signed(keys: Keys, tmp_path: Path) -> None:
    folder, store = write_release(tmp_path / "release", keys), open_store(str(tmp_path / "store"))
    store.push(folder, digest(folder))
    store.point("fivedoctors/rewriter", digest(folder), None, "gate", sign_with(keys.releaser))
    store.point("fivedoctors/forged", digest(folder), None, "gate")

    result = which_models(sha("questions"), [], keys.policy, str(tmp_path / "store"))

    assert result[0].names == ("fivedoctors/rewriter (now)",)


def test_the_same_statement_in_many_lineages_counts_once_and_a_broken_one_not_at_all(
    keys: Keys, tmp_path: Path
) -> None:
    step = sealed(keys.builder, "sft", [output("sft_model")], [source("questions")])
    for name in "abc":
        (tmp_path / f"{name}.dsse.json").write_bytes(step)
    (tmp_path / "broken.dsse.json").write_text("{")

    [result] = which_models(sha("questions"), [tmp_path, tmp_path / "."], keys.policy)

    assert (result.total, result.where) == (1, str(tmp_path.resolve() / "a.dsse.json"))


def test_links_are_not_followed(keys: Keys, tmp_path: Path) -> None:
    write_run(tmp_path / "run", keys)
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked" / "loop").symlink_to(tmp_path)

    assert which_models(sha("questions"), [tmp_path / "linked"], keys.policy) == []
