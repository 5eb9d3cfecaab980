"""Strict parsers for untrusted JSON and YAML. If a document could be read in two ways, an error names the line.

    parse_json(content, "evaluation.json")      raises a DataError with the line
    parse_yaml(text, "trust.yaml")              raises a ConfigError with the line

Programs differ in how they read a key that is written twice, a number too large for a float, and NaN. A reviewer
could then see another value than the program uses, so these are refused. Documents that would take all memory or time
are refused too: endless nesting, and YAML aliases that unfold to millions of nodes.
"""

import json
import math
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from typing import Any, NoReturn, TypeVar

import orjson

from qinglan.errors import ConfigError, DataError
from qinglan.terminal import visible

Value = TypeVar("Value")
MAX_YAML_NODES = 100_000
"""Largest number of keys and values in a YAML document, with every alias unfolded."""


def parse_json(content: bytes | str, where: str, line: int = 1, half_characters: bool = False) -> Any:
    """Parse a JSON document. A DataError names the line if the document is invalid, or if programs could read it
    differently.

    `line` is the line of the file at which the document begins. With `half_characters` a text may hold lone
    surrogates. They cannot be written as UTF-8, so the caller sets such rows aside.
    """
    try:
        if not half_characters:
            orjson.loads(content)  # refuses what json accepts: lone surrogates, and bytes that are not UTF-8
        text = content if isinstance(content, str) else content.decode("utf-8")
        return DECODER.decode(text)
    except _AmbiguousError as error:
        raise DataError(f"{where}:{line + _line_of(text)}: {error}.") from error
    except json.JSONDecodeError as error:  # orjson raises it, too
        raise DataError(f"{where}:{line + error.lineno - 1}: no JSON: {error.msg}.") from error
    except RecursionError as error:
        raise DataError(f"{where}:{line}: no JSON: nested too deep.") from error
    except ValueError as error:  # a whole number of thousands of digits
        raise DataError(f"{where}:{line}: no JSON: {str(error)[:80]}.") from error


def parse_json_mapping(content: bytes | str, where: str) -> dict[str, Any]:
    """Parse a document that must be a JSON object; anything else raises a DataError."""
    value = parse_json(content, where)
    if not isinstance(value, dict):
        raise DataError(f"{where}:1: a JSON object belongs here, and this is {type(value).__name__}.")
    return value


class _AmbiguousError(ValueError):
    """A document that programs could read in different ways."""


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    mapping = dict(pairs)
    if len(mapping) != len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise _AmbiguousError(f"{visible(twice[:80])!r} is there twice; programs differ in which one counts")
    return mapping


def refuse_twice_named(content: bytes, where: str) -> None:
    """Raise a DataError if a JSON object in a request has the same key twice, because the next program could read the
    other value, for example another tenant. A body that is not JSON is ignored here; the request's own parser refuses
    it."""
    try:
        TWICE_DECODER.decode(content.decode("utf-8"))
    except _AmbiguousError as error:
        raise DataError(f"{where}: {error}.") from error
    except (ValueError, RecursionError):
        return


def _finite(text: str) -> float:
    if not math.isfinite(number := float(text)):
        raise _AmbiguousError(f"{text[:40]} is beyond what a number can be")
    return number


def _whole(text: str) -> int | float:
    """Parse a whole number. Beyond 64 bits it becomes a float, as in orjson, which cannot write larger whole numbers.

    Settings of tokenizers contain such numbers: int(1e30) stands for a text of any length.
    """
    number = int(text)
    return number if -(2**63) <= number < 2**64 else _finite(text)


DECODER = json.JSONDecoder(object_pairs_hook=_once, parse_float=_finite, parse_int=_whole, parse_constant=_finite)
TWICE_DECODER = json.JSONDecoder(object_pairs_hook=_once)


def _line_of(text: str) -> int:
    """Parse the document again, and count the line breaks before the innermost object that contains the fault."""
    begun = [0]

    def parse_object(text_and_end: tuple[str, int], *rest: Any) -> tuple[Any, int]:
        begun.append(text_and_end[1])
        parsed: tuple[Any, int] = json.decoder.JSONObject(text_and_end, *rest)  # type: ignore[attr-defined]
        begun.pop()
        return parsed

    # Only Python's own scanner (json/scanner.py) calls parse_object. It is slow, so it runs only after a fault.
    decoder: Any = json.JSONDecoder(object_pairs_hook=_once, parse_float=_finite, parse_int=_whole)
    decoder.parse_object = parse_object
    decoder.scan_once = json.scanner.py_make_scanner(decoder)  # type: ignore[attr-defined]
    with suppress(ValueError, RecursionError):
        decoder.decode(text)
    return text.count("\n", 0, begun[-1])


def parse_yaml(text: str, where: str) -> Any:
    """Parse a text with one YAML document. A ConfigError names the line if it is invalid, or could be read in two
    ways."""
    return _parse_yaml(text, where, lambda loader: loader.get_single_data())


def parse_yaml_documents(text: str, where: str) -> list[Any]:
    def load(loader: Any) -> list[Any]:
        documents = []
        while loader.check_data():
            documents.append(loader.get_data())
        return documents

    return _parse_yaml(text, where, load)


def _parse_yaml(text: str, where: str, load: Callable[[Any], Value]) -> Value:
    import yaml

    try:
        loader = _loader_class()(text)
        try:
            return load(loader)
        finally:
            loader.dispose()
    except RecursionError as error:
        raise ConfigError(f"{where}: not readable as YAML: nested too deep.") from error
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f":{mark.line + 1}" if mark else ""
        problem = " ".join(part for part in (error.context, error.problem) if part)
        raise ConfigError(f"{where}{line}: not readable as YAML: {visible(problem)}.") from error
    except (yaml.YAMLError, UnicodeEncodeError) as error:  # lone surrogates
        raise ConfigError(f"{where}: not readable as YAML: {visible(' '.join(str(error).split()))}.") from error


@cache
def _loader_class() -> Any:
    import yaml
    from yaml._yaml import CParser
    from yaml.composer import Composer
    from yaml.constructor import SafeConstructor
    from yaml.resolver import Resolver

    # CSafeLoader composes nodes by recursion in C (_compose_node in PyYAML's yaml/_yaml.pyx): thousands of opening
    # brackets would overflow its stack, and the process would crash.
    class Loader(Composer, CParser, SafeConstructor, Resolver):
        """Strict SafeLoader: refuses a repeated key, a number that is not finite, and aliases that unfold too far.

        libyaml parses the text, in a third of the time of PyYAML's own parser. The nodes are composed by PyYAML's
        code in Python, because its composer in C recurses without a limit.
        """

        def __init__(self, text: str) -> None:
            CParser.__init__(self, text)
            for part in (Composer, SafeConstructor, Resolver):
                part.__init__(self)

        def get_single_node(self) -> Any:
            return self._bounded(super().get_single_node())

        def get_node(self) -> Any:
            return self._bounded(super().get_node())

        def _bounded(self, node: Any) -> Any:
            if node is not None:
                _refuse_bomb(node)
            return node

        def construct_mapping(self, node: Any, deep: bool = False) -> Any:
            if isinstance(node, yaml.MappingNode):
                _refuse_same_keys(self, node)
            return super().construct_mapping(node, deep)

        def construct_object(self, node: Any, deep: bool = False) -> Any:
            try:
                return super().construct_object(node, deep)
            except (ValueError, OverflowError, LookupError, AttributeError) as error:  # PyYAML on `!!int ''`
                _refuse(node, f"{str(node.value)[:40]!r} is no YAML {node.tag.rpartition(':')[2]}", error)

        def construct_yaml_float(self, node: Any) -> float:
            if not math.isfinite(number := float(super().construct_yaml_float(node))):
                _refuse(node, f"{node.value[:40]} is no number that can be counted with")
            return number

    Loader.add_constructor("tag:yaml.org,2002:float", Loader.construct_yaml_float)  # type: ignore[type-var]
    return Loader


def _refuse_same_keys(loader: Any, node: Any) -> None:
    """Refuse a mapping with the same key twice. Keys from a merge (`<<`) may be overridden."""
    import yaml

    names = set()
    for key, _ in node.value:
        if isinstance(key, yaml.ScalarNode) and key.tag != "tag:yaml.org,2002:merge":
            if (name := loader.construct_object(key)) in names:
                _refuse(key, f"{key.value[:80]!r} is there twice; the last would win without a word")
            names.add(name)


def _refuse_bomb(root: Any) -> None:
    """Refuse a document that has too many nodes after every alias is unfolded. The search uses a stack instead of
    recursion, because a document may be nested deeply."""
    sizes: dict[int, int] = {}
    stack: list[tuple[Any, bool]] = [(root, False)]
    while stack:
        node, entered = stack.pop()
        if entered:
            sizes[id(node)] = 1 + sum(sizes[id(child)] for child in _children(node))
            if sizes[id(node)] > MAX_YAML_NODES:
                _refuse(node, f"more than {MAX_YAML_NODES:,} values with every alias unfolded")
        elif sizes.get(id(node)) == 0:
            _refuse(node, "an alias of something that it is in itself")
        elif id(node) not in sizes:
            sizes[id(node)] = 0
            stack.append((node, True))
            stack.extend((child, False) for child in _children(node))


def _children(node: Any) -> Iterator[Any]:
    import yaml

    if isinstance(node, yaml.MappingNode):
        yield from (child for pair in node.value for child in pair)
    elif isinstance(node, yaml.SequenceNode):
        yield from node.value


def _refuse(node: Any, problem: str, cause: Exception | None = None) -> NoReturn:
    import yaml

    raise yaml.MarkedYAMLError(problem=problem, problem_mark=node.start_mark) from cause
