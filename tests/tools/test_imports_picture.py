"""docs/imports.svg shows the imports of the code as it is."""

import pytest

from tools.imports_picture import PICTURE, drawn, in_order, picture, room_imports, room_of

MODULES = {
    "pipelines.lines.line": ["qinglan.errors"],
    "commands.cli": ["components.data.convert.stage", "qinglan.errors"],
    "standins.samples.write": ["qinglan.errors"],
    "components.data.convert.stage": ["components.data.convert.config", "qinglan.llm.client"],
    "serving.gateway.app": ["qinglan.llm.client"],
    "qinglan.llm.client": ["qinglan.errors"],
    "qinglan.errors": ["qinglan.llm"],
}


@pytest.mark.slow
def test_the_picture_in_docs_is_that_of_the_code() -> None:
    assert PICTURE.read_text(encoding="utf-8") == picture(), "run `make docs`"


def test_a_module_is_in_its_package_or_among_the_files_beside_the_packages() -> None:
    assert room_of("qinglan.llm.client") == room_of("qinglan.llm") == "qinglan/llm"
    assert room_of("components.training.ppo.plugin.critic") == "components/training/ppo"
    assert room_of("qinglan.errors") == room_of("qinglan") == "qinglan/*.py"


def test_an_import_against_the_order_is_drawn_in_another_colour() -> None:
    imports = room_imports(MODULES)

    assert in_order(imports)[0] == "commands/*.py"
    assert drawn(imports).count('class="up"') == 1
    assert drawn(room_imports(MODULES | {"qinglan.errors": []})).count('class="up"') == 0
