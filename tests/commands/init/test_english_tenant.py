"""A tenant whose sheet and documents are English: init, plan, and passages found by English questions."""

import csv
from pathlib import Path

import httpx
import pytest

from commands.init.setup import KNOWLEDGE_BASE_FILE
from pipelines.lines.config import load_config
from qinglan.processes.services import run_service
from qinglan.prompts import Question, student_messages, teacher_messages
from qinglan.rag.contract import RAG_PATH
from qinglan.rag.knowledge_base import read_knowledge_base
from tests.commands.conftest import Here

GOODS = ("backpack", "tent", "sleeping bag", "headlamp", "stove", "hiking pole", "water bladder", "sleeping pad")
TOPICS = {
    "Washing": "Wash the {goods} by hand in lukewarm water and let it dry in the shade.",
    "Warranty": "The warranty of the {goods} covers faults of material for two years.",
    "Returns": "An unused {goods} can be returned within thirty days, and the refund takes a week.",
    "Weight": "The {goods} weighs less than a kilogram without its pouch.",
}
QUESTIONS = {
    "Washing": "can I wash {goods}s in a machine?", "Warranty": "how long is the warranty for {goods}s",
    "Returns": "how do I return {goods}s for refunds?", "Weight": "what does a {goods} weigh",
}  # fmt: skip

ELLIPTIC = ("can I wash it in a machine?", "how long is the warranty", "how do I return it?", "what does it weigh")


@pytest.fixture
def company(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    with (tmp_path / "questions.csv").open("w", newline="", encoding="utf-8") as file:
        sheet = csv.writer(file)
        sheet.writerow(["session_id", "user_query", "chat_history"])
        for number, goods in enumerate(GOODS):
            chat = f'[{{"role": "user", "content": "Do you sell a {goods}?"}}, {{"role": "bot", "content": "Yes."}}]'
            sheet.writerows([f"s{number}", question, chat] for question in ELLIPTIC)
    manual = "\n".join(
        f"# {topic}: {goods}\n\n{text.format(goods=goods)}\n" for goods in GOODS for topic, text in TOPICS.items()
    )
    (tmp_path / "manual.md").write_text(manual, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_an_english_sheet_becomes_a_tenant_with_english_prompts(company: Path, here: Here) -> None:
    result = here("init", "acme", "questions.csv", "--knowledge-base", "manual.md", "--yes")

    assert result.code == 0, result.errors
    assert "  said before: User: Do you sell a backpack? / Assistant: Yes." in result.out
    assert here("plan", "acme").code == 0
    config = load_config("acme", "demo")
    question = Question("acme", "how do I return it?", "", "User: Do you sell a tent?\nAssistant: Yes.")
    for messages in (
        teacher_messages(question, config.generate.system_prompt),
        student_messages(question, config.convert.system_prompt),
    ):
        assert "".join(message["content"] for message in messages).isascii()


@pytest.mark.slow
@pytest.mark.usefixtures("forks")
def test_english_questions_find_english_passages_through_the_rag_service(company: Path, here: Here) -> None:
    assert here("init", "acme", "questions.csv", "--knowledge-base", "manual.md", "--yes").code == 0
    knowledge_base = company / "tenants" / "acme" / KNOWLEDGE_BASE_FILE
    titles = {passage.id: passage.title for passage in read_knowledge_base(knowledge_base)}
    arguments = ["--kb", f"acme={knowledge_base}", "--index-root", str(company / "index"), "--port", "0"]
    with (
        run_service("serving.rag", arguments, company / "rag.log") as url,
        httpx.Client(base_url=url, timeout=30, trust_env=False) as client,
    ):
        first: dict[tuple[str, str], str] = {}
        for goods in GOODS:
            for topic, question in QUESTIONS.items():
                query = question.format(goods=goods)
                body = {"query": query, "rewritten_query": query, "tenant_id": "acme", "score_threshold": 0.0}
                recall = client.post(RAG_PATH, json=body).json()["data"]["recall"]
                first[goods, topic] = titles[recall[0]["id"]] if recall else ""

    wrong = {pair: title for pair, title in first.items() if pair[0] not in title or pair[1] not in title}
    assert wrong == {}
