"""What the pages say is there: links, public names, and the commands that CI takes from the README."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import snaprt

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_of_a_page_leads_somewhere(page: Path) -> None:
    text = page.read_text()
    links = [link for link in re.findall(r"\]\(([^)\s]+)\)", text) if "://" not in link]
    for link in links:
        target, _, anchor = link.partition("#")
        file = (page.parent / target) if target else page
        assert file.exists(), f"{page.name} links to {link}"
        if anchor:
            headings = re.findall(r"^#+ (.+)$", file.read_text(), re.MULTILINE)
            slugs = {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}
            assert anchor in slugs, f"{page.name} links to {link}"


def test_the_reference_names_everything_that_is_public() -> None:
    reference = (ROOT / "docs" / "reference.md").read_text() + (ROOT / "docs" / "guide.md").read_text()
    missing = [name for name in snaprt.__all__ if not re.search(rf"\b{name}\b", reference)]
    assert not missing


def test_the_readme_has_the_command_that_ci_runs() -> None:
    text = (ROOT / "README.md").read_text()
    assert re.search(r"<!-- test-command -->\n```sh\n.*pytest.*\n```", text)


def test_the_readmes_code_is_python() -> None:
    for block in re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL):
        compile(block, "README.md", "exec")
