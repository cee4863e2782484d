"""Random P4 programs, judged by an oracle that shares no code with the compiler.

tree.py        what a program is made of
generate.py    a random program, its table entries and its packets, from a seed
statements.py  its statements and expressions
render.py      its P4_16 text
oracle.py      what it does, written from the P4_16 v1.2.5 specification; imports nothing of `ina`
judge.py       compiled program = reference interpreter = oracle?
adapt.py       what BMv2 and p4c are known not to do, taken out of a program
bmv2.py        BMv2 = oracle?
shrink.py      the smallest program that still fails
plants.py      defects that the judge must find
"""
