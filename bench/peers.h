/* Functions of a library of collectives, which bench/peers.c calls: peers_mpi.c, peers_oneccl.cpp. */
#pragma once
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

enum collective { ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, BROADCAST, BARRIER, COLLECTIVES };

void library_begin(int *rank, int *ranks);
/* Sums or moves float32. `whole` has elements of all ranks, `piece` those of one; all-reduce and broadcast (from rank 0) are of
   `whole`, in place. */
void library_call(enum collective which, float *whole, size_t wholes, float *piece, size_t pieces);
void library_end(void);

#ifdef __cplusplus
}
#endif
