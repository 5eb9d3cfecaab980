"""The whole data line as a user runs it: real processes, real sockets, the graph under kfp.local.

One run is killed in its middle and goes on to its end; most tests look at what it left, or run again in its folder.
"""

import fcntl
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import orjson
import pandas
import psutil
import pytest
import yaml

from commands.why.history import row_history
from pipelines.execute.rundir import RunDir
from pipelines.lines.config import CONFIGS
from qinglan.config import load_yaml
from qinglan.files.digests import digest
from qinglan.files.files import read_jsonl
from qinglan.rows.rows import Rewrite, ValidatedRewrite
from qinglan.tables.tables import read_table, write_table
from serving.gateway.paid_calls import STOPPED_MESSAGE
from standins.samples import write_sample
from tests.commands.conftest import Here
from tests.processes.ctrl_c import hears_ctrl_c
from tests.processes.forked_runs import fork_environment

pytestmark = pytest.mark.slow


class Ran(NamedTuple):
    code: int
    record: Any
    errors: str


def command(*words: str) -> list[str]:
    return [sys.executable, "-c", "from commands.cli import main; main()", *words]


def qinglan(*words: str) -> Ran:
    """Run the command to its end; its steps and servers are forks. Runs that are killed or stopped have none."""
    run = subprocess.run(
        command(*words), capture_output=True, text=True, timeout=600, check=False, env=fork_environment(models=False)
    )
    return Ran(run.returncode, orjson.loads(run.stdout) if run.returncode == 0 else None, run.stderr)


def words(data: Path, out: Path, *more: str) -> list[str]:
    files = ["--questions", str(data / "questions.xlsx"), "--knowledge-base", str(data / "knowledge_base.jsonl")]
    until = [] if "--only" in more else ["--until", "convert"]
    return ["run", "fivedoctors", *files, "--out", str(out), "--json", *until, *more]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    write_sample("fivedoctors", folder, conversations=24, seed=5)
    return folder


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A profile whose teacher takes its time, so that a run can be met in its middle."""
    path = tmp_path_factory.mktemp("profiles") / "slow.yaml"
    path.write_text(yaml.safe_dump(demo() | {"stand_ins": {"teacher": True, "rag": True, "teacher_seconds": 0.3}}))
    return path


@pytest.fixture(scope="module")
def out(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("runs") / "first"


class Killed(NamedTuple):
    answered: int
    """Calls that were answered, and paid, before it was killed."""

    survivors: list[psutil.Process]


@pytest.fixture(scope="module")
def killed(data: Path, out: Path, slow: Path) -> Killed:
    run = subprocess.Popen(command(*words(data, out, "--profile", str(slow))), stdout=subprocess.DEVNULL)
    wait_for(lambda: answers(out) >= 10)
    children = psutil.Process(run.pid).children(recursive=True)
    run.kill()
    run.wait()
    _, alive = psutil.wait_procs(children, timeout=60)
    return Killed(answers(out), alive)


@pytest.fixture(scope="module")
def first(killed: Killed, data: Path, out: Path) -> Ran:
    """The same command once more, to its end."""
    ran = qinglan(*words(data, out))
    assert ran.code == 0, ran.errors
    return ran


def test_nobody_else_reads_what_a_run_was_told_and_paid_for(first: Ran, out: Path) -> None:
    files = [
        out / name for name in ("config.yaml", "run.json", "gateway.json", "journal.sqlite", "retrievals.sqlite")
    ]
    files += [path for path in (out / "logs").rglob("*") if path.is_file()]

    assert out.stat().st_mode & 0o777 == 0o700
    assert {path.name: path.stat().st_mode & 0o777 for path in files} == {path.name: 0o600 for path in files}


def test_a_run_killed_in_its_middle_goes_on_and_asks_only_for_what_is_missing(
    killed: Killed, first: Ran, data: Path, out: Path
) -> None:
    report = first.record["gateway"]
    questions = 2 * rows_of(data / "questions.xlsx")

    assert killed.survivors == [], "a run that is killed leaves nothing behind"
    assert 10 <= killed.answered < questions
    assert report["answered"] + report["hits"] >= questions
    left = report["attempts"] - count(
        out, "attempts", "outcome = 'rejected' AND detail = ? AND cost = 0", STOPPED_MESSAGE
    )
    assert left == report["answered"] + len(report["possibly_billed"])


def rows_of(sheet: Path) -> int:
    return sum(1 for _ in read_table(sheet))


def test_every_question_comes_out_of_every_stage(first: Ran, data: Path, out: Path) -> None:
    questions = rows_of(data / "questions.xlsx")
    files = out / "files"

    rewrites = [row for _, row in read_jsonl(files / "rewrites.jsonl", Rewrite)]
    validated = [row for _, row in read_jsonl(files / "validated.jsonl", ValidatedRewrite)]
    facts = first.record["steps"]["convert"]["facts"]

    assert len(rewrites) == len(validated) == rows_of(files / "rewrites.xlsx") == rows_of(files / "validated.xlsx")
    assert len(rewrites) == questions
    assert facts["rows"] == questions
    assert len(pandas.read_parquet(files / "ppo/train.parquet")) == facts["ppo_train"] > facts["sft_train"] > 0
    left_out = facts["near_duplicates"] + facts["left_out_for_balance"]
    assert left_out == len((files / "left_out.jsonl").read_bytes().splitlines())
    assert {row.id for row in rewrites} == {row.id for row in validated}
    for row in rewrites[::8]:  # each history reads all files of the run
        assert [note.stage for note in row_history(RunDir(out), row.id)] == [
            "sheet",
            "generate",
            "validate",
            "convert",
        ]


def test_records_tie_each_step_to_the_one_before(first: Ran, data: Path, out: Path) -> None:
    steps = first.record["steps"]

    assert steps["generate"]["inputs"]["questions"]["sha256"] == digest(data / "questions.xlsx")
    for name, parent, child in (("rewrites", "generate", "validate"), ("validated", "validate", "convert")):
        outputs, used = steps[parent]["outputs"][name], steps[child]["inputs"][name]
        assert used == {"uri": outputs["uri"], "sha256": outputs["sha256"]}
    assert steps["convert"]["outputs"]["chats"]["sha256"] == digest(out / "files/sft")
    assert all(step["code"]["version"] for step in steps.values() if step)


def test_running_again_pays_nothing_and_gives_the_same_bytes(first: Ran, data: Path, out: Path) -> None:
    names = ("rewrites.jsonl", "validated.jsonl", "sft", "ppo", "locked_test.jsonl")
    before = [digest(out / "files" / name) for name in names]

    again = qinglan(*words(data, out))

    assert again.code == 0, again.errors
    paid, once = again.record["gateway"], first.record["gateway"]
    assert (paid["attempts"], paid["cost"]) == (once["attempts"], once["cost"])
    assert paid["hits"] > once["hits"]
    assert [digest(out / "files" / name) for name in names] == before


def test_a_single_stage_runs_on_the_runs_files_even_where_they_are_given_by_name(first: Ran, out: Path) -> None:
    record = out / "records/validate.json"
    sheet, base = out / "files/questions.xlsx", out / "files/knowledge_base.jsonl"
    before, bytes_before = record.stat().st_mtime_ns, digest(sheet.resolve())
    files = ["--questions", str(sheet), "--knowledge-base", str(base)]

    ran = qinglan("run", "fivedoctors", *files, "--out", str(out), "--json", "--only", "convert")

    assert ran.code == 0, ran.errors
    assert record.stat().st_mtime_ns == before
    assert ran.record["steps"]["convert"]["facts"] == first.record["steps"]["convert"]["facts"]
    assert digest(sheet.resolve()) == bytes_before


def test_a_stage_without_its_inputs_names_the_stages_and_the_command_that_makes_them(
    here: Here, data: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "none"
    validate = here(*words(data, folder, "--only", "validate"))
    (folder / "files").mkdir(parents=True)
    (folder / "lock").touch()
    for name in ("rewrites.jsonl", "rewrites.xlsx", "generate_quarantine.jsonl", "locked_test.jsonl"):
        (folder / "files" / name).touch()
    evaluate = here(*words(data, folder, "--only", "evaluate"))

    assert validate.code == evaluate.code == 2
    assert "none: lacks rewrites.jsonl, which validate takes: generate must run first." in validate.errors
    assert "The same command with --until generate instead of --only validate runs" in validate.errors
    assert "none: lacks augmented_sft, augmented_ppo, sft_model, rl_model, sft_log, ppo_log, which" in evaluate.errors
    assert "takes: validate, label, convert, augment, base, sft, ppo must run first." in evaluate.errors
    assert "The same command with --until ppo instead of --only evaluate runs" in evaluate.errors


def sheet_of(path: Path, rows: Iterable[Mapping[str, Any]]) -> Path:
    columns = ["编号", "对话编号", "问题", "用户画像", "历史摘要", "标准段落", "划分", "租户"]
    with write_table(path, columns) as add:
        for row in rows:
            add([row.get(name) for name in columns])
    return path


def with_questions(words: list[str], sheet: Path) -> list[str]:
    words[words.index("--questions") + 1] = str(sheet)
    return words


def test_bad_rows_are_quarantined_and_the_others_of_two_tenants_go_on(data: Path, tmp_path: Path) -> None:
    """One sheet, and a folder with a knowledge base for each tenant."""
    write_sample("chengla", tmp_path / "chengla", conversations=12, seed=5)
    bases = tmp_path / "bases"
    bases.mkdir()
    good: list[Mapping[str, Any]] = []
    for tenant, folder in (("fivedoctors", data), ("chengla", tmp_path / "chengla")):
        (bases / f"{tenant}.jsonl").write_bytes((folder / "knowledge_base.jsonl").read_bytes())
        good += [{**cells, "租户": tenant} for _, cells in read_table(folder / "questions.xlsx")][:30]
    bad: list[Mapping[str, Any]] = [
        {"编号": "b1", "问题": None, "历史摘要": "x"},
        {"编号": "b2", "问题": True},
        {"编号": "b3", "问题": "长" * 3000},
    ]
    run_words = with_questions(words(data, tmp_path / "run"), sheet_of(tmp_path / "q.xlsx", [*bad, *good]))
    run_words[run_words.index("--knowledge-base") + 1] = str(bases)
    run_words[run_words.index("--until") + 1] = "validate"

    ran = qinglan(*run_words)

    assert ran.code == 0, ran.errors
    quarantined = (tmp_path / "run/files/generate_quarantine.jsonl").read_bytes().splitlines()
    assert [orjson.loads(line)["reason"] for line in quarantined] == ["empty", "not text", "too long"]
    validated = [row for _, row in read_jsonl(tmp_path / "run/files/validated.jsonl", ValidatedRewrite)]
    assert ran.record["steps"]["validate"]["facts"]["rows"] == len(validated) == len(good)
    assert {row.tenant_id for row in validated} == {"fivedoctors", "chengla"}
    assert len({row.snapshot for row in validated}) == 2


def test_a_step_that_fails_is_explained_with_the_way_on(data: Path, tmp_path: Path) -> None:
    poor = tmp_path / "poor.yaml"
    poor.write_text(yaml.safe_dump(demo() | {"gateway": {**demo()["gateway"], "budget": 0.0001}}))

    ran = qinglan(*words(data, tmp_path / "run", "--profile", str(poor)))

    assert ran.code == 5
    assert "generate: " in ran.errors and "budget" in ran.errors
    assert "Run the same command again when that is mended" in ran.errors
    assert "Traceback" not in ran.errors
    record = orjson.loads((tmp_path / "run" / "run.json").read_bytes())
    assert record["status"] == "failed" and record["gateway"]["cost"] <= 0.0001


def test_a_sheet_that_contradicts_itself_is_refused_before_anything_is_asked(
    here: Here, data: Path, tmp_path: Path
) -> None:
    rows = [
        {"编号": f"a{n}", "对话编号": "c1", "问题": "怎么吃", "划分": split}
        for n, split in enumerate(("train", "test"))
    ]

    ran = here(*with_questions(words(data, tmp_path / "run"), sheet_of(tmp_path / "q.xlsx", rows)))

    assert ran.code == 3
    assert "conversation 'c1' is in 'train' (row 'a0') and in 'test' (row 'a1')" in ran.errors
    assert not (tmp_path / "run/journal.sqlite").exists()


def test_real_files_in_a_runs_folder_are_never_replaced(tmp_path: Path) -> None:
    run = RunDir(tmp_path)
    own_file = run.files / "questions.xlsx"
    own_file.parent.mkdir()
    own_file.write_text("my only copy")

    run.link("questions", own_file)
    run.link("questions", tmp_path / "other.xlsx")

    assert own_file.read_text() == "my only copy"


def test_a_stage_alone_refuses_another_sheet_than_the_runs(
    here: Here, first: Ran, data: Path, out: Path, tmp_path: Path
) -> None:
    sheet = sheet_of(tmp_path / "q.xlsx", [{"编号": "a", "问题": "怎么吃"}])

    ran = here(*with_questions(words(data, out, "--only", "convert"), sheet))

    assert ran.code == 2
    assert "was made from other bytes" in ran.errors


def test_a_second_run_in_a_folder_is_refused_and_harms_nothing(here: Here, first: Ran, data: Path, out: Path) -> None:
    before = digest(out / "records")
    with (out / "lock").open("ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        ran = here(*words(data, out))

    assert ran.code == 2
    assert "a run is under way there" in ran.errors
    assert digest(out / "records") == before


def test_another_tenant_gets_a_folder_of_its_own(here: Here, first: Ran, data: Path, out: Path) -> None:
    run_words = words(data, out)
    run_words[1] = "chengla"

    ran = here(*run_words)

    assert (ran.code, "holds a run of tenant 'fivedoctors'" in ran.errors) == (2, True)


def demo() -> dict[str, Any]:
    return load_yaml(CONFIGS / "fivedoctors/demo.yaml")


def test_a_copied_run_goes_on_in_its_own_folder(first: Ran, out: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(out, copy, symlinks=True)
    before = (out / "files/sft").resolve()

    ran = qinglan("run", "fivedoctors", "--only", "convert", "--out", str(copy), "--json")

    assert ran.code == 0
    assert copy.resolve() in (copy / "files/sft").resolve().parents
    assert copy.resolve() in (copy / "files/validated.jsonl").resolve().parents
    assert (out / "files/sft").resolve() == before


def test_ctrl_c_stops_a_run_and_says_how_to_go_on(data: Path, slow: Path, tmp_path: Path) -> None:
    out = tmp_path / "stopped"
    run = subprocess.Popen(
        command(*words(data, out, "--profile", str(slow))), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        text=True, preexec_fn=hears_ctrl_c,
    )  # fmt: skip
    wait_for(lambda: answers(out) >= 1)
    children = psutil.Process(run.pid).children(recursive=True)
    run.send_signal(signal.SIGINT)
    _, errors = run.communicate(timeout=300)

    assert run.returncode == 130
    assert "Stopped in generate. Run the same command again" in errors
    assert orjson.loads((out / "records/generate.json").read_bytes())["failure"]["message"] == "the run was stopped"
    assert psutil.wait_procs(children, timeout=60)[1] == []
    paid = orjson.loads((out / "run.json").read_bytes())["gateway"]
    assert paid["answered"] == answers(out) > 0 and paid["cost"] > 0, "also calls that were under way"


def answers(out: Path) -> int:
    return count(out, "calls", "state = 'answered'")


def count(out: Path, table: str, where: str, *values: str) -> int:
    """Rows in a journal that another process may be writing."""
    import sqlite3

    try:
        with sqlite3.connect(f"file:{out}/journal.sqlite?mode=ro", uri=True) as database:
            return int(database.execute(f"SELECT count(*) FROM {table} WHERE {where}", values).fetchone()[0])
    except sqlite3.OperationalError:
        return 0


def wait_for(condition: Any, seconds: float = 300) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.05)
