"""Trainings whose workers are taken away and come back, against sums by hand, a closed form, and each other."""

import json
import math
from dataclasses import asdict, replace

import pytest
from capabilities import need

from ina.base.settings import ConfigError
from ina.lab.kinds import preemption
from ina.lab.kinds.preemption import LOST, USEFUL, WAITING, EarlySum, Preemption, WrongSum
from ina.lab.results import why
from ina.lab.results.record import load
from ina.lab.virtual import membership
from ina.lab.virtual.membership import Change
from ina.worlds.virtual.fabric import Fabric

HEADER = "time_s,worker,event\n"
WIRE = 8 * (1024 + 64 + 24) / 200e6  # s of a full packet on a wire: values, headers, preamble and gap
BASE = Preemption(workers=4, elements=256 * 40, seconds=20.0)


def step(packets: int = 40, compute: float = 0.2, delay: float = 0.5e-3) -> float:
    """Seconds of a step by hand: a round trip for the first exponents, one for the first values, and the other packets."""
    return compute + 2 * (2 * delay + 2 * WIRE) + (packets - 1) * WIRE


def followed(tmp_path, lines, **keys):
    """Runs the training of a trace's lines."""
    (tmp_path / "trace.csv").write_text(HEADER + "".join(f"{line}\n" for line in lines))
    (run,) = replace(BASE, trace=str(tmp_path / "trace.csv"), **keys).measure()
    return run


@pytest.mark.build
def test_steps_without_preemption_take_what_their_bytes_take():
    need("cc")
    (run,) = replace(BASE, between=0.0).measure()
    assert run.alone == pytest.approx(step(), abs=1e-11)
    assert run.ends == pytest.approx([(1 + number) * step() for number in range(math.floor(20 / step()))], abs=1e-8)
    assert run.summary()["left"] == pytest.approx(1, abs=step() / 20) and run.again == run.taken == 0 and run.jobs == 1
    assert run.share(USEFUL) == pytest.approx(run.ends[-1] / 20)


@pytest.mark.build
@pytest.mark.parametrize("into", [0.05, 0.202])  # while all compute, and in the middle of the all-reduce
def test_a_step_is_begun_again_without_the_one_that_left_and_with_it_when_it_is_back(tmp_path, into):
    """Two steps, one thrown away, as long as it takes to notice, steps of three until the fourth has the state, and all again."""
    need("cc")
    one = step()
    left = 2 * one + into
    back = left + 1 + 3.5 * one - 0.3  # it has the state in the middle of the fourth step of three
    run = followed(tmp_path, [f"{left:.12f},3,leave", f"{back:.12f},3,join"], join=0.3)
    again = left + 1
    assert run.ends[:10] == pytest.approx([one, 2 * one, *(again + number * one for number in range(1, 9))], abs=1e-8)
    assert run.sizes[:10] == [4, 4, 3, 3, 3, 3, 4, 4, 4, 4]
    assert (run.again, run.taken, run.jobs) == (1, 1, 3)
    assert run.phases[2:4] == [(LOST, pytest.approx(left)), (WAITING, pytest.approx(again))]
    assert run.share(LOST) == pytest.approx(into / 20) and run.share(WAITING) == pytest.approx(1 / 20)
    compute = [3 * 0.2 + min(into, 0.2), 3 * (into + 1 - 0.2) + max(0, into - 0.2)]
    assert run.thrown_away == pytest.approx(compute, abs=1e-8)
    assert [count for _, count in run.members] == [4, 3, 3, 4, 0]


@pytest.mark.build
def test_a_step_is_over_without_one_that_has_sent_all(tmp_path):
    """Its last packet is on its way to the others, who have the sum; what is thrown away is the step after it."""
    need("cc")
    run = followed(tmp_path, [f"{step() - 0.2e-3:.12f},0,leave"])
    assert run.ends[0] == pytest.approx(step(), abs=1e-8) and run.sizes[:2] == [4, 3]
    assert run.share(LOST) == 0 and run.share(WAITING) == pytest.approx((1 - 0.2e-3) / 20)


@pytest.mark.build
def test_nobody_computes_while_too_few_are_there(tmp_path):
    """Two of three leave, so the third goes on alone, or waits for one that comes at 5 s and has the state 2 s later."""
    need("cc")
    lines = ["1.05,0,leave", "1.06,1,leave", "5,3,join", "9,2,leave", "9.01,3,leave", "12,0,join"]
    alone, not_alone = (followed(tmp_path, lines, least=least) for least in (1, 2))
    assert alone.sizes[:6] == [3] * 5 + [1] and alone.ends[5] == pytest.approx(2.05 + step(), abs=1e-8)
    assert not_alone.sizes == [3] * 5 + [2] * (len(not_alone.sizes) - 5)
    assert not_alone.ends[5] == pytest.approx(7 + step(), abs=1e-8)  # the other one has come, and has the state
    assert not_alone.ends[-1] < 9 and not [end for end in alone.ends if 9 < end < 14] and alone.ends[-1] > 19  # everybody goes
    assert not_alone.phases[-1] == (WAITING, 20.0)


@pytest.mark.build
@pytest.mark.parametrize("between", [4.0, 8.0, 40.0])
def test_throughput_is_that_of_the_closed_form(between):
    """Restarts of a step of T s, by departures of workers who come back at once, at the rate L of all: each costs what was done,
    and D s until it is noticed, so a step takes (exp(L T) - 1) (1/L + D) on average. It is our own estimate: departures while the
    last packets are on the wire throw nothing away."""
    need("cc")
    config = replace(BASE, between=between, away=0.0, join=0.0, detect=0.1, seconds=700.0, elements=256)
    (run,) = config.measure()
    rate, whole = config.workers / between, step(1)
    expected = math.expm1(rate * whole) * (1 / rate + config.detect)
    assert 700 / len(run.ends) == pytest.approx(expected, rel=0.04)
    assert run.taken == pytest.approx(700 * rate, abs=4 * math.sqrt(700 * rate)) and {*run.sizes} == {4}
    assert run.share(USEFUL) == pytest.approx(whole / expected, rel=0.04)


@pytest.mark.build
@pytest.mark.parametrize("keys", [
    {"loss": 0.02, "duplicate": 0.02, "reorder": 0.02}, {"topology": "leaf-spine leaves=2 spines=1 hosts=4"},
    {"protocol": "quorum"}, {"payload": False, "check": "off"},
], ids=str)
def test_sums_are_exact_however_often_jobs_change(keys):
    """Every sum is compared as it comes; hundreds of jobs, which have the slots and the addresses of those before them."""
    need("cc")
    often = replace(BASE, workers=8, elements=2560, between=3.0, away=2.0, detect=0.05, join=0.1, computing=0.02, seconds=120.0)
    (run,) = replace(often, **keys).measure()
    assert run.jobs > 256 and run.again > 50  # so numbers of jobs are given again
    assert len({*run.sizes}) > 5
    assert run.summary()["sums"] == ("not checked" if "payload" in keys else None)


@pytest.mark.build
def test_a_seed_gives_the_same_bytes():
    need("cc")
    first, second, other = (asdict(replace(BASE, between=5.0, away=2.0, seed=seed).measure()[0]) for seed in (1, 1, 2))
    assert first == second and first["stats"]["network"]["digest"] != other["stats"]["network"]["digest"]


@pytest.mark.build
def test_wrong_sums_and_early_ones_are_errors(monkeypatch):
    need("cc")
    config = replace(BASE, between=20.0)
    with monkeypatch.context() as patched:
        patched.setattr(preemption._Training, "_least_time", lambda self: round(1e12 * (step() - 0.2 + 1e-6)))
        with pytest.raises(EarlySum, match="after the members have given, expected at least"):
            config.measure()
    assert config.measure()
    submit = Fabric.submit

    def other(self, machine, source, out, **keys):  # of a worker in the second job
        return submit(self, machine, source + (machine == 5), out, **keys)

    monkeypatch.setattr(Fabric, "submit", other)
    with pytest.raises(WrongSum, match=r"another sum than that of the workers \(.*\), the members of job 2"):
        config.measure()


@pytest.mark.build
def test_a_run_of_the_command_has_a_table_figures_and_a_reason(tmp_path, monkeypatch, capsys):
    need("cc", "matplotlib")
    from ina.cli import main

    monkeypatch.chdir(tmp_path)
    (tmp_path / "spot.csv").write_text(f"# of a test\n{HEADER}2.5,3,leave\n6,3,join\n")
    keys = ["trace=spot.csv", "seconds=10", "between=120", "sample=0.5"]
    assert main(["experiment", "run", "preemption", *(word for text in keys for word in ("--set", text))]) == 0
    assert "steps begun again" in capsys.readouterr().out
    folder = next((tmp_path / "results").rglob("metrics.json")).parent
    (finding,) = why.explain(load(folder))
    page = (folder / "report.html").read_text()
    assert all(caption in page for caption in ("Workers in the job", "Gradients in sums", "Where the time goes"))
    assert finding.bound == "preemption" and "1 step begun again" in finding.shown and "of 8 workers were there" in finding.shown
    assert json.loads((folder / "metrics.json").read_text())["summary"][0]["taken"] == 1
    spans = json.loads((folder / "trace.json").read_text())["traceEvents"]
    assert any(event["name"].startswith("all-reduce of step 11") for event in spans)


# ---- traces


@pytest.mark.fast
def test_a_file_says_who_is_there_first_and_what_changes(tmp_path):
    path = tmp_path / "trace.csv"
    path.write_text(f"# ours\n{HEADER}\n0.5, 1 ,leave\n0.5,2,join\n# later\n7e1,1,join\n")
    read = membership.read(path, 3)
    assert read.first == (0, 1)
    assert read.changes == [Change(5 * 10**11, 1, False), Change(5 * 10**11, 2, True), Change(70 * 10**12, 1, True)]


@pytest.mark.fast
@pytest.mark.parametrize(("text", "message"), [
    ("", "trace.csv: expected the columns time_s,worker,event in the first line"),
    ("time,worker,event\n", "expected the columns"),
    (HEADER + "1,0\n", "trace.csv:2: '1,0': expected the 3 fields"),
    (HEADER + "soon,0,leave\n", "trace.csv:2: time_s: 'soon': expected seconds, 0 to 1e.06"),
    (HEADER + "nan,0,leave\n", "time_s: 'nan'"), (HEADER + "-1,0,leave\n", "time_s: '-1'"), (HEADER + "1e7,0,leave\n", "time_s"),
    (HEADER + "5,0,leave\n# then\n4,1,leave\n", "trace.csv:4: time_s: '4': expected at least 5, the time of the line before"),
    (HEADER + "1,4,leave\n", "trace.csv:2: worker: '4': expected 0 to 3"), (HEADER + "1,-1,leave\n", "worker: '-1'"),
    (HEADER + f"1,{'1' * 5000},leave\n", "worker: '1111"),
    (HEADER + "1,0,go\n", "trace.csv:2: event: 'go': expected leave or join"),
    (HEADER + "1,0,leave\n2,0,leave\n", "trace.csv:3: event: worker 0 is away already, expected join"),
    (HEADER + "1,0,join\n2,0,join\n", "trace.csv:3: event: worker 0 is there already, expected leave"),
])
def test_a_wrong_file_is_refused_with_line_and_field(tmp_path, text, message):
    (tmp_path / "trace.csv").write_text(text)
    with pytest.raises(ConfigError, match=message):
        membership.read(tmp_path / "trace.csv", 4)


@pytest.mark.fast
def test_a_file_of_a_spreadsheet_is_read(tmp_path):
    """With a byte order mark and ends of lines of two characters."""
    path = tmp_path / "trace.csv"
    path.write_bytes(b"\xef\xbb\xbf" + f"{HEADER}1,0,leave\n".replace("\n", "\r\n").encode())
    assert membership.read(path, 2).changes == [Change(10**12, 0, False)]


@pytest.mark.fast
def test_a_file_that_is_no_text_is_refused(tmp_path):
    (tmp_path / "trace.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="not a text file"):
        membership.read(tmp_path / "trace.csv", 4)
    with pytest.raises(ConfigError, match="No such file"):
        membership.read(tmp_path / "none.csv", 4)


@pytest.mark.fast
def test_drawn_times_have_their_means():
    changes = iter(membership.drawn(3, 5, 10.0, 2.0).changes)
    some = [next(changes) for _ in range(20_000)]
    assert some == sorted(some) and some[-1].time / 1e12 == pytest.approx(20_000 / 2 * 12 / 5, rel=0.03)
    own = [change for change in some if change.worker == 1]
    assert [change.joins for change in own] == [bool(number % 2) for number in range(len(own))]
    away = sum(join.time - leave.time for leave, join in zip(own[::2], own[1::2], strict=False))
    assert away / 1e12 / (len(own) // 2) == pytest.approx(2.0, rel=0.08)
    assert list(membership.drawn(3, 5, 0.0, 2.0).changes) == []


@pytest.mark.fast
def test_a_wrong_trace_is_refused_before_anything_runs(tmp_path):
    (tmp_path / "trace.csv").write_text(HEADER + "1,9,leave\n")
    with pytest.raises(ConfigError, match="trace.csv:2: worker: '9': expected 0 to 3"):
        replace(BASE, trace=str(tmp_path / "trace.csv"))


@pytest.mark.fast
@pytest.mark.parametrize(("keys", "message"), [
    ({"least": 5}, "least"), ({"least": 0}, "least"), ({"seconds": 0.0}, "seconds"),
    ({"trace": "none.csv"}, "trace = 'none.csv': expected the path of a CSV file"),
    ({"computing": 0.0}, "computing"), ({"timeout": 1.1}, "timeout"), ({"algorithm": "ring"}, "algorithm"),
    ({"protocol": "atp"}, "protocol"), ({"jobs": 2}, "jobs"), ({"check": "keyed"}, "check"), ({"dtype": "int32"}, "dtype"),
])
def test_what_makes_no_sense_is_refused(keys, message):
    with pytest.raises(ConfigError, match=message):
        replace(BASE, **keys)
