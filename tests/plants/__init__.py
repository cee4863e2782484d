"""Defects that the explorer and the simulation must find, planted into copies of what they run.

planting.py   plants one: into the switch program, a worker or the parameter server in C, or the control plane
explored.py   those for `ina explore`
simulated.py  those for `ina simulate`

`python -m tests.plants` plants them all, one after the other, and prints the violation that each causes;
`explore` or `simulate` as its first argument chooses a list, further arguments are parts of the plants' names.
"""
