"""A reader of pages that forgives nothing."""

from html.parser import HTMLParser


class Strict(HTMLParser):
    """Every tag that opens is closed, in order; remembers what a page would run or fetch."""

    VOID = ("meta", "br", "line", "circle", "rect", "polyline", "polygon")

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.fetched: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.fetched += [str(value) for name, value in attrs if name in ("src", "href") or name.startswith("on")]
        if tag in ("script", "link", "iframe", "img"):
            self.fetched.append(tag)
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in self.VOID

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag
