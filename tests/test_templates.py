"""The templates: all of them come with a wheel, and none is laid out with a name missing."""

import zipfile
from pathlib import Path

import pytest
from jinja2 import UndefinedError

from bough.templates import environment

ROOT = Path(__file__).parents[1]
FOLDERS = ("data.drafting", "plan", "reports", "runs", "serve")


def test_templates_come_with_a_wheel(tmp_path: Path) -> None:
    builder = pytest.importorskip("hatchling.builders.wheel").WheelBuilder
    (wheel,) = builder(str(ROOT)).build(directory=str(tmp_path))
    packed = {name for name in zipfile.ZipFile(wheel).namelist() if "/templates/" in name}
    source = ROOT / "src"
    here = {file.relative_to(source).as_posix() for file in source.glob("bough/**/templates/*")}
    folders = {name.removeprefix("bough/").partition("/templates/")[0] for name in here}
    assert folders == {folder.replace(".", "/") for folder in FOLDERS}
    assert packed == here


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_name_that_nobody_gave_is_an_error(folder: str) -> None:
    with pytest.raises(UndefinedError):
        environment(f"bough.{folder}").from_string("{{ missing }}").render()


def test_only_html_is_escaped() -> None:
    for html, expected in ((True, "&lt;b&gt;"), (False, "<b>")):
        template = environment("bough.reports", html=html).from_string("{{ text }}")
        assert template.render(text="<b>") == expected
