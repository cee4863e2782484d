/* A switch program written by hand that does on request what a packet asks for, to test the runtime without the compiler.
 *
 *   Ethernet 14 | ingress operation | its argument | egress operation | its argument | payload
 *
 * Registers: packets seen by port (uint32 x 16). Counter: packets and bytes by ingress operation (16).
 */
#include <string.h>

#include "program.h"
#include "table.h"

enum { DROP, UNICAST, MULTICAST, RESUBMIT, CLONE, TABLE, DIGEST, NO_VERDICT };
enum { PASS, EGRESS_DROP, RECIRCULATE, EGRESS_CLONE, PUSH, TRUNCATE, DEPTH };

struct state {
    uint32_t seen[16];
    uint32_t random, reserved[15];
    uint64_t operations[16][2];
};

struct meta {
    uint8_t op[4];
    uint8_t phases; /* ingress passes whose metadata was preserved */
    uint8_t payload[256];
};

static void init(void *state, uint64_t seed)
{
    memset(state, 0, sizeof(struct state));
    ((struct state *)state)->random = (uint32_t)seed;
}

static void ingress(void *state, const struct ina_tables *tables, struct ina_packet *pkts, unsigned n, uint64_t now)
{
    struct state *s = state;
    (void)now;
    for (unsigned i = 0; i < n; i++) {
        struct ina_packet *pkt = &pkts[i];
        struct meta *meta = (struct meta *)pkt->meta;
        uint8_t phases = pkt->field_list ? meta->phases : 0;
        memset(meta, 0, sizeof *meta);
        meta->phases = phases;
        pkt->verdict = INA_DROP;
        if (pkt->len < 18)
            continue;
        memcpy(meta->op, pkt->data + 14, 4);
        memcpy(meta->payload, pkt->data, pkt->len < 256 ? pkt->len : 256);
        if (pkt->instance_type == INA_INGRESS_CLONE || pkt->instance_type == INA_EGRESS_CLONE)
            continue;
        meta->phases++;
        s->seen[pkt->ingress_port & 15]++;
        s->operations[meta->op[0] & 15][0]++;
        s->operations[meta->op[0] & 15][1] += pkt->wire_len;
        switch (meta->op[0] & 15) { /* IPv4 (0x45) looks its destination up */
        case DIGEST:
            pkt->digest = 1;
            __attribute__((fallthrough));
        case UNICAST:
            pkt->verdict = INA_UNICAST;
            pkt->egress_port = meta->op[1];
            break;
        case MULTICAST:
            pkt->verdict = INA_MULTICAST;
            pkt->mcast_grp = meta->op[1];
            break;
        case RESUBMIT: /* so often */
            pkt->field_list = 1;
            pkt->verdict = meta->phases <= meta->op[1] ? INA_RESUBMIT : INA_UNICAST;
            pkt->egress_port = pkt->ingress_port;
            break;
        case CLONE:
            pkt->verdict = INA_UNICAST;
            pkt->egress_port = pkt->ingress_port;
            pkt->clone = 1;
            pkt->clone_session = meta->op[1];
            break;
        case TABLE: {
            uint64_t key[2] = {0}; /* one word: the table says how many */
            for (int b = 0; b < 6; b++)
                key[0] = key[0] << 8 | pkt->data[b];
            const struct ina_entry *e = ina_table_lookup(tables->table[0], key);
            uint32_t action = e ? e->action : tables->table[0]->default_action;
            if (action == 1) {
                pkt->verdict = INA_UNICAST;
                pkt->egress_port = (uint16_t)(e ? e->words[tables->table[0]->param_offset]
                                                : tables->table[0]->default_params[0]);
            }
            break;
        }
        case NO_VERDICT:
            pkt->verdict = !(meta->op[1] & 1) ? INA_DROP : meta->op[1] & 2 ? INA_ENDLESS : INA_FAILED;
            break;
        default:
            break;
        }
    }
}

static void egress(void *state, const struct ina_tables *tables, struct ina_packet *pkts, unsigned n, uint64_t now)
{
    (void)state, (void)tables, (void)now;
    for (unsigned i = 0; i < n; i++) {
        struct ina_packet *pkt = &pkts[i];
        struct meta *meta = (struct meta *)pkt->meta;
        meta->payload[0] ^= 0xff; /* a replica that shared metadata with another would see it */
        memcpy(pkt->data, meta->payload, pkt->len < 256 ? pkt->len : 256);
        pkt->data[0] ^= 0xff;
        pkt->verdict = INA_UNICAST;
        if (pkt->len >= 14 && pkt->data[12] != 0x08) /* IPv4 keeps its type */
            pkt->data[13] = meta->phases;
        switch (meta->op[2]) {
        case EGRESS_DROP:
            if (pkt->egress_port == meta->op[3])
                pkt->verdict = INA_DROP;
            break;
        case RECIRCULATE: /* with one operation less each time */
            pkt->field_list = 1;
            if (meta->op[3]) {
                pkt->data[17]--;
                pkt->verdict = INA_RECIRCULATE;
            }
            break;
        case EGRESS_CLONE:
            if (pkt->instance_type != INA_EGRESS_CLONE) {
                pkt->data[18] = 0xcc;
                pkt->clone = 1;
                pkt->clone_session = meta->op[3];
            }
            break;
        case PUSH: /* replication id and instance type in front */
            pkt->data -= 4;
            pkt->len += 4;
            pkt->wire_len += 4;
            pkt->headroom -= 4;
            pkt->data[0] = (uint8_t)(pkt->rid >> 8);
            pkt->data[1] = (uint8_t)pkt->rid;
            pkt->data[2] = pkt->instance_type;
            pkt->data[3] = (uint8_t)pkt->egress_port;
            break;
        case TRUNCATE:
            pkt->truncate_len = meta->op[3];
            break;
        case DEPTH:
            pkt->data[18] = (uint8_t)pkt->enq_qdepth;
            pkt->data[19] = (uint8_t)pkt->deq_qdepth;
            break;
        default:
            break;
        }
    }
}

static const char P4INFO[] =
    "{\"tables\":[{\"preamble\":{\"id\":1,\"name\":\"Ingress.l2\",\"alias\":\"l2\"},\"matchFields\":[{\"id\":1,"
    "\"name\":\"dst\",\"bitwidth\":48,\"matchType\":\"EXACT\"}],\"actionRefs\":[{\"id\":10},{\"id\":11}],\"size\":\"64\"}],"
    "\"actions\":[{\"preamble\":{\"id\":10,\"name\":\"Ingress.drop\",\"alias\":\"drop\"}},{\"preamble\":{\"id\":11,"
    "\"name\":\"Ingress.forward\",\"alias\":\"forward\"},\"params\":[{\"id\":1,\"name\":\"port\",\"bitwidth\":9}]}],"
    "\"counters\":[{\"preamble\":{\"id\":20,\"name\":\"Ingress.operations\",\"alias\":\"operations\"},\"size\":\"16\"}],"
    "\"registers\":[{\"preamble\":{\"id\":30,\"name\":\"Ingress.seen\",\"alias\":\"seen\"},\"size\":16,\"typeSpec\":"
    "{\"bitstring\":{\"bit\":{\"bitwidth\":32}}}}]}";

_Static_assert(offsetof(struct state, operations) == 128, "as LAYOUT says");

static const char LAYOUT[] =
    "{\"tables\":[{\"name\":\"Ingress.l2\",\"index\":0,\"key_words\":1,\"keys\":[{\"name\":\"dst\",\"width\":48,"
    "\"match\":\"exact\",\"word\":0}],\"actions\":[{\"name\":\"Ingress.drop\",\"params\":[]},{\"name\":"
    "\"Ingress.forward\",\"params\":[{\"name\":\"port\",\"width\":9,\"word\":0}]}],\"direct_counter\":null,\"const_entries\":false,\"default_action\":0,"
    "\"default_params\":[],\"entries\":[]}],"
    "\"registers\":[{\"name\":\"Ingress.seen\",\"width\":32,\"size\":16,\"offset\":0,\"stride\":4,\"bytes\":4}],"
    "\"counters\":[{\"name\":\"Ingress.operations\",\"size\":16,\"offset\":128}],"
    "\"digests\":[{\"name\":\"seen\",\"number\":1,\"fields\":[{\"name\":\"to\",\"width\":8,\"offset\":1,\"bytes\":1}]}]}";

#ifndef PROBE_ABI
#define PROBE_ABI INA_PROGRAM_ABI
#endif

const struct ina_program ina_program = {
    .abi = PROBE_ABI,
    .table_count = 1,
    .architecture = INA_V1MODEL,
    .pipeline = "",
    .name = "probe",
    .source_hash = "0",
    .p4info = P4INFO,
    .layout = LAYOUT,
    .state_size = sizeof(struct state),
    .stats_offset = offsetof(struct state, operations),
    .meta_size = sizeof(struct meta),
    .max_grow = 4,
    .init = init,
    .ingress = ingress,
    .egress = egress,
};
