"""A file is whole or not there."""

from pathlib import Path

import pytest

from qinglan.errors import DataError
from qinglan.files import atomic_folder, atomic_write, dump_line, read_jsonl, sha256_text
from qinglan.rows import Question

ROW = Question(id="a", tenant_id="t", conversation_id="c", question="怎么吃")


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    target = tmp_path / "rows.jsonl"
    target.write_text("old")

    with pytest.raises(RuntimeError), atomic_write(target) as partial:
        partial.write_text("half")
        raise RuntimeError

    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]


def test_rows_come_back_as_they_went(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + dump_line(ROW) + b"\n" + dump_line(ROW))

    assert list(read_jsonl(path, Question)) == [(1, ROW), (3, ROW)]


@pytest.mark.parametrize(
    ("line", "said"),
    [(b"{}", "id: Field required"), (b'{"id": 1}', "id: Input should be a"), (b"\xff\xfe", "not UTF-8"),
     (b'{"id": NaN}', "no JSON"), (b'{"id": "1", "id": "2"}', "'id' is there twice"), (b"[" * 99_999, "no JSON"),
     (dump_line(ROW).replace(b"question", b"qestion"), "qestion: Extra inputs")],
)  # fmt: skip
def test_a_bad_line_is_named_with_what_is_wrong(tmp_path: Path, line: bytes, said: str) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(dump_line(ROW) + line)

    with pytest.raises(DataError, match=rf"rows\.jsonl:2: .*{said}"):
        list(read_jsonl(path, Question))


def test_no_two_lists_of_texts_share_a_digest() -> None:
    assert sha256_text("ab", "c") != sha256_text("a", "bc") != sha256_text("abc")


def test_the_partial_folder_of_a_killed_process_is_removed(tmp_path: Path) -> None:
    left = tmp_path / ".model.999999999.partial"
    left.mkdir()

    with atomic_folder(tmp_path / "model") as partial:
        (partial / "a").write_text("x")

    assert [path.name for path in tmp_path.iterdir()] == ["model"]
