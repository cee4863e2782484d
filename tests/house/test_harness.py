"""The tests' environment: settings that they inherit from the shell that starts them."""

import signal
import subprocess
import sys
from collections import Counter
from multiprocessing import shared_memory
from pathlib import Path

import pytest
import ranks
from waiting import until

pytestmark = pytest.mark.build


def test_a_process_of_a_test_takes_an_interrupt():
    child = subprocess.Popen([sys.executable, "-c", "import time; print(flush=True); time.sleep(10000)"], stdout=subprocess.PIPE)
    try:
        child.stdout.readline()
        child.send_signal(signal.SIGINT)
        assert until(child.poll, "the end of the child") == -signal.SIGINT
    finally:
        child.kill()
        child.wait()
        child.stdout.close()


def test_it_does_so_where_the_shell_ignores_interrupts():
    """`sh -c "make test &"` starts the tests that way."""
    ignoring = f"import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_IGN); os.execv({sys.executable!r}, sys.argv[1:])"
    one = f"{Path(__file__)}::{test_a_process_of_a_test_takes_an_interrupt.__name__}"
    command = [sys.executable, "-c", ignoring, sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", one]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_shared_memory_of_a_process_that_lives_is_not_left_behind():
    segment = shared_memory.SharedMemory(create=True, size=4096)
    try:
        assert segment.name in ranks.shared_memory() and ranks.mapped(segment.name)
        segment.close()
        assert segment.name in ranks.shared_memory() and not ranks.mapped(segment.name)
    finally:
        segment.unlink()


def test_no_two_files_of_tests_have_one_name():
    """Folders of tests are no packages: pytest would import the first file for both."""
    names = Counter(path.name for path in Path(__file__).parents[1].rglob("test_*.py"))
    assert names["test_harness.py"] == 1 and [name for name, count in names.items() if count > 1] == []
