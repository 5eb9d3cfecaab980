"""A model's folder may not hold settings that act, templates without a bound, two readings of its weights."""

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
from tests.models.qwen3 import CHAT_TEMPLATE
from tests.releases.registered_release import tiny_weights

ACTING: list[tuple[str, Any, str]] = [
    ("config.json", {"auto_map": {"AutoModel": "attacker/code--model.Model"}}, "names code"),
    ("config.json", {"text_config": {"auto_map": {"AutoConfig": "configuration.Config"}}}, "names code"),
    ("tokenizer_config.json", {"auto_map": {"AutoTokenizer": ["a.B", None]}}, "names code"),
    ("config.json", {"trust_remote_code": True}, "names code"),
    ("config.json", {"custom_pipelines": {"x": {"impl": "a.B"}}}, "names code"),
    ("adapter/adapter_config.json", {"auto_mapping": {"parent_library": "os"}}, "names code"),
    ("adapter/adapter_config.json", {"peft_type": "PREFIX_TUNING"}, "only LORA"),
    ("config.json", {"attn_implementation": "attacker/kernel"}, "kernel"),
    ("config.json", {"_attn_implementation": "attacker/kernel@main:attention"}, "kernel"),
    ("config.json", {"attn_implementation": {"text_config": "attacker/kernel"}}, "kernel"),
    ("config.json", {"experts_implementation": "attacker/kernel"}, "kernel"),
    ("config.json", {"attn_implementation": ["attacker/kernel"]}, "kernel"),
    ("config.json", {"attribute_map": {"_attn_implementation": "x"}, "x": "attacker/kernel"}, "other names"),
    ("config.json", {"attribute_map": {"auto_map": "x"}, "x": {"AutoModel": "a.B"}}, "other names"),
    ("config.json", {"use_kernels": True}, "kernel"),
    ("config.json", {"speculators_config": {"verifier": {"name_or_path": "/tmp/other"}}}, "another model"),
    ("config.json", {"configuration_files": ["tokenizer.json"]}, "another model"),
    ("config.json", {"backbone": "attacker/backbone"}, "another model"),
    ("config.json", {"vocab_size": 10**9}, "the most of any supported model"),
    ("config.json", {"text_config": {"hidden_size": 10**8}}, "the most of any supported model"),
    ("config.json", {"num_hidden_layers": -1}, "the most of any supported model"),
    ("config.json", {"vocab_size": 1e300}, "the most of any supported model"),
    ("config.json", {"n_layer": 2.0}, "the most of any supported model"),
    ("config.json", {"num_attention_heads": "8"}, "the most of any supported model"),
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
    "a width by a method": "{{ 'x'.ljust(999999999) }}",
    "a width by a filter": "{{ 'x'|indent(999999999) }}",
    "text of its own": "{{ lipsum(n=100000) }}",
    "a macro that calls itself": "{% macro m(x) %}{{ m(x) }}{% endmacro %}{{ m(1) }}",
    "macros that call two each": CALLS + "{{ m39() }}",
    "a recursive loop": "{% for m in messages recursive %}{{ loop(messages) }}{% endfor %}",
    "a text doubled by lines": DOUBLED,
    "a text doubled in a block": "{% set a = 'x' %}" + "{% set a %}{{ a }}{{ a }}{% endset %}" * 40,
    "a text doubled by a second name": SPACE
    + "{% for m in messages %}{% set a = ns.s %}{% set ns.s = a ~ ns.s %}{% endfor %}",
    "a loop over what it gathers": SPACE
    + "{% for m in messages %}{% for c in ns.s %}{% set ns.s = ns.s ~ 'x' %}{% endfor %}{% endfor %}",
    "quotes of quotes": "{% set a = '\"' %}" + "{% set a = a|tojson %}" * 40,
    "letters replaced by words": "{% set a = 'aaa' %}" + "{% set a = a.replace('a', 'aaaa') %}" * 40,
    "a macro that doubles": "{% macro d(s) %}{{ s }}{{ s }}{% endmacro %}{% set a = 'x' %}"
    + "{% set a = d(a) %}" * 40,
    "a macro's text in a macro's text": "{% macro d(s) %}{{ s }}{{ s }}{% endmacro %}{{ "
    + "d(" * 28 + "'x'" + ")" * 28 + " }}",
    "a macro that doubles what it keeps": SPACE
    + "{% macro d(s) %}{% set ns.s = s ~ s %}{% endmacro %}"
    + "{{ d(ns.s) }}" * 40,
    "a parameter that is doubled by default": SPACE
    + "{% macro d(s=ns.s ~ ns.s) %}{% set ns.s = s %}{% endmacro %}"
    + "{{ d() }}" * 40,
    "arguments without names": "{% macro d() %}{{ varargs }}{{ varargs }}{% endmacro %}{{ d(1) }}",
    "a macro by another name": "{% macro d(s) %}{{ s }}{{ s }}{% endmacro %}{% set f = d %}{{ f(f('x')) }}",
    "a macro in a macro": "{% macro a() %}{% macro b() %}{% endmacro %}{% endmacro %}",
    "a text doubled as an item": SPACE + "{% for a in [ns.s ~ ns.s] %}{% set ns.s = a %}{% endfor %}" * 40,
    "letters by letters": "{% for a in messages[0].content %}{% for b in messages[0].content %}x"
    "{% endfor %}{% endfor %}",
    "messages doubled": "{% set messages = messages + messages %}" * 40,
    "one message for each number": "{% for i in range(messages[0].content|length) %}{% set i = 0 %}"
    "{{ messages[i].content }}{% endfor %}",
    "letters as calls of tools": "{% set m = {'tool_calls': messages[0].content} %}"
    "{% for a in m.tool_calls %}{% for b in m.tool_calls %}x{% endfor %}{% endfor %}",
    "letters as messages": "{% set messages = messages[0].content %}"
    "{% for a in messages %}{% for b in messages %}x{% endfor %}{% endfor %}",
    "quotes of quotes in one place": "{{ messages" + "|tojson" * 40 + " }}",
    "quotes of quotes by methods": "{{ messages|tojson|trim|tojson }}",
    "a filter by its name": "{{ ['x']|map('center', 999999999)|first }}",
    "any indentation": "{{ messages|tojson(indent=999999999) }}",
    "any indentation by place": "{{ messages|tojson(999999999) }}",
    "letters replaced by a filter": "{{ messages[0].content|replace('a', 'aaaaaaaa')|replace('a', 'aaaaaaaa') }}",
    "nothing replaced by something": "{{ messages[0].content.replace('', 'x') }}",
    "a date of any width": "{{ strftime_now('%999999999d') }}",
    "a date of a user's": "{{ strftime_now(messages[0].content) }}",
    "a division": "{{ 1 // 0 }}",
    "a block for another template": "{% block x %}{% endblock %}",
    "a call with a body": "{% macro m() %}{% endmacro %}{% call m() %}{% endcall %}",
    "autoescape": "{% autoescape true %}{% endautoescape %}",
    "range by another name": "{% set r = range %}{% for i in r(99999) %}{% endfor %}",
    "another range": "{% set range = namespace %}",
    "classes": "{{ ''.__class__ }}",
    "a file": "{% include 'x' %}",
    "no template": "{% if",
    "a number in other digits": "{{ 0.٣ }}",  # found by `make fuzz`
    "a number of thousands of digits": "{{ " + "9" * 5_000 + " }}",
    "a text for each letter that is kept": "{% for m in messages %}{% set x = m.content %}"
    "{% for c in x %}y{% endfor %}{% endfor %}",
    "messages for messages": "{% for a in messages %}{% for b in messages %}x{% endfor %}{% endfor %}",
    "messages for messages of a macro": "{% macro d() %}{% for b in messages %}x{% endfor %}{% endmacro %}"
    "{% for a in messages %}{{ d() }}{% endfor %}",
    "a long text between letters": "{% for m in messages %}{{ m.content|join('" + "x" * 9_000 + "') }}{% endfor %}",
    "a long text between messages": "{{ messages|map(attribute='content')|join('" + "x" * 9_000 + "') }}",
    "a long text between tools": "{{ tools|reject('equalto', 'x')|join('" + "x" * 9_000 + "') }}",
    "an order": "{% if messages[0].content|sort %}{% endif %}",
    "letters of the values of a message": "{% for k, v in messages[0].items() %}"
    "{% for c in v %}x{% endfor %}{% endfor %}",
    "letters of a text by another test": "{% set x = messages[0].content %}{% if x is mapping %}{% else %}"
    "{% for c in x %}x{% endfor %}{% endif %}",
    "letters of a text that is set after the test": "{% for m in messages %}{% if x is string %}{% else %}"
    "{% set x = m.content %}{% for c in x %}x{% endfor %}{% endif %}{% endfor %}",
    "letters of an item after the test": "{% if x is string %}{% else %}{% for x in messages %}{% for c in x %}"
    "{% for d in c %}x{% endfor %}{% endfor %}{% endfor %}{% endif %}",
    "letters in the place of messages": "{% set messages = messages[0].content %}{% set x = messages[1:] %}"
    "{% for c in x %}x{% endfor %}",
    "a parameter in the place of messages": "{% macro d(messages) %}{% for c in messages %}x{% endfor %}"
    "{% endmacro %}{{ d(messages[0].content) }}",
    "an item in the place of messages": "{% for messages in tools %}"
    "{% for c in messages %}x{% endfor %}{% endfor %}",
    "words of a text": "{% set x = messages[0].content.split(' ') %}{% if x is string %}{% else %}"
    "{% for w in x %}{{ messages[0].content }}{% endfor %}{% endif %}",
    "quotes doubled by a list of words": SPACE + "{% set ns.s = ns.s.split('y') ~ '' %}" * 40,
    "quotes doubled by a tuple": SPACE + "{% set ns.s = (ns.s, 1) ~ '' %}" * 40,
    "quotes doubled by a namespace": SPACE + "{% set ns.s = ns ~ '' %}" * 40,
    "a text doubled by a name of an item": SPACE + "{% for x in tools %}{% endfor %}{% for m in messages %}"
    "{% set x = ns.s %}{% set ns.s = x ~ x %}{% endfor %}",
    "an item that is set twice": "{% for x in tools %}" + "{% set x = x|tojson %}" * 40 + "{% endfor %}",
    "a parameter that is an item too": "{% macro d(x) %}{% set x = x ~ x %}{{ x }}{% endmacro %}"
    "{% for x in tools %}{% endfor %}{{ d('a') }}",
    "many copies of many copies": "{% set a = " + " ~ ".join(["messages"] * 300) + " %}" + "{{ a }}" * 300,
    "many copies by a macro": "{% macro d() %}" + "{{ messages }}" * 300 + "{% endmacro %}" + "{{ d() }}" * 300,
    "many copies kept by a macro": SPACE + "{% macro d() %}{% set ns.s = ns.s ~ messages %}{% endmacro %}"
    + "{{ d() }}" * 300 + "{{ ns.s }}" * 100,
    "letters stripped by a text": "{{ messages[0].content.strip(messages[1].content) }}",
    "a range of a length": "{% for i in range(messages[0].content|length) %}x{% endfor %}",
    "a range of a number of its own": "{% set ns = namespace(n=99999) %}"
    "{% for i in range(ns.n, -1, -1) %}x{% endfor %}",
    "a range of a number that is set later": "{% set ns = namespace(n=1) %}{% set ns.n = messages[0].n %}"
    "{% for i in range(ns.n, -1, -1) %}x{% endfor %}",
    "a range of a name of a number": "{% set k = 99999 %}{% set ns = namespace(n=k) %}"
    "{% for i in range(ns.n, -1, -1) %}x{% endfor %}",
    "a range in a loop": "{% set ns = namespace(n=messages|length) %}{% for m in messages %}"
    "{% for i in range(ns.n, -1, -1) %}x{% endfor %}{% endfor %}",
    "a range of nothing": "{% for i in range() %}{% endfor %}",
    "letters as variables": "{% set a, messages = messages[0].content %}",
    "a range as a list": "{% set x = range(9) %}",
    "a namespace of a message": "{% set ns = namespace(messages[0]) %}",
    "arguments by a text": "{% macro d(a, b) %}{% endmacro %}{{ d(*messages[0].content) }}",
    "a test of divisors": "{% if 7 is divisibleby 3 %}{% endif %}",
    "five loops": "{% for m in messages %}" + "{% for c in m.tool_calls %}" * 4 + "{% endfor %}" * 5,
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
{%- for index in range(ns.last, -1, -1) %}{%- set message = messages[index] %}{{ message.content }}{%- endfor %}
{%- macro shown(content) %}
  {%- if content is string %}{{ content }}
  {%- else %}{% for item in content %}{{ item.text }}{% endfor %}{%- endif %}
{%- endmacro %}
{%- for message in messages %}
  {%- set content = shown(message.content) %}
  {%- if '</think>' in content %}{%- set content = content.split('</think>')[-1].lstrip('\n') %}{%- endif %}
  {%- for call in message.tool_calls %}
    {%- for name, value in call.arguments.items() %}{{ name }}{{ value | tojson(ensure_ascii=False) }}{%- endfor %}
  {%- endfor %}
  {{- content }}
{%- endfor %}"""
"""Templates of Qwen: the first ones of Qwen3 count the messages down."""

TOOLS = """
{%- if tools %}
  {{- '<|im_start|>system\n' }}
  {%- if messages[0]['role'] == 'system' %}{{- messages[0]['content'] }}{%- else %}{{- 'You help.' }}{%- endif %}
  {%- for tool in tools %}{{- "\n" }}{{- tool | tojson }}{%- endfor %}
{%- elif messages[0].role == 'system' %}{{- '<|im_start|>system\n' + messages[0].content + '<|im_end|>\n' }}
{%- endif %}
{%- set ns = namespace(multi_step_tool=true, last_query_index=messages|length - 1) %}
{%- for message in messages[::-1] %}
  {%- set index = (messages|length - 1) - loop.index0 %}
  {%- set tool_start = "<tool_response>" %}{%- set tool_start_length = tool_start|length %}
  {%- set start_of_message = message.content[:tool_start_length] %}
  {%- if ns.multi_step_tool and message.role == "user" and not(start_of_message == tool_start) %}
    {%- set ns.multi_step_tool = false %}{%- set ns.last_query_index = index %}
  {%- endif %}
{%- endfor %}
{%- for message in messages %}
  {%- if message.content is string %}{%- set content = message.content %}
  {%- else %}{%- set content = '' %}{%- endif %}
  {%- if message.role == "user" or (message.role == "system" and not loop.first) %}
    {{- '<|im_start|>' + message.role + '\n' + content + '<|im_end|>' + '\n' }}
  {%- elif message.role == "assistant" %}
    {%- set reasoning_content = '' %}
    {%- if message.reasoning_content is string %}{%- set reasoning_content = message.reasoning_content %}
    {%- elif '</think>' in content %}
      {%- set reasoning_content = content.split('</think>')[0].rstrip('\n').split('<think>')[-1].lstrip('\n') %}
      {%- set content = (content.split('</think>')|last).lstrip('\n') %}
    {%- endif %}
    {%- if loop.index0 > ns.last_query_index and (loop.last or reasoning_content) %}
      {{- '<think>\n' + reasoning_content.strip('\n') + '\n</think>\n\n' + content.lstrip('\n') }}
    {%- endif %}
    {%- if message.tool_calls %}
      {%- for tool_call in message.tool_calls %}
        {%- if (loop.first and content) or (not loop.first) %}{{- '\n' }}{%- endif %}
        {%- if tool_call.function %}{%- set tool_call = tool_call.function %}{%- endif %}
        {{- '<tool_call>\n{"name": "' }}{{- tool_call.name }}
        {%- if tool_call.arguments is string %}{{- tool_call.arguments }}
        {%- else %}{{- tool_call.arguments | tojson }}{%- endif %}
      {%- endfor %}
    {%- endif %}
  {%- elif message.role == "tool" %}
    {%- if loop.first or (messages[loop.index0 - 1].role != "tool") %}{{- '<|im_start|>user' }}{%- endif %}
    {{- '\n<tool_response>\n' }}{{- content }}
    {%- if loop.last or (messages[loop.index0 + 1].role != "tool") %}{{- '<|im_end|>\n' }}{%- endif %}
  {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
  {{- '<|im_start|>assistant\n' }}
  {%- if enable_thinking is defined and enable_thinking is false %}{{- '<think>\n\n</think>\n\n' }}{%- endif %}
{%- endif %}"""
"""Templates of Qwen2.5 and Qwen3."""

PICTURES = """
{%- set image_count = namespace(value=0) %}
{%- macro render_content(content, count, system=false) %}
  {%- if content is string %}{{- content }}
  {%- elif content is iterable and content is not mapping %}
    {%- for item in content %}
      {%- if 'image' in item or item.type == 'image' %}
        {%- if system %}{{- raise_exception('No picture belongs there.') }}{%- endif %}
        {%- if count %}{%- set image_count.value = image_count.value + 1 %}{%- endif %}
        {%- if add_vision_id %}{{- 'Picture ' ~ image_count.value ~ ': ' }}{%- endif %}
        {{- '<|vision_start|><|image_pad|><|vision_end|>' }}
      {%- elif 'text' in item %}{{- item.text }}
      {%- else %}{{- raise_exception('Unexpected item.') }}{%- endif %}
    {%- endfor %}
  {%- endif %}
{%- endmacro %}
{%- for message in messages %}
  {%- set content = render_content(message.content, true)|trim %}
  {{- '<|im_start|>' + message.role + '\n' + content + '<|im_end|>\n' }}
  {%- for call in message.tool_calls %}
    {%- for name, value in call.arguments|items %}
      {{- '<parameter=' + name + '>' }}
      {%- set value = value | tojson | safe if value is mapping else value | string %}{{- value }}
    {%- endfor %}
  {%- endfor %}
{%- endfor %}"""
"""Templates of Qwen3-VL and Qwen3.5."""

HEADERS = """{{- bos_token }}
{%- if custom_tools is defined %}{%- set tools = custom_tools %}{%- endif %}
{%- if not date_string is defined %}
  {%- if strftime_now is defined %}{%- set date_string = strftime_now("%d %b %Y") %}
  {%- else %}{%- set date_string = "26 Jul 2024" %}{%- endif %}
{%- endif %}
{%- if not tools is defined %}{%- set tools = none %}{%- endif %}
{%- if messages[0]['role'] == 'system' %}
  {%- set system_message = messages[0]['content']|trim %}{%- set messages = messages[1:] %}
{%- else %}{%- set system_message = "" %}{%- endif %}
{%- if builtin_tools is defined %}
  {{- "Tools: " + builtin_tools | reject('equalto', 'code_interpreter') | join(", ") + "\n\n"}}
{%- endif %}
{{- "Today Date: " + date_string + "\n\n" }}
{%- if tools is not none %}{%- for t in tools %}{{- t | tojson(indent=4) }}{{- "\n\n" }}{%- endfor %}{%- endif %}
{{- system_message }}
{%- for message in messages %}
  {%- if not (message.role == 'ipython' or 'tool_calls' in message) %}
    {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n'+ message['content'] | trim + '<|eot_id|>' }}
  {%- elif 'tool_calls' in message %}
    {%- set tool_call = message.tool_calls[0].function %}
    {%- for arg_name, arg_val in tool_call.arguments | items %}
      {{- arg_name + '="' + arg_val + '"' }}{%- if not loop.last %}{{- ", " }}{%- endif %}
    {%- endfor %}
  {%- endif %}
{%- endfor %}"""
"""Templates of Llama 3.1 and 3.2."""

PUBLIC = [TEMPLATE, CHAT_TEMPLATE, GATHERED, TOOLS, PICTURES, HEADERS]


@pytest.mark.parametrize("text", PUBLIC)
def test_templates_of_public_models_are_taken(text: str) -> None:
    assert template_fault(text) == ""
