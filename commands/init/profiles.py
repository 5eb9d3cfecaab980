"""Write a tenant's two profiles: demo, with stand-ins, and the paid one. Pure functions: settings in, text out."""

import textwrap
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal, NamedTuple

from components.data.convert.config import ConvertConfig
from components.training.ppo.config import PpoConfig
from components.training.sft.config import SftConfig
from pipelines.lines.config import CONFIGS, TRAINING
from qinglan.config import load_yaml, merge_settings
from qinglan.text.text import one_line

Teacher = Literal["gpt", "deepseek"]
Language = Literal["zh", "en"]
MODEL_TENANT = "fivedoctors"
"""The project's own tenant, whose profiles are the pattern for new tenants."""

PROMPTS: dict[Language, tuple[str, ...]] = {
    "zh": ("teacher", "student"),
    "en": ("teacher", "student", "need", "judge"),
}
"""Prompt files of a tenant by language; the project's own prompts for need and judge are Chinese."""

LONGEST_DOMAIN = 60
LONGEST_PROMPT, LONGEST_ROW = 1024, 1152
"""Highest number of tokens in a prompt, and in a whole row, in the trial with the tiny model. Longer rows would train
for hours."""

LONGEST_PAID = 4096
"""Highest number of tokens in a paid run's prompt; longer histories lose their oldest turns."""

OWN_RAG, LOCAL_RAG = "the company's own RAG retrieves", "our RAG service on this machine retrieves"
RAG_HOST = " and your RAG service's."
"""Words of the pattern's comments, and their replacement for a tenant without a RAG service of its own."""

ANSWER_TOKENS = 64
LEAST_PROMPTS = 4
DEMO_COMMENT = """\
# A trial of the machinery on your own data: stand-ins for the paid models, our RAG service, a tiny model.
# Nothing is paid and no key is needed. Its model is of no use: the stand-in copies words of your knowledge base.
"""


class Answers(NamedTuple):
    """Answers of a person, or the defaults."""

    domain: str
    teacher: Teacher
    rag: str
    """Address of the company's own RAG service; empty for ours."""

    training: str
    language: Language


class DataSettings(NamedTuple):
    """Facts of the sheet and the documents that settings depend on."""

    questions: str
    knowledge_base: str
    """Path relative to the tenant's folder, like `questions`; empty if there is no knowledge base."""

    columns: Mapping[str, str]
    """Column names by field, only where they differ from the usual names."""

    training_rows: int
    seed: int
    """Seed of the split."""

    labelled: bool
    """True if some rows have gold passages."""

    longest: int
    """Upper bound of the tokens in the longest prompt."""


def prompt_texts(answers: Answers) -> dict[str, str]:
    domain = one_line(answers.domain)[:LONGEST_DOMAIN].replace("{", "(").replace("}", ")")
    names = PROMPTS[answers.language]
    return {f"{name}.txt": template(f"{name}.{answers.language}").replace("{domain}", domain) for name in names}


def template(name: str) -> str:
    return files("commands.init").joinpath("templates", f"{name}.txt").read_text(encoding="utf-8")


def demo_profile(tenant: str, answers: Answers, data: DataSettings) -> str:
    """Write the trial's profile: the project's demo with this tenant's data and prompts.

    Labelling is off, because the stand-in judges by the words of its own sample.
    """
    demo = load_yaml(CONFIGS / MODEL_TENANT / "demo.yaml")
    stand_ins = {role: {"model": tenant + ("-examiner" if role == "examiner" else "")} for role in
                 ("teacher", "judge", "examiner")}  # fmt: skip
    settings = {name: value for name, value in demo.items() if name not in ("loopback", "register", "validate")}
    settings = merge_settings(settings, local_service_settings(data))
    settings = merge_settings(
        settings, {"gateway": stand_ins, "label": {"calls": 0}, "augment": {"pseudo_calls": 60}}
    )
    laptop = load_yaml(TRAINING / "laptop.yaml")
    prompt = min(max(data.longest, int(laptop["ppo"]["max_prompt_tokens"])), LONGEST_PROMPT)
    row = min(max(data.longest + ANSWER_TOKENS, int(laptop["sft"]["max_length"])), LONGEST_ROW)
    lengths = {"sft": {"max_length": row}, "ppo": {"max_prompt_tokens": prompt}}
    settings = merge_settings(settings, merge_settings(lengths, smaller_steps("laptop", data.training_rows)))
    return DEMO_COMMENT + _yaml(merge_settings(shared_settings(answers, data), settings))


def paid_profile(
    tenant: str, answers: Answers, data: DataSettings, longest: int = LONGEST_PAID, budget: int = 0
) -> str:
    """Write the paid run's profile: the project's own profile with its comments, and this tenant's settings.

    `longest` limits the tokens of a prompt; `budget` replaces the pattern's budget, unless it is 0.
    """
    settings = shared_settings(answers, data)
    settings["training"] = answers.training
    settings = merge_settings(settings, smaller_steps(answers.training, data.training_rows))
    settings = merge_settings(settings, longer_prompts(answers.training, data.longest, longest))
    pattern = (CONFIGS / MODEL_TENANT / f"{answers.teacher}.yaml").read_text(encoding="utf-8")
    pattern = pattern.replace(MODEL_TENANT, tenant)
    gateway: dict[str, Any] = {"budget": budget} if budget else {}
    gateway |= {"rag": {"base_url": answers.rag}} if answers.rag else {}
    if gateway:
        pattern = pattern.replace("\ngateway:\n", "\ngateway:\n" + textwrap.indent(_yaml(gateway), "  "), 1)
    if not answers.rag:
        pattern = pattern.replace(OWN_RAG, LOCAL_RAG, 1).replace(RAG_HOST, ".", 1)
        settings = merge_settings(settings, {"stand_ins": {"rag": True}} | local_service_settings(data))
    comments, _, rest = pattern.partition("\ngateway:\n")
    return f"{comments}\n{_yaml(settings)}gateway:\n{rest}"


def local_service_settings(data: DataSettings) -> dict[str, Any]:
    """Return thresholds for our RAG service, whose scores are probabilities once it is fitted to labelled rows.

    Without labels the scores only order passages, so the threshold is 0: every rewrite that retrieves something is
    accepted.
    """
    demo = load_yaml(CONFIGS / MODEL_TENANT / "demo.yaml")
    validate = demo["validate"] if data.labelled else {"quality_threshold": 0.0}
    return {"retrieval": demo["retrieval"], "validate": validate}


def shared_settings(answers: Answers, data: DataSettings) -> dict[str, Any]:
    """Return the settings that both profiles share: the data and the prompts."""
    settings: dict[str, Any] = {"questions": data.questions}
    if data.knowledge_base:
        settings["knowledge_base"] = data.knowledge_base
    settings["generate"] = {"system_prompt": "teacher.txt"}
    if data.columns:
        settings["generate"]["columns"] = dict(data.columns)
    settings["convert"] = {"system_prompt": "student.txt"}
    if data.seed != ConvertConfig().seed:
        settings["convert"]["seed"] = data.seed
    if "judge" in PROMPTS[answers.language]:
        judge = {"judge_prompt": "judge.txt"}
        settings |= {"validate": {"need_prompt": "need.txt"}, "ppo": {"reward": judge}, "evaluate": judge}
    return settings


def smaller_steps(training: str, rows: int) -> dict[str, Any]:
    """Return smaller PPO sizes for a sheet with fewer rows than a step takes; empty if the sheet has enough rows, or
    too few for any step."""
    ppo = PpoConfig.parse(load_yaml(TRAINING / f"{training}.yaml").get("ppo", {}), training)
    usable = rows * 3 // 4  # near duplicates are left out later
    if usable >= ppo.prompts or usable < LEAST_PROMPTS:
        return {}
    # The largest power of two that the rows allow: it divides into equal parts for devices and accumulation.
    prompts = 1 << (usable.bit_length() - 1)
    collection = prompts * ppo.rollouts
    parts = ppo.accumulation * ppo.devices
    batch = min(ppo.batch, collection)
    if batch % parts:  # fewer samples than parts
        return {"ppo": {"collection": collection, "batch": batch, "accumulation": max(1, batch // ppo.devices)}}
    return {"ppo": {"collection": collection, "batch": batch}}


def longer_prompts(training: str, longest: int, most: int = LONGEST_PAID) -> dict[str, Any]:
    """Token limits that fit the sheet's longest prompts, up to `most`, if the training's own limits are lower. A
    character counts as a token."""
    longest = min(longest, most)
    values = load_yaml(TRAINING / f"{training}.yaml")
    sft = SftConfig.parse(values.get("sft", {}), training)
    prompt = int(values.get("ppo", {}).get("max_prompt_tokens", PpoConfig().max_prompt_tokens))
    settings: dict[str, Any] = {}
    if longest > sft.max_prompt_tokens:
        settings["sft"] = {"max_length": min(_rounded(longest + sft.max_new_tokens), most)}
    if longest > prompt:
        settings["ppo"] = {"max_prompt_tokens": min(_rounded(longest), most)}
    return settings


def _rounded(tokens: int) -> int:
    return -(-tokens // 256) * 256


def training_names() -> list[str]:
    return sorted(path.stem for path in TRAINING.glob("*.yaml"))


def _yaml(settings: dict[str, Any]) -> str:
    import yaml

    class Plain(yaml.SafeDumper):
        """YAML dumper that writes shared values in full, without anchors and aliases."""

        def ignore_aliases(self, data: Any) -> bool:
            return True

    return yaml.dump(settings, Dumper=Plain, allow_unicode=True, sort_keys=False, width=110)


def relative_path(path: Path, folder: Path) -> str:
    import os

    return os.path.relpath(path.resolve(), folder.resolve()).replace(os.sep, "/")
