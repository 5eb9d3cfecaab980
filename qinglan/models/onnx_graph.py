"""The check of an ONNX file before it is released: one graph of standard operators, with all weights inside.

    why = graph_fault(path.read_bytes())    # "" for a graph that reads nothing but itself

A graph can name files for its weights and operators of a library to load. The file is parsed here as protobuf's wire
format, without the onnx package, which neither an auditor nor an initialiser has. Field numbers are onnx.proto's.
"""

from collections.abc import Iterator, Mapping

STANDARD = ("", "ai.onnx")
"""Domains of operators that every runtime has itself."""

GRAPH, OPSETS, FUNCTIONS, TRAINING = 7, 8, 25, 20
"""Fields of a model."""

NODES, INITIALIZERS, SPARSE = 1, 5, 15
"""Fields of a graph."""

NODE_ATTRIBUTES, NODE_DOMAIN = 5, 7
ATTRIBUTE_TENSORS, ATTRIBUTE_GRAPHS, ATTRIBUTE_SPARSE = (5, 10), (6, 11), (22, 23)
SPARSE_TENSORS = (1, 2)
EXTERNAL_DATA, DATA_LOCATION = 13, 14
"""Fields of a tensor whose bytes lie in another file."""

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
"""Kinds of fields in protobuf's wire format."""

Message = memoryview
Fields = Mapping[int, list[int | Message]]


def graph_fault(content: bytes) -> str:
    """Why these bytes are not one complete graph of standard operators; "" if they are."""
    try:
        model = _fields(memoryview(content))
        return next(_model_faults(model), "")
    except (ValueError, IndexError, RecursionError) as error:
        return f"no ONNX graph ({str(error)[:80]})"


def _model_faults(model: Fields) -> Iterator[str]:
    graphs = _messages(model, GRAPH)
    if len(graphs) != 1:
        yield f"no ONNX graph ({len(graphs)} graphs)"
    for number, name in ((FUNCTIONS, "functions"), (TRAINING, "training steps")):
        if number in model:
            yield f"its graph has {name} of its own, and a classifier needs none"
    for opset in _messages(model, OPSETS):
        yield from _domain_faults(opset, 1)
    for graph in graphs:
        yield from _graph_faults(graph)


def _graph_faults(graph: Message) -> Iterator[str]:
    fields = _fields(graph)
    for node in _messages(fields, NODES):
        yield from _domain_faults(node, NODE_DOMAIN)
        for attribute in _messages(_fields(node), NODE_ATTRIBUTES):
            yield from _attribute_faults(_fields(attribute))
    for tensor in _messages(fields, INITIALIZERS):
        yield from _tensor_faults(tensor)
    for sparse in _messages(fields, SPARSE):
        yield from _sparse_faults(sparse)


def _attribute_faults(attribute: Fields) -> Iterator[str]:
    for tensor in _messages(attribute, *ATTRIBUTE_TENSORS):
        yield from _tensor_faults(tensor)
    for sparse in _messages(attribute, *ATTRIBUTE_SPARSE):
        yield from _sparse_faults(sparse)
    for graph in _messages(attribute, *ATTRIBUTE_GRAPHS):
        yield from _graph_faults(graph)


def _sparse_faults(sparse: Message) -> Iterator[str]:
    for tensor in _messages(_fields(sparse), *SPARSE_TENSORS):
        yield from _tensor_faults(tensor)


def _tensor_faults(tensor: Message) -> Iterator[str]:
    fields = _fields(tensor)
    if EXTERNAL_DATA in fields or any(fields.get(DATA_LOCATION, [])):
        yield "its graph takes weights from another file"


def _domain_faults(message: Message, number: int) -> Iterator[str]:
    for domain in _messages(_fields(message), number):
        if (name := bytes(domain).decode("utf-8", "replace")) not in STANDARD:
            yield f"its graph has operators of {name[:40]!r}, which are no standard ones"


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
