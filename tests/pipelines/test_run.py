"""The whole data line as a user runs it: real processes, real sockets, the graph under kfp.local."""

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import orjson
import pandas
import psutil
import pytest
import yaml

from pipelines.config import CONFIGS
from qinglan.config import load_yaml
from qinglan.files import read_jsonl
from qinglan.lineage.record import digest
from qinglan.rows import Rewrite, Validated
from qinglan.samples import write_sample
from qinglan.tables import read_table, write_table

pytestmark = pytest.mark.slow


class Ran(NamedTuple):
    code: int
    record: Any
    errors: str


def command(*words: str) -> list[str]:
    return [sys.executable, "-c", "from pipelines.cli import main; main()", *words]


def qinglan(*words: str) -> Ran:
    run = subprocess.run(command(*words), capture_output=True, text=True, timeout=300, check=False)
    return Ran(run.returncode, orjson.loads(run.stdout) if run.returncode == 0 else None, run.stderr)


def words(data: Path, out: Path, *more: str) -> list[str]:
    files = ["--questions", str(data / "questions.xlsx"), "--knowledge-base", str(data / "knowledge_base.jsonl")]
    return ["run", "fivedoctors", *files, "--out", str(out), "--json", *more]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    write_sample("fivedoctors", folder, conversations=40, seed=5)
    return folder


@pytest.fixture(scope="module")
def out(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("runs") / "first"


@pytest.fixture(scope="module")
def first(data: Path, out: Path) -> Ran:
    ran = qinglan(*words(data, out))
    assert ran.code == 0, ran.errors
    return ran


def rows_of(sheet: Path) -> int:
    return sum(1 for _ in read_table(sheet))


def test_every_question_comes_out_of_every_stage(first: Ran, data: Path, out: Path) -> None:
    asked = rows_of(data / "questions.xlsx")
    files = out / "files"

    rewrites = [row for _, row in read_jsonl(files / "rewrites.jsonl", Rewrite)]
    validated = [row for _, row in read_jsonl(files / "validated.jsonl", Validated)]
    facts = first.record["steps"]["convert"]["facts"]

    assert len(rewrites) == len(validated) == rows_of(files / "rewrites.xlsx") == rows_of(files / "validated.xlsx")
    assert len(rewrites) == asked
    assert facts["rows"] == asked
    assert len(pandas.read_parquet(files / "ppo/train.parquet")) == facts["ppo_train"] > facts["sft_train"] > 0


def test_the_needs_are_the_judges_and_differ_from_the_rewrites(first: Ran, out: Path) -> None:
    rows = [row for _, row in read_jsonl(out / "files/validated.jsonl", Validated)]

    assert {row.need_source for row in rows} == {"judge"}
    assert {row.scored_against for row in rows} == {"need"}
    assert sum(row.need != row.rewritten_query for row in rows) > len(rows) / 2


def test_records_tie_each_step_to_the_one_before(first: Ran, data: Path, out: Path) -> None:
    steps = first.record["steps"]

    assert steps["generate"]["inputs"]["questions"]["sha256"] == digest(data / "questions.xlsx")
    for name, parent, child in (("rewrites", "generate", "validate"), ("validated", "validate", "convert")):
        made, used = steps[parent]["outputs"][name], steps[child]["inputs"][name]
        assert used == {"uri": made["uri"], "sha256": made["sha256"]}
    assert steps["convert"]["outputs"]["sft"]["sha256"] == digest(out / "files/sft")
    assert all(step["code"]["version"] for step in steps.values())


def test_artifacts_carry_counts_digests_and_parents(first: Ran, out: Path) -> None:
    [written] = out.glob("artifacts/*/validate/executor_output.json")
    artifact = json.loads(written.read_text())["artifacts"]["validated"]["artifacts"][0]

    assert artifact["metadata"]["sha256"] == digest(out / "files/validated.jsonl")
    assert artifact["metadata"]["rows"] == first.record["steps"]["validate"]["facts"]["validated"]
    assert artifact["metadata"]["parents"]["rewrites"]["sha256"] == digest(out / "files/rewrites.jsonl")


def test_the_resolved_configuration_lies_beside_the_run(first: Ran, out: Path) -> None:
    text = (out / "config.yaml").read_text()

    assert "quality_threshold:" in text
    assert "requests_per_minute:" in text


def test_running_again_pays_nothing_and_gives_the_same_bytes(first: Ran, data: Path, out: Path) -> None:
    names = ("rewrites.jsonl", "validated.jsonl", "sft", "ppo", "locked_test.jsonl")
    before = [digest(out / "files" / name) for name in names]

    again = qinglan(*words(data, out))

    assert again.code == 0, again.errors
    paid, once = again.record["gateway"], first.record["gateway"]
    assert (paid["attempts"], paid["cost"]) == (once["attempts"], once["cost"])
    assert paid["hits"] > once["hits"]
    assert [digest(out / "files" / name) for name in names] == before


def test_one_stage_runs_alone_on_the_runs_files(first: Ran, data: Path, out: Path) -> None:
    record = out / "records/validate.json"
    before = record.stat().st_mtime_ns

    ran = qinglan(*words(data, out, "--only", "convert"))

    assert ran.code == 0, ran.errors
    assert record.stat().st_mtime_ns == before
    assert ran.record["steps"]["convert"]["facts"] == first.record["steps"]["convert"]["facts"]


def test_a_stage_without_its_input_says_which_to_run_first(data: Path, tmp_path: Path) -> None:
    ran = qinglan(*words(data, tmp_path / "none", "--only", "validate"))

    assert ran.code == 2
    assert "no rewrites.jsonl there. Run the stage before 'validate' first." in ran.errors


def test_bad_rows_are_quarantined_and_a_bad_file_ends_the_run(data: Path, tmp_path: Path) -> None:
    sheet = tmp_path / "questions.xlsx"
    columns = ["编号", "对话编号", "问题", "历史摘要", "划分"]
    good: list[list[Any]] = [["a1", "c1", "那它一天吃几次", "用户正在了解虾青素软胶囊", "train"]]
    bad: list[list[Any]] = [["b1", "c2", None, "x", "train"], ["b2", "c2", 12, "x", "train"]]
    clash: list[list[Any]] = [["a2", "c1", "多少钱一盒", "用户正在了解虾青素软胶囊", "test"]]
    with write_table(sheet, columns) as add:
        for row in good + bad + clash:
            add(row)

    run_words = words(data, tmp_path / "run")
    run_words[run_words.index("--questions") + 1] = str(sheet)
    ran = qinglan(*run_words)

    quarantined = (tmp_path / "run/files/generate_quarantine.jsonl").read_bytes().splitlines()
    assert [orjson.loads(line)["reason"] for line in quarantined] == ["empty", "not text"]
    assert ran.code == 3
    assert "convert: row" in ran.errors and "conversation 'c1' is in 'train' and in 'test'" in ran.errors
    assert "Run the same command again" in ran.errors
    assert "Traceback" not in ran.errors


def test_a_run_killed_in_its_middle_goes_on_and_asks_only_for_what_is_missing(data: Path, tmp_path: Path) -> None:
    out = tmp_path / "killed"
    slow = tmp_path / "slow.yaml"
    demo = load_yaml(CONFIGS / "fivedoctors/demo.yaml")
    slow.write_text(yaml.safe_dump(demo | {"stand_ins": {"teacher": True, "rag": True, "teacher_seconds": 0.3}}))
    run = subprocess.Popen(command(*words(data, out, "--profile", str(slow))), stdout=subprocess.DEVNULL)
    wait_for(lambda: answers(out) >= 10)
    children = psutil.Process(run.pid).children(recursive=True)
    run.kill()
    run.wait()
    _, alive = psutil.wait_procs(children, timeout=20)
    assert alive == [], "a run that is killed leaves nothing behind"
    before = answers(out)

    ran = qinglan(*words(data, out))

    assert ran.code == 0, ran.errors
    report = ran.record["gateway"]
    asked = 2 * rows_of(data / "questions.xlsx")
    assert 10 <= before < asked
    assert report["answered"] + report["hits"] >= asked
    assert report["attempts"] == report["answered"] + len(report["possibly_billed"])


def answers(out: Path) -> int:
    """Answers in a journal that another process writes."""
    import sqlite3

    try:
        with sqlite3.connect(f"file:{out}/journal.sqlite?mode=ro", uri=True) as database:
            return int(database.execute("SELECT count(*) FROM calls WHERE state = 'answered'").fetchone()[0])
    except sqlite3.OperationalError:
        return 0


def wait_for(condition: Any, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.05)
