/* One rank of a peer in C: `peers SOCKET`. It connects to the bench (bench/peers.py), says "RANK SECONDS" (of its start and first
   all-reduce), and stands still in read() until a line gives all ranks of this peer a turn, which it answers with another:

       NAME COLLECTIVE BYTES CALLS  ->  SECONDS PROCESSOR-SECONDS

   of all calls together. NAME is for ranks that have several libraries; BYTES are those of the whole vector. CALLS = 0: one call
   on known values, and each result is compared. */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "peers.h"

enum { PERIOD = 64, CALLS = 50 };    /* values repeat; calls after which sums of four ranks still are floats */
static const size_t LARGE = 4 << 20; /* bytes from which a barrier, not a call, brings the ranks together */
static const char *const NAMES[COLLECTIVES] = {"all_reduce", "all_gather", "reduce_scatter", "broadcast", "barrier"};

static int rank, ranks;
static float *whole, *piece;
static size_t wholes, pieces; /* elements */
static int calls;             /* on the present values */

static double clock_seconds(clockid_t id) {
    struct timespec time;
    clock_gettime(id, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static void die(const char *what) {
    fprintf(stderr, "rank %d: %s\n", rank, what);
    exit(1);
}

static void refill(void) {
    for (size_t i = 0; i < wholes; i++)
        whole[i] = 1e-3f;
    for (size_t i = 0; i < pieces; i++)
        piece[i] = 1e-3f;
    calls = 0;
}

static void call(enum collective which) {
    if (calls++ == CALLS)
        refill();
    library_call(which, whole, wholes, piece, pieces);
}

/* Makes room for the vectors of a collective, those of an earlier one go. */
static void resize(enum collective which, size_t bytes) {
    size_t elements = bytes / sizeof(float), part = elements / (size_t)ranks ? elements / (size_t)ranks : 1;
    size_t all = which == ALL_REDUCE || which == BROADCAST ? elements : part * (size_t)ranks;
    if (all == wholes && part == pieces)
        return;
    free(whole), free(piece);
    wholes = all, pieces = part;
    whole = aligned_alloc(64, (all * sizeof(float) + 63) & ~(size_t)63);
    piece = aligned_alloc(64, (part * sizeof(float) + 63) & ~(size_t)63);
    if (!whole || !piece)
        die("no memory");
    refill();
}

/* Value `i` of a rank's vector when results are compared: small integers, whose sums are exact in any order. */
static float value(size_t i, size_t period, int of) { return (float)(i % period + (size_t)of); }

static void compare(const float *values, size_t count, size_t period, int of, int added) {
    for (size_t i = 0; i < count; i++) {
        float expected = added ? (float)ranks * value(i, period, 0) + (float)(ranks * (ranks - 1) / 2) : value(i, period, of);
        if (!(fabsf(values[i] - expected) <= 1e-3f * fabsf(expected)))
            fprintf(stderr, "element %zu: %g, expected %g\n", i, (double)values[i], (double)expected), die("a wrong result");
    }
}

static void verify(enum collective which) {
    size_t period = pieces < PERIOD ? pieces : PERIOD;
    for (size_t i = 0; i < wholes; i++)
        whole[i] = value(i, period, rank);
    for (size_t i = 0; i < pieces; i++)
        piece[i] = value(i, period, rank);
    calls = 0;
    call(which);
    if (which == ALL_REDUCE)
        compare(whole, wholes, period, 0, 1);
    if (which == REDUCE_SCATTER)
        compare(piece, pieces, period, 0, 1);
    if (which == BROADCAST)
        compare(whole, wholes, period, 0, 0);
    for (int of = 0; which == ALL_GATHER && of < ranks; of++)
        compare(whole + (size_t)of * pieces, pieces, period, of, 0);
    refill();
}

int main(int argc, char **argv) {
    if (argc != 2)
        die("usage: peers SOCKET");
    signal(SIGPIPE, SIG_IGN); /* a bench that ends within a turn: the library ends in order */
    double start = clock_seconds(CLOCK_MONOTONIC);
    library_begin(&rank, &ranks);
    resize(ALL_REDUCE, sizeof(float));
    call(ALL_REDUCE);
    start = clock_seconds(CLOCK_MONOTONIC) - start;
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "%s", argv[1]);
    int bench = socket(AF_UNIX, SOCK_STREAM, 0);
    if (bench < 0 || connect(bench, (struct sockaddr *)&address, sizeof address) < 0)
        die("the bench does not listen");
    dprintf(bench, "%d %.6f\n", rank, start);
    FILE *turns = fdopen(bench, "r");
    char line[256], name[32];
    while (fgets(line, sizeof line, turns)) {
        size_t bytes;
        int count, which = 0;
        if (sscanf(line, "%*s %31s %zu %d", name, &bytes, &count) != 3)
            die("a turn that is none");
        while (which < BARRIER && strcmp(name, NAMES[which]))
            which++;
        resize(which, bytes);
        double began = 0, seconds = 0, spent = 0;
        if (count == 0) {
            verify(which);
        } else {
            call(bytes < LARGE ? (enum collective)which : BARRIER);
            began = clock_seconds(CLOCK_MONOTONIC), spent = clock_seconds(CLOCK_PROCESS_CPUTIME_ID);
            for (int i = 0; i < count; i++)
                call(which);
            seconds = clock_seconds(CLOCK_MONOTONIC) - began, spent = clock_seconds(CLOCK_PROCESS_CPUTIME_ID) - spent;
        }
        dprintf(bench, "%.9f %.9f\n", seconds, spent);
    }
    library_end();
    return 0;
}
