"""Codecs: how values travel, what the switch does with them, and how the result is read.

A codec is a generator: each `yield` is a round through the switch, which every worker takes part in, and whose result every
worker gets. It opens no socket and reads no clock, so the same codec runs in the torch back end, in processes, in virtual time
and over NumPy alone (`reduced`).

    class Halves(Codec):                                  # multiples of a half, as int32
        name = "halves"

        def reduce(self, values, call):                   # values: this worker's, flat; call: workers, rank, average
            total = yield Round((2 * values).round().astype("int32"), Operation.ADD)
            return total / np.float32(2 * (call.workers if call.average else 1))

    register("halves", Halves)                            # or an entry point in the group `ina.codecs` of a package

Then `Options(codec="halves")` sums a group's float32 tensors with it, `Choice(codec="halves")` a bucket of
DistributedDataParallel, `codec = ["block", "halves"]` is swept in training experiments, and `reduced(Halves(), tensors)` is the
sum over NumPy arrays, as a switch gives it.

What the switch does in a round (``Operation``):

ADD        adds up words: int32 modulo 2^32, as lanes of several values, or float32 in the protocol's own code
MAXIMUM    keeps the largest int32: exponents, scales, norms that all workers must agree on. Lanes have no maxima
OWN        what the protocol's program does and no other: a look-up and a sum, an OR
           (a switch without OR adds up bits in lanes with room for all workers: a count other than zero is the OR)

=============  ===============================================================================  ===================
codec          how a value travels                                                              bytes, of float32's
=============  ===============================================================================  ===================
block          as the protocol has it: 30 - ceil(log2 n) bits below the largest of a packet     1
block-256      the same bits below the largest of 256 values                                    1.01
block-64, -32  the same bits below the largest of 64 or 32 values                               1.03, 1.06
two-limb       twice as many bits (54 with 8 workers) below the largest of 64 values            up to 2.03
exact          all bits of 64 values, whatever they are; float64, too                           mostly 2 (float64: 3), at most 14
lanes-16       16 bits less room for n workers (13 with 8), below the largest of 64 values      0.52
lanes-16-8     the same up, of the sum 8 bits down (p4/requantised.p4)                          0.52 up, 0.27 down
mx-...         elements of the OCP's MX formats: int8, e5m2, e4m3, e3m2, e2m3, e2m1             0.28 to 0.53 (n = 8)
nvfp4          E2M1, with an E4M3 scale for 16 values                                           0.31 (n = 8)
fp8-...        e5m2 or e4m3, with a scale for the tensor                                        0.52
thc            rotated, 4 bits on a table, with error feedback (Thc: other tables)               0.25 (n = 3 to 8)
thc-lookup     the same, looked up in the switch by p4/thc.p4                                       0.125 up, 0.25 down
omnireduce     as block-256, but only blocks of 256 values in which any worker has one          1.01 of the union's blocks
sketch         as integers below the tensor's largest, those that any worker has, hashed        1.3 of these, and an index
omnireduce-    below the largest of the tensor; packets of zeros are not sent                   density up, union's
ahead          (p4/omnireduce.p4)                                                               density down
fpisa          as it is, each value with an exponent of its own in the switch (p4/fpisa.p4)         1
auto-sparse    as omnireduce or block-256, by the share of blocks that travelled before         theirs
qsgd-8, -4     rounded by chance to 127 or 7 levels of each sign (Qsgd: others), of 512 values      0.34, 0.17 (n = 2)
terngrad       -1, 0 or 1 by chance (TernGrad)                                                      0.10 (n = 2)
natural        the power of two above or below, by chance (Natural)                                 0.5
intsgd         by chance, with a scale that follows from the sums before (IntSgd)                   0.25
sign           one bit, with error feedback (Sign)                                                  0.06 (n = 2 and 3)
sign-vote      the majority of these bits, with feedback on both sides (SignVote)                   0.06 (n = 2 and 3)
topk           the largest 1 % at places of one worker, with error feedback (TopK)                  0.015
dgc            the largest 0.1 %, momentum before them (Dgc)                                        0.0015
powersgd       as a matrix of rank 4, with error feedback (PowerSgd)                                8 / sqrt(elements)
=============  ===============================================================================  ===================

int8, uint8, int16 and bool travel in lanes by themselves (`Packing`, lanes.py).
"""

from ina.codecs.codec import Call, Codec, Operation, Round, Traffic
from ina.codecs.lanes import Packing
from ina.codecs.memory import reduced
from ina.codecs.messages import message_bytes, read, write
from ina.codecs.omnireduce import OmniReduce
from ina.codecs.powersgd import PowerSgd
from ina.codecs.quantised import IntSgd, Natural, Qsgd, TernGrad
from ina.codecs.registry import DEFAULT as DEFAULT
from ina.codecs.registry import named, names, register
from ina.codecs.signs import Sign, SignVote
from ina.codecs.sketch import Sketch
from ina.codecs.thc import Thc
from ina.codecs.topk import Dgc, TopK

__all__ = [
    "Call", "Codec", "Dgc", "IntSgd", "Natural", "OmniReduce", "Operation", "Packing", "PowerSgd", "Qsgd", "Round", "Sign",
    "SignVote", "Sketch", "TernGrad", "Thc", "TopK", "Traffic", "message_bytes", "named", "names", "read", "reduced",
    "register", "write",
]
