"""Protocols of other packages, by entry point: found by name everywhere, and errors that name the package."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import child
import pytest
from capabilities import need

from ina import cli
from ina.aggregation import protocols, skeleton
from ina.base import paths
from ina.base.settings import ConfigError
from ina.lab.kinds.allreduce import AllReduce

GOOD = "from pathlib import Path\nPROGRAM = Path(__file__).with_name('toy.p4')\n"


@pytest.fixture
def site(tmp_path, monkeypatch):
    """A folder of installed packages; what was known of packages before is forgotten, and of these afterwards."""
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(folder)

    def forget() -> None:
        protocols._entry_points.cache_clear()
        protocols._installed.cache_clear()

    forget()
    yield folder
    forget()


def install(site: Path, package: str, module: str, name: str = "toy", files: tuple[str, ...] = ()) -> None:
    """Writes what pip leaves of a package with an entry point, and empty ``files``."""
    (site / package).mkdir(exist_ok=True)
    (site / package / "__init__.py").write_text(module)
    for file in files:
        (site / package / file).touch()
    record = site / f"{package}-1.5.dist-info"
    record.mkdir()
    (record / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.5\n")
    (record / "entry_points.txt").write_text(f"[{protocols.GROUP}]\n{name} = {package}:PROGRAM\n")


@pytest.mark.build
def test_a_package_has_a_protocol(site, tmp_path, capsys):
    need("cc")
    skeleton.write("toy", site / "pkg_whole", "maximum")
    install(site, "pkg_whole", GOOD)
    program = site / "pkg_whole/toy.p4"
    assert cli.main(["programs"]) == 0
    assert [line for line in capsys.readouterr().out.splitlines() if line.startswith("toy ")]
    assert cli.main(["programs", "toy", "--path"]) == 0 and capsys.readouterr().out == f"{program}\n"
    assert cli.main(["compile", "toy", "-D", "VALUES=64", "-D", "SLOTS=64"]) == 0
    keys = {"kind": "allreduce", "name": "t", "world": "virtual", "protocol": "toy", "values": 64, "elements": 300, "workers": 3}
    (tmp_path / "t.toml").write_text("".join(f"{key} = {json.dumps(value)}\n" for key, value in keys.items()))
    assert cli.main(["experiment", "run", str(tmp_path / "t.toml"), "--results", str(tmp_path / "results")]) == 0
    (config,) = (tmp_path / "results").rglob("config.json")  # every result was compared with the oracle
    assert json.loads(config.read_text())["protocol"] == "toy"


@pytest.mark.build
def test_the_guide_s_package_is_installed_by_pip(site, tmp_path, monkeypatch, capsys):
    need("cc")
    page = (paths.root() / "docs/guide/new-protocol.md").read_text()
    part = page.partition("## In a package of your own\n")[2].partition("\n## ")[0]
    monkeypatch.chdir(tmp_path)
    assert cli.main(["protocol", "new", "toy", "toy_package"]) == 0
    for file, language in (("pyproject.toml", "toml"), ("toy_package/__init__.py", "python")):
        (text,) = re.findall(rf"```{language}\n(.*?)```", part, re.DOTALL)
        Path(file).write_text(text)
    for line in re.search(r"```\n(pyproject.*?)```", part, re.DOTALL)[1].split():
        assert Path(line).is_file(), line
    child.run([sys.executable, "-m", "pip", "install", "--quiet", "--no-build-isolation", "--no-deps", "--no-index",
               "--target", site, "."], check=True)
    protocols._entry_points.cache_clear()
    capsys.readouterr()
    assert cli.main(["programs", "toy", "--path"]) == 0
    assert capsys.readouterr().out == f"{site / 'toy_package/toy.p4'}\n"
    assert cli.main(["compile", "toy", "-D", "VALUES=64", "-D", "SLOTS=64"]) == 0


BROKEN = {
    "raises": ("raise RuntimeError('no luck')", (), "cannot be imported: RuntimeError: no luck"),
    "nothing": ("", (), "cannot be imported: AttributeError"),
    "type": ("PROGRAM = 7", (), r"is of type int, expected the path of toy\.p4"),
    "stem": (GOOD.replace("toy.p4", "other.p4"), (), r"other\.p4, expected a file toy\.p4"),
    "parts": (GOOD, ("toy.p4", "toy.py"), r"lacks toy\.c: a protocol is a program, a worker and entries"),
}


@pytest.mark.fast
@pytest.mark.parametrize("kind", BROKEN)
def test_a_package_that_cannot_be_used_is_named(site, kind, capsys):
    module, files, words = BROKEN[kind]
    install(site, f"pkg_{kind}", module, files=files)
    with pytest.raises(ConfigError, match=f"protocol = 'toy': package pkg_{kind} 1.5, entry point toy = .*{words}"):
        AllReduce(protocol="toy")
    assert AllReduce(protocol="switchml").protocol == "switchml"
    assert cli.main(["programs"]) == 0 and f"cannot be used: package pkg_{kind} 1.5" in capsys.readouterr().out


@pytest.mark.fast
def test_names_that_collide(site):
    install(site, "pkg_one", GOOD, files=("toy.p4", "toy.py", "toy.c"))
    install(site, "pkg_two", GOOD, files=("toy.p4", "toy.py", "toy.c"))
    with pytest.raises(ConfigError, match=r"package pkg_(one|two) 1\.5 and pkg_(one|two) 1\.5 each have a protocol 'toy'"):
        AllReduce(protocol="toy")
    install(site, "pkg_ours", GOOD, name="switchml")
    protocols._entry_points.cache_clear()
    with pytest.raises(ConfigError, match=r"'switchml' is a protocol of ina, and package pkg_ours 1\.5 has an entry point"):
        AllReduce(protocol="switchml")


@pytest.mark.fast
def test_a_name_that_nobody_has(site):
    install(site, "pkg_known", GOOD, files=("toy.p4", "toy.py", "toy.c"))
    with pytest.raises(ConfigError, match=r"protocol = 'tyo': expected one of switchml, .*, toy, or the path of a \.p4 file"):
        AllReduce(protocol="tyo")
