"""A course on in-network aggregation for people who teach P4: steps with a skeleton, a task, and a check of what students write.

`step.py` finds the steps in `steps/`, `frames.py` reads and compares frames of the course's format, `cases.py` runs packet tests,
`walks.py` walks every interleaving of a small network, `check.py` puts them together, and `judge.py` runs a check in a process of
its own. A new step is a new folder in `steps/`.
"""
