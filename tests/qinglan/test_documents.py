"""Documents of people and strangers have one meaning, or they are errors with a line."""

import time
from collections.abc import Callable
from pathlib import Path

import orjson
import pytest
import yaml

from components.training.sft.model_family import read_model_type
from pipelines.checks.cluster.graph import read_graph
from qinglan.config import Config, load_yaml
from qinglan.documents import parse_json, parse_yaml
from qinglan.errors import ConfigError, DataError, QinglanError
from qinglan.evaluation.pages.blind_sheet import read_key
from qinglan.kubernetes.kubeconfig import load_login
from qinglan.lineage.signing.trust import TRUST_VARIABLE, default_trust, ensure_keys, load_trust
from qinglan.rewriter.card import read_card
from qinglan.rows.questions import Columns, read_questions
from qinglan.sizing.shape import read_shape
from qinglan.style.labels import read_labels, read_mapping
from qinglan.style.model import read_card as read_style_card

JSON_FAULTS = [
    (b'{"a": 1, "a": 1}', 1, "'a' is there twice"),
    (b'{"a": 1,\n"b": {"c": 1,\n"c": 2}}', 2, "'c' is there twice"),
    (b'[\n\n{"x": [{"q": 2, "q": 3}]}]', 3, "'q' is there twice"),
    (b'{"\\u0061": 1, "a": 2}', 1, "'a' is there twice"),
    (b'{"\\u001b[2J": 1, "\\u001b[2J": 2}', 1, r"\\x1b"),
    (b"[" * 100_000, 1, "depth"),
    (b"[" * 100_000 + b"]" * 100_000, 1, "depth"),
    (b'{"a":' * 100_000 + b"1" + b"}" * 100_000, 1, "depth"),
    (b'{"a": 1e400}', 1, "number"), (b'{"a": -1e999}', 1, "number"), (b"[NaN]", 1, "no JSON"),
    (b"[" + b"9" * 400 + b"]", 1, "number"),
    (b"[Infinity]", 1, "no JSON"), (b"9" * 5_000, 1, "no JSON"), (b'["\\ud800"]', 1, "no JSON"),
    (b"\xff", 1, "no JSON"), (b"\xef\xbb\xbf{}", 1, "no JSON"), (b"", 1, "no JSON"), (b"{}\n{}", 2, "no JSON"),
    (b"[1,]", 1, "no JSON"), (b"[1 /* one */]", 1, "no JSON"), (b"[\n01]", 2, "no JSON"), (b"'a'", 1, "no JSON"),
]  # fmt: skip


@pytest.mark.parametrize(("content", "line", "why"), JSON_FAULTS, ids=range(len(JSON_FAULTS)))
def test_json_that_programs_could_read_differently_is_refused_with_its_line(
    content: bytes, line: int, why: str
) -> None:
    with pytest.raises(DataError, match=rf"^x\.json:{line}: .*{why}"):
        parse_json(content, "x.json")


def test_json_of_one_meaning_is_read_as_it_stands() -> None:
    content = b'{"a": [1, -2.5e3, "\\u00e9", null, true], "b": {"a": {}}, "": 0}'

    assert parse_json(content, "x") == {"a": [1, -2500.0, "é", None, True], "b": {"a": {}}, "": 0}


@pytest.mark.parametrize("number", [2**64 - 1, 2**64, -(2**63), -(2**63) - 1, 10**30, int(1e30)])
def test_a_whole_number_is_read_as_it_can_be_written_again(number: int) -> None:
    content = str(number).encode()

    assert parse_json(content, "x") == orjson.loads(content) == orjson.loads(orjson.dumps(parse_json(content, "x")))


BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{chr(98 + n)}: &{chr(98 + n)} [{', '.join([f'*{chr(97 + n)}'] * 9)}]\n" for n in range(12)
)
YAML_FAULTS = [
    ("a: 1\nb: 2\na: 3\n", "x.yaml:3: .*'a' is there twice"),
    ("a:\n  b: {c: 1, c: 2}\n", "x.yaml:2: .*'c' is there twice"),
    ("1: a\n0x1: b\n", "x.yaml:2: .*there twice"),
    ("true: a\nyes: b\n", "x.yaml:2: .*there twice"),
    ("x: &x {a: 1}\ny: {<<: *x, b: 1, b: 2}\n", "x.yaml:2: .*'b' is there twice"),
    (BOMB, r"x.yaml:\d+: .*more than 100,000 values"),
    (BOMB.replace("[", "{p: ").replace("]", "}").replace(", *", ", q*"), "x.yaml"),
    ("a: &a [*a]\n", "x.yaml:1: .*an alias of something that it is in itself"),
    ("a: &a {b: *a}\n", "x.yaml:1: .*an alias of something that it is in itself"),
    ("[" * 20_000, "nested too deep"), ("a: " * 1 + "{a: " * 20_000, "nested too deep"),
    ("a: .nan\n", "x.yaml:1: .*no number"), ("a: 1.0e+400\n", "x.yaml:1: .*no number"),
    ("a: " + "9" * 5_000 + "\n", "x.yaml"), ("a: 2026-13-45\n", "x.yaml:1: .*'2026-13-45' is no YAML timestamp"),
    ("a: !!python/object/apply:os.system [x]\n", "x.yaml:1: .*constructor"), ("a: 1\n---\na: 2\n", "x.yaml:2"),
    ("a: 1\nb: !!int ''\n", "x.yaml:2: .*'' is no YAML int"), ("!!bool maybe", "x.yaml:1: .*'maybe' is no YAML bool"),
    ("a: \udcff\n", "x.yaml: .*surrogates"), ("a: [\n", "x.yaml:2"), ("a: \x1b[2J\n", "x.yaml: .*not readable"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "why"), YAML_FAULTS, ids=range(len(YAML_FAULTS)))
def test_yaml_with_two_meanings_or_without_an_end_is_refused_soon(text: str, why: str) -> None:
    begun = time.process_time()

    with pytest.raises(ConfigError, match=why):
        parse_yaml(text, "x.yaml")
    assert time.process_time() - begun < 20, "a bomb would take hours"


def test_yaml_may_merge_and_repeat_what_it_named() -> None:
    text = "x: &x {a: 1, b: 2}\ny: {<<: *x, a: 3}\nz: [*x, *x]\nw: 1.5\n"

    assert parse_yaml(text, "x.yaml") == yaml.safe_load(text)


def test_a_revoked_key_does_not_count_again_by_a_second_entry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ensure_keys(tmp_path)
    path = tmp_path / "trust.yaml"
    values = yaml.safe_load(path.read_text())
    revoked = {"revoked": {"at": "2026-01-06T00:00:00Z", "reason": "laptop lost"}}
    [key, *_] = values["keys"]
    first = yaml.safe_dump({"keys": {**values["keys"], key: {**values["keys"][key], **revoked}}})
    again = yaml.safe_dump(values["keys"])
    for text in (first + yaml.safe_dump(values), first + "  " + again.replace("\n", "\n  ").rstrip() + "\n"):
        path.write_text(text)
        with pytest.raises(ConfigError, match=r"trust\.yaml:\d+: .*is there twice"):
            load_trust(path)
        with pytest.raises(ConfigError, match=rf"{TRUST_VARIABLE}:\d+: .*is there twice"):
            default_trust({TRUST_VARIABLE: text})


@pytest.mark.parametrize("moment", ["9999-12-31T23:59:59-23:59", "0001-01-01T00:00:00+23:59"])
def test_a_time_at_the_edge_of_the_calendar_is_refused_in_words(tmp_path: Path, moment: str) -> None:
    ensure_keys(tmp_path)
    path = tmp_path / "trust.yaml"
    values = yaml.safe_load(path.read_text())
    next(iter(values["keys"].values()))["since"] = moment
    path.write_text(yaml.safe_dump(values))

    with pytest.raises(ConfigError, match=r"edge of the calendar|not readable"):
        load_trust(path)


class Money(Config):
    budget: float


@pytest.mark.parametrize("number", ["1e400", ".inf", ".nan", "'inf'", "1.0e+999"])
def test_a_budget_without_an_end_is_none(tmp_path: Path, number: str) -> None:
    (tmp_path / "p.yaml").write_text(f"budget: {number}\n")

    with pytest.raises(ConfigError, match=r"budget|no number"):
        Money.parse(load_yaml(tmp_path / "p.yaml"), "p.yaml")


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ('{"question": {"a": 1}}', "'question' holds an object"),
        ('{"question": [["a"]]}', "'question' holds an object"),
        ('{"问题": "a", "question": "b"}', "are one column"), ('{"question": "a", "question": "b"}', "there twice"),
        ("[" * 100_000, "nested too deep"), ('{"question": NaN}', "NaN"), ('{"question": 1e999}', "beyond"),
    ],
)  # fmt: skip
def test_a_question_that_can_be_read_in_two_ways_is_named_by_its_line(tmp_path: Path, line: str, why: str) -> None:
    (tmp_path / "q.jsonl").write_text(f'{{"question": "a"}}\n{line}\n', encoding="utf-8")

    with pytest.raises(DataError, match=rf"q\.jsonl:2: .*{why}"):
        list(read_questions(tmp_path / "q.jsonl", Columns(), "fivedoctors"))


TWICE_YAML = "apiVersion: v1\nkind: Config\nkind: Config\n"
TWICE_JSON = '{"model_type": "qwen3", "model_type": "llama"}'


def read_kubeconfig(path: Path) -> object:
    from kubernetes import client

    load_login(str(path), client.Configuration())
    return None


READERS: dict[str, tuple[str, str, Callable[[Path], object]]] = {
    "a kubeconfig": ("config", TWICE_YAML, read_kubeconfig),
    "a compiled graph": ("graph.yaml", f"a: 1\n---\n{TWICE_YAML}", read_graph),
    "labels of a style": ("labels.yaml", "- {name: a, name: b}", read_labels),
    "a base model's settings": ("config.json", TWICE_JSON, lambda path: read_shape(path.parent)),
    "a base model's family": ("config.json", TWICE_JSON, lambda path: read_model_type(path.parent)),
    "a rewriter's card": ("rewriter.json", TWICE_JSON, lambda path: read_card(path.parent)),
    "a style model's card": ("style.json", TWICE_JSON, lambda path: read_style_card(path.parent)),
    "a style model's labels": ("label_mapping.json", TWICE_JSON, lambda path: read_mapping(path.parent)),
    "a blind sheet's key": ("key.json", TWICE_JSON, lambda path: read_key(path, path)),
}


@pytest.mark.parametrize("reader", READERS)
def test_a_file_of_strangers_that_says_a_thing_twice_is_refused(tmp_path: Path, reader: str) -> None:
    name, content, read = READERS[reader]
    (tmp_path / name).write_text(content, encoding="utf-8")

    with pytest.raises(QinglanError, match="is there twice"):
        read(tmp_path / name)


@pytest.mark.parametrize("reader", ["a kubeconfig", "a compiled graph", "labels of a style"])
def test_a_file_of_people_whose_aliases_unfold_without_end_is_refused(tmp_path: Path, reader: str) -> None:
    name, _, read = READERS[reader]
    levels = "".join(f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 9)}]\n" for n in range(1, 9))
    (tmp_path / name).write_text(f"l0: &l0 [a]\n{levels}", encoding="utf-8")

    with pytest.raises(QinglanError, match="with every alias unfolded"):
        read(tmp_path / name)
