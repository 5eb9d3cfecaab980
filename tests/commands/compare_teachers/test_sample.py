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
    """Conversations take the splits in turn, marked in their first row; an empty one leaves the choice to convert."""
    rows = [
        {
            "id": f"{number}-{turn}", "question": f"问{number}-{turn}", "conversation_id": f"c{number}",
            "split": "" if turn else splits[number % len(splits)],
        }
        for number in range(conversations)
        for turn in range(turns)
    ]  # fmt: skip
    path.write_bytes(b"\n".join(orjson.dumps(row) for row in rows))
    return load_config("fivedoctors", "demo", questions=path)


def test_a_marked_turn_keeps_its_whole_conversation_of_dev_or_test_out(tmp_path: Path) -> None:
    rows, counts = draw_sample(sheet(tmp_path / "q.jsonl", ["train", "dev", "test"]), 10_000, seed=0)

    assert {int(row.conversation_id[1:]) % 3 for row in rows} == {0}
    assert (len(rows), counts) == (90, {"training_rows": 90, "locked_rows": 180})


def test_rows_that_the_convert_stage_would_lock_away_are_not_drawn_either(tmp_path: Path) -> None:
    config = sheet(tmp_path / "q.jsonl", [""])
    rows, counts = draw_sample(config, 10_000, seed=0)

    splits = {split_of((row.tenant_id, row.conversation_id), config.convert) for row in rows}
    assert splits == {"train"}
    assert counts["locked_rows"] > 0


def test_a_sheet_of_locked_rows_alone_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError):
        draw_sample(sheet(tmp_path / "q.jsonl", ["test"]), 100, seed=0)


def test_conversations_come_whole_the_same_each_time_and_more_rows_keep_those_of_fewer(tmp_path: Path) -> None:
    config = sheet(tmp_path / "q.jsonl", ["train"])
    once, again, other, more = (
        draw_sample(config, rows, seed)[0] for rows, seed in ((30, 0), (30, 0), (30, 1), (90, 0))
    )

    assert set(Counter(row.conversation_id for row in once).values()) == {3}
    assert 30 <= len(once) < 33
    assert once == again != other
    assert {row.id for row in once} < {row.id for row in more}
