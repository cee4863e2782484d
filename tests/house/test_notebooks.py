"""Notebooks: each runs in a kernel of its own, and prints what is stored in it."""

from __future__ import annotations

import os
import re

import pytest
from capabilities import need
from folders import files
from test_examples import EXAMPLES

NOTEBOOKS = files(EXAMPLES, "**/*.ipynb")
DEADLINE = 120  # seconds of a cell


def printed(cell) -> str:
    """Returns what a cell of code has printed; anything else that it has shown is an error."""
    assert all(output.output_type == "stream" and output.name == "stdout" for output in cell.outputs), cell.outputs
    return "".join(output.text for output in cell.outputs)


@pytest.mark.build
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_a_notebook_prints_what_is_stored_in_it(path, tmp_path, monkeypatch):
    need("cc")
    need("notebooks")
    import nbclient
    import nbformat

    for name in ("IPYTHONDIR", "JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR"):  # nothing of the user's
        monkeypatch.setenv(name, str(tmp_path / name))
    stored = nbformat.read(path, 4)
    nbformat.validate(stored)
    expected = [printed(cell) for cell in stored.cells if cell.cell_type == "code"]
    assert any(expected) and not any(cell.get("execution_count") for cell in stored.cells)
    client = nbclient.NotebookClient(stored, timeout=DEADLINE, startup_timeout=DEADLINE, kernel_name="python3",
                                     resources={"metadata": {"path": str(tmp_path)}})
    done = client.execute(env={**os.environ, "PYTHONPATH": str(EXAMPLES.parent)})
    assert [printed(cell) for cell in done.cells if cell.cell_type == "code"] == expected


@pytest.mark.fast
def test_there_is_a_notebook_of_the_course_whose_readme_names_it():
    assert NOTEBOOKS
    for path in NOTEBOOKS:
        assert re.search(rf"\]\({path.name}\)", path.with_name("README.md").read_text())
