// oneCCL's collectives for bench/peers.c, with the library's default settings. RANK and WORLD_SIZE are in the environment;
// PEERS_STORE is a file in which rank 0 leaves the address of its key-value store.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <oneapi/ccl.hpp>
#include <string>

#include "peers.h"

static std::unique_ptr<ccl::communicator> group;

void library_begin(int *rank, int *ranks) {
    *rank = atoi(getenv("RANK")), *ranks = atoi(getenv("WORLD_SIZE"));
    std::string path = getenv("PEERS_STORE");
    ccl::init();
    ccl::shared_ptr_class<ccl::kvs> store;
    ccl::kvs::address_type address;
    if (*rank == 0) {
        store = ccl::create_main_kvs();
        address = store->get_address();
        std::ofstream(path + ".part", std::ios::binary).write(address.data(), (std::streamsize)address.size());
        rename((path + ".part").c_str(), path.c_str());
    } else {
        while (access(path.c_str(), R_OK))
            usleep(1000);
        std::ifstream(path, std::ios::binary).read(address.data(), (std::streamsize)address.size());
        store = ccl::create_kvs(address);
    }
    group = std::make_unique<ccl::communicator>(ccl::create_communicator(*ranks, *rank, store));
}

void library_call(enum collective which, float *whole, size_t wholes, float *piece, size_t pieces) {
    switch (which) {
    case ALL_REDUCE: ccl::allreduce(whole, whole, wholes, ccl::reduction::sum, *group).wait(); break;
    case ALL_GATHER: ccl::allgather(piece, whole, pieces, *group).wait(); break;
    case REDUCE_SCATTER: ccl::reduce_scatter(whole, piece, pieces, ccl::reduction::sum, *group).wait(); break;
    case BROADCAST: ccl::broadcast(whole, wholes, 0, *group).wait(); break;
    default: ccl::barrier(*group).wait();
    }
}

void library_end(void) { group.reset(); }
