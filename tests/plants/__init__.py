"""Defects that the explorer must find, planted into copies of what it walks through.

planting.py   plants one: into the switch program, a worker or the parameter server in C, or the control plane
explored.py   those for `ina explore`

`python -m tests.plants` plants them all, one after the other, and says what finds each; arguments are parts of the plants' names.
"""
