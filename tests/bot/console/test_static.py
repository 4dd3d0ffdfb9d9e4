"""What the page's files may hold: nothing inline, nothing from outside, no markup from text."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import bot.console.page

STATIC = Path(bot.console.page.__file__).parent / "static"
FILES = sorted(STATIC.iterdir())


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_files_stay_small_and_ask_no_other_host(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) < 400
    hosts = set(re.findall(r"https?://([\w.-]+)", text)) - {"www.w3.org", "127.0.0.1"}
    assert not hosts


@pytest.mark.parametrize("path", [path for path in FILES if path.suffix == ".js"], ids=lambda path: path.name)
def test_scripts_never_parse_markup_or_code(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert not re.search(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|cssText|setAttribute\(.style", text
    )
    for module in re.findall(r'from "\./([\w.]+)"', text):
        assert (STATIC / module).is_file()


@pytest.mark.parametrize("path", [path for path in FILES if path.suffix == ".html"], ids=lambda path: path.name)
def test_pages_hold_nothing_inline(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert not re.search(r"<style|\sstyle=|\son\w+=|javascript:", text)
    assert re.findall(r"<script(?![^>]*\bsrc=)", text) == []
    for name in re.findall(r"/console/static/([\w.]+)", text):
        assert (STATIC / name).is_file()


def test_every_id_the_scripts_ask_for_is_in_the_page() -> None:
    page = (STATIC / "index.html").read_text(encoding="utf-8")
    ids = set(re.findall(r'id="([\w-]+)"', page))
    for path in FILES:
        if path.suffix == ".js":
            assert set(re.findall(r'byId\("([\w-]+)"\)', path.read_text(encoding="utf-8"))) <= ids, path.name
