"""`ina p4 equal A B`: two programs get the same packets, one after the other, and must answer alike.

    mapping.py    names of the one by those of the other, and differences that are meant: a TOML file
    control.py    entries, recorded once and written into both
    scenario.py   what is known of a program beforehand: entries, packets (ina/aggregation/equal_scenarios.py)
    shapes.py     the parser's paths -> headers and fields
    values.py     what fields are compared with -> values worth a try
    packets.py    random packets, and sequences of them
    sides.py      a program, compiled or interpreted, that can go back to an earlier state
    comparison.py the same packet into both -> a difference, or none
    search.py     systematic, then random
    shrink.py     fewer packets, plainer fields
    report.py     what is printed, and STF files to repeat it
"""
