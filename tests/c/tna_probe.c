/* A TNA program in C that does what each frame asks for, and shows what the runtime gave it.
 *
 * Frame: 14 bytes | operations: code 1, argument 2 each, up to code 0 | anything. Ingress does those below 32, egress
 * the others. Ingress sends on ['N' | its 16 bytes of metadata | frame]; egress [its 27 bytes of metadata | what ingress or
 * a mirror ['M' | session 2 | code] sent].
 */
#include <stddef.h>
#include <string.h>

#include "program.h"
#include "tna.h"

enum { HEAD = 14 };
#define LEARNED 116 /* where the digest's field lies in the metadata */
#define QUOTE(x) #x
#define STR(x) QUOTE(x)
enum ingress_code {
    END, UCAST, GROUP_A, GROUP_B, HASH1, HASH2, XID1, XID2, RID, CPU, BYPASS, DROP_CTL, MIRROR, RESUBMIT, DIGEST, QID, PARSER_DROP,
    FAIL
};
enum egress_code { EGRESS_DROP = 32, EGRESS_MIRROR = 33 };

struct state {
    uint64_t ingress, egress; /* packets of this pipe */
    uint64_t seed;
    uint64_t spare[5];
};

struct meta {
    struct ina_tna tna;
    uint16_t learned; /* the digest's field */
};

static void init(void *block, uint64_t seed)
{
    struct state *state = block;
    memset(state, 0, sizeof *state);
    state->seed = seed;
}

static uint16_t two(const uint8_t *at)
{
    return (uint16_t)(at[0] << 8 | at[1]);
}

static void grow(struct ina_packet *pkt, uint32_t bytes)
{
    pkt->data -= bytes;
    pkt->headroom -= bytes;
    pkt->len += bytes;
    pkt->wire_len += bytes;
}

static void mirror(struct ina_tna *tna, uint16_t session, uint8_t code)
{
    tna->mirror = 1;
    tna->mirror_type = 1;
    tna->mirror_session = session;
    tna->mirror_len = 4;
    tna->mirror_header[0] = 'M';
    tna->mirror_header[1] = (uint8_t)(session >> 8);
    tna->mirror_header[2] = (uint8_t)session;
    tna->mirror_header[3] = code;
}

static void ask(struct ina_packet *pkt, struct meta *meta, uint8_t code, uint16_t argument, int resubmitted)
{
    struct ina_tna *tna = &meta->tna;
    switch (code) {
    case UCAST: tna->ucast_egress_port = argument; tna->has_ucast = 1; break;
    case GROUP_A: tna->mcast_grp_a = argument; tna->has_mcast_a = 1; break;
    case GROUP_B: tna->mcast_grp_b = argument; tna->has_mcast_b = 1; break;
    case HASH1: tna->level1_mcast_hash = argument; break;
    case HASH2: tna->level2_mcast_hash = argument; break;
    case XID1: tna->level1_exclusion_id = argument; break;
    case XID2: tna->level2_exclusion_id = argument; break;
    case RID: tna->rid = argument; break;
    case CPU: tna->copy_to_cpu = 1; break;
    case BYPASS: tna->bypass_egress = 1; break;
    case DROP_CTL: tna->drop_ctl = (uint8_t)argument; break;
    case MIRROR: mirror(tna, argument, 'i'); break;
    case RESUBMIT: /* argument 1: every time */
        if (!resubmitted || argument) {
            tna->resubmit = 1;
            memcpy(tna->resubmit_data, "RESUBMIT", 8);
        }
        break;
    case DIGEST: pkt->digest = 1; meta->learned = argument; break;
    case QID: tna->qid = (uint8_t)argument; break;
    case PARSER_DROP: tna->parser_drop = 1; break;
    case FAIL: pkt->verdict = argument & 1 ? INA_ENDLESS : INA_FAILED; break;
    default: break;
    }
}

static void ingress(void *block, const struct ina_tables *tables, struct ina_packet *pkts, unsigned n, uint64_t now)
{
    (void)tables, (void)now;
    struct state *state = block;
    for (unsigned i = 0; i < n; i++) {
        struct ina_packet *pkt = &pkts[i];
        struct meta *meta = (void *)pkt->meta;
        const uint16_t front = meta->tna.front;
        memset(meta, 0, sizeof *meta);
        meta->tna.front = front;
        const uint8_t *frame = pkt->data + front;
        const uint32_t len = pkt->len - front;
        pkt->verdict = INA_UNICAST;
        for (uint32_t at = HEAD; at + 3 <= len && frame[at]; at += 3)
            ask(pkt, meta, frame[at], two(frame + at + 1), pkt->data[0] >> 7);
        state->ingress++;
        if (meta->tna.drop_ctl & INA_TNA_DROP_FORWARD) {
            meta->tna.has_ucast = meta->tna.has_mcast_a = meta->tna.has_mcast_b = meta->tna.resubmit = 0;
        }
        if (meta->tna.drop_ctl & INA_TNA_DROP_CPU)
            meta->tna.copy_to_cpu = 0;
        if (pkt->verdict == INA_UNICAST && !meta->tna.has_ucast && !meta->tna.has_mcast_a && !meta->tna.has_mcast_b
            && !meta->tna.copy_to_cpu)
            pkt->verdict = INA_DROP;
        pkt->data[front + 13]++; /* in place, as a deparser does: mirrors and resubmission must not see it */
        if (!meta->tna.bypass_egress) {
            grow(pkt, 1);
            pkt->data[0] = 'N';
        } else {
            pkt->data += front;
            pkt->len -= front;
            pkt->wire_len -= front;
            pkt->headroom += front;
        }
    }
}

static void egress(void *block, const struct ina_tables *tables, struct ina_packet *pkts, unsigned n, uint64_t now)
{
    (void)tables, (void)now;
    struct state *state = block;
    for (unsigned i = 0; i < n; i++) {
        struct ina_packet *pkt = &pkts[i];
        struct ina_tna *tna = (void *)pkt->meta;
        const uint16_t front = tna->front;
        memset(tna, 0, sizeof *tna);
        tna->front = front;
        pkt->verdict = INA_UNICAST;
        pkt->digest = 0;
        state->egress++;
        const uint8_t *sent = pkt->data + front;
        const uint32_t offset = front + 1 + INA_TNA_INGRESS_FRONT;
        if (sent[0] != 'N' || pkt->len < offset)
            continue;
        const uint8_t *frame = pkt->data + offset;
        const uint32_t len = pkt->len - offset;
        for (uint32_t at = HEAD; at + 3 <= len && frame[at]; at += 3) {
            if (frame[at] == EGRESS_DROP)
                pkt->verdict = INA_DROP;
            if (frame[at] == EGRESS_MIRROR)
                mirror(tna, two(frame + at + 1), 'e');
        }
    }
}

static const char P4INFO[] =
    "{\"registers\":[{\"preamble\":{\"id\":30,\"name\":\"Ingress.seen\",\"alias\":\"seen\"},\"size\":2,\"typeSpec\":"
    "{\"bitstring\":{\"bit\":{\"bitwidth\":64}}}}],\"counters\":[{\"preamble\":{\"id\":40,\"name\":\"Ingress.spare\",\"alias\":"
    "\"spare\"},\"size\":2}]}";

static const char LAYOUT[] =
    "{\"tables\":[],\"counters\":[{\"name\":\"Ingress.spare\",\"size\":2,\"offset\":24}],"
    "\"registers\":[{\"name\":\"Ingress.seen\",\"width\":64,\"size\":2,\"offset\":0,\"stride\":8,\"bytes\":8}],"
    "\"port_metadata\":{\"name\":\"Parser.$PORT_METADATA\",\"fields\":[{\"name\":\"vrf\",\"width\":12,\"bit\":0},{\"name\":\"ifid\","
    "\"width\":20,\"bit\":12}]},"
    "\"digests\":[{\"name\":\"learn\",\"number\":1,\"fields\":[{\"name\":\"what\",\"width\":16,\"offset\":" STR(LEARNED)
    ",\"bytes\":2}]}]}";

_Static_assert(offsetof(struct meta, learned) == LEARNED, "as LAYOUT says");

const struct ina_program ina_program = {
    .abi = INA_PROGRAM_ABI,
    .architecture = INA_TNA,
    .flags = INA_PROGRAM_KEEP_INGRESS,
    .pipeline = "pipe",
    .name = "tna_probe",
    .source_hash = "0",
    .p4info = P4INFO,
    .layout = LAYOUT,
    .state_size = sizeof(struct state),
    .stats_offset = offsetof(struct state, spare),
    .meta_size = sizeof(struct meta),
    .max_grow = 1,
    .init = init,
    .ingress = ingress,
    .egress = egress,
};
