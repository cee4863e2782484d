"""Mixture of experts: tokens go to the ranks of their experts (dispatch), and the experts' outputs come back, added up (combine).

    1  all-gather    each token's experts and weights, and what the ranks must have in common; if that is more than a packet has
                     room for, and than it was before, a second one has the rest
    2  dispatch      a token's bits go up once, and down once to each rank, but its own, that has some of its experts
    3  all-reduce    of maxima: the exponents of the rows that are to be added up, and what the ranks must have in common
    4  combine       each rank's sum of a token's outputs goes up once; the switch adds up over the ranks; down comes one row

The backward pass of combine is 2, with gradients; that of dispatch is 3 and 4, and, for the weights' gradients, a reduce-scatter.
Which rows travel, from whom and to whom, all ranks know from 1 (ina/aggregation/worker/token_routes.py).

In 4 a row that one other rank has travels as its bits. Those that several have become integers in units of one power of two for
each row, which its *level* says, that of the largest value of all of them: no sum of m of them leaves 32 bits. With level APART
each rank's bits come, and the token's rank adds them: where a rank has a NaN or an infinity; where two ranks have 16-bit values,
which is as much down as one row of 32 bits, half as much up, and exact; and where the group has no routes, so that 2 and 4 go
through Gloo.

With ``async_op``, 1 and 3 still end in the call, in the group's own job; 2 and 4 go on in the background, each in a job of its
own (Membership.lane), so that rows up do not wait for rows down, nor 1 and 3 for either. Both are autograd functions in two
parts, as torchrec's all-to-alls are (torchrec/distributed/comm_ops.py: All2All_Pooled_Req, All2All_Pooled_Wait):

    forward     begin: rows are on their way ── whatever the caller does ── end: waits for them
    backward    end: gradients are on their way ── the same, backwards ── begin: waits for them

Autograd goes backwards through a thread's functions in the reverse order of their calls, since it takes the latest one that is
ready, and what a function waits for was called later. So gradients begin in the same order on all ranks if all call `dispatch`,
`combine` and `wait` in the same order.

    calls.py      dispatch and combine, what they return, and handles of those under way
    checks.py     what is wrong with the arguments, of any rank
    agreement.py  1: what each rank's tokens are for, and what the ranks must have in common
    exchange.py   2, 3 and 4, forward and backward
    autograd.py   their order in autograd's graph
    rows.py       rows as bits, and as integers that can be added up
"""
