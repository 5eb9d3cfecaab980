"""Draw which room imports which, from the code itself: `make docs` writes docs/imports.svg.

Rows and columns have the same order of rooms, importers first: a dot left of the diagonal is an import against it.
"""

from collections.abc import Iterable, Mapping
from html import escape
from pathlib import Path

ROOT = Path(__file__).parents[1]
PICTURE = ROOT / "docs" / "imports.svg"
LAYERS = ("commands", "pipelines", "standins", "components", "serving", "qinglan")
"""The layers of pyproject.toml, importers first; components and serving do not import each other."""

CELL, LEFT, TOP, MARGIN = 18, 222, 212, 12
STYLE = """
    .paper { fill: #ffffff } .band { fill: #f1f5f9 } .self { fill: #cbd5e1 } .line { stroke: #94a3b8 }
    .down { fill: #2563eb } .up { fill: #dc2626 } text { fill: #1e293b; font: 12px ui-sans-serif, sans-serif }
    @media (prefers-color-scheme: dark) {
      .paper { fill: #0d1117 } .band { fill: #1b2430 } .self { fill: #475569 } .line { stroke: #64748b }
      text { fill: #e2e8f0 } .down { fill: #60a5fa } .up { fill: #f87171 }
    }"""

Imports = Mapping[str, frozenset[str]]
"""The rooms that each room imports."""


def room_of(module: str) -> str:
    """Name the folder of a module as the picture has it: `qinglan.llm.client` is in `qinglan/llm`."""
    parts = module.split(".")
    folder = parts if ROOT.joinpath(*parts).is_dir() else parts[:-1]
    depth = 3 if parts[0] == "components" else 2
    return "/".join(folder[:depth]) + ("" if len(folder) >= depth else "/*.py")


def room_imports(modules: Mapping[str, Iterable[str]]) -> Imports:
    """Gather the imports of modules by room; a room's imports of itself, and rooms without any, are left out."""
    rooms: dict[str, set[str]] = {}
    for module, imported in modules.items():
        room = room_of(module)
        rooms.setdefault(room, set()).update({room_of(name) for name in imported} - {room})
    drawn_rooms = {room for room, targets in rooms.items() if targets}.union(*rooms.values())
    return {room: frozenset(rooms[room]) for room in drawn_rooms}


def in_order(imports: Imports) -> list[str]:
    """Sort the rooms by layer, and in a layer importers first; of a circle, the room with the fewest importers."""
    order: list[str] = []
    for layer in LAYERS:
        rest = {room for room in imports if room.split("/")[0] == layer}
        while rest:
            first = min(rest, key=lambda room: _standing(room, imports, rest))
            order.append(first)
            rest.remove(first)
    return order


def _standing(room: str, imports: Imports, rest: set[str]) -> tuple[int, int, str]:
    """Count the importers of a room that are in no circle with it, then all of its importers."""
    importers = [other for other in rest if room in imports[other]]
    reached = _reached(room, imports)
    return sum(other not in reached for other in importers), len(importers), room


def _reached(room: str, imports: Imports) -> set[str]:
    reached, waiting = set[str](), [room]
    while waiting:
        new = imports[waiting.pop()] - reached
        reached |= new
        waiting += new
    return reached


def drawn(imports: Imports) -> str:
    """Return the picture as SVG."""
    rooms = in_order(imports)
    size = CELL * len(rooms)
    width, height = LEFT + size + MARGIN, TOP + size + MARGIN
    parts = [f'<rect class="paper" width="{width}" height="{height}" rx="8"/>', *_bands(rooms, size)]
    for at, room in enumerate(rooms):
        middle = CELL * at + CELL / 2
        parts += [
            f'<text x="{LEFT - 8}" y="{TOP + middle + 4:g}" text-anchor="end">{escape(room)}</text>',
            f'<text transform="translate({LEFT + middle + 4:g} {TOP - 8}) rotate(-90)">{escape(room)}</text>',
            f'<rect class="self" x="{LEFT + CELL * at}" y="{TOP + CELL * at}" width="{CELL}" height="{CELL}"/>',
        ]
        for column in sorted(rooms.index(other) for other in imports[room]):
            kind, x = ("down" if column > at else "up"), LEFT + CELL * column + CELL / 2
            parts.append(f'<circle class="{kind}" cx="{x:g}" cy="{TOP + middle:g}" r="4.5"/>')
    lines = "\n  ".join(parts)
    against = sum(rooms.index(other) < at for at, room in enumerate(rooms) for other in imports[room])
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        'role="img" aria-labelledby="title description">\n'
        '  <title id="title">Which room imports which</title>\n'
        f'  <desc id="description">A table of {len(rooms)} rooms by {len(rooms)}. A dot says that the room of a row '
        f"imports the room of a column. Imports against the order of the rooms: {against}.</desc>\n"
        f"  <style>{STYLE}\n  </style>\n  {lines}\n</svg>\n"
    )


def _bands(rooms: list[str], size: int) -> list[str]:
    """A band behind every second layer, and a line where a layer begins."""
    layers = [room.split("/")[0] for room in rooms]
    parts = []
    for number, layer in enumerate(LAYERS):
        start, count = layers.index(layer), layers.count(layer)
        y = TOP + CELL * start
        if number % 2 == 0:
            parts.append(
                f'<rect class="band" x="{MARGIN}" y="{y}" width="{LEFT - MARGIN + size}" height="{CELL * count}"/>'
            )
        parts.append(f'<line class="line" x1="{MARGIN}" x2="{LEFT + size}" y1="{y}" y2="{y}"/>')
    return parts


def picture() -> str:
    """Read the imports of the code as it is now, and draw them."""
    from grimp import build_graph

    graph = build_graph(*LAYERS, cache_dir=None)
    return drawn(room_imports({module: graph.find_modules_directly_imported_by(module) for module in graph.modules}))
