"""Lists of digests, as a DigestEntry's configuration says (P4Runtime 9.7)."""

from __future__ import annotations

import pytest
from capabilities import need

need("p4runtime")

from ina.p4.p4runtime.digests import DigestQueue  # noqa: E402
from ina.p4.p4runtime.messages import config as p4config  # noqa: E402
from ina.p4.p4runtime.messages import p4  # noqa: E402
from ina.p4.runtime import Digest  # noqa: E402

pytestmark = pytest.mark.fast


@pytest.mark.parametrize("ack_timeout", [0, 10**12])
def test_no_list_of_digests_is_longer_than_the_last_modify_says(ack_timeout):
    info = p4config.P4Info()
    info.digests.add().preamble.id, info.digests[0].preamble.name = 1, "learn"
    info.digests[0].type_spec.bitstring.bit.bitwidth = 16
    queue = DigestQueue(info, {"digests": [{"name": "learn", "fields": [{"name": "a", "width": 16}]}]})

    def set_size(type_, size):
        config = p4.DigestEntry.Config(max_list_size=size, max_timeout_ns=10**10, ack_timeout_ns=ack_timeout)
        queue.configure(queue.updated(queue.kinds(), type_, p4.DigestEntry(digest_id=1, config=config)))

    def come(*values, now=0):
        queue.add([Digest(now, 1, "learn", {"a": value}, b"") for value in values], now)

    def sent(now=0):
        lists = queue.due(now)
        assert len({each.list_id for each in lists}) == len(lists)
        return [[int.from_bytes(d.bitstring, "big") for d in each.data] for each in lists]

    set_size("INSERT", 5)
    come(*range(1, 9))  # five are a list, three wait
    set_size("MODIFY", 2)
    come(9)
    assert sent() == [[1, 2], [3, 4], [5], [6, 7], [8, 9]]
    set_size("MODIFY", 5)
    come(11, 12, 13)
    set_size("MODIFY", 2)
    assert sent() == [[11, 12], [13]]
    come(1, 2)
    assert sent() == ([] if ack_timeout else [[1, 2]])  # sent, not acknowledged
    set_size("MODIFY", 0)  # as many as the server likes
    come(21, 22)
    assert sent() == [] and sent(10**10) == [[21, 22]]
