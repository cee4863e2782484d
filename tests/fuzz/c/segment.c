/* A shared-memory port beside a peer that writes what it likes into the memory that both have (port.h: port_shm).
 *
 *     config 1 | { operation 1 | its numbers } ...
 *
 * Side 0, which is the switch's and trusts nobody with what it has received, and side 1. What a port lends lies where it says. */
#include <sys/mman.h>
#include <unistd.h>

#include "fuzz.h"
#include "segment.h"

enum { OPERATIONS = 300, FRAMES = 4, MAX_FRAME = 128 };

struct world {
    struct ina_port *port;
    uint8_t *shared;
    size_t size;
    uint32_t out; /* lent by rx */
};

static void scribble(struct world *w, struct input *in)
{
    static const uint32_t PARTS[] = {0, 64, 128, 256, 384, 512, 640, 768};
    const uint32_t bits = (uint32_t)take(in, 1);
    size_t at = bits & 0x80 ? take(in, 2) % w->size : PARTS[bits & 7] + choose(in, 64);
    for (uint32_t n = 1 + (bits >> 3 & 15); n && at < w->size; n--)
        w->shared[at++] = (uint8_t)take(in, 1);
}

/* An index of a ring, moved a little: what a peer does, and a little more. */
static void move(struct world *w, struct input *in)
{
    const uint32_t bits = (uint32_t)take(in, 1);
    struct ina_ring_control *control = (struct ina_ring_control *)(w->shared + 128) + (bits & 1);
    _Atomic uint32_t *index = bits & 2 ? &control->head : &control->tail;
    atomic_store(index, atomic_load(index) + (bits >> 2 & 7) - (bits & 0x20 ? 4 : 0));
}

static void receive(struct world *w, struct input *in)
{
    struct ina_packet pkts[8];
    const int n = ina_port_rx(w->port, pkts, 1 + (int)choose(in, 8), 0);
    CHECK(n >= 0 && n <= 8);
    for (int i = 0; i < n; i++) {
        CHECK(pkts[i].len && pkts[i].len <= MAX_FRAME && pkts[i].wire_len >= pkts[i].len && pkts[i].wire_len <= MAX_FRAME);
        CHECK(pkts[i].headroom + pkts[i].len + pkts[i].tailroom == INA_PORT_HEADROOM + MAX_FRAME);
        memset(pkts[i].data - pkts[i].headroom, 0xa5, pkts[i].headroom + pkts[i].len + pkts[i].tailroom);
    }
    w->out += (uint32_t)n;
    CHECK(w->out <= FRAMES);
}

static void done(struct world *w, struct input *in)
{
    const uint32_t n = choose(in, w->out + 1);
    ina_port_rx_done(w->port, (int)n);
    w->out -= n;
}

static void transmit(struct world *w, struct input *in)
{
    struct ina_packet pkts[8];
    const int want = (int)choose(in, 9), n = ina_port_tx_get(w->port, pkts, want);
    CHECK(n >= 0 && n <= want && n <= FRAMES);
    for (int i = 0; i < n; i++) {
        const uint32_t bits = (uint32_t)take(in, 1);
        const uint32_t area = pkts[i].headroom + pkts[i].tailroom;
        memset(pkts[i].data - pkts[i].headroom, 0x5a, area);
        pkts[i].len = (uint32_t)take(in, 1);
        pkts[i].wire_len = bits & 1 ? (uint32_t)take(in, 2) : 0;
        if (bits & 2) /* moved, as programs do that add and remove headers, and beyond */
            pkts[i].data += (int)take(in, 2) - 0x8000;
    }
    ina_port_tx_put(w->port, pkts, n - (int)choose(in, 3), 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input in = {data, data + size};
    struct world w = {0};
    const uint32_t bits = (uint32_t)take(&in, 1);
    const int memfd = ina_shm_create(FRAMES, MAX_FRAME);
    CHECK(memfd >= 0);
    w.size = (size_t)lseek(memfd, 0, SEEK_END);
    w.shared = mmap(NULL, w.size, PROT_READ | PROT_WRITE, MAP_SHARED, memfd, 0);
    CHECK(w.shared != MAP_FAILED);
    if (bits & 2) /* before it is opened */
        scribble(&w, &in);
    if (bits & 4)
        move(&w, &in);
    w.port = ina_port_shm_open(memfd, bits & 1, -1, -1);
    for (uint32_t n = 0; w.port && n < OPERATIONS && in.at != in.end; n++) {
        switch (take(&in, 1) % 8) {
        case 0:
        case 1: scribble(&w, &in); break;
        case 2: move(&w, &in); break;
        case 3:
        case 4: receive(&w, &in); break;
        case 5: done(&w, &in); break;
        case 6: transmit(&w, &in); break;
        default: ina_port_arm(w.port); ina_port_next_due(w.port); break;
        }
    }
    if (w.port)
        ina_port_close(w.port);
    munmap(w.shared, w.size);
    close(memfd);
    return 0;
}
