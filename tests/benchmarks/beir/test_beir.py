"""`python -m benchmarks.beir` over real sockets: our RAG service, HTTP rewriters, a served model."""

from pathlib import Path
from typing import Any

import orjson
import pytest

from benchmarks.beir.__main__ import main
from benchmarks.beir.results import build_report
from benchmarks.beir.rewriters import ask_rewriter, read_rewriter
from qinglan.errors import ConfigError, DataError, OutageError
from qinglan.evaluation.pages.report import render
from qinglan.rows.rows import Question
from tests.benchmarks.beir.benchmark import TERMS, RewriterApp, right_rewrite, write_benchmark
from tests.models.tiny_rewriter import tiny_model
from tests.screens.strict_html import Strict
from tests.servers.echo_servers import Reply, Scripted, completion, running

pytestmark = pytest.mark.usefixtures("forks")


def evaluate(folder: Path, *options: str) -> Any:
    out = folder.parent / "out"
    main([str(folder), "--out", str(out), "--draws", "300", *options])
    return orjson.loads((out / "beir.json").read_bytes())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_benchmark(tmp_path_factory.mktemp("beir") / "mini")


def test_systems_are_told_apart_by_the_measures_of_trec_eval(folder: Path) -> None:
    """SFT forgets the product of every third question, RL does not, and a silent rewriter finds nothing."""
    sft = RewriterApp(lambda text: "买错了能退不" if TERMS["退换货政策"] in text else right_rewrite(text))
    rl, chat = RewriterApp(right_rewrite), RewriterApp(lambda text: "")
    with running(sft) as sft_url, running(rl) as rl_url, running(chat) as chat_url:
        results = evaluate(
            folder, "--rewriter", f"sft={sft_url}", "--rewriter", f"rl=kserve={rl_url}",
            "--rewriter", f"silent=openai={chat_url}/v1,model=mine",
        )  # fmt: skip

    assert set(rl.paths) == {"/v1/models/rewriter:predict"} and set(chat.paths) == {"/v1/chat/completions"}
    systems = {name: levels["ndcg10"]["value"] for name, levels in results["systems"].items()}
    assert set(systems) == {"plain", "history", "people", "sft", "rl", "silent"}
    # The right passage has grade 2, another of the product grade 1: (2 + 1 / log2(rank + 1)) / (2 + 1 / log2(3)).
    run = orjson.loads((folder.parent / "out" / "runs" / "rl.json").read_bytes())
    ranks = [sorted(scores, key=scores.__getitem__, reverse=True) for scores in run.values()]
    assert all(ranking[0] == f"p{query[1:]}" for query, ranking in zip(run, ranks, strict=True))
    assert systems["silent"] == 0.0 <= systems["plain"] < systems["sft"] < systems["rl"] <= 1.0
    assert results["systems"]["rl"]["p1"]["value"] == results["systems"]["rl"]["mrr"]["value"] == 1.0
    gap, part = results["versus_plain"]["rl"]["ndcg10"], results["inflation"]
    assert gap["difference"] == pytest.approx(systems["rl"] - systems["plain"]) and 0 < gap["p"] <= gap["p_holm"]
    assert part["outsider"] == pytest.approx(systems["rl"] - systems["sft"])
    assert part["factor"] == pytest.approx(part["signal"] / part["outsider"])
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

    assert results["systems"]["sft"]["seeds"] == 2 == len(set(results["models"]["sft"]))
    assert {path.name for path in (tmp_path / "out" / "runs").iterdir()} == {
        "plain.json", "history.json", "sft.1.json", "sft.2.json",
    }  # fmt: skip


@pytest.mark.slow
def test_a_question_that_a_rewriter_refuses_is_searched_as_asked_and_counted(folder: Path) -> None:
    """As the RAG service does: a model that reads 500 tokens refuses a long question with a 400."""
    too_long = Reply(400, b'{"error": "914 tokens; the model reads 492 at most."}')
    rewrite = Reply(200, orjson.dumps({"predictions": [{"rewritten_query": "虾青素", "model_version": "v"}]}))
    with running(Scripted(*[rewrite, too_long] * 6)) as url:
        results = evaluate(folder, "--rewriter", f"short={url}")

    lines = [orjson.loads(line) for line in (folder.parent / "out" / "rewrites.jsonl").read_bytes().splitlines()]
    assert results["systems"]["short"]["refused"] == 6
    assert sum(line["systems"]["short"][0] == line["question"] for line in lines) == 6


@pytest.mark.slow
@pytest.mark.parametrize(
    ("reply", "error", "message"),
    [
        (Reply(503, b"busy"), OutageError, r"after 3 attempts \(refused 503\)"),
        (Reply(400, b"not trained for it"), DataError, "refused every question"),
        (Reply(404, b"no such path"), DataError, "query q0-0 got status 404"),
        (Reply(200, b'{"text": "x"}'), DataError, "query q0-0 got no kserve"),
    ],
)
def test_a_rewriter_without_rewrites_is_no_score(
    folder: Path, reply: Reply, error: type[Exception], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("benchmarks.beir.rewriters.PAUSE", 0.0)
    with running(Scripted(reply)) as url, pytest.raises(error, match=message):
        evaluate(folder, "--rewriter", f"mine={url}")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--rewriter", "http://127.0.0.1:1"), "write NAME=URL"),
        (("--rewriter", "plain=http://127.0.0.1:1"), "System 'plain': choose another name"),
        (("--rewriter", "a=http://127.0.0.1:1", "--rewriter", "a=http://127.0.0.1:2"), "System 'a'"),
        (("--rewriter", "a=http://user@host"), "no password"),
        (("--rewriter", "a=http://127.0.0.1:1,key=sk-abcdef"), "the name of the environment variable"),
        (("--rewriter", "a=http://127.0.0.1:1,key=NOT_SET_KEY"), "NOT_SET_KEY is not set"),
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
        _, rewriter = read_rewriter(f"chat=openai={url}/v1,model=m,key=THEIR_KEY")
        assert ask_rewriter(rewriter, [row], "chat").queries == ["改写"]

    [(_, body, headers)] = app.requests
    assert headers["authorization"] == "Bearer secret-1" and b"secret-1" not in body
    assert "secret-1" not in repr(rewriter)
