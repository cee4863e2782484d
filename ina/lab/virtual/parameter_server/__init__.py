"""A parameter server of the third generation in virtual time (Li et al., Scaling distributed machine learning with the parameter
server, OSDI 2014): keys in ranges, on a ring of servers, with clocks by range, and replicas of what is aggregated.

    ring.py      which server has which range of keys, and which have copies
    clocks.py    time of each worker by range of keys
    filters.py   which entries of a push are sent
    messages.py  messages as the words that travel
    mail.py      carries words between hosts of the emulator
    server.py    a server: adds up, applies, replicates, answers
    worker.py    a worker: pulls, computes, pushes
    manager.py   servers that die, leave and join
    cluster.py   all of them in one network

and, over the same mail, embeddings.py: a table of embeddings that workers cache with bounded staleness (HET).
"""
