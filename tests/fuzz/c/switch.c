/* A compiled program in the switch's runtime (switch.h): frames of any bytes at any port, time, and the control plane's operations.
 *
 *     config 1 | { operation 1 | its numbers } ...
 *
 * The program, its table images and what else its control plane has set come from programs.py, as C. Frames come in buffers without
 * slack, and leave into such. */
#include <stdbool.h>

#include "fuzz.h"
#include "switch.h"
#include "tna_switch.h"

extern const struct ina_program ina_program;
extern const struct ina_tables *const fuzz_tables[]; /* of each pipeline */
extern struct ina_command fuzz_commands[];
extern const unsigned fuzz_command_count;

enum { OPERATIONS = 60, MAX_FRAME = 600, KEPT = 4, LENT = 64 };
static const uint16_t PORTS[] = {0, 1, 2, 3, 4, 5, 64, 68, 128, 129, 196, 509};
enum { PORT_COUNT = sizeof PORTS / sizeof *PORTS };

/* ---- a port that lends buffers of exact size -------------------------------------------------------------------------------- */

struct exact_port {
    struct ina_port port;
    uint8_t *room[LENT];
    int lent;
};

static void give_back(struct exact_port *p)
{
    while (p->lent)
        free(p->room[--p->lent]);
}

static int no_rx(struct ina_port *port, struct ina_packet *pkts, int max, uint64_t now)
{
    return 0;
}

static void no_rx_done(struct ina_port *port, int n)
{
}

static int tx_get(struct ina_port *port, struct ina_packet *pkts, int want)
{
    struct exact_port *p = (struct exact_port *)port;
    give_back(p);
    for (; p->lent < want && p->lent < LENT; p->lent++) {
        uint8_t *room = p->room[p->lent] = exactly(INA_PORT_HEADROOM + MAX_FRAME);
        pkts[p->lent].data = room + INA_PORT_HEADROOM;
        pkts[p->lent].len = pkts[p->lent].wire_len = 0;
        pkts[p->lent].headroom = INA_PORT_HEADROOM;
        pkts[p->lent].tailroom = MAX_FRAME;
    }
    return p->lent;
}

static void tx_put(struct ina_port *port, struct ina_packet *pkts, int n, uint64_t now)
{
    struct exact_port *p = (struct exact_port *)port;
    for (int i = 0; i < n; i++)
        if (pkts[i].len) {
            CHECK(pkts[i].data >= p->room[i] && pkts[i].data + pkts[i].len <= p->room[i] + INA_PORT_HEADROOM + MAX_FRAME);
            touch(pkts[i].data, pkts[i].len);
        }
    give_back(p);
}

static const struct ina_port_ops EXACT = {.rx = no_rx, .rx_done = no_rx_done, .tx_get = tx_get, .tx_put = tx_put};

static void output(void *context, uint16_t port, const struct ina_packet *pkt, uint64_t now)
{
    CHECK(pkt->len && pkt->wire_len >= pkt->len);
    touch(pkt->data, pkt->len);
}

/* ---- frames ------------------------------------------------------------------------------------------------------------------ */

struct world {
    struct ina_switch *sw;
    struct exact_port exact[PORT_COUNT];
    uint64_t now;
    uint8_t *kept[KEPT];
    uint32_t kept_len[KEPT], next;
};

static void enter(struct world *w, struct input *in, const uint8_t *bytes, uint32_t len, uint32_t times)
{
    struct ina_packet pkts[4];
    uint8_t *room[4];
    const uint32_t bits = (uint32_t)take(in, 1), headroom = ina_switch_headroom(w->sw);
    for (uint32_t i = 0; i < times; i++) {
        const uint32_t tail = bits >> 6 == 3 ? 40 : 0;
        room[i] = exactly(headroom + len + tail);
        pkts[i] = (struct ina_packet){
            .data = memcpy(room[i] + headroom, bytes, len), .len = len, .wire_len = len, .headroom = headroom, .tailroom = tail,
            .ingress_port = PORTS[(bits + i) % PORT_COUNT], .tag = i};
    }
    ina_switch_input(w->sw, pkts, times, w->now);
    for (uint32_t i = 0; i < times; i++)
        free(room[i]);
}

static void keep(struct world *w, uint8_t *bytes, uint32_t len)
{
    const uint32_t slot = w->next++ % KEPT;
    free(w->kept[slot]);
    w->kept[slot] = bytes;
    w->kept_len[slot] = len;
}

static void fresh(struct world *w, struct input *in)
{
    uint32_t len = (uint32_t)take(in, 2) % MAX_FRAME;
    const uint32_t there = len < in->end - in->at ? len : (uint32_t)(in->end - in->at);
    uint8_t *bytes = exactly(len);
    memset(bytes, 0, len);
    memcpy(bytes, in->at, there);
    in->at += there;
    enter(w, in, bytes, len, 1);
    keep(w, bytes, len);
}

/* One that was there before, edited: from other ports, too. */
static void again(struct world *w, struct input *in)
{
    const uint32_t slot = choose(in, KEPT), how = (uint32_t)take(in, 1);
    if (!w->kept[slot])
        return;
    uint32_t len = w->kept_len[slot];
    uint8_t *bytes = memcpy(exactly(len), w->kept[slot], len);
    if (how & 1)
        edit(in, bytes, len < 80 ? len : 80);
    if (how & 2)
        len -= choose(in, len + 1);
    enter(w, in, bytes, len, 1 + (how >> 2 & 3));
    if (how & 16)
        keep(w, bytes, len);
    else
        free(bytes);
}

/* ---- the control plane -------------------------------------------------------------------------------------------------------- */

/* An operation with any numbers. `data` has as many bytes as the operation's description says. 1: the switch is another one now. */
static int execute(struct world *w, struct input *in)
{
    struct ina_command c = {.op = choose(in, 48), .id = (uint32_t)take(in, 2), .count = (uint32_t)take(in, 1)};
    const struct ina_link_config link = {.rate_bps = 1000000000, .queue_bytes = 2000};
    size_t bytes = 0;
    bool numbers = true;
    switch (c.op) {
    case INA_SET_TABLES: c.tables = c.count & 1 ? fuzz_tables[0] : NULL; break;
    case INA_TNA_SET_PIPE_TABLES: c.tables = fuzz_tables[0]; break;
    case INA_SET_GROUP:
    case INA_SET_SESSION: c.size = take(in, 1), bytes = c.count * sizeof(struct ina_replica); break;
    case INA_ADD_PORT:
        c.link = c.count & 1 ? &link : NULL;
        break;
    case INA_REMOVE_PORT: break;
    case INA_WRITE_STATE: /* any bytes there are a program's state, as a control plane would not write it */
        c.op = INA_READ_STATE;
        /* fall through */
    case INA_READ_STATE:
        c.count %= 16;
        c.size = take(in, 2), c.stride = take(in, 4), c.offset = take(in, 4);
        bytes = c.count * c.size;
        break;
    case INA_READ_PORT: bytes = sizeof(struct ina_switch_port_stats); break;
    case INA_READ_DIGESTS:
        c.count %= 8;
        c.stride = take(in, 2);
        bytes = c.count * c.stride, numbers = false;
        break;
    case INA_TNA_SET_GROUP: bytes = c.count * sizeof(uint32_t); break;
    case INA_TNA_SET_LAG: c.offset = take(in, 1), c.stride = take(in, 1);
        /* fall through */
    case INA_TNA_SET_PRUNE: bytes = c.count * sizeof(uint16_t); break;
    case INA_TNA_SET_REPLICATION: bytes = sizeof(struct ina_tna_replication); break;
    case INA_TNA_SET_PORT: bytes = sizeof(struct ina_tna_port); break;
    case INA_TNA_SET_SESSION: bytes = sizeof(struct ina_tna_session); break;
    case INA_TNA_SET_APP: bytes = sizeof(struct ina_tna_app); break;
    case INA_TNA_READ_APP: bytes = sizeof(struct ina_tna_app_counters); break;
    case INA_TNA_SET_PKTGEN_BUFFER: c.offset = take(in, 2), bytes = c.count; break;
    default: break;
    }
    if (bytes) {
        uint8_t *data = c.data = exactly(bytes);
        memset(data, 0, bytes);
        const uint32_t wide = c.op == INA_TNA_SET_GROUP ? 4 : c.op == INA_TNA_SET_PRUNE || c.op == INA_TNA_SET_LAG ? 2 : 1;
        for (size_t i = 0; numbers && i < bytes && in->at != in->end; i += wide) /* small numbers: of words the lowest byte */
            data[i] = (uint8_t)take(in, 1);
    }
    if (c.op == INA_ADD_PORT && c.id < INA_SWITCH_PORTS && w->now % 3 == 0)
        c.id = PORTS[c.id % PORT_COUNT];
    const int result = ina_switch_execute(w->sw, &c);
    free(c.data);
    return result == 0 && c.op != INA_READ_STATE && c.op != INA_READ_PORT && c.op != INA_TNA_READ_APP;
}

/* Making a switch takes longer than what most inputs do with it. So one of each configuration is kept, and made as it was at
 * its beginning; after operations of the control plane it is made anew. */
enum { CONFIGS = 4 };
static struct ina_switch *switches[CONFIGS];

static struct ina_switch *create(uint32_t which)
{
    const struct ina_switch_config config = {
        .buffer = which == 1 ? 3000 : 0, .reentries = which == 1 ? 2 : 32, .max_frame = MAX_FRAME, .max_passes = which == 2 ? 3 : 20,
        .digests = which == 3 ? 1 : 8, .seed = 1, .next_tables = fuzz_tables + 1};
    struct ina_switch *sw = ina_switch_create(&ina_program, fuzz_tables[0], &config);
    CHECK(sw);
    ina_switch_set_output(sw, output, NULL);
    for (uint32_t i = 0; i < fuzz_command_count; i++) {
        struct ina_command command = fuzz_commands[i];
        CHECK(ina_switch_execute(sw, &command) == 0);
    }
    return sw;
}

static void open_switch(struct world *w, uint32_t which)
{
    const struct ina_link_config link = {.rate_bps = 1000000000, .queue_bytes = 2000, .ecn_bytes = 300};
    if (!switches[which])
        switches[which] = create(which);
    w->sw = switches[which];
    for (uint32_t i = 0; i < PORT_COUNT; i++) {
        w->exact[i].port = (struct ina_port){.ops = &EXACT, .fd = -1, .max_frame = MAX_FRAME};
        struct ina_command add = {.op = INA_ADD_PORT, .id = PORTS[i], .port = i % 3 == 1 ? &w->exact[i].port : NULL,
                                  .link = i % 3 == 2 ? &link : NULL};
        ina_switch_execute(w->sw, &add); /* TNA has not all of them */
    }
}

static void close_switch(struct world *w, uint32_t which, int executed)
{
    for (uint32_t i = 0; i < PORT_COUNT; i++)
        ina_switch_execute(w->sw, &(struct ina_command){.op = INA_REMOVE_PORT, .id = PORTS[i]});
    for (uint32_t i = 0; i < 1000 && ina_switch_next_due(w->sw) != UINT64_MAX; i++)
        ina_switch_poll(w->sw, w->now += 1000000000);
    if (executed || ina_switch_next_due(w->sw) != UINT64_MAX) {
        ina_switch_destroy(w->sw);
        switches[which] = NULL;
        return;
    }
    uint8_t *state = ina_switch_state(w->sw);
    memset(state, 0, ina_switch_state_size(w->sw));
    const struct ina_program *pipeline = &ina_program;
    const uint32_t pipes = ina_switch_pipes(w->sw) ? ina_switch_pipes(w->sw) : 1;
    for (uint32_t pipe = 0; pipe < pipes; pipe++, pipeline = pipeline->next ? pipeline->next : &ina_program)
        if (pipeline->init)
            pipeline->init(state + pipe * ina_switch_state_stride(w->sw), 1);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input in = {data, data + size};
    struct world w = {.now = 1000000};
    const uint32_t which = choose(&in, CONFIGS);
    int executed = 0;
    open_switch(&w, which);
    for (uint32_t n = 0; n < OPERATIONS && in.at != in.end; n++) {
        const uint32_t operation = choose(&in, 16);
        switch (operation) {
        case 0: executed |= execute(&w, &in); break;
        case 1:
        case 2:
            w.now += take(&in, 2) << choose(&in, 20);
            ina_switch_poll(w.sw, w.now);
            break;
        default: (operation & 1 ? fresh : again)(&w, &in);
        }
    }
    close_switch(&w, which, executed);
    for (uint32_t i = 0; i < PORT_COUNT; i++)
        give_back(&w.exact[i]);
    for (uint32_t i = 0; i < KEPT; i++)
        free(w.kept[i]);
    return 0;
}
