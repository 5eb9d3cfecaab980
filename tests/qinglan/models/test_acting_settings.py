"""What a model's folder may not hold: settings that act, templates without a bound, two readings of its weights."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from components.training.base.tokenizer import TEMPLATE
from qinglan.errors import DataError
from qinglan.models.chat_template_work import template_fault
from qinglan.models.model_files import refuse_disallowed_files
from qinglan.models.references import refuse_foreign_files
from tests.qwen3 import CHAT_TEMPLATE
from tests.registered_release import tiny_weights

ACTING: list[tuple[str, Any, str]] = [
    ("config.json", {"auto_map": {"AutoModel": "attacker/code--model.Model"}}, "names code"),
    ("config.json", {"text_config": {"auto_map": {"AutoConfig": "configuration.Config"}}}, "names code"),
    ("tokenizer_config.json", {"auto_map": {"AutoTokenizer": ["a.B", None]}}, "names code"),
    ("processor_config.json", {"auto_map": {"AutoProcessor": "a.B"}}, "names code"),
    ("preprocessor_config.json", {"auto_map": {"AutoImageProcessor": "a.B"}}, "names code"),
    ("config.json", {"trust_remote_code": True}, "names code"),
    ("config.json", {"custom_pipelines": {"x": {"impl": "a.B"}}}, "names code"),
    ("adapter/adapter_config.json", {"auto_mapping": {"parent_library": "os"}}, "names code"),
    ("adapter/adapter_config.json", {"peft_type": "PREFIX_TUNING"}, "only LORA"),
    ("config.json", {"attn_implementation": "attacker/kernel"}, "kernel"),
    ("config.json", {"_attn_implementation": "attacker/kernel@main:attention"}, "kernel"),
    ("config.json", {"_attn_implementation_internal": "paged|attacker/kernel"}, "kernel"),
    ("config.json", {"attn_implementation": {"text_config": "attacker/kernel"}}, "kernel"),
    ("config.json", {"vision_config": {"attn_implementation": "attacker/kernel"}}, "kernel"),
    ("config.json", {"experts_implementation": "attacker/kernel"}, "kernel"),
    ("config.json", {"attn_implementation": {"text_config": {"": "attacker/kernel"}}}, "kernel"),
    ("config.json", {"attn_implementation": ["attacker/kernel"]}, "kernel"),
    ("config.json", {"attribute_map": {"_attn_implementation": "x"}, "x": "attacker/kernel"}, "other names"),
    ("config.json", {"attribute_map": {"auto_map": "x"}, "x": {"AutoModel": "a.B"}}, "other names"),
    ("config.json", {"use_kernels": True}, "kernel"),
    ("config.json", {"speculators_config": {"verifier": {"name_or_path": "/tmp/other"}}}, "another model"),
    ("config.json", {"configuration_files": ["tokenizer.json"]}, "another model"),
    ("config.json", {"backbone": "attacker/backbone"}, "another model"),
    ("config.json", {"quantization_config": {"quant_method": "gptq"}}, "quantised"),
    ("config.json", {"text_config": {"quantization_config": {"quant_method": "torchao"}}}, "quantised"),
    ("config.json", {"compression_config": {"format": "dense"}}, "quantised"),
    ("hf_quant_config.json", {"producer": {"name": "modelopt"}}, "another model"),
    ("quantize_config.json", {"bits": 4}, "another model"),
    ("params.json", {"dim": 16}, "another model"),
    ("tekken.json", {}, "another model"),
    ("modules.json", [{"type": "os.system", "path": "x"}], "another model"),
    ("generation_config.json", {"custom_generate": "attacker/generate"}, "how answers are searched"),
    ("generation_config.json", {"num_beams": 1_000_000}, "how answers are searched"),
    ("generation_config.json", {"num_return_sequences": 1000}, "how answers are searched"),
    ("generation_config.json", {"cache_implementation": "quantized"}, "how answers are searched"),
    ("generation_config.json", {"penalty_alpha": 0.6}, "how answers are searched"),
    ("generation_config.json", {"compile_config": {"backend": "x"}}, "how answers are searched"),
    ("generation_config.json", {"watermarking_config": {"bias": 9}}, "how answers are searched"),
    ("tokenizer_config.json", {"chat_template": "{% for i in range(99999) %}x{% endfor %}"}, "no bound"),
    ("tokenizer_config.json", {"chat_template": [{"name": "default", "template": "{{ 'x' * 99 }}"}]}, "no bound"),
    ("chat_template.json", {"chat_template": "{{ 'x'.center(999999999) }}"}, "no bound"),
]  # fmt: skip


@pytest.mark.parametrize(("file", "settings", "why"), ACTING)
def test_a_setting_that_acts_is_refused_when_it_is_signed_and_when_it_is_loaded(
    tmp_path: Path, file: str, settings: Any, why: str
) -> None:
    folder = tiny_weights(tmp_path / "model")
    (folder / file).parent.mkdir(exist_ok=True)
    (folder / file).write_text(json.dumps(settings))

    for refuse in (refuse_disallowed_files, refuse_foreign_files):
        with pytest.raises(DataError, match=why) as error:
            refuse(folder)
        assert file in str(error.value)


def test_settings_that_real_models_have_are_taken(tmp_path: Path) -> None:
    folder = tiny_weights(tmp_path / "model")
    real = {
        "config.json": {"_attn_implementation": "flash_attention_2", "quantization_config": None, "auto_map": {}},
        "generation_config.json": {"do_sample": True, "top_k": 20, "temperature": 0.6, "num_beams": None},
        "tokenizer_config.json": {"chat_template": CHAT_TEMPLATE, "model_max_length": 131072},
        "vocab.json": {"auto_map": 1, "chat_template": 2},
    }
    for file, settings in real.items():
        (folder / file).write_text(json.dumps(settings))

    refuse_disallowed_files(folder)
    refuse_foreign_files(folder)


@pytest.mark.parametrize(
    ("file", "text"),
    [("config.json", '{"a": 1,\n "a": 2}'), ("config.json", '{"auto_map": {}, "auto_map": {"AutoModel": "a.B"}}'),
     ("generation_config.json", '{"temperature": 1e400}'), ("config.json", "[" * 100_000),
     ("tokenizer_config.json", '{"x": NaN}')],
)  # fmt: skip
def test_settings_that_programs_could_read_differently_are_refused(tmp_path: Path, file: str, text: str) -> None:
    folder = tiny_weights(tmp_path / "model")
    (folder / file).write_text(text)

    for refuse in (refuse_disallowed_files, refuse_foreign_files):
        with pytest.raises(DataError, match=rf"{file}:\d"):
            refuse(folder)


@pytest.mark.parametrize(
    "name", ["consolidated.safetensors", "model-2.safetensors", "adapter_model.safetensors", "a.safetensors"]
)
@pytest.mark.parametrize("indexed", [False, True])
def test_weights_that_only_some_loaders_read_are_refused(tmp_path: Path, name: str, indexed: bool) -> None:
    folder = tiny_weights(tmp_path / "model")
    shutil.copyfile(folder / "model.safetensors", folder / name)
    if indexed:
        weight_map = {"embed": "model.safetensors", "head": "model.safetensors"}
        (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))

    for refuse in (refuse_disallowed_files, refuse_foreign_files):
        with pytest.raises(DataError, match=r"weights beside others|some loaders would read that too"):
            refuse(folder)


DOUBLED = "{% set a = messages[0].content %}" + "{% set a = a ~ a %}" * 40
CALLS = "{% macro m0() %}x{% endmacro %}" + "".join(
    f"{{% macro m{n}() %}}{{{{ m{n - 1}() }}}}{{{{ m{n - 1}() }}}}{{% endmacro %}}" for n in range(1, 40)
)
SPACE = "{% set ns = namespace(s='x') %}"
ENDLESS = {
    "a loop in a loop of numbers": "{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}",
    "a number behind a length": "{% for i in range(messages|length + 99999) %}{% endfor %}",
    "seven loops": "{% for m in messages %}" * 7 + "{% endfor %}" * 7,
    "a text times a number": "{{ 'x' * 10 }}",
    "a power": "{{ 9 ** 9 ** 9 }}",
    "a width by %": "{{ '%999999999d' % 1 }}",
    "a width by format": "{{ '{:999999999}'.format(1) }}",
    "a width by a method": "{{ 'x'.ljust(999999999) }}",
    "a width by a filter": "{{ 'x'|indent(999999999) }}",
    "text of its own": "{{ lipsum(n=100000) }}",
    "a macro that calls itself": "{% macro m(x) %}{{ m(x) }}{% endmacro %}{{ m(1) }}",
    "macros that call each other": "{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}{{ a() }}{% endmacro %}"
    "{{ a() }}",
    "macros that call two each": CALLS + "{{ m39() }}",
    "a recursive loop": "{% for m in messages recursive %}{{ loop(messages) }}{% endfor %}",
    "a text doubled by lines": DOUBLED,
    "a text doubled in a block": "{% set a = 'x' %}" + "{% set a %}{{ a }}{{ a }}{% endset %}" * 40,
    "a text doubled in a loop": SPACE + "{% for m in messages %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}",
    "a text doubled by a second name": SPACE
    + "{% for m in messages %}{% set a = ns.s %}{% set ns.s = a ~ ns.s %}{% endfor %}",
    "a loop over what it gathers": SPACE
    + "{% for m in messages %}{% for c in ns.s %}{% set ns.s = ns.s ~ 'x' %}{% endfor %}{% endfor %}",
    "quotes of quotes": "{% set a = '\"' %}" + "{% set a = a|tojson %}" * 40,
    "quotes of quotes in a block": "{% set a = '\"' %}" + "{% set a | tojson %}{{ a }}{% endset %}" * 40,
    "letters replaced by words": "{% set a = 'aaa' %}" + "{% set a = a.replace('a', 'aaaa') %}" * 40,
    "a macro that doubles": "{% macro d(s) %}{{ s }}{{ s }}{% endmacro %}{% set a = 'x' %}"
    + "{% set a = d(a) %}" * 40,
    "range by another name": "{% set r = range %}{% for i in r(99999) %}{% endfor %}",
    "another range": "{% set range = namespace %}",
    "classes": "{{ ''.__class__ }}",
    "a file": "{% include 'x' %}",
    "no template": "{% if",
    "a number in other digits": "{{ 0.٣ }}",  # found by `make fuzz`
    "a number of thousands of digits": "{{ " + "9" * 5_000 + " }}",
    "a deep one": "{{" + "(" * 10_000,
    "a long one": "x" * 200_000,
}  # fmt: skip


@pytest.mark.parametrize("name", ENDLESS)
def test_a_template_whose_work_has_no_bound_is_refused(tmp_path: Path, name: str) -> None:
    folder = tiny_weights(tmp_path / "model")
    (folder / "chat_template.jinja").write_text(ENDLESS[name])

    for refuse in (refuse_disallowed_files, refuse_foreign_files):
        with pytest.raises(DataError, match=r"chat_template\.jinja.*chat template"):
            refuse(folder)


GATHERED = """
{%- set ns = namespace(several=true, last=messages|length - 1, system='') %}
{%- for message in messages[::-1] %}
  {%- set index = (messages|length - 1) - loop.index0 %}
  {%- if message.role == 'system' %}{%- set ns.system = ns.system + '\n' + message.content %}{%- endif %}
  {%- if ns.several and message.role == 'user' and not(message.content.startswith('<x>')) %}
    {%- set ns.several = false %}{%- set ns.last = index %}
  {%- endif %}
{%- endfor %}
{%- for index in range(ns.last, -1, -1) %}{{ messages[index].content }}{%- endfor %}
{%- macro shown(content) %}{% for item in content %}{{ item.text }}{% endfor %}{% endmacro %}
{%- for message in messages %}
  {%- set content = shown(message.content) %}
  {%- if '</think>' in content %}{%- set content = content.split('</think>')[-1].lstrip('\n') %}{%- endif %}
  {%- for call in message.tool_calls or [] %}
    {%- set arguments = call.arguments or {} %}
    {%- for name, value in arguments.items() %}{{ name }}{{ value | tojson(ensure_ascii=False) }}{%- endfor %}
  {%- endfor %}
  {%- if loop.index0 % 2 == 0 %}{% generation %}{{ content }}{% endgeneration %}{%- endif %}
{%- endfor %}"""
"""What the templates of Qwen, GLM and DeepSeek do."""


@pytest.mark.parametrize("text", [TEMPLATE, CHAT_TEMPLATE, GATHERED])
def test_templates_of_public_models_are_taken(text: str) -> None:
    assert template_fault(text) == ""
