"""Notices on standard error: of what takes long, once for several processes, and nothing where nobody wants them."""

from __future__ import annotations

import os
import re

import pytest
from v1_program import source
from waiting import until

from ina.base import notices


@pytest.fixture
def loud(monkeypatch):
    """Notices as users see them, and often."""
    monkeypatch.delenv("INA_QUIET")
    monkeypatch.setattr(notices, "SOON", 0.01)
    monkeypatch.setattr(notices, "EVERY", 0.01)


@pytest.mark.fast
def test_what_takes_long_is_said_at_once_and_again(loud, tmp_path, capsys):
    heard: list[str] = []
    with notices.going_on("compiles a.p4", "once: it is kept", tmp_path / "lock"):
        until(lambda: heard.extend(capsys.readouterr().err.splitlines()) or len(heard) >= 3, "three lines")
    assert heard[0] == "ina: compiles a.p4 (once: it is kept)"
    assert all(re.fullmatch(r"ina: compiles a\.p4: \d+ s", line) for line in heard[1:])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.fast
def test_what_ends_soon_is_not_said(loud, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(notices, "SOON", 60.0)
    with notices.going_on("compiles a.p4", "once", tmp_path / "lock"):
        pass
    assert capsys.readouterr().err == ""


@pytest.mark.fast
def test_the_second_process_at_the_same_thing_says_nothing(loud, tmp_path, capsys):
    with notices.going_on("compiles a.p4", "once", tmp_path / "lock"):
        until(lambda: "compiles" in capsys.readouterr().err, "the first one's line")
        with notices.going_on("compiles it, too", "once", tmp_path / "lock"):
            heard: list[str] = []
            until(lambda: heard.append(capsys.readouterr().err) or "ina: compiles a.p4: " in "".join(heard), "one more line")
    assert "too" not in "".join(heard) + capsys.readouterr().err
    with notices.going_on("compiles it again", "once", tmp_path / "lock"):
        until(lambda: "again" in capsys.readouterr().err, "the next one's line")


@pytest.mark.fast
def test_an_error_of_the_block_comes_through_and_leaves_no_lock(loud, tmp_path):
    with pytest.raises(ValueError, match="wrong"), notices.going_on("compiles a.p4", "once", tmp_path / "lock"):
        raise ValueError("wrong")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.fast
def test_a_descriptor_gets_them_and_is_closed(capsys):
    reading, writing = os.pipe()
    with notices.to(writing):
        notices.notice("hello")
    assert os.read(reading, 100) == b"ina: hello\n" and os.read(reading, 100) == b""  # nobody has the other end any more
    os.close(reading)
    assert capsys.readouterr().err == ""


@pytest.mark.fast
def test_a_descriptor_that_nobody_reads_is_no_error():
    reading, writing = os.pipe()
    os.close(reading)
    with notices.to(writing):
        notices.notice("hello")


@pytest.mark.fast
@pytest.mark.parametrize(("setting", "heard"), [("true", ""), ("false", "ina: hello\n"), ("", "ina: hello\n")])
def test_the_environment_leaves_them_out(monkeypatch, capsys, setting, heard):
    monkeypatch.setenv("INA_QUIET", setting)
    notices.notice("hello")
    assert capsys.readouterr().err == heard


@pytest.mark.build
def test_compiling_a_program_is_said_once_and_not_what_is_cached(loud, tmp_path, monkeypatch, capsys):
    from ina.p4.compiler import build

    monkeypatch.setenv("INA_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "program.p4"
    path.write_text(source("hdr.data.a = 7;"))
    build.compile_program(path, cflags=["-O0"])
    first, *more = capsys.readouterr().err.splitlines()
    assert first == f"ina: compiles {path} (once: it is kept in {tmp_path}/cache)"
    assert all(line.startswith(f"ina: compiles {path}: ") for line in more)
    build.compile_program(path, cflags=["-O0"])
    assert capsys.readouterr().err == ""
