"""Judge of the stand-in: it gives four scores from 1 to 5 by comparing words, and names the lowest one.

From best to worst it ranks, like a person: a good rewrite, the unchanged question, a rewrite about the wrong thing, a
copied history, an empty text. If no passage has the user's words, the scores are in the middle.
"""

import re
from typing import NamedTuple

from qinglan.text.text import search_terms, term_coverage
from standins.teacher.prompt_parser import PromptTask
from standins.teacher.question_parser import STANDALONE_RATIO, ParsedQuestion, QuestionParser

WEIGHTS = {"意图保留": 0.4, "自足": 0.2, "无编造": 0.2, "简洁": 0.2}
CRITERION_FAULTS = {
    "意图保留": "问的不是用户想知道的事",
    "自足": "没有说明是哪一个对象",
    "无编造": "出现了资料里没有的内容",
    "简洁": "有多余的词",
}
COPY_LENGTH = 14
"""Number of consecutive characters from the history at which a text counts as copied; names are shorter."""

NUMBER = re.compile(r"(?<![A-Za-z\d])\d+(?:\.\d+)?")


class JudgeCase(NamedTuple):
    """Rewrite to judge, with its task and the parsed question."""

    rewrite: str
    task: PromptTask
    reading: ParsedQuestion
    strange: list[str]
    """Names in the rewrite that do not occur in the context."""

    copied: bool


def judge_rewrite(reader: QuestionParser, task: PromptTask) -> dict[str, float | str]:
    """Judge a rewrite. The answer has the fields of JUDGE_FORMAT."""
    text = task.rewrite.strip()
    reading = reader.read(task.question, task.history)
    if not search_terms(text):
        return {**dict.fromkeys(WEIGHTS, 1.0), "综合得分": 1.0, "评分理由": "改写是空的。"}
    pieces = (text[at : at + COPY_LENGTH] for at in range(len(text) - COPY_LENGTH + 1))
    copied = any(piece in task.history and piece not in task.question for piece in pieces)
    case = JudgeCase(text, task, reading, _strange(reader, reading, task), copied)
    scores = {
        "意图保留": _intent(reader, case),
        "自足": _self_contained(case),
        "无编造": _nothing_invented(reader, case),
        "简洁": _concise(case),
    }
    scores = {name: round(score, 1) for name, score in scores.items()}
    # Half the weighted mean, half the lowest score: one real fault spoils a rewrite.
    mean = sum(WEIGHTS[name] * score for name, score in scores.items())
    lowest = min(scores, key=lambda name: scores[name])
    fault = f"主要问题是{lowest}：{CRITERION_FAULTS[lowest]}。"
    reason = "保留了意图，对象清楚，没有编造，也简洁。" if scores[lowest] >= 4 else fault
    return {**scores, "综合得分": round((mean + scores[lowest]) / 2, 1), "评分理由": reason}


def _intent(reader: QuestionParser, case: JudgeCase) -> float:
    if case.copied or (case.reading.subject not in case.rewrite and case.strange):
        return 1.0
    direct = 1 + 4 * term_coverage(_question_part(case.reading), set(search_terms(case.rewrite)))
    passage, answer = reader.first(case.rewrite), reader.answer(case.reading._replace(text=case.reading.core))
    if answer is not None:
        return 5.0 if passage == answer else direct
    return max(direct, 3.0) if passage is not None and _says(case, reader.heading(passage)) else direct


def _question_part(reading: ParsedQuestion) -> str:
    rest = reading.core.replace(reading.subject, " ") if reading.subject else reading.core
    return rest if search_terms(rest) else reading.core


def _says(case: JudgeCase, heading: str) -> bool:
    """True if the rewrite has all words of a heading about the subject, even if it is not the right heading."""
    return case.reading.subject in heading and term_coverage(heading, set(search_terms(case.rewrite))) == 1.0


def _self_contained(case: JudgeCase) -> float:
    if case.copied:
        return 3.0
    if not case.reading.subject:
        return 3.0  # neither question nor history names a subject
    share = term_coverage(case.reading.subject, set(search_terms(case.rewrite)))
    return 5.0 if share == 1.0 or case.strange else 1 + 4 * share * (share >= 0.5)


def _nothing_invented(reader: QuestionParser, case: JudgeCase) -> float:
    passage = reader.first(case.rewrite)
    known = case.task.context if passage is None else case.task.context + reader.heading(passage)
    if case.strange or set(NUMBER.findall(case.rewrite)) - set(NUMBER.findall(known)):
        return 1.0
    context = set(search_terms(case.task.context))
    unknown = [gram for gram in search_terms(case.rewrite) if gram not in context and not reader.index.df(gram)]
    return 5 - 4 * len(unknown) / len(search_terms(case.rewrite))


def _concise(case: JudgeCase) -> float:
    grams = search_terms(case.rewrite)
    repeated = 1 - len(set(grams)) / len(grams)
    room = len(case.reading.query) + 10
    over = max(0, len(case.rewrite) - room) / room
    return 1.0 if case.copied else max(1.0, 5 - 8 * repeated - 4 * over)


def _strange(reader: QuestionParser, reading: ParsedQuestion, task: PromptTask) -> list[str]:
    """List names in the rewrite that are about as specific as the subject and do not occur in the context."""
    level = (
        STANDALONE_RATIO * reader.phrases.weight(reading.subject)
        if reading.subject
        else STANDALONE_RATIO * reader.phrases.typical
    )
    return [
        name.phrase for name in reader.phrases.names(task.rewrite)
        if name.weight >= level and name.phrase not in task.context
    ]  # fmt: skip
