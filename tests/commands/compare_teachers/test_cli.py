"""`qinglan compare-teachers` as a user runs it: real processes, stand-ins that differ by a known amount."""

import contextlib
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import orjson
import psutil
import pytest
import yaml

from commands.compare_teachers.report import write_report
from qinglan.config import load_yaml
from qinglan.llm.paid.journal_reader import read_report
from qinglan.processes.services import run_service
from standins.samples import write_sample
from tests.screens.strict_html import Strict
from tests.servers.echo_servers import PRICE

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("forks")]
ROWS = 80
SORRY = ["抱歉，我(不能|无法)"]
HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(1)>"


class Ran(NamedTuple):
    code: int
    out: str
    errors: str


def command(*words: str) -> list[str]:
    return [sys.executable, "-c", "from commands.cli import main; main()", "compare-teachers", "fivedoctors", *words]


def compare(*words: str) -> Ran:
    run = subprocess.run(command(*words), capture_output=True, text=True, timeout=600, check=False)
    return Ran(run.returncode, run.stdout, run.stderr)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    write_sample("fivedoctors", folder, conversations=80, seed=5)
    return folder


def profile(path: Path, **changes: Any) -> Path:
    """The demo's, with few examined rows and draws."""
    values: dict[str, Any] = load_yaml(Path("pipelines/configs/fivedoctors/demo.yaml"))
    values = {**values, "tenant_id": "fivedoctors", **changes}
    values["evaluate"] = {"examined_rows": 10, "draws": 1_000}
    path.write_text(yaml.safe_dump(values), encoding="utf-8")
    return path


def teachers(path: Path, *entries: dict[str, Any]) -> Path:
    path.write_text(yaml.safe_dump({"teachers": list(entries)}), encoding="utf-8")
    return path


def teacher(name: str, stand_in: dict[str, Any], output: float = 10.0, **model: Any) -> dict[str, Any]:
    price = {**PRICE, "input": output / 10, "output": output, "cached_input": 0.1}
    return {"name": name, "model": {"model": name, "price": price, **model}, "stand_in": {"seconds": 0, **stand_in}}


def words(data: Path, folder: Path, candidates: Path, settings: Path) -> list[str]:
    return [
        "--questions", str(data / "questions.xlsx"), "--knowledge-base", str(data / "knowledge_base.jsonl"),
        "--teachers", str(candidates), "--profile", str(settings), "--rows", str(ROWS), "--out", str(folder / "out"),
    ]  # fmt: skip


@pytest.fixture(scope="module")
def outside(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A provider that outlives what asks it, and counts what it billed: a good teacher, a weak one that thinks aloud,
    and one that is good but declines in plain words."""
    variants = {"good": {}, "weak": {"skill": 0.5, "thinks": True}, "shy": {"refuses": 0.2, "seed": 3}}
    arguments = ["--kb", f"fivedoctors={data / 'knowledge_base.jsonl'}", "--latency", "0.1", "--port", "0"]
    for name, skill in variants.items():
        arguments += ["--variant", f"{name}={orjson.dumps({'tenant': 'fivedoctors', **skill}).decode()}"]
    with run_service("standins.teacher", arguments, tmp_path_factory.mktemp("outside") / "log") as url:
        yield url


def paid_words(data: Path, folder: Path, url: str) -> list[str]:
    """A profile that pays: its provider is on this machine, so it needs no key."""
    model = {"base_url": url, "model": "fivedoctors", "price": PRICE}
    gateway = {"teacher": model, "judge": model, "limits": {"concurrency": 4}}
    gateway["examiner"] = {**model, "model": "fivedoctors-examiner"}
    settings = profile(folder / "profile.yaml", stand_ins={"rag": True}, gateway=gateway)
    candidates = teachers(
        folder / "teachers.yaml",
        teacher("good", {}, base_url=url),
        teacher("weak", {}, output=1.0, base_url=url, strip_thinking=True),
        teacher("shy", {}, base_url=url, refusal_patterns=SORRY),
    )
    return words(data, folder, candidates, settings)


def test_nothing_is_asked_before_somebody_agrees_to_pay(data: Path, tmp_path: Path, outside: str) -> None:
    before = stats(outside)["asked"]

    ran = compare(*paid_words(data, tmp_path, outside))

    assert ran.code == 2
    assert "add --yes" in ran.errors
    assert "Before anything is spent" in ran.out
    assert stats(outside)["asked"] == before


@pytest.fixture(scope="module")
def different(
    data: Path, outside: str, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, dict[str, Any], list[str]]:
    """Killed while the second teacher writes; the same command again goes on to its end."""
    folder = tmp_path_factory.mktemp("different")
    requests = [*paid_words(data, folder, outside), "--yes"]
    billed = stats(outside)["billed"]
    first = subprocess.Popen(command(*requests), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: (folder / "out" / "rewrites" / "good.jsonl").is_file(), first)
        wait_until(lambda: stats(outside)["billed"] > billed + ROWS + 20, first)
        children = psutil.Process(first.pid).children(recursive=True)
    finally:
        first.kill()
        first.wait()
    for child in children:
        with contextlib.suppress(psutil.NoSuchProcess):  # each ends by itself, too, when the first is gone
            child.kill()
    psutil.wait_procs(children, timeout=120)
    ran = compare(*requests, "--json")
    assert ran.code == 0, ran.errors
    return folder / "out", orjson.loads(ran.out), requests


def test_a_comparison_that_was_killed_goes_on_and_pays_nothing_twice(
    different: tuple[Path, dict[str, Any], list[str]], outside: str
) -> None:
    out, result, _ = different
    billed = stats(outside)["billed_by_prompt"]

    twice = sum(count - 1 for count in billed.values())
    named = sum(len(read_report(path)["possibly_billed"]) for path in journals(out))
    assert twice <= named <= 4
    assert result["systems"]["good"]["failed"]["rows"] == 0


def test_the_better_teacher_is_found_to_be_better_with_its_interval(
    different: tuple[Path, dict[str, Any], list[str]],
) -> None:
    _, result, _ = different
    gap = result["paired"]["good_vs_weak"]

    assert (result["recommendation"]["word"], result["recommendation"]["take"]) == ("better", "good")
    assert 0 < gap["low"] <= gap["difference"] <= gap["high"]
    assert gap["p_holm"] < 0.05
    assert result["systems"]["plain"]["top1"]["value"] < result["systems"]["weak"]["top1"]["value"]


def test_a_row_that_a_teacher_declines_is_counted_and_searched_as_it_was_asked(
    different: tuple[Path, dict[str, Any], list[str]],
) -> None:
    out, result, _ = different
    rewrites = [orjson.loads(line) for line in (out / "rewrites" / "shy.jsonl").read_bytes().splitlines()]
    refused = {row["id"]: row["question"] for row in rewrites if row["reason"] == "refused"}
    searched = {row["id"]: row["systems"]["shy"]["rewrite"] for row in predictions(out) if row["id"] in refused}

    assert result["systems"]["shy"]["failed"]["reasons"] == {"refused": len(refused)}
    assert 0.1 * ROWS < len(refused) < 0.3 * ROWS
    assert searched == refused
    assert "shy gave no rewrite" in " ".join(result["recommendation"]["lines"])


def test_the_money_of_calls_that_gave_no_rewrite_is_part_of_what_a_rewrite_costs(
    different: tuple[Path, dict[str, Any], list[str]],
) -> None:
    out, result, _ = different
    shy = result["systems"]["shy"]
    paid = sum(read_report(path)["cost"] for path in journals(out) if path.name.startswith("shy-"))

    assert shy["cost"]["n"] == result["counts"]["rows"] - shy["failed"]["rows"] < result["counts"]["rows"]
    assert shy["cost"]["value"] * shy["cost"]["n"] / 1000 == pytest.approx(paid)


def test_thoughts_reach_no_query(different: tuple[Path, dict[str, Any], list[str]]) -> None:
    out, result, _ = different

    assert result["systems"]["weak"]["failed"]["rows"] == 0
    assert not any("think" in row["systems"]["weak"]["rewrite"] for row in predictions(out))


def test_every_teacher_has_its_own_calls_latency_and_cost(
    different: tuple[Path, dict[str, Any], list[str]],
) -> None:
    _, result, _ = different
    rows = result["counts"]["rows"]

    for name in ("good", "weak", "shy"):
        one = result["systems"][name]
        assert 0.9 * rows < one["calls"]["answered"] <= rows
        assert 0 < one["latency_p50"]["value"] <= one["latency_p95"]["value"]
    assert result["systems"]["good"]["cost"]["value"] > 4 * result["systems"]["weak"]["cost"]["value"] > 0


def test_the_same_command_again_asks_for_lost_rows_only_and_says_the_same(
    different: tuple[Path, dict[str, Any], list[str]],
) -> None:
    out, result, asked = different
    before = {path.name: read_report(path)["attempts"] for path in journals(out)}
    again = compare(*asked, "--json")

    assert again.code == 0, again.errors
    added = {path.name: read_report(path)["attempts"] - before[path.name] for path in journals(out)}
    lost = result["systems"]["shy"]["failed"]["rows"]
    assert lost > 0 and added == {name: lost if name.startswith("shy-") else 0 for name in added}
    assert orjson.loads(again.out)["systems"]["good"]["top1"] == result["systems"]["good"]["top1"]


def test_the_page_is_well_formed_fetches_nothing_and_escapes_what_users_wrote(
    different: tuple[Path, dict[str, Any], list[str]], tmp_path: Path
) -> None:
    out, result, _ = different
    row = next(predictions(out)) | {"question": HOSTILE, "history_summary": HOSTILE, "conversation_id": "hostile"}
    one: dict[str, Any] = {"rewrite": HOSTILE, "hits": [], "rank": None}
    row["systems"] = {**row["systems"], "good": {**one, "rank": 1}, "weak": one, "shy": one}
    (tmp_path / "predictions.jsonl").write_bytes(orjson.dumps(row) + b"\n")
    write_report(result, tmp_path)
    page = (tmp_path / "comparison.html").read_text(encoding="utf-8")
    parser = Strict()
    parser.feed(page)

    assert page.count("&lt;script&gt;alert(1)") == 5
    assert "<script" not in page
    assert (parser.open, parser.fetched) == ([], [])


def test_equal_teachers_are_not_told_apart_and_the_cheap_one_is_taken(data: Path, tmp_path: Path) -> None:
    candidates = teachers(
        tmp_path / "teachers.yaml",
        teacher("dear", {"skill": 0.9, "seed": 2}, output=10.0),
        teacher("cheap", {"skill": 0.9, "seed": 1}, output=1.0),
    )
    ran = compare(*words(data, tmp_path, candidates, profile(tmp_path / "profile.yaml")))
    result = orjson.loads((tmp_path / "out" / "comparison.json").read_bytes())
    gap = result["paired"]["dear_vs_cheap"]

    assert ran.code == 0, ran.errors
    assert (result["recommendation"]["word"], result["recommendation"]["take"]) == ("not shown", "cheap")
    assert gap["low"] < 0 < gap["high"]
    assert gap["power"]["needed_for_margin"] > ROWS
    screen = " ".join(ran.out.split())
    assert screen.index("no difference is shown.") < screen.index("Stand-ins answered") < screen.index("Each teacher")


def wait_until(true: Any, process: "subprocess.Popen[bytes]") -> None:
    deadline = time.monotonic() + 300
    while not true():
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)


def stats(url: str) -> dict[str, Any]:
    result: dict[str, Any] = httpx.get(f"{url.removesuffix('/v1')}/stats", trust_env=False).json()
    return result


def journals(out: Path) -> list[Path]:
    return [out / "journal.sqlite", *sorted((out / "journals").glob("*.sqlite"))]


def predictions(out: Path) -> Iterator[dict[str, Any]]:
    with (out / "predictions.jsonl").open("rb") as file:
        yield from (orjson.loads(line) for line in file)
