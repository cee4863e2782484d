"""Looks at made-up switch processes, as looks.sample returns them, for tests of the page."""

from __future__ import annotations

from ina import topology as topologies


def ping(pid=77, program="fake.p4"):
    return {"pid": pid, "server": 0, "free_slots": 48, "wire": 2, "program": program, "source_hash": "0", "protocol": "switchml",
            "values": 32, "slots": 64}


def job(workers=2, tree=None, root="s1", ports=(0, 1), switches=None):
    return {"number": 3, "incarnation": 1, "life": 1, "workers": workers, "slots": 16, "strict": True, "check": "sum",
            "open": True, "owner": "user a", "root": root, "run_by": "process", "tree": tree,
            "switches": switches or {root: {"slot_base": 0, "children": [0, 1]}},
            "members": {str(i): {"pid": 100 + i, "host": f"h{i + 1}", "port": port, "ip": f"10.0.0.{i + 1}"}
                        for i, port in enumerate(ports)}}


def port(packets, size):
    return {"rx_packets": packets, "rx_bytes": size, "tx_packets": packets, "tx_bytes": size // 2,
            "drops": {"ingress": packets // 2, "egress": 0, "tail": 3}}


def local(at=10.0, packets=100, name="a", pid=77):
    """A process of this machine: one switch, two ports, one job."""
    return {"at": at, "ping": ping(pid), "jobs": {"jobs": {name: job()}},
            "counters": {"program": {"SwitchIngress.drops": [[0, 0], [4, 400]]},
                         "ports": {"0": port(packets, 100 * packets), "1": port(0, 0)}},
            "switches": {"switches": {"s1": {"slots": 64, "free_slots": 48, "state": "up", "jobs": [name]}}, "links": [],
                         "silent": []},
            "topology": {"topology": None}}


def network(at=10.0, packets=0, spec="leaf-spine leaves=2 spines=1 hosts=2", rate=10e9, faults=(), names=("a",)):
    """A testbed with a job over its first 16 hosts; each link has carried ``packets`` of 1,000 bytes up."""
    from ina.topology.tree import aggregation_tree

    net = topologies.specified(spec)
    hosts = [host.name for host in net.hosts[:16]]
    tree = aggregation_tree(net, hosts)
    links = {name: {"rate": rate, "up_packets": packets, "up_bytes": 1000 * packets, "up_tail_drops": 2, "down_packets": 0,
                    "down_bytes": 0, "down_tail_drops": 0, "down_buffer_drops": 0, "lost": 5, "errors": {"tx_full": 1}}
             for name in net.link_names()}
    began = {"state": "down", "reason": "it has no carrier", "began": 1e9, "noticed": 1e9, "ended": None, "rate": 0.0, "lost": 12,
             "moved": {}, "waited": ["a"], "waiting": ["a"]}
    parts = {"parent": tree.parent, "links": list(tree.links)}
    switches = {switch: {"slot_base": 0, "children": []} for switch in tree.switches}
    own = job(len(hosts), parts, tree.root, range(len(hosts)), switches)
    return {"at": at, "ping": ping(), "jobs": {"jobs": dict.fromkeys(names, own)},
            "counters": {"program": {}, "ports": {}, "links": links},
            "switches": {"switches": {switch.name: {"slots": 64, "free_slots": 48, "state": "up", "jobs": list(names)}
                                      for switch in net.switches},
                         "links": [{**began, "link": link} for link in faults],
                         "silent": [{"job": "a", "worker": 1, "host": "h2", "seconds": 5.4}]},
            "topology": {"topology": {"name": net.name, "nodes": [[node.name, node.like] for node in net.nodes],
                                      "links": [[link.a, link.b, rate, link.simplex] for link in net.links]}}}
