"""`qinglan compare-teachers` as a user runs it: real processes, teachers that differ by a known amount."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import orjson
import pytest
import yaml

from commands.compare_teachers.table import print_comparison
from qinglan.config import load_yaml
from qinglan.processes.services import run_service
from qinglan.rows.rows import ValidatedRewrite
from standins.samples import write_sample
from tests.servers.echo_servers import PRICE

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("forks")]
ROWS = 80
SORRY = ["抱歉，我(不能|无法)"]


class Finished(NamedTuple):
    code: int
    out: str
    errors: str


def compare(*words: str) -> Finished:
    command = [sys.executable, "-c", "from commands.cli import main; main()", "compare-teachers", "fivedoctors"]
    run = subprocess.run([*command, *words], capture_output=True, text=True, timeout=600, check=False)
    return Finished(run.returncode, run.stdout, run.stderr)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    write_sample("fivedoctors", folder, conversations=80, seed=5)
    return folder


@pytest.fixture(scope="module")
def provider(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A provider that counts what it billed: a good teacher, a weak one that thinks aloud, and one that declines."""
    variants = {"good": {}, "weak": {"skill": 0.5, "thinks": True}, "shy": {"refuses": 0.3, "seed": 3}}
    arguments = ["--kb", f"fivedoctors={data / 'knowledge_base.jsonl'}", "--port", "0"]
    for name, skill in variants.items():
        arguments += ["--variant", f"{name}={orjson.dumps({'tenant': 'fivedoctors', **skill}).decode()}"]
    with run_service("standins.teacher", arguments, tmp_path_factory.mktemp("provider") / "log") as url:
        yield url


def options(data: Path, folder: Path, url: str, **gateway: Any) -> list[str]:
    """Options of a profile that pays: its provider is on this machine, so it needs no key."""
    values: dict[str, Any] = load_yaml(Path("pipelines/configs/fivedoctors/demo.yaml"))
    model = {"base_url": url, "model": "fivedoctors", "price": PRICE}
    values |= {"tenant_id": "fivedoctors", "stand_ins": {"rag": True}, "evaluate": {"draws": 1_000}}
    values["gateway"] = {"teacher": model, "judge": model, "limits": {"concurrency": 4}, **gateway}
    (folder / "profile.yaml").write_text(yaml.safe_dump(values), encoding="utf-8")
    teachers = [
        {"name": name, "model": {"base_url": url, "model": name, "price": {**PRICE, "output": cost}, **settings}}
        for name, cost, settings in (
            ("good", 10.0, {}), ("weak", 1.0, {"strip_thinking": True}), ("shy", 10.0, {"refusal_patterns": SORRY})
        )
    ]  # fmt: skip
    (folder / "teachers.yaml").write_text(yaml.safe_dump({"teachers": teachers}), encoding="utf-8")
    return [
        "--questions", str(data / "questions.xlsx"), "--knowledge-base", str(data / "knowledge_base.jsonl"),
        "--teachers", str(folder / "teachers.yaml"), "--profile", str(folder / "profile.yaml"),
        "--rows", str(ROWS), "--out", str(folder / "out"),
    ]  # fmt: skip


def stats(url: str) -> dict[str, Any]:
    result: dict[str, Any] = httpx.get(f"{url.removesuffix('/v1')}/stats", trust_env=False).json()
    return result


@pytest.mark.parametrize(("budget", "code", "message"), [(100.0, 2, "add --yes"), (0.001, 5, "gateway.budget")])
def test_nothing_is_paid_before_a_person_agrees_nor_above_the_budget(
    data: Path, tmp_path: Path, provider: str, budget: float, code: int, message: str
) -> None:
    before = stats(provider)["asked"]

    finished = compare(*options(data, tmp_path, provider, budget=budget))

    assert (finished.code, message in finished.errors) == (code, True)
    assert stats(provider)["asked"] == before


@pytest.fixture(scope="module")
def comparison(
    data: Path, provider: str, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, dict[str, Any], list[str]]:
    folder = tmp_path_factory.mktemp("different")
    words = [*options(data, folder, provider), "--yes", "--json"]
    finished = compare(*words)
    assert finished.code == 0, finished.errors
    return folder / "out", orjson.loads(finished.out), words


def test_the_better_teacher_is_recommended_with_its_interval(
    comparison: tuple[Path, dict[str, Any], list[str]],
) -> None:
    _, result, _ = comparison
    gap, systems = result["paired"]["good − weak"], result["systems"]

    assert (result["recommendation"]["word"], result["recommendation"]["take"]) == ("better", "good")
    assert 0 < gap["low"] <= gap["difference"] <= gap["high"] and gap["p_holm"] < 0.05
    assert systems["plain"]["top1"]["value"] < systems["weak"]["top1"]["value"]
    assert systems["good"]["cost"] > systems["weak"]["cost"] > 0
    assert systems["good"]["latency"] > 0


def test_a_declined_row_counts_as_the_plain_question_and_its_call_is_part_of_the_cost(
    comparison: tuple[Path, dict[str, Any], list[str]],
) -> None:
    out, result, _ = comparison
    shy, good = (result["systems"][name] for name in ("shy", "good"))
    rows = [orjson.loads(line) for line in (out / "teachers/shy/files/validated.jsonl").read_bytes().splitlines()]

    assert shy["reasons"] == {"refused": row_count(result) - len(rows)}
    assert good["reasons"] == {} and shy["top1"]["value"] < good["top1"]["value"]
    assert shy["cost"] > good["cost"]
    assert all(ValidatedRewrite(**row).plain.hits for row in rows)


def row_count(result: dict[str, Any]) -> int:
    return int(result["counts"]["rows"])


def test_the_same_command_again_pays_nothing_twice_and_says_the_same(
    comparison: tuple[Path, dict[str, Any], list[str]], provider: str
) -> None:
    _, result, words = comparison
    billed = stats(provider)["billed_by_prompt"]
    again = compare(*words)

    assert again.code == 0, again.errors
    after = {prompt: count - billed.get(prompt, 0) for prompt, count in stats(provider)["billed_by_prompt"].items()}
    refused = row_count(result) * result["systems"]["shy"]["failed"]
    assert sum(after.values()) <= round(refused)  # only rows without an answer are asked for again
    assert orjson.loads(again.out)["systems"]["good"]["top1"] == result["systems"]["good"]["top1"]


def test_the_terminal_shows_the_sentence_and_both_tables(
    comparison: tuple[Path, dict[str, Any], list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    _, result, _ = comparison
    print_comparison(result)

    lines = capsys.readouterr().out.splitlines()
    assert "Take good" in lines[0]
    assert all(any(name in line for line in lines) for name in ("good", "weak", "shy", "plain", "good − weak"))
