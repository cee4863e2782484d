/* MPI's collectives for bench/peers.c, with the library's default settings. */
#include <mpi.h>

#include "peers.h"

void library_begin(int *rank, int *ranks) {
    MPI_Init(NULL, NULL); /* errors end the job: MPI_ERRORS_ARE_FATAL */
    MPI_Comm_rank(MPI_COMM_WORLD, rank);
    MPI_Comm_size(MPI_COMM_WORLD, ranks);
}

void library_call(enum collective which, float *whole, size_t wholes, float *piece, size_t pieces) {
    switch (which) {
    case ALL_REDUCE: MPI_Allreduce(MPI_IN_PLACE, whole, (int)wholes, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD); break;
    case ALL_GATHER: MPI_Allgather(piece, (int)pieces, MPI_FLOAT, whole, (int)pieces, MPI_FLOAT, MPI_COMM_WORLD); break;
    case REDUCE_SCATTER: MPI_Reduce_scatter_block(whole, piece, (int)pieces, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD); break;
    case BROADCAST: MPI_Bcast(whole, (int)wholes, MPI_FLOAT, 0, MPI_COMM_WORLD); break;
    default: MPI_Barrier(MPI_COMM_WORLD);
    }
}

void library_end(void) { MPI_Finalize(); }
