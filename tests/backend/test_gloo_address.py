"""The address at which the Gloo inside a group listens, where the machine's own name leads to the loopback."""

from __future__ import annotations

import socket
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from capabilities import need
from waiting import LONG

need("torch")

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

from ina.backend import gloo_address, inner_gloo  # noqa: E402
from ina.backend.gloo_address import Report  # noqa: E402
from ina.net.interfaces import source_towards  # noqa: E402

pytestmark = pytest.mark.fast


def report(machine, own="", towards="", named=False):
    return Report(f"server{machine}", str(machine), 1, named, own, towards)


def choices(*reports):
    return [gloo_address.address_of(rank, reports) for rank in range(len(reports))]


@pytest.fixture
def names(monkeypatch):
    """Addresses of names, by which both this machine's own name and others are looked up."""
    table: dict[str, list[str]] = {}

    def look_up(name, port, type=0):
        if name not in table:
            raise socket.gaierror(socket.EAI_NONAME, "no such name")
        return [(socket.AF_INET6 if ":" in ip else socket.AF_INET, type, 0, "", (ip, port)) for ip in table[name]]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    monkeypatch.setattr(socket, "gethostname", lambda: "self")
    return table


def test_ranks_of_one_machine_leave_it_to_torch():
    assert choices(report(1), report(1)) == ["", ""]


def test_a_rank_takes_the_address_towards_the_store():
    assert choices(report(1, towards="10.1.0.1"), report(2, towards="10.2.0.1")) == ["10.1.0.1", "10.2.0.1"]


def test_one_whose_own_name_is_right_keeps_it():
    assert choices(report(1, own="10.1.0.1"), report(2, towards="10.2.0.1"), report(3, named=True)) == ["", "10.2.0.1", ""]


def test_the_store_s_own_machine_takes_the_address_towards_others(monkeypatch):
    monkeypatch.setattr(gloo_address, "source_towards", {"10.2.0.1": "10.1.0.1"}.__getitem__)
    assert choices(report(1), report(1), report(2, towards="10.2.0.1")) == ["10.1.0.1", "10.1.0.1", "10.2.0.1"]


def test_where_none_is_known_all_ranks_say_so():
    reports = [report(1), report(2, named=True)]
    for rank in range(2):
        with pytest.raises(RuntimeError, match=r"ranks \[0\] \(server1\) do not know .* set GLOO_SOCKET_IFNAME"):
            gloo_address.address_of(rank, reports)


def test_a_rank_without_a_way_to_the_others_says_so(monkeypatch):
    monkeypatch.setattr(gloo_address, "source_towards", lambda host: "127.0.0.1")
    with pytest.raises(RuntimeError, match=r"ranks \[0\] \(server1\)"):
        gloo_address.address_of(0, [report(1), report(2, own="10.2.0.1")])


@pytest.mark.parametrize(("addresses", "own"), [
    (["127.0.1.1"], ""), ([], ""), (["::1"], ""), (["203.0.113.9"], ""),  # none of this machine's: sockets cannot have it
    (["203.0.113.9", "127.0.0.1"], ""),
])
def test_what_others_cannot_reach_is_no_own_address(names, addresses, own):
    names["self"] = addresses
    assert gloo_address.own_name_address() == own
    del names["self"]
    assert gloo_address.own_name_address() == ""


def test_a_report_says_where_a_rank_is_reached(names, monkeypatch):
    monkeypatch.delenv("GLOO_SOCKET_IFNAME", raising=False)
    monkeypatch.setenv("MASTER_ADDR", "head")
    monkeypatch.setattr(gloo_address, "source_towards", {"head": "10.1.0.1"}.__getitem__)
    names["self"] = ["127.0.1.1"]
    here = Report.here(dist.HashStore())
    assert (here.named, here.own, here.towards, here.address) == (False, "", "10.1.0.1", "10.1.0.1")
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "eth0")
    here = Report.here(dist.HashStore())
    assert (here.named, here.own, here.towards) == (True, "", "")


def test_the_way_to_this_machine_is_the_loopback(names):
    names["self"] = ["127.0.0.1"]
    assert source_towards("self").startswith("127.")
    names["nobody"] = []
    with pytest.raises(OSError, match="nobody has no address"):
        source_towards("nobody")


def test_a_missing_rank_is_named():
    with pytest.raises(RuntimeError, match=r"ranks \[1\] of 2 did not say within 0.1 s where their Gloo listens"):
        gloo_address.choose(dist.HashStore(), 0, 2, timedelta(seconds=0.1))


def test_ranks_of_several_machines_sum_at_addresses_that_they_choose(monkeypatch):
    """Their machines are made up; the address that both choose is the loopback's, as no other is sure to be there."""
    here = iter([report(1, towards="127.0.0.1"), report(2, towards="127.0.0.1")])
    monkeypatch.setattr(Report, "here", classmethod(lambda cls, store: next(here)))
    monkeypatch.setattr(inner_gloo, "_loops", {})
    monkeypatch.delenv("GLOO_SOCKET_IFNAME", raising=False)
    store = dist.HashStore()

    def of(rank):
        group = inner_gloo.inner_gloo(store, rank, 2, timedelta(seconds=LONG))
        values = torch.full((10,), float(rank + 1))
        group.allreduce([values]).wait()
        return values.unique().tolist()

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(of, range(2))) == [[3.0], [3.0]]
    assert {address for _, _, address in inner_gloo._loops} == {"127.0.0.1"}
