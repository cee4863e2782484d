"""The tests' environment: settings that they inherit from the shell that starts them."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.build


def test_a_process_of_a_test_takes_an_interrupt():
    child = subprocess.Popen([sys.executable, "-c", "import time; print(flush=True); time.sleep(60)"], stdout=subprocess.PIPE)
    try:
        child.stdout.readline()
        child.send_signal(signal.SIGINT)
        assert child.wait(30) == -signal.SIGINT
    finally:
        child.kill()
        child.wait()
        child.stdout.close()


def test_it_does_so_where_the_shell_ignores_interrupts():
    """`sh -c "make test &"` starts the tests that way."""
    ignoring = f"import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_IGN); os.execv({sys.executable!r}, sys.argv[1:])"
    one = f"{Path(__file__)}::{test_a_process_of_a_test_takes_an_interrupt.__name__}"
    command = [sys.executable, "-c", ignoring, sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", one]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout
