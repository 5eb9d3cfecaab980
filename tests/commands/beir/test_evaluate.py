"""`qinglan evaluate --beir` over real sockets: our RAG service, HTTP rewriters, a served model, figures to check."""

from pathlib import Path
from typing import Any

import ir_measures
import orjson
import pytest
from ir_measures import RR, P, R, nDCG
from typer.testing import CliRunner

from commands.beir.dataset import write_knowledge_base
from commands.beir.results import build_report, inflation_line
from commands.beir.retrieve import index_with_progress
from commands.beir.rewriters import ask_rewriter, read_rewriter
from commands.cli import app
from qinglan.errors import ConfigError, DataError, OutageError
from qinglan.evaluation.pages.report import render
from qinglan.llm.paid.journal_reader import read_report
from qinglan.rows.rows import Question
from qinglan.terminal.progress import size_of
from tests.commands.beir.benchmark import TERMS, RewriterApp, right_rewrite, write_benchmark
from tests.models.tiny_rewriter import tiny_model
from tests.screens.strict_html import Strict
from tests.servers.echo_servers import Reply, Scripted, completion, running

pytestmark = pytest.mark.usefixtures("forks")

MEASURES = {"ndcg10": nDCG @ 10, "recall10": R @ 10, "recall100": R @ 100, "mrr": RR, "p1": P @ 1}


def evaluate(folder: Path, *options: str) -> Any:
    """The command's result; an error is raised."""
    command = ["evaluate", "--beir", str(folder), "--out", str(folder.parent / "out"), "--draws", "300", "--json"]
    result = CliRunner().invoke(app, [*command, *options])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return orjson.loads(result.stdout)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_benchmark(tmp_path_factory.mktemp("beir") / "mini")


@pytest.fixture(scope="module")
def results(folder: Path, forks: None) -> Any:
    """SFT forgets the product of every third question, RL does not: servers play them."""
    sft = RewriterApp(lambda text: "买错了能退不" if TERMS["退换货政策"] in text else right_rewrite(text))
    rl, chat = RewriterApp(right_rewrite), RewriterApp(lambda text: "")
    with running(sft) as sft_url, running(rl) as rl_url, running(chat) as chat_url:
        out = evaluate(
            folder, "--rewriter", f"sft={sft_url}", "--rewriter", f"rl=kserve={rl_url}",
            "--rewriter", f"silent=openai={chat_url}/v1,model=mine",
        )  # fmt: skip
    assert set(rl.paths) == {"/v1/models/rewriter:predict"} and set(chat.paths) == {"/v1/chat/completions"}
    return out


def test_every_figure_is_that_of_ir_measures_on_the_runs_that_were_written(folder: Path, results: Any) -> None:
    qrels: dict[str, dict[str, int]] = {}
    for line in (folder / "qrels" / "test.tsv").read_text().splitlines()[1:]:
        query, passage, grade = line.split("\t")
        qrels.setdefault(query, {})[passage] = int(grade)

    assert set(results["systems"]) == {"plain", "history", "people", "sft", "rl", "silent"}
    for name, levels in results["systems"].items():
        run = orjson.loads((folder.parent / "out" / "runs" / f"{name}.json").read_bytes())
        theirs = ir_measures.calc_aggregate(list(MEASURES.values()), qrels, run)
        for metric, measure in MEASURES.items():
            assert levels[metric]["value"] == pytest.approx(theirs[measure], abs=1e-9, rel=0), (name, metric)


def test_an_index_shows_its_progress_and_is_built_once(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    knowledge_base = folder.parent / "indexed.jsonl"
    passages, _ = write_knowledge_base(folder / "corpus.jsonl", knowledge_base)
    size = size_of(knowledge_base.stat().st_size)

    for _ in range(2):
        index_with_progress(knowledge_base, "fivedoctors", folder.parent / "index")

    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith(f"[index] {size} / {size}") and "already" not in first
    assert second.endswith(f"{size} were there already")
    assert len(passages) == 12


def test_rewriters_are_told_apart_and_an_empty_rewrite_finds_nothing(results: Any) -> None:
    systems = {name: levels["p1"]["value"] for name, levels in results["systems"].items()}

    assert systems["rl"] == 1.0
    assert systems["plain"] < systems["sft"] < systems["rl"]
    assert systems["silent"] == 0.0
    assert "12 rewrites of silent are empty and find nothing." in results["notes"]
    gap = results["versus_plain"]["rl"]["ndcg10"]
    assert gap["difference"] == pytest.approx(
        results["systems"]["rl"]["ndcg10"]["value"] - results["systems"]["plain"]["ndcg10"]["value"]
    )
    assert 0 < gap["p"] <= gap["p_holm"]


def test_the_report_has_the_inflation_factor_and_its_page_is_whole(results: Any) -> None:
    part = results["inflation"]

    assert part["factor"] == pytest.approx(part["signal"] / part["outsider"])
    assert part["outsider"] == pytest.approx(
        results["systems"]["rl"]["ndcg10"]["value"] - results["systems"]["sft"]["ndcg10"]["value"]
    )
    assert inflation_line(results).startswith(f"Inflation factor of RL's gain over SFT, {part['factor']:.2f}")
    parser = Strict()
    parser.feed(render(build_report(results)))
    parser.close()
    assert parser.open == [] and parser.fetched == []


@pytest.mark.slow
@pytest.mark.usefixtures("forks_with_models")
def test_models_are_served_and_seeds_of_one_recipe_are_drawn_too(tmp_path: Path) -> None:
    folder = write_benchmark(tmp_path / "mini", with_rewrites=False)
    models = [tiny_model(tmp_path / f"seed-{seed}", seed=seed) for seed in (1, 2)]

    results = evaluate(folder, *(f"--model=sft={model}" for model in models))

    assert results["systems"]["sft"]["seeds"] == 2
    assert len(results["models"]["sft"]) == 2 and len(set(results["models"]["sft"])) == 2
    assert {path.name for path in (tmp_path / "out" / "runs").iterdir()} == {
        "plain.json", "history.json", "sft.1.json", "sft.2.json",
    }  # fmt: skip
    assert "not defined: name both models" in results["inflation"]["text"]
    assert any("the mean of 2 seeds" in note for note in results["notes"])


@pytest.mark.slow
@pytest.mark.usefixtures("forks")
def test_a_teacher_is_asked_through_a_gateway_and_paid_once(tmp_path: Path) -> None:
    folder = write_benchmark(tmp_path / "mini")
    journal = tmp_path / "out" / "journal.sqlite"

    first = evaluate(folder, "--teacher", "demo")
    calls = read_report(journal)["answered"]
    again = evaluate(folder, "--teacher", "demo")

    assert first["systems"]["teacher"]["p1"]["value"] > first["systems"]["plain"]["p1"]["value"]
    assert again["systems"] == first["systems"]
    assert read_report(journal)["answered"] == calls == 12


def test_a_paid_teacher_is_asked_after_a_yes_alone(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QINGLAN_ALLOWED_HOSTS", "api.openai.com")

    with pytest.raises(ConfigError, match="This spends money"):
        evaluate(folder, "--teacher", "gpt")


@pytest.mark.slow
def test_a_rewriter_that_is_away_is_an_outage_and_no_score(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("commands.beir.rewriters.PAUSE", 0.0)

    with (
        running(Scripted(Reply(503, b"busy"))) as url,
        pytest.raises(OutageError, match=r"after 3 attempts \(refused 503\)"),
    ):
        evaluate(folder, "--rewriter", f"mine={url}")


@pytest.mark.slow
def test_a_question_that_a_rewriter_refuses_is_searched_as_asked_and_counted(folder: Path) -> None:
    """As the RAG service does: a model that reads 500 tokens refuses a long question with a 400."""
    too_long = Reply(400, b'{"error": "914 tokens; the model reads 492 at most."}')
    rewrite = Reply(200, orjson.dumps({"predictions": [{"rewritten_query": "虾青素", "model_version": "v"}]}))
    with running(Scripted(*[rewrite, too_long] * 6)) as url:
        results = evaluate(folder, "--rewriter", f"short={url}")

    assert results["systems"]["short"]["refused"] == 6
    (note,) = [note for note in results["notes"] if "refused" in note]
    assert note.startswith("6 questions of short were refused by it and searched as they were asked")
    assert "914 tokens; the model reads 492 at most." in note
    lines = [orjson.loads(line) for line in (folder.parent / "out" / "rewrites.jsonl").read_bytes().splitlines()]
    searched = [line["systems"]["short"][0] == line["question"] for line in lines]
    assert searched.count(True) == 6


@pytest.mark.slow
@pytest.mark.parametrize(
    ("reply", "message"),
    [
        (Reply(400, b"not trained for it"), r"refused every question\. To q0-0 it said: 400 not trained for it"),
        (Reply(404, b"no such path"), r"query q0-0 got status 404: 'no such path'\. Check the address"),
        (Reply(301, b"moved"), r"query q0-0 got status 301: 'moved'\. Check the address"),
    ],
)
def test_a_rewriter_that_refuses_everything_is_no_score(folder: Path, reply: Reply, message: str) -> None:
    with running(Scripted(reply)) as url, pytest.raises(DataError, match=message):
        evaluate(folder, "--rewriter", f"mine={url}")


@pytest.mark.slow
def test_an_answer_of_another_protocol_is_told_with_the_query(folder: Path) -> None:
    with (
        running(Scripted(Reply(200, b'{"text": "x"}'))) as url,
        pytest.raises(DataError, match=r"query q0-0 got no kserve"),
    ):
        evaluate(folder, "--rewriter", f"mine={url}")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--rewriter", "http://127.0.0.1:1"), "write NAME=URL"),
        (("--rewriter", "plain=http://127.0.0.1:1"), "System 'plain': choose another name"),
        (("--rewriter", "a=http://127.0.0.1:1", "--rewriter", "a=http://127.0.0.1:2"), "two have one name"),
        (("--rewriter", "a=http://user@host"), "no password"),
        (("--rewriter", "a=http://127.0.0.1:1,key=sk-abcdef"), "the name of the environment variable"),
        (("--rewriter", "a=http://127.0.0.1:1,key=$KEY"), "the name of the environment variable"),
        (("--rewriter", "a=http://127.0.0.1:1,key=NOT_SET_KEY"), "NOT_SET_KEY is not set"),
        (("--rewriter", "a=openai=http://127.0.0.1:1/v1,model=m,key=NOT_SET_KEY"), "NOT_SET_KEY is not set"),
        (("--model", "sft=nowhere"), "nowhere holds no rewriter"),
        (("--run", "nowhere"), "no model in nowhere/files"),
        (("--split", "dev"), "Splits with judgements: test"),
    ],
)
def test_a_wrong_option_is_refused_before_anything_starts(
    folder: Path, options: tuple[str, ...], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        evaluate(folder, *options)


def test_a_rewriters_key_comes_from_the_environment_and_goes_into_the_header_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("THEIR_KEY", "secret-1")
    app = Scripted(Reply(200, completion("改写")))
    row = Question(id="q", tenant_id="fivedoctors", conversation_id="c", question="问")
    with running(app) as url:
        name, rewriter = read_rewriter(f"chat=openai={url}/v1,model=m,key=THEIR_KEY")
        assert ask_rewriter(rewriter, [row], "chat").queries == ["改写"]

    [(_, body, headers)] = app.requests
    assert (name, headers["authorization"], rewriter.config.model) == ("chat", "Bearer secret-1", "m")
    assert b"secret-1" not in body
    assert "secret-1" not in repr(rewriter)
