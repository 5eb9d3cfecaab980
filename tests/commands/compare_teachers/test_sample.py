"""Teachers are compared on whole conversations of training, the same ones each time, and never on the locked test."""

from collections import Counter
from pathlib import Path

import orjson
import pytest

from commands.compare_teachers.runs import draw_sample
from pipelines.lines.config import load_config
from pipelines.lines.rewriter import RunConfig
from qinglan.errors import DataError
from qinglan.rows.splits import split_of


def sheet(path: Path, splits: list[str], conversations: int = 90, turns: int = 3) -> RunConfig:
    """Conversations take the splits in turn; an empty one leaves the choice to the convert stage."""
    rows = [
        {
            "id": f"{number}-{turn}", "question": f"问{number}-{turn}", "conversation_id": f"c{number}",
            "split": splits[number % len(splits)],
        }
        for number in range(conversations)
        for turn in range(turns)
    ]  # fmt: skip
    path.write_bytes(b"\n".join(orjson.dumps(row) for row in rows))
    return load_config("fivedoctors", "demo", questions=path)


def test_no_row_of_dev_or_test_is_ever_drawn(tmp_path: Path) -> None:
    sample = draw_sample(sheet(tmp_path / "q.jsonl", ["train", "dev", "test"]), 10_000, seed=0)

    assert {row.split for row in sample.rows} == {"train"}
    assert (len(sample.rows), sample.training, sample.locked) == (90, 90, 180)


def test_rows_that_the_convert_stage_would_lock_away_are_not_drawn_either(tmp_path: Path) -> None:
    config = sheet(tmp_path / "q.jsonl", [""])
    sample = draw_sample(config, 10_000, seed=0)

    splits = {split_of((row.tenant_id, row.conversation_id), config.convert) for row in sample.rows}
    assert splits == {"train"}
    assert sample.locked > 0


def test_a_marked_turn_locks_its_whole_conversation_as_convert_does(tmp_path: Path) -> None:
    rows = [
        {"id": f"{number}-{turn}", "question": f"问{number}-{turn}", "conversation_id": f"c{number}",
         "split": ("test" if number % 2 else "train") if turn == 0 else ""}
        for number in range(40)
        for turn in range(3)
    ]  # fmt: skip
    path = tmp_path / "q.jsonl"
    path.write_bytes(b"\n".join(orjson.dumps(row) for row in rows))
    sample = draw_sample(load_config("fivedoctors", "demo", questions=path), 10_000, seed=0)

    assert {int(row.conversation_id[1:]) % 2 for row in sample.rows} == {0}
    assert (sample.training, sample.locked) == (60, 60)


def test_turns_that_contradict_each_other_are_refused_as_convert_refuses_them(tmp_path: Path) -> None:
    rows = [{"id": x, "question": f"问{x}", "conversation_id": "c1", "split": x} for x in ("train", "test")]
    path = tmp_path / "q.jsonl"
    path.write_bytes(b"\n".join(orjson.dumps(row) for row in rows))

    with pytest.raises(DataError, match="'c1' is in 'train' and in 'test'"):
        draw_sample(load_config("fivedoctors", "demo", questions=path), 100, seed=0)


def test_a_sheet_of_locked_rows_alone_is_refused_with_the_reason(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="never compared on dev or the locked test"):
        draw_sample(sheet(tmp_path / "q.jsonl", ["test"]), 100, seed=0)


def test_conversations_come_whole_and_the_same_ones_each_time(tmp_path: Path) -> None:
    config = sheet(tmp_path / "q.jsonl", ["train"])
    once, again, other = (draw_sample(config, 30, seed).rows for seed in (0, 0, 1))

    assert set(Counter(row.conversation_id for row in once).values()) == {3}
    assert 30 <= len(once) < 33
    assert once == again != other


def test_more_rows_keep_those_of_fewer_so_that_what_was_paid_is_used(tmp_path: Path) -> None:
    config = sheet(tmp_path / "q.jsonl", ["train"])
    few, many = (draw_sample(config, rows, seed=0).rows for rows in (30, 90))

    assert {row.id for row in few} < {row.id for row in many}
