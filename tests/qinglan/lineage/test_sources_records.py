"""A run's records answer wherever its folder is now, and say nothing that they do not know."""

import shutil
from pathlib import Path

import orjson
import pytest

from qinglan.errors import DataError
from qinglan.lineage.sources import walk_back
from qinglan.lineage.sources.records import RunRecords
from tests.qinglan.lineage.thread import Thread


@pytest.fixture
def thread(tmp_path: Path) -> Thread:
    thread = Thread("first", tmp_path / "runs" / "first")
    thread.write_records()
    return thread


def rewrite(thread: Thread, stage: str, **changes: object) -> None:
    path = thread.root / "records" / f"{stage}.json"
    path.write_bytes(orjson.dumps(orjson.loads(path.read_bytes()) | changes))


@pytest.mark.parametrize("gone", [True, False], ids=["moved", "copied"])
def test_a_copied_run_shows_its_own_artifacts(thread: Thread, tmp_path: Path, gone: bool) -> None:
    copy = tmp_path / "elsewhere"
    shutil.copytree(thread.root, copy)
    if gone:
        shutil.rmtree(thread.root)
    source = RunRecords(copy)
    place = copy / "artifacts" / "rewriter-2026" / "sft" / "sft_model"

    assert source.locate(thread.uri("sft_model")) == place
    maker = source.maker(str(place))
    assert maker is not None and maker.stage == "sft"
    assert next(step.stage for step in walk_back(source, str(place))) == "sft"
    assert {step.stage for step in source.users(str(copy / "artifacts/rewriter-2026/convert/prompts"))} == {
        "base", "ppo",
    }  # fmt: skip


def test_what_is_gone_or_elsewhere_is_located_nowhere(thread: Thread) -> None:
    source = RunRecords(thread.root)
    Path(thread.uri("chats")).unlink()

    for uri in (thread.uri("chats"), thread.uri("questions"), "minio://mlpipeline/v2/x", ""):
        assert source.locate(uri) is None


def test_no_record_leads_out_of_a_copied_run(thread: Thread, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    uri = f"{thread.root}/artifacts/../../secret"
    rewrite(thread, "sft", inputs={"evaluation": {"uri": uri, "sha256": ""}})
    copy = thread.root.rename(tmp_path / "copy")

    assert RunRecords(copy).locate(uri) is None


def test_a_given_file_is_where_it_was(thread: Thread, tmp_path: Path) -> None:
    given = tmp_path / "questions.xlsx"
    given.write_text("问题")

    assert RunRecords(thread.root).locate(str(given)) == given
    assert RunRecords(thread.root).locate(given.as_uri()) == given


def test_several_runs_below_a_folder_keep_their_names(thread: Thread) -> None:
    second = Thread("second", thread.root.parent / "of" / "others" / "second")
    second.write_records()
    source = RunRecords(thread.root.parent)

    assert {step.run for step in source.steps()} == {"first", "of/others/second"}
    assert {step.run for step in walk_back(source, second.digest("sft_model"))} == {"of/others/second"}


def test_a_failed_or_running_step_made_nothing(thread: Thread) -> None:
    for status in ("failed", "running"):
        rewrite(thread, "sft", status=status)

        assert RunRecords(thread.root).maker(thread.uri("sft_model")) is None


def test_what_a_step_has_made_over_since_is_not_what_was_read(thread: Thread) -> None:
    rewrite(thread, "convert", outputs={"chats": {"uri": thread.uri("chats"), "sha256": "e" * 64}})

    stages = [step.stage for step in walk_back(RunRecords(thread.root), thread.uri("sft_model"))]

    assert "convert" not in stages and stages[:2] == ["sft", "base"]


def test_an_own_artifact_whose_record_is_gone_was_not_given(thread: Thread) -> None:
    (thread.root / "records" / "generate.json").unlink()

    steps = walk_back(RunRecords(thread.root), thread.uri("validated"))

    assert [step.stage for step in steps] == ["validate", "importer"]
    assert steps[1].outputs[0].uri == thread.uri("knowledge_base")


def test_the_first_of_several_makers_of_the_same_bytes_is_the_maker(thread: Thread) -> None:
    rewrite(thread, "base", outputs={"base_model": thread.named(["validated"])["validated"]})

    maker = RunRecords(thread.root).maker(thread.digest("validated"))

    assert maker is not None and maker.stage == "validate"


def test_a_later_change_is_seen(thread: Thread) -> None:
    source = RunRecords(thread.root)
    assert source.maker("f" * 64) is None

    rewrite(thread, "sft", outputs={"sft_model": {"uri": thread.uri("sft_model"), "sha256": "f" * 64}})

    assert source.maker("f" * 64) is not None


def test_a_damaged_record_and_a_missing_folder_are_named(thread: Thread, tmp_path: Path) -> None:
    (thread.root / "records" / "sft.json").write_text("{")
    with pytest.raises(DataError, match=r"sft\.json"):
        RunRecords(thread.root).maker("a" * 64)
    with pytest.raises(DataError, match="no such folder"):
        RunRecords(tmp_path / "nowhere")
