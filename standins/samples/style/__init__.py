"""Seeded sample of answers in five manners (styles). Most labels name the intended manner, as people's labels would.

write_style_sample(Path("data/style"), rows=3000, seed=0)

A topic is the subject of a question; a manner is the style of an answer. An answer may have a concession in another
manner, and the manner of some sentences depends on the question. In a share of the rows the label differs from the
intended manner, so no model can be right in all rows. `meant` counts the rows in which a model can be right.
"""

import random
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import orjson

from qinglan.config import Config, Fraction, Positive, load_yaml
from qinglan.files.files import atomic_write, dump_line
from qinglan.style.labels import DEFAULT_LABELS, format_training_text
from qinglan.style.rows import UnlabelledText
from qinglan.tables.tables import write_table
from standins.samples.tenant_content import load_tenant_content

JSON, SHEET, UNLABELLED = "style.json", "style.xlsx", "unlabelled.jsonl"
COLUMNS = ("问题", "回答", "标签", "label_english", "source", "scene")


class AmbiguousSentence(Config):
    """Sentence whose manner depends on the topic."""

    text: str
    by: dict[str, str]


class Topic(Config):
    scene: str
    manners: dict[str, Fraction]
    """Shares of the topic's answers by manner."""

    asks: dict[str, tuple[str, ...]]
    """Questions about the topic, by tenant."""


class Manners(Config):
    """Content of the data file. Its only numbers that influence learning are each topic's shares by manner."""

    topics: dict[str, Topic]
    manners: dict[str, tuple[str, ...]]
    either: tuple[AmbiguousSentence, ...]
    turns: tuple[str, ...]
    openings: tuple[str, ...]
    closings: tuple[str, ...]
    middles: tuple[str, ...]
    endings: tuple[str, ...]


class StyleSampleSettings(Config):
    """Settings of the sample, chosen so that the best possible model is clearly better than a bag of words."""

    topics: dict[str, float] = {"presale": 0.27, "aftersale": 0.18, "usage": 0.22, "facts": 0.18, "risk": 0.15}
    two_sided: Fraction = 0.45
    """Share of answers with a concession in another manner."""

    either: Fraction = 0.2
    """Share of the answers without a concession that are an ambiguous sentence."""

    side_labelled: Fraction = 0.06
    """Share of the answers with a concession whose label is the concession's manner."""

    careless: Fraction = 0.03
    """Share of labels that are replaced by a random wrong label."""

    unlabelled: Positive = 2
    """Number of unlabelled texts for each labelled text."""


STYLE_SAMPLE_SETTINGS = StyleSampleSettings()


class StyleRow(NamedTuple):
    """Labelled answer with its intended manner (`meant`)."""

    tenant: str
    topic: str
    scene: str
    question: str
    answer: str
    meant: str
    label: str


class StyleSampleCounts(NamedTuple):
    rows: int
    meant: int
    """Number of rows whose label is the intended manner."""

    unlabelled: int
    """Number of additional texts without a label."""

    def in_words(self) -> str:
        return (
            f"{self.rows:,} labelled answers, {self.meant:,} in the manner that was meant; {self.unlabelled:,} texts "
            "without a label"
        )


@cache
def load_manners() -> Manners:
    path = Path(__file__).parent / "manners.yaml"
    return Manners.parse(load_yaml(path), str(path))


def write_style_sample(out: Path, rows: int, seed: int) -> StyleSampleCounts:
    """Write style.json, the same rows as style.xlsx, and unlabelled.jsonl. The same arguments give the same bytes."""
    answers = list(style_rows(rows, seed))
    with atomic_write(out / JSON) as partial:
        partial.write_bytes(orjson.dumps([to_json_row(row) for row in answers], option=orjson.OPT_INDENT_2))
    with write_table(out / SHEET, COLUMNS) as add:
        english = {label.name: label.english for label in DEFAULT_LABELS.labels}
        for row in answers:
            add((row.question, row.answer, row.label, english[row.label], row.tenant, row.scene))
    with atomic_write(out / UNLABELLED) as partial, partial.open("wb") as file:
        for row in style_rows(STYLE_SAMPLE_SETTINGS.unlabelled * rows, f"{seed}-unlabelled"):
            file.write(dump_line(UnlabelledText(text=format_training_text(row.question, row.answer))))
    return StyleSampleCounts(
        rows, sum(row.label == row.meant for row in answers), STYLE_SAMPLE_SETTINGS.unlabelled * rows
    )


def to_json_row(row: StyleRow) -> dict[str, object]:
    [english] = (label.english for label in DEFAULT_LABELS.labels if label.name == row.label)
    return {
        "input": format_training_text(row.question, row.answer), "label": row.label, "label_english": english,
        "metadata": {"source": row.tenant, "scene": row.scene},
    }  # fmt: skip


def style_rows(count: int, seed: int | str) -> Iterator[StyleRow]:
    """Yield `count` rows. Each row has its own random numbers, so a larger sample begins with the smaller one."""
    for number in range(count):
        yield _row(random.Random(f"answers-{seed}-{number}"))


def _row(rng: random.Random) -> StyleRow:
    data = load_manners()
    tenant = rng.choice(("fivedoctors", "chengla"))
    name = _drawn(STYLE_SAMPLE_SETTINGS.topics, rng)
    topic, item = data.topics[name], rng.choice(load_tenant_content(tenant).names())
    statement, meant, side = _draw_statement(data, name, rng)
    answer = f"{rng.choice(data.openings)}{rng.choice(data.middles)}{statement}{rng.choice(data.closings)}"
    return StyleRow(
        tenant, name, topic.scene, _filled(rng.choice(topic.asks[tenant]) + rng.choice(data.endings), item, rng),
        _filled(answer, item, rng), meant, _labelled(meant, side, rng),
    )  # fmt: skip


def _draw_statement(data: Manners, topic: str, rng: random.Random) -> tuple[str, str, str]:
    """Choose a statement. Returns it with its intended manner and the manner of its concession ("" for none)."""
    meant = _drawn(data.topics[topic].manners, rng)
    if rng.random() < STYLE_SAMPLE_SETTINGS.two_sided:
        side = rng.choice([name for name in data.manners if name != meant])
        main, aside = rng.choice(data.manners[meant]), rng.choice(data.manners[side])
        return rng.choice(data.turns).replace("{main}", main).replace("{side}", aside), meant, side
    if rng.random() < STYLE_SAMPLE_SETTINGS.either:
        phrase = rng.choice(data.either)
        return phrase.text, phrase.by[topic], ""
    return "，".join(rng.sample(data.manners[meant], rng.choice((1, 1, 2)))), meant, ""


def _labelled(meant: str, side: str, rng: random.Random) -> str:
    if side and rng.random() < STYLE_SAMPLE_SETTINGS.side_labelled:
        return side
    if rng.random() < STYLE_SAMPLE_SETTINGS.careless:
        return rng.choice([label.name for label in DEFAULT_LABELS.labels if label.name != meant])
    return meant


def _filled(text: str, item: str, rng: random.Random) -> str:
    return text.replace("{item}", item).replace("{n}", str(rng.randint(2, 48)))


def _drawn(shares: dict[str, float], rng: random.Random) -> str:
    return rng.choices(list(shares), list(shares.values()))[0]
