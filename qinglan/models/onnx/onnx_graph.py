"""The check of an ONNX file: one graph of known operators, with all weights inside.

    why = graph_fault(path.read_bytes())    # "" for a graph that reads nothing but itself, with bounded work

A graph can name files for its weights and operators of a library to load, loop for ever, and take all memory. So its
operators are those of our own export (components/training/style/export.py), none of which holds a graph of its own
(Loop, If, Scan), and its sizes and its work have a bound (onnx_work.py). The file is parsed here as protobuf's wire
format, without the onnx package, which neither an auditor nor an initialiser has. Field numbers are onnx.proto's:
https://github.com/onnx/onnx/blob/main/onnx/onnx.proto
"""

from collections.abc import Iterator, Mapping

from qinglan.models.onnx.onnx_work import INTEGERS, Node, Tensor, work_fault

STANDARD = ("", "ai.onnx")
"""Domains of operators that every runtime has itself."""

MAX_NODES = 20_000
"""Operators of a graph; an exported Qwen3-0.6B has some 5,000."""

GRAPH, OPSETS, FUNCTIONS, TRAINING = 7, 8, 25, 20
"""Fields of a model."""

NODES, INITIALIZERS, SPARSE = 1, 5, 15
"""Fields of a graph."""

NODE_INPUTS, NODE_OUTPUTS, NODE_OPERATOR, NODE_ATTRIBUTES, NODE_DOMAIN = 1, 2, 4, 5, 7
ATTRIBUTE_NAME, ATTRIBUTE_INT, ATTRIBUTE_INTS = 1, 3, 8
SIMPLE_ATTRIBUTE = frozenset({ATTRIBUTE_NAME, ATTRIBUTE_INT, ATTRIBUTE_INTS, 2, 4, 13, 20})
"""Fields of an attribute that is a number, a list of integers or a text: neither a tensor nor a graph."""

DIMS, DATA_TYPE, TENSOR_NAME, RAW_DATA, EXTERNAL_DATA, DATA_LOCATION = 1, 2, 8, 9, 13, 14
"""Fields of a tensor; with the last two its bytes lie in another file."""

INTEGER_DATA = {6: 5, 7: 7}
"""The field of a tensor's integers that are not raw bytes, by their type."""

MAX_SIZES = 64
"""Numbers of a tensor that can be a shape or an axis."""

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
"""Kinds of fields in protobuf's wire format."""

Message = memoryview
Fields = Mapping[int, list[int | Message]]


def graph_fault(content: bytes) -> str:
    """Why these bytes are not one complete graph of standard operators; "" if they are."""
    try:
        model = _fields(memoryview(content))
        return next(_model_faults(model), "") or _work_fault(_messages(model, GRAPH)[0], len(content))
    except (ValueError, IndexError, KeyError, TypeError, ArithmeticError) as error:
        return f"no ONNX graph ({str(error)[:80]})"


def _model_faults(model: Fields) -> Iterator[str]:
    graphs = _messages(model, GRAPH)
    if len(graphs) != 1:
        yield f"no ONNX graph ({len(graphs)} graphs)"
    for number, name in ((FUNCTIONS, "functions"), (TRAINING, "training steps")):
        if number in model:
            yield f"its graph has {name} of its own, and a classifier needs none"
    for opset in _messages(model, OPSETS):
        for domain in _texts(_fields(opset), 1):
            yield from _domain_faults(domain)
    for graph in graphs:
        yield from _graph_faults(graph)


def _graph_faults(graph: Message) -> Iterator[str]:
    fields = _fields(graph)
    nodes = [_fields(node) for node in _messages(fields, NODES)]
    if len(nodes) > MAX_NODES:
        yield f"its graph has {len(nodes):,} operators; {MAX_NODES:,} are enough for any"
    if SPARSE in fields:
        yield "its graph has sparse weights, which no supported model has"
    for tensor in map(_fields, _messages(fields, INITIALIZERS)):
        if EXTERNAL_DATA in tensor or any(tensor.get(DATA_LOCATION, [])):
            yield "its graph takes weights from another file"
    for node in nodes:
        yield from _node_faults(node)


def _node_faults(node: Fields) -> Iterator[str]:
    for domain in _texts(node, NODE_DOMAIN):
        yield from _domain_faults(domain)
    for attribute in map(_fields, _messages(node, NODE_ATTRIBUTES)):
        if attribute.keys() - SIMPLE_ATTRIBUTE:
            yield "its graph has a tensor or a graph in an attribute, which no supported model has"


def _work_fault(graph: Message, file_bytes: int) -> str:
    fields = _fields(graph)
    nodes = [_node(_fields(node)) for node in _messages(fields, NODES)]
    constants = [_constant(_fields(tensor)) for tensor in _messages(fields, INITIALIZERS)]
    named = dict(constants)
    if len(named) < len(constants):
        return "its graph has two tensors of one name"
    return work_fault(nodes, named, file_bytes)


def _node(node: Fields) -> Node:
    attributes = {}
    for attribute in map(_fields, _messages(node, NODE_ATTRIBUTES)):
        (name,) = _texts(attribute, ATTRIBUTE_NAME)
        if name in attributes:
            raise ValueError(f"two attributes {name[:40]!r}")
        attributes[name] = _varints([*attribute.get(ATTRIBUTE_INT, []), *attribute.get(ATTRIBUTE_INTS, [])])
    (operator,) = _texts(node, NODE_OPERATOR)
    return Node(operator, _texts(node, NODE_INPUTS), _texts(node, NODE_OUTPUTS), attributes)


def _constant(tensor: Fields) -> tuple[str, Tensor]:
    """A tensor of the file with its name, its shape and, if they are few integers, its numbers."""
    (name,) = _texts(tensor, TENSOR_NAME)
    (kind,) = tensor[DATA_TYPE]
    sizes = None
    if isinstance(kind, int) and kind in INTEGERS:
        width, raw = INTEGERS[kind], b"".join(_messages(tensor, RAW_DATA))
        if len(raw) <= MAX_SIZES * width:
            words = [raw[at : at + width] for at in range(0, len(raw), width)]
            numbers = [int.from_bytes(word, "little", signed=True) for word in words]
            sizes = (*numbers, *_varints(tensor.get(INTEGER_DATA[kind], [])))
    return name, Tensor(tuple(_varints(tensor.get(DIMS, []))), sizes)


def _varints(values: list[int | Message]) -> list[int]:
    """Numbers of a repeated field: one by one, or packed."""
    numbers = []
    for value in values:
        if isinstance(value, int):
            numbers.append(_signed(value))
            continue
        at = 0
        while at < len(value):
            number, at = _varint(value, at)
            numbers.append(_signed(number))
    return numbers


def _signed(number: int) -> int:
    return number - (1 << 64) if number >> 63 else number


def _domain_faults(name: str) -> Iterator[str]:
    if name not in STANDARD:
        yield f"its graph has operators of {name[:40]!r}, which are no standard ones"


def _texts(fields: Fields, number: int) -> list[str]:
    return [bytes(text).decode("utf-8", "replace") for text in _messages(fields, number)]


def _messages(fields: Fields, *numbers: int) -> list[Message]:
    values = [value for number in numbers for value in fields.get(number, [])]
    if not all(isinstance(value, memoryview) for value in values):
        raise ValueError(f"field {numbers[0]} is a number")
    return [value for value in values if isinstance(value, memoryview)]


def _fields(message: Message) -> Fields:
    """The fields of one message, by number; every byte belongs to one of them, or it is a ValueError."""
    fields: dict[int, list[int | Message]] = {}
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        number, kind = key >> 3, key & 7
        value: int | Message
        if kind == VARINT:
            value, at = _varint(message, at)
        else:
            size, at = _varint(message, at) if kind == BYTES else (_fixed_size(kind), at)
            if at + size > len(message):
                raise ValueError(f"byte {at}: a field ends behind its message")
            value, at = message[at : at + size], at + size
        if not number:
            raise ValueError(f"byte {at}: field 0")
        fields.setdefault(number, []).append(value)
    return fields


def _fixed_size(kind: int) -> int:
    sizes = {FIXED64: 8, FIXED32: 4}
    if kind not in sizes:
        raise ValueError(f"a field of kind {kind}")
    return sizes[kind]


def _varint(message: Message, at: int) -> tuple[int, int]:
    """A number of seven bits a byte, and the position behind it."""
    value = shift = 0
    while True:
        byte = message[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
        if shift > 63:
            raise ValueError(f"byte {at}: a number of more than 64 bits")
