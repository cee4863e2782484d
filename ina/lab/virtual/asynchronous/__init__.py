"""Training by sums of some workers' updates, in virtual time: who computes when, and what becomes of an update.

    keys.py      keys of an experiment, and what follows from them
    worker.py    an update, and a worker's state
    run.py       all workers, driven by the network's events

ina/lab/virtual/methods.py says what a method allows; ina/lab/virtual/judge.py looks over every sum, copy and bound.
"""
