"""Lines of keys in TOML: the scan finds the keys that tomllib finds, at the lines where they are."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ina.base import documents
from ina.base.toml_lines import lines

pytestmark = pytest.mark.fast
ROOT = Path(__file__).resolve().parent.parent.parent


def paths(value: object, path: tuple = ()) -> Iterator[tuple]:
    """All keys and indices of a document."""
    for key, below in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield (*path, key)
        yield from paths(below, (*path, key))


@pytest.mark.parametrize("path", [p for f in ("experiments", "bench", "examples") for p in sorted((ROOT / f).glob("**/*.toml"))]
                         + [ROOT / "pyproject.toml"], ids=lambda p: str(p.relative_to(ROOT)))
def test_every_key_of_a_file_has_a_line_that_names_it(path):
    text = path.read_text()
    table, found, rows = tomllib.loads(text), lines(text), text.splitlines()
    assert set(found) == set(paths(table))
    for keys, line in found.items():
        assert isinstance(keys[-1], int) or keys[-1] in rows[line - 1], f"{path}:{line}: {keys}"


WORDS = st.text("ab.#=[]{}\"'\\\n\té ", max_size=6)
VALUES = st.recursive(st.integers() | st.booleans() | st.floats(allow_nan=False) | WORDS,
                      lambda below: st.lists(below, max_size=3) | st.dictionaries(WORDS, below, max_size=3))


def quoted(text: str) -> str:
    return '"' + "".join(f"\\u{ord(c):04x}" if c in '"\\\n\t' else c for c in text) + '"'


def written(value: object, separator: str) -> str:
    """A value in TOML. ``separator``: between items of a list."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{quoted(k)} = {written(v, separator)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + "".join(f"{written(v, separator)},{separator}" for v in value) + "]"
    if isinstance(value, str):
        return f"'''\n{value}'''" if "'" not in value and separator != " " else quoted(value)
    return str(value).lower()


@given(st.dictionaries(WORDS, VALUES, max_size=4), st.lists(st.dictionaries(WORDS, VALUES, max_size=2), max_size=3),
       st.sampled_from([" ", "\n", " # [x]\n\n"]))
def test_any_document_is_scanned_as_it_is_parsed(top, tables, separator):
    rows = [f"{quoted(k)}.x = {written(v, separator)}" for k, v in top.items()]
    for table in tables:
        rows += ["[[t . 'u']] # =", *(f" {quoted(k)}={written(v, separator)}" for k, v in table.items()), "[t.u.v]"]
    text = "\n".join(rows)
    assert set(lines(text)) == set(paths(tomllib.loads(text)))


def test_a_key_is_found_in_its_table(tmp_path):
    path = tmp_path / "some.toml"
    path.write_text('rate = 1\ntext = """\nrate = 2\n"""\n[[link]]\nrate = 3\n[[link]]\nends = [\n  "a",\n  { rate = 4 } ]\n')
    document = documents.document(path)
    wanted = (("rate",), ("link", 0, "rate"), ("link", 1, "ends", 1, "rate"), ("link", 1, "rate"))
    assert [document.at(*keys) for keys in wanted] == [f"{path}:{line}" for line in (1, 6, 10, 7)]
    assert document.at("mtu") == str(path) and documents.document(None).at("mtu") == "defaults"
