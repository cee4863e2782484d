"""Programs received over P4Runtime: built from source text, never from a file that the client names or code that it sends."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from hashlib import sha256
from pathlib import Path

import child
import pytest
from capabilities import need

need("cc", "p4runtime")

from controlled import SOURCE, fails  # noqa: E402
from v1_program import source  # noqa: E402

from ina.base import paths  # noqa: E402
from ina.p4.compiler import build, sandbox  # noqa: E402
from ina.p4.compiler.front.preprocess import preprocess, preprocess_text  # noqa: E402
from ina.p4.compiler.sandbox import Limits, NotCompiled, compile_text  # noqa: E402
from ina.p4.p4runtime.messages import p4  # noqa: E402
from ina.p4.runtime import Program  # noqa: E402

pytest_plugins = ("controlled",)  # its fixtures

ROOT = Path(__file__).resolve().parents[3]
SECRET = "root:$6$secret-of-the-owner:19000:0:99999:7:::"


@pytest.fixture
def own_cache(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("INA_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


# ---- what a config may be


@pytest.mark.build
def test_a_config_is_source_or_names_what_was_compiled_here(client, compiled, config):
    text, code = SOURCE.read_text(), compiled.so_path.read_bytes()
    forms = [text.encode(), json.dumps({"source": text}).encode(), sandbox.to_send(SOURCE), code,
             json.dumps({"compiled": sha256(code).hexdigest()}).encode(),
             json.dumps({"source": text, "defines": {"UNUSED": "1"}, "name": "other.p4"}).encode()]
    for data in forms:
        config.p4_device_config = data
        client.set_pipeline("VERIFY", config)
    config.p4_device_config = forms[-1]
    client.set_pipeline("VERIFY_AND_COMMIT", config)
    answer = client.call("GetForwardingPipelineConfig", p4.GetForwardingPipelineConfigRequest(device_id=1)).config
    assert answer.p4_device_config == forms[-1]


@pytest.mark.build
def test_the_config_of_the_owners_program_can_be_set_again(world, config, tmp_path):
    """A shared object outside of the cache is accepted, too: the switch's owner chose it."""
    device, _, client = world
    shutil.copy(build.compile_program(SOURCE).so_path, tmp_path / "mine.so")
    with open(tmp_path / "mine.so", "ab") as file:
        file.write(b"not as in the cache")
    device.load(Program(tmp_path / "mine.so"))
    answer = client.call("GetForwardingPipelineConfig", p4.GetForwardingPipelineConfigRequest(device_id=1)).config
    client.stream().arbitrate(1)
    client.set_pipeline("VERIFY_AND_COMMIT", answer)
    assert str(tmp_path) not in str(answer)


@pytest.mark.build
@pytest.mark.parametrize("data, text", [
    (b"", "empty"),
    (b"/no/such/program.p4", "opens no file that a client names"),
    (b'{"program": "x.p4"}', "expected {\"source\""),
    (b'{"source": "x", "extra": 1}', "p4c-bm2-ss"),
    (b'{"source": ["x"]}', "expected {\"source\""),
    (b'{"source": "x", "defines": {"A": 1}}', "macro 'A'"),
    (b'{"source": "x", "defines": {"A B": "1"}}', "macro 'A B'"),
    (b'{"source": "x", "defines": {"A": "1\\n#include \\"x\\""}}', "macro 'A'"),
    (b'{"source": "x", "name": "../../x.p4"}', "name '../../x.p4'"),
    (b'{"source": "x", "name": "x"}', "name 'x'"),
    (b'{"compiled": "../../etc/passwd"}', "compiled itself"),
    (b'{"compiled": "%s"}' % (b"0" * 64), "compiled itself"),
    (b'{"compiled": 3}', "expected {\"source\""),
    (b"\xff\xfe", "neither"),
    (b"{", "not JSON"),
    (b'{"a":' * 100_000, "not JSON"),
    (b"\x7fELF nothing", "compiled programs are code, and this switch runs none but what it has compiled itself"),
    (b"control", "does not compile"),
    (b'{"source": "const bit<8> a = \\ud800;"}', "does not compile"),
    (b"const bit<8> a = %s;" % (b"a" * 20_000), "name 'aaaa"),
    (b"const bit<8> a = %s;" % ("(" * 20_000).encode(), "nested more than"),
])
def test_configs_that_cannot_be_realised(client, config, data, text):
    config.p4_device_config = data
    message = fails("INVALID_ARGUMENT", client.set_pipeline, "VERIFY_AND_COMMIT", config).message
    assert text in message and ("not JSON" in text) == ("is not JSON" in message)
    answer = client.call("GetForwardingPipelineConfig", p4.GetForwardingPipelineConfigRequest(device_id=1))
    assert answer.config.cookie.cookie == 7


@pytest.mark.build
def test_objects_in_the_cache_that_are_no_programs_are_not_loaded(client, config, own_cache, tmp_path):
    """The cache also has protocols' workers, and objects that earlier versions kept from clients."""
    from ina.base.cc import shared_object

    (tmp_path / "worker.c").write_text("int worker;\n")
    worker = shared_object("worker", [], [tmp_path / "worker.c"])
    (own_cache / "received-0.so").write_bytes(_evil(tmp_path, tmp_path / "ran"))
    for path in (worker, own_cache / "received-0.so"):
        config.p4_device_config = path.read_bytes()
        assert "compiled itself" in fails("INVALID_ARGUMENT", client.set_pipeline, "VERIFY", config).message
    assert not (tmp_path / "ran").exists()


@pytest.mark.build
@pytest.mark.later
def test_source_with_its_includes_is_the_same_program(tmp_path):
    """Sources from `ina compile --device-config` are preprocessed twice; hashes of sources are compared between worlds."""
    for path in [*sorted(paths.p4_dir().glob("*.p4")), *sorted(paths.p4_dir().glob("tofino/*.p4"))]:
        folders = [paths.p4_dir()]
        direct = preprocess(path, include_dirs=folders)[0]
        sent = json.loads(sandbox.to_send(path, include_dirs=folders))["source"]
        again = preprocess_text(sent, path.name, files={})[0]
        assert build.source_hash(again) == build.source_hash(direct), path


# ---- the process that compiles


@pytest.mark.build
def test_a_program_is_compiled_once(own_cache, monkeypatch):
    first = compile_text(source("hdr.data.a = 7;"))
    assert Program(first.so_path).source_hash == first.source_hash and first.p4info["pkgInfo"]["arch"] == "v1model"
    monkeypatch.setattr(sandbox, "_run", lambda *_: pytest.fail("it is in the cache"))
    assert compile_text(source("hdr.data.a = 7;")) == first


@pytest.mark.build
def test_what_ships_with_the_project_can_be_included(own_cache):
    text = (paths.p4_dir() / "patch.p4").read_text()
    assert compile_text(text, "patch.p4").source_hash == build.compile_program(paths.p4_dir() / "patch.p4").source_hash


@pytest.mark.build
@pytest.mark.parametrize("form", [
    '#include "{0}"', "#include <{0}>", '#include "../../../../../..{0}"', "#include </p4include/../..{0}>",
    '#define PLACE "{0}"\n#include PLACE', '#line 1 "{0}"\nnonsense', '# 1 "{0}" 1\nnonsense',
    '#include <core.p4>\n#line 1 "{0}"\ncontrol C() {{ apply {{ undeclared = 1; }} }}', '@name("{0}") nonsense',
])
def test_no_line_of_another_file_comes_back(own_cache, tmp_path, caplog, form):
    (tmp_path / "secret").write_text(f"{SECRET}\n" * 3)
    with pytest.raises(NotCompiled) as caught:
        compile_text(form.format(tmp_path / "secret") + "\n")
    assert "secret-of-the-owner" not in str(caught.value) + caplog.text
    assert "not found" in str(caught.value) or "error" in str(caught.value)


@pytest.fixture
def reachable():
    """A folder that every user can read, unlike pytest's."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.mark.root
def test_the_compiler_runs_as_nobody(reachable, monkeypatch, caplog):
    """A fake C compiler prints its user and capabilities, and tries forbidden operations."""
    need("root")
    cache, secret, script = (reachable / name for name in ("cache", "secret", "cc"))
    secret.write_text(SECRET)
    secret.chmod(0o600)
    script.write_text(f"""#!/bin/sh
        [ "$1" = --version ] && exec echo 1
        exec >&2
        id -u; id -G; grep -h -e NoNewPrivs -e CapEff -e CapPrm /proc/self/status; cat {secret}; ls /sys/class/net
        touch {cache}/planted; ulimit -t; ulimit -f; echo "in $INA_CACHE$SECRET."; exit 1
    """)
    script.chmod(0o755)
    monkeypatch.setenv("INA_CACHE", str(cache))
    monkeypatch.setenv("CC", str(script))
    monkeypatch.setenv("SECRET", "of the environment")
    with pytest.raises(NotCompiled, match="the C compiler refuses the program: the switch's log says why") as caught:
        compile_text(source("hdr.data.a = 7;"), limits=Limits(seconds=600, output=1 << 20))
    log = caplog.text
    assert "65534\n65534\n" in log and "CapEff:\t0000000000000000" in log and "NoNewPrivs:\t1" in log, log
    assert SECRET not in log and "in ." in log and not (cache / "planted").exists()
    assert "\n600\n" in log and str(reachable) not in str(caught.value)


@pytest.mark.root
@pytest.mark.gate
@pytest.mark.parametrize("program", ["switchml.p4", "tofino/switchml.p4"])
def test_a_program_is_compiled_where_nobody_else_may_read_the_package(tmp_path, program):
    """Root's own folder: nothing of the package is opened once the process has become `nobody`."""
    need("root")
    for folder in ("ina", "host", "p4"):
        shutil.copytree(ROOT / folder, tmp_path / "own" / folder, ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "own").chmod(0o700)
    text = sandbox.to_send(ROOT / "p4" / program).decode()
    code = "import json, sys\nfrom ina.p4.compiler.sandbox import compile_text\ncompile_text(json.load(sys.stdin)['source'])\n"
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "own"), "INA_CACHE": str(tmp_path / "cache")}
    done = child.run([sys.executable, "-c", code], cwd=tmp_path, env=environment, input=text)
    assert done.returncode == 0, done.stderr
    assert list((tmp_path / "cache").rglob("*.so"))


DOUBLING = "".join(f"#define A{i + 1} A{i} A{i} A{i} A{i}\n" for i in range(60)) + "A60\n"


@pytest.mark.build
@pytest.mark.parametrize("text, limits", [
    pytest.param(DOUBLING, Limits(seconds=5), marks=pytest.mark.later),
    pytest.param(DOUBLING, Limits(seconds=600, memory=300 << 20), marks=pytest.mark.later),
    ("control C() { apply { x = " + "(" * 100_000 + "1; } }", Limits(seconds=600)),
], ids=["time", "memory", "depth"])
def test_a_source_that_takes_too_much_is_refused(own_cache, text, limits):
    with pytest.raises(NotCompiled):
        compile_text(text, limits=limits)
    assert list(own_cache.iterdir()) == []


@pytest.mark.build
def test_only_so_much_source_is_taken():
    with pytest.raises(NotCompiled, match="expected"):
        compile_text(" " * (sandbox.LONGEST + 1))


# ---- another user on the same machine, and a switch run by root


def _evil(folder: Path, mark: Path) -> bytes:
    """A shared object that leaves a mark as soon as it is loaded."""
    (folder / "evil.c").write_text(
        f'#include <stdio.h>\n__attribute__((constructor)) static void run(void) {{ fclose(fopen("{mark}", "w")); }}\n'
    )
    subprocess.run(["cc", "-shared", "-fPIC", folder / "evil.c", "-o", folder / "evil.so"], check=True)
    return (folder / "evil.so").read_bytes()
