"""Odd inputs as people bring them: sheets, documents, RAG services, providers and profiles, each with its command."""

import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from openpyxl import Workbook

from tests.commands.init.documents import write_pdf
from tests.servers.echo_servers import Reply

Build = Callable[[Path], None]
"""Writes the files of an input into a folder."""

QUESTION = "虾青素怎么吃"
ROWS = [["编号", "问题"], *([f"q{at}", f"{QUESTION}{at}"] for at in range(40))]


class Odd(NamedTuple):
    """An input, the command that meets it, and the message that a person gets."""

    name: str
    build: Build
    command: str
    code: int
    messages: tuple[str, ...]
    replies: tuple[Reply, ...] = ()
    """Answers of the service whose address stands for URL in the command and in profiles."""


def data(name: str, content: str | bytes) -> Build:
    """A file with this content."""

    def build(folder: Path) -> None:
        (folder / name).write_bytes(content.encode() if isinstance(content, str) else content)

    return build


def book(name: str, rows: list[list[Any]], change: Callable[[Workbook], None] = lambda book: None) -> Build:
    """An .xlsx file, changed before it is saved."""

    def build(folder: Path) -> None:
        workbook = Workbook()
        sheet = workbook.active
        assert sheet is not None
        for row in rows:
            sheet.append(row)
        change(workbook)
        workbook.save(folder / name)

    return build


def both(*builds: Build) -> Build:
    def build(folder: Path) -> None:
        for part in builds:
            part(folder)

    return build


def chat(*messages: dict[str, Any]) -> Build:
    return data("q.json", json.dumps([{"messages": list(messages)}], ensure_ascii=False))


def merge_cells(workbook: Workbook) -> None:
    workbook.worksheets[0].merge_cells("A2:A3")


def hide_the_first(workbook: Workbook) -> None:
    other = workbook.create_sheet("说明")
    other.append(["导出说明"])
    workbook.worksheets[0].sheet_state = "hidden"
    workbook.active = 1


def archive(name: str, *members: str) -> Build:
    def build(folder: Path) -> None:
        with zipfile.ZipFile(folder / name, "w") as file:
            for member in members:
                file.writestr(member, "<office:document/>")

    return build


def documents(*builds: Build) -> Build:
    """A folder `docs` beside a good sheet."""

    def build(folder: Path) -> None:
        book("q.xlsx", ROWS)(folder)
        (folder / "docs").mkdir()
        for part in builds:
            part(folder / "docs")

    return build


def profile(text: str, *builds: Build) -> Build:
    """A tenant acme whose profile mine.yaml has these lines, with its sheet and knowledge base."""

    def build(folder: Path) -> None:
        home = folder / "tenants" / "acme"
        home.mkdir(parents=True)
        book("q.xlsx", ROWS)(home)
        data("kb.jsonl", json.dumps({"id": "k1", "content": QUESTION}))(home)
        data("mine.yaml", PROFILE + text)(home)
        for part in builds:
            part(home)

    return build


NOTHING = both()
PROFILE = """\
questions: q.xlsx
knowledge_base: kb.jsonl
training: laptop
generate: {system_prompt: 改写}
convert: {system_prompt: 改写}
"""
MODEL = "{base_url: URL/v1, model: %s, price: {input: 1.0, cached_input: 0.1, output: 2.0, as_of: 2026-11-01}}"
MODELS = f"gateway: {{teacher: {MODEL % 'm'}, judge: {MODEL % 'm'}, examiner: {MODEL % 'n'}}}\n"
STAND_INS = "stand_ins: {teacher: true, rag: true}\n" + MODELS
PAID = "stand_ins: {rag: true}\n" + MODELS
OWN_RAG = MODELS.replace("gateway: {", "gateway: {rag: {base_url: 'URL'}, ")
GOLD = ["编号", "问题", "标准段落"]


def answers(value: Any, status: int = 200, kind: str = "application/json") -> Reply:
    return Reply(status, value if isinstance(value, bytes) else json.dumps(value).encode(), {"content-type": kind})


def hits(*passages: dict[str, Any]) -> Reply:
    return answers({"code": 200, "data": {"recall": list(passages)}})


def refusal(status: int, message: str, code: str = "") -> tuple[Reply, ...]:
    return (answers({"error": {"message": message, "type": "x", "code": code}}, status),)


def sheet(name: str, build: Build, file: str, code: int, *messages: str) -> Odd:
    return Odd(name, build, f"init acme {file} --language zh --yes", code, messages)


def base(name: str, build: Build, *messages: str, code: int = 3) -> Odd:
    return Odd(name, build, "init acme q.xlsx --knowledge-base docs --language zh --yes", code, messages)


def rag(name: str, code: int, *messages: str, replies: tuple[Reply, ...]) -> Odd:
    kb = data("kb.jsonl", '{"id": "k1", "content": "a"}\n')
    return Odd(
        name, kb, "check-rag URL --tenant acme --question 怎么吃 --knowledge-base kb.jsonl", code, messages, replies
    )


def provider(name: str, replies: tuple[Reply, ...], *messages: str) -> Odd:
    return Odd(name, profile(PAID), "doctor acme --profile mine --paid", 2, messages, replies)


def settings(name: str, text: str, *messages: str, options: str = "") -> Odd:
    return Odd(name, profile(text), f"plan acme --profile mine{options}", 2, messages)


def run(name: str, code: int, *messages: str, text: str = STAND_INS, changed: Build = NOTHING) -> Odd:
    return Odd(name, profile(text, changed), "run acme --profile mine --until convert --yes", code, messages)


def encrypt_pdf(folder: Path) -> None:
    from pypdf import PdfWriter

    writer = PdfWriter()
    writer.add_blank_page(72, 72)
    writer.encrypt("secret")
    writer.write(folder / "e.pdf")


OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600)
USER = {"role": "user", "content": "怎么洗"}

SHEETS = [
    sheet("xlsx that is called csv", book("q.csv", ROWS), "q.csv", 0, "40 questions of 40 rows"),
    sheet("semicolons", data("q.csv", "编号;问题\nq1;怎么洗\n"), "q.csv", 0, "1 questions of 1 rows"),
    sheet("no such file", NOTHING, "q.xlsx", 3, "no such file. Give the spreadsheet, CSV or JSON of questions."),
    sheet("a zip that is called xlsx", data("q.xlsx", b"PK\x03\x04zip"), "q.xlsx", 3, "not a readable .xlsx file"),
    sheet("an open quote", data("q.csv", '问题\n"怎么洗\n'), "q.csv", 3, "Is a quote without its end?"),
    sheet("a sheet of orders", data("q.csv", "订单,金额\n1,2\n"), "q.csv", 3, "No column has a usual name"),
    sheet("empty rows", data("q.json", '[{"question": ""}, {"question": "nan"}]'), "q.json", 3,
          "none of 2 rows is a question"),
    sheet("merged cells", book("q.xlsx", ROWS, merge_cells), "q.xlsx", 3, "cells A2:A3 are merged", "Unmerge them"),
    sheet("formulas", book("q.xlsx", [["问题"], ['=A1&"怎么洗"']]), "q.xlsx", 3, "holds the formula", "paste values"),
    sheet("nothing in it", book("q.xlsx", []), "q.xlsx", 3, "q.xlsx: no rows below the header", "first sheet"),
    sheet("five bytes that are called xlsx", data("q.xlsx", "hello"), "q.xlsx", 3,
          "q.xlsx: this is no workbook, although its name ends in .xlsx", "save it as .xlsx"),
    sheet("a CSV that is called xlsx", data("q.xlsx", "问题\n怎么洗\n怎么晾\n"), "q.xlsx", 0,
          "2 questions of 2 rows"),
    sheet("two rows of header", book("q.xlsx", [["客服部 2026 年导出"], *ROWS]), "q.xlsx", 0,
          "40 questions of 40 rows", "Row 2 is taken for the names of columns; the rows above it are left out"),
    sheet("a title above a CSV", data("q.csv", "客服部 2026 年导出\n\n编号,问题\nq1,怎么洗\n"), "q.csv", 0,
          "1 questions of 1 rows", "Row 3 is taken for the names of columns"),
    sheet("a title that no name follows", data("q.csv", "客服部 2026 年导出\n\nA,B\nq1,怎么洗\n"), "q.csv", 3,
          "row 3 has 2 cells", "delete a title above them"),
    sheet("questions on a hidden sheet", book("q.xlsx", ROWS, hide_the_first), "q.xlsx", 3,
          "first sheet that is not hidden"),
    sheet("typed numbers", book("q.xlsx", [["问题"], [10086], [3.5]]), "q.xlsx", 0, "question: 10086"),
    sheet("10,000 characters", book("q.xlsx", [["问题"], ["怎么洗" * 3400], ["怎么晾"]]), "q.xlsx", 0,
          "1 questions of 2 rows", "q.xlsx row 2: set aside", "问题 has 10200 characters, more than 2000"),
    sheet("all for test", book("q.xlsx", [["问题", "划分"], ["怎么洗", "测试"]]), "q.xlsx", 3,
          "no row is for training", "Write train into 划分"),
    sheet("a folder", lambda folder: (folder / "q.xlsx").mkdir(), "q.xlsx", 3, "q.xlsx: is a folder. Name the file"),
    sheet("a password", data("q.xlsx", OLE + "EncryptedPackage".encode("utf-16-le")), "q.xlsx", 3,
          "an old .xls spreadsheet, or one with a password"),
    sheet("OpenDocument", archive("q.ods", "content.xml"), "q.ods", 3, "OpenDocument file", "save it as .xlsx"),
    sheet("a page that is called xls", data("q.xls", "<html><table><td>问题</td></table></html>"), "q.xls", 3,
          "this is a web page or XML", "open it in a spreadsheet program"),
    sheet("zero bytes within", data("q.csv", "问题\n怎么\0洗\n"), "q.csv", 3, "save it as UTF-8"),
    sheet("a cell too many", data("q.csv", "编号,问题\nq1,怎么洗,多的\n"), "q.csv", 3, "row 2 has 3 cells"),
    sheet("a chat without a user", chat({"role": "assistant", "content": "您"}), "q.json", 3, "no message of a user"),
    sheet("an empty chat", chat(), "q.json", 3, "each turn needs a role and a text"),
    sheet("a chat in parts", chat({"role": "user", "content": [{"type": "text", "text": "怎么洗"}]}), "q.json", 0,
          "1 questions of 1 rows"),
    sheet("a chat that is cut off", data("q.json", '[{"messages": [{"role": "user", "content": "怎么'), "q.json", 3,
          "q.json:1: no JSON", "Export it again"),
    sheet("a broken line of chats", data("q.jsonl", json.dumps({"messages": [USER]}) + '\n{"messages": [\n'),
          "q.jsonl", 3, "q.jsonl:2: no JSON", "mend that line"),
]  # fmt: skip
KNOWLEDGE = [
    base("a scan", documents(lambda folder: write_pdf(folder / "s.pdf", "")), "s.pdf: holds no text", "OCR first"),
    base("an encrypted pdf", documents(encrypt_pdf), "e.pdf: is encrypted. Save it without a password"),
    base("html of scripts", documents(data("a.html", "<html><script>alert(1)</script></html>")),
         "qinglan: docs/a.html: holds no text. Put some there"),
    base("md without titles", documents(data("a.md", "七天内可以退货。")), "docs/a.md: 1 passage The", code=0),
    base("a key twice", documents(data("a.jsonl", '{"id": "k1", "content": "a", "content": "b"}\n')),
         "qinglan: docs/a.jsonl:1: 'content' is there twice"),
    base("an id twice", documents(data("a.jsonl", '{"id": "k1", "content": "a"}\n{"id": "k1", "content": "b"}\n')),
         "qinglan: docs/a.jsonl: row 2: id 'k1' is used in row 1 already. Give every passage its own id"),
    base("nothing readable", documents(data("a.png", b"\x89PNG")), "a.png: is no format that is read here"),
    base("an old .doc", documents(data("a.doc", OLE)), "is no format that is read here. Save it as one of .md"),
    base("0 bytes", documents(data("a.docx", b"")), "a.docx: not a readable document", "Save it again"),
    base("an empty folder", documents(), "No passage could be read from docs: - There is no file",
         "Put the documents themselves there"),
    base("a link", documents(lambda folder: (folder / "a.md").symlink_to("/etc/hostname")), "links and hidden files"),
    base("no folder", book("q.xlsx", ROWS), "docs: no such file or folder. Give the documents"),
    base("a zip that is called docx", documents(archive("a.docx", "x.txt")), "a.docx: not a readable .docx file"),
]  # fmt: skip
SERVICES = [
    rag("a wrong path", 3, "status 404", "see gateway.rag.base_url and gateway.rag.path",
        replies=(answers({"detail": "Not Found"}, 404),)),
    rag("a login page", 3, "the answer is not JSON", "a page of HTML is often a login",
        replies=(answers(b"<!doctype html><title>Login</title>", kind="text/html"),)),
    rag("a way to a login", 3, "status 302", "it redirects, often to a login", replies=(answers(b"", 302),)),
    rag("no recall", 3, "no list at data.recall (rag.answer.recall)", "docs/rag-contract.md",
        replies=(answers({"answer": "每天一次"}),)),
    rag("no passage", 3, "no question retrieved a passage", "that the service holds the tenant's passages",
        replies=(hits(),)),
    rag("no token", 2, "status 401", "--header 'Authorization: Bearer $NAME'",
        replies=(answers({"detail": "Not authenticated"}, 401),)),
    rag("a wrong token", 2, "status 403", "requires another token", replies=(answers({"detail": "forbidden"}, 403),)),
    rag("an error", 4, "status 500", "see that the service is up, then run again",
        replies=(answers({"detail": "boom"}, 500),)),
    rag("an error inside", 4, "code is 500 inside status 200: 'index is loading'", "then run again",
        replies=(answers({"code": 500, "msg": "index is loading"}),)),
    rag("a score in words", 3, "'high' where a score belongs", "check-rag",
        replies=(hits({"id": "k1", "content": "a", "reranker_score": "high"}),)),
    rag("other ids", 3, "0 of 1 retrieved ids are in the knowledge base", "Serve the run's knowledge base",
        replies=(hits({"id": "milvus-7", "content": "a", "reranker_score": 0.5}),)),
    run("logits without a calibration", 3, "has reranker_score 4.2, outside [0, 1]", "`qinglan check-rag` fits",
        text="stand_ins: {teacher: true}\n" + OWN_RAG)._replace(
            replies=(hits({"id": "k1", "content": "a", "reranker_score": 4.2}),)),
    Odd("no scheme", both(), "check-rag 127.0.0.1:8000 --tenant acme", 2, ("such as https://host:8000",)),
]  # fmt: skip
PROVIDERS = [
    provider("a wrong key", refusal(401, "Incorrect API key", "invalid_api_key"), "The key is not accepted"),
    provider("no money", refusal(429, "You exceeded your quota", "insufficient_quota"), "no credit left: top it up"),
    provider("no such model", refusal(404, "The model `m` does not exist", "model_not_found"),
             "The model `m` does not exist", "See teacher.base_url, teacher.model and QINGLAN_API_KEY"),
    provider("a form that is refused", refusal(400, "This response_format type is unavailable now"),
             "It was asked for json_schema", "docs/teachers.md"),
    provider("a page", (answers(b"<html>login</html>", kind="text/html"),), "the answer is not JSON"),
    provider("overloaded", refusal(503, "overloaded"), "status 503: overloaded", "Run qinglan doctor again"),
    provider("no text", (answers({"choices": []}),), "the answer holds no message"),
    settings("DeepSeek and a schema", PAID.replace("model: n", "model: deepseek-v4-pro, temperature: null, "
             "answer_format: json_schema"), "refuses a JSON schema with 400: set answer_format: json_object"),
    settings("gpt-5 and a temperature", PAID.replace("model: m", "model: gpt-5.6-sol", 1), "set temperature: null"),
    run("a host that is not allowed", 2, "Not allowed: host 'api.openai.com'", "QINGLAN_ALLOWED_HOSTS=",
        text=PAID.replace("URL/v1", "https://api.openai.com/v1", 1)),
]  # fmt: skip
PROFILES = [
    settings(
        "a setting by its former name", STAND_INS + "ppo: {reward: {canary_share: 0.1}}\n",
        "ppo.reward.canary_share: there is no such", "Did you mean `control_pair_share`?",
    ),
    settings("a typo", STAND_INS + "sft: {epoch: 3}\n", "sft.epoch: there is no such", "Did you mean `epochs`?"),
    settings("too few passages", STAND_INS + "retrieval: {top_k: 5}\n", "mine.yaml: retrieval.top_k: Input should be "
             "greater than or equal to 10 (given: '5')"),
    settings("a bracket too few", "sft: {epochs: 3\n", "mine.yaml:7: not readable as YAML"),
    settings("no models", "", "gateway: Field required"),
    settings("an unknown machine", STAND_INS, "no 'a100x5'", "one-gpu-80", options=" --training a100x5"),
    Odd("an unknown profile", profile(STAND_INS), "plan acme --profile min", 2,
        ("No profile 'min' for tenant 'acme'. It has mine: choose one by --profile.",)),
    settings("a prompt that is not there", STAND_INS + "validate: {need_prompt: need.txt}\n",
             "names the prompt tenants/acme/need.txt, and there is none. Write it"),
    settings("a token in the file", STAND_INS.replace("gateway: {", "gateway: {rag: {headers: {Authorization: Bearer "
             "abc}}, "), "holds a secret", "set RAG_TOKEN"),
    settings("a key in the file", STAND_INS.replace("model: m,", "model: m, api_key: sk-1,"), "`api_key_env`"),
    settings("two currencies", PAID.replace("as_of: 2026-11-01}", "as_of: 2026-11-01, currency: CNY}", 1),
             "One budget needs one currency: convert them"),
    run("gold that is not there", 3, "'q1' ('k9')", "Give the knowledge base that they were labelled on",
        changed=book("q.xlsx", [GOLD, ["q1", QUESTION, "k9"]])),
    run("commas inside ids", 3, "'q1' ('k', '1')", r"a comma inside an id is written as \,",
        changed=book("q.xlsx", [GOLD, ["q1", QUESTION, "k,1"]])),
    run("ids twice", 3, "q.xlsx row 3: id 'q1' is already used by", "Ids must be unique; mend one",
        changed=book("q.xlsx", [["编号", "问题"], ["q1", QUESTION], ["q1", "怎么晾"]])),
    run("a passage without text", 3, "kb.jsonl:1: content: Field", changed=data("kb.jsonl", '{"id": "k1"}\n')),
]  # fmt: skip
ODD_INPUTS = [*SHEETS, *KNOWLEDGE, *SERVICES, *PROVIDERS, *PROFILES]
