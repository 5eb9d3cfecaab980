"""Check that an ONNX file is one graph of known operators, with all weights inside.

    why = graph_fault(path.read_bytes())    # "" for a graph that reads only itself, with bounded work

A graph can name files for its weights and libraries for its operators, loop for ever, and take all memory. So only
the operators of our own export are allowed (components/training/style/export.py), none of which holds a graph (Loop,
If, Scan), and sizes and work have a bound (onnx_work.py). The file is parsed here, since auditors and initialisers do
not have the onnx package. Field numbers: https://github.com/onnx/onnx/blob/main/onnx/onnx.proto Wire format:
https://protobuf.dev/programming-guides/encoding/
"""

from collections.abc import Iterator, Mapping

from qinglan.models.onnx.onnx_work import INTEGERS, Node, Tensor, work_fault

STANDARD = ("", "ai.onnx")
"""Domains of operators that every runtime has itself."""

MAX_NODES = 20_000
"""Most operators of a graph; an exported Qwen3-0.6B has some 5,000."""

GRAPH, OPSETS, FUNCTIONS, TRAINING = 7, 8, 25, 20
"""Field numbers of a model."""

NODES, INITIALIZERS, SPARSE = 1, 5, 15
"""Field numbers of a graph."""

NODE_INPUTS, NODE_OUTPUTS, NODE_OPERATOR, NODE_ATTRIBUTES, NODE_DOMAIN = 1, 2, 4, 5, 7
ATTRIBUTE_NAME, ATTRIBUTE_INT, ATTRIBUTE_INTS = 1, 3, 8
SIMPLE_ATTRIBUTE = frozenset({ATTRIBUTE_NAME, ATTRIBUTE_INT, ATTRIBUTE_INTS, 2, 4, 13, 20})
"""Field numbers of an attribute that is a number, a list of integers or a text, and so neither a tensor nor a
graph."""

DIMS, DATA_TYPE, TENSOR_NAME, RAW_DATA, EXTERNAL_DATA, DATA_LOCATION = 1, 2, 8, 9, 13, 14
"""Field numbers of a tensor. If it has one of the last two fields, its bytes are in another file."""

INTEGER_DATA = {6: 5, 7: 7}
"""Field number of a tensor's integers if these are not raw bytes, by the type of the integers."""

MAX_SIZES = 64
"""Most numbers of a tensor that can be a shape or an axis."""

VARINT, BYTES = 0, 2
FIXED_SIZES = {1: 8, 5: 4}
"""Kinds of fields in protobuf's wire format. `FIXED_SIZES` holds the bytes of the kinds with a fixed size."""

Message = memoryview
Fields = Mapping[int, list[int | Message]]


def graph_fault(content: bytes) -> str:
    """Why these bytes are not one complete graph of standard operators; "" if they are."""
    try:
        return next(_faults(_fields(memoryview(content)), len(content)))
    except (ValueError, IndexError, KeyError, TypeError, ArithmeticError) as error:
        return f"no ONNX graph ({str(error)[:80]})"


def _faults(model: Fields, file_bytes: int) -> Iterator[str]:
    """The faults of a model. Callers read only the first fault, since each check relies on the checks before it."""
    graphs = _messages(model, GRAPH)
    if len(graphs) != 1:
        yield f"no ONNX graph ({len(graphs)} graphs)"
    for number, name in ((FUNCTIONS, "functions"), (TRAINING, "training steps")):
        if number in model:
            yield f"its graph has {name} of its own, and a classifier needs none"
    graph = _fields(graphs[0])
    nodes = [_fields(node) for node in _messages(graph, NODES)]
    opsets = [_fields(opset) for opset in _messages(model, OPSETS)]
    domains = [(opset, 1) for opset in opsets] + [(node, NODE_DOMAIN) for node in nodes]
    for domain in (domain for fields, number in domains for domain in _texts(fields, number)):
        if domain not in STANDARD:
            yield f"its graph has operators of {domain[:40]!r}, which are no standard ones"
    if len(nodes) > MAX_NODES:
        yield f"its graph has {len(nodes):,} operators; {MAX_NODES:,} are enough for any"
    if SPARSE in graph:
        yield "its graph has sparse weights, which no supported model has"
    tensors = [_fields(tensor) for tensor in _messages(graph, INITIALIZERS)]
    if any(EXTERNAL_DATA in tensor or any(tensor.get(DATA_LOCATION, [])) for tensor in tensors):
        yield "its graph takes weights from another file"
    for attribute in (_fields(part) for node in nodes for part in _messages(node, NODE_ATTRIBUTES)):
        if attribute.keys() - SIMPLE_ATTRIBUTE:
            yield "its graph has a tensor or a graph in an attribute, which no supported model has"
    constants = dict(map(_constant, tensors))
    if len(constants) < len(tensors):
        yield "its graph has two tensors of one name"
    yield work_fault([_node(node) for node in nodes], constants, file_bytes)


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
    """The name of a tensor of the file, with its shape and, if it is a few integers, its numbers."""
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
    """Signed numbers of a repeated field, which are stored one by one or packed."""
    numbers = []
    for value in values:
        if isinstance(value, int):
            numbers.append(value)
            continue
        at = 0
        while at < len(value):
            number, at = _varint(value, at)
            numbers.append(number)
    # A negative int64 is written as its two's complement of 64 bits.
    return [number - (1 << 64) if number >> 63 else number for number in numbers]


def _texts(fields: Fields, number: int) -> list[str]:
    return [bytes(text).decode("utf-8", "replace") for text in _messages(fields, number)]


def _messages(fields: Fields, number: int) -> list[Message]:
    messages = [value for value in fields.get(number, []) if isinstance(value, memoryview)]
    if len(messages) < len(fields.get(number, [])):
        raise ValueError(f"field {number} is a number")
    return messages


def _fields(message: Message) -> Fields:
    """The fields of one message, by number; a ValueError unless every byte belongs to one of them."""
    fields: dict[int, list[int | Message]] = {}
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        number, kind = key >> 3, key & 7
        value: int | Message
        if kind == VARINT:
            value, at = _varint(message, at)
        elif kind == BYTES or kind in FIXED_SIZES:
            size, at = _varint(message, at) if kind == BYTES else (FIXED_SIZES[kind], at)
            if at + size > len(message):
                raise ValueError(f"byte {at}: a field ends behind its message")
            value, at = message[at : at + size], at + size
        else:
            raise ValueError(f"a field of kind {kind}")
        if not number:
            raise ValueError(f"byte {at}: field 0")
        fields.setdefault(number, []).append(value)
    return fields


def _varint(message: Message, at: int) -> tuple[int, int]:
    """Read a number that is stored with seven bits per byte; return it and the position behind it."""
    value = shift = 0
    while True:
        byte = message[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
        if shift > 63:
            raise ValueError(f"byte {at}: a number of more than 64 bits")
