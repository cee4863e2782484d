/* Runs a TNA program: pipes, and the traffic manager between ingress and egress.
 *
 *     port ─> [ metadata ] ingress ─> resubmit? ──> ingress again, once
 *                                  ─> mirror? ────> session ─┐
 *                                  ─> destination ───────────┴─> replicate ─> [ metadata ] egress ─> port
 *                                        ^                                      └─> mirror? ─> session ─> egress again
 *                                        └───────────── loopback port <───────────────────────────────┘
 *
 * After Intel, "P4-16 Tofino Native Architecture", public version; section numbers below are its. Not supported: deflection on
 * drop, admission by colour, priorities of queues (a port has one), cut-through, coalescing mirrors.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "table.h"
#include "tna_core.h"

enum { CELL = 80 /* bytes: the unit of queue depths, 5.8.1 */ };

_Static_assert((int)INA_TNA_PIPES * INA_TNA_PIPE_PORTS == (int)INA_SWITCH_PORTS, "every port is some pipe's");
_Static_assert((int)INA_TNA_MIRROR_BYTES <= (int)INA_HEADROOM, "a mirror header fits before a buffered frame");

static struct ina_tna *tna_of(const struct ina_packet *pkt)
{
    return (struct ina_tna *)(void *)pkt->meta;
}

static struct ina_tna_pipe *pipe_of(const struct ina_switch *sw, uint16_t port)
{
    return &sw->tna->pipe[port / INA_TNA_PIPE_PORTS];
}

/* The tables for the parser of a port. */
static const struct ina_tables *tables_of(const struct ina_tna_pipe *pipe, uint16_t port)
{
    const unsigned parser = port % INA_TNA_PIPE_PORTS / 4;
    return parser < INA_TNA_PARSERS && pipe->parser[parser] ? pipe->parser[parser] : pipe->tables;
}

/* ---- life ------------------------------------------------------------------------------------------------------------- */

int ina_tna_create(struct ina_switch *sw)
{
    struct ina_tna_runtime *tna = calloc(1, sizeof *tna);
    if (!tna)
        return ENOMEM;
    const struct ina_program *program = sw->program;
    uint32_t pipelines = 0;
    int error = 0;
    for (; program; program = program->next) {
        const struct ina_tables *tables = sw->tables;
        if (pipelines)
            tables = sw->config.next_tables ? sw->config.next_tables[pipelines - 1] : NULL;
        if (program->abi != INA_PROGRAM_ABI || program->architecture != INA_TNA || pipelines == INA_TNA_PIPES
            || (tables ? tables->count : 0) != program->table_count || program->meta_size < sizeof(struct ina_tna))
            error = EINVAL;
        if (error)
            break;
        tna->pipe[pipelines] = (struct ina_tna_pipe){program, tables, {NULL}, NULL, pipelines};
        pipelines++;
        sw->meta_size = program->meta_size > sw->meta_size ? program->meta_size : sw->meta_size;
        sw->state_stride = program->state_size > sw->state_stride ? program->state_size : sw->state_stride;
    }
    tna->pipes = sw->config.pipes ? sw->config.pipes : pipelines > 2 ? pipelines : 2;
    if (!error && (!pipelines || tna->pipes > INA_TNA_PIPES || tna->pipes < pipelines))
        error = EINVAL;
    tna->group = error ? NULL : calloc(INA_SWITCH_GROUPS, sizeof *tna->group);
    if (!tna->group) {
        free(tna);
        return error ? error : ENOMEM;
    }
    for (uint32_t p = pipelines; p < tna->pipes; p++) /* the pipelines in turn */
        tna->pipe[p] = tna->pipe[p % pipelines];
    sw->state_stride = (sw->state_stride + 63) & ~63ull;
    sw->state_size = sw->state_stride * tna->pipes;
    sw->carried = sizeof(struct ina_tna);
    sw->tna = tna;
    return 0;
}

int ina_tna_boot(struct ina_switch *sw)
{
    struct ina_tna_runtime *tna = sw->tna;
    bool keep = false;
    for (uint32_t p = 0; p < tna->pipes; p++) {
        struct ina_tna_pipe *pipe = &tna->pipe[p];
        pipe->state = sw->state + p * sw->state_stride;
        if (pipe->program->init)
            pipe->program->init(pipe->state, sw->config.seed + p);
        keep |= (pipe->program->flags & INA_PROGRAM_KEEP_INGRESS) != 0;
        const unsigned first = tna->pipes > 2 && p % 2 ? INA_TNA_CPU : INA_TNA_LOOPBACK;
        for (unsigned loopback = first; loopback < INA_TNA_LOOPBACK + 4; loopback++)
            sw->ports[p * INA_TNA_PIPE_PORTS + loopback].present = sw->ports[p * INA_TNA_PIPE_PORTS + loopback].loopback = true;
    }
    for (unsigned port = 0; port < INA_SWITCH_PORTS; port++)
        tna->port[port].backup = (uint16_t)port;
    tna->replication.cpu_port = INA_TNA_NO_PORT;
    tna->originals = keep ? malloc((size_t)INA_BATCH * sw->config.max_frame) : NULL;
    return keep && !tna->originals ? ENOMEM : 0;
}

void ina_tna_destroy(struct ina_tna_runtime *tna)
{
    if (!tna)
        return;
    for (unsigned g = 0; g < INA_SWITCH_GROUPS; g++)
        free(tna->group[g]);
    for (unsigned s = 0; s < INA_TNA_SESSIONS; s++)
        free(tna->session[s]);
    for (unsigned l = 0; l < INA_TNA_LAGS; l++)
        free(tna->lag[l]);
    for (unsigned p = 0; p < INA_TNA_PIPES; p++)
        free(tna->pktgen[p]);
    free(tna->group);
    free(tna->originals);
    free(tna);
}

uint32_t ina_switch_pipes(const struct ina_switch *sw)
{
    return sw->tna ? sw->tna->pipes : 0;
}

bool ina_tna_has(const struct ina_tna_runtime *tna, uint32_t port)
{
    return port < tna->pipes * INA_TNA_PIPE_PORTS;
}

/* ---- metadata in front of frames -------------------------------------------------------------------------------------- */

static uint8_t *front(struct ina_packet *pkt, uint32_t bytes)
{
    pkt->data -= bytes;
    pkt->headroom -= bytes;
    pkt->len += bytes;
    pkt->wire_len += bytes;
    return pkt->data;
}

static void put(uint8_t *at, unsigned bytes, uint64_t value)
{
    while (bytes--) {
        at[bytes] = (uint8_t)value;
        value >>= 8;
    }
}

/* ingress_intrinsic_metadata_t, then port metadata or resubmit data: 5.1 */
static void ingress_front(const struct ina_switch *sw, struct ina_packet *pkt, uint64_t now)
{
    const bool resubmitted = pkt->instance_type == INA_RESUBMITTED;
    uint8_t data[8];
    memcpy(data, resubmitted ? tna_of(pkt)->resubmit_data : sw->tna->port[pkt->ingress_port].metadata, sizeof data);
    uint8_t *at = front(pkt, INA_TNA_INGRESS_FRONT);
    put(at, 2, (uint64_t)resubmitted << 15 | pkt->ingress_port);
    put(at + 2, 6, now / 1000);
    memcpy(at + 8, data, sizeof data);
    tna_of(pkt)->front = INA_TNA_INGRESS_FRONT;
}

static uint32_t cells(uint32_t bytes)
{
    uint32_t n = (bytes + CELL - 1) / CELL;
    return n < 1u << 19 ? n : (1u << 19) - 1;
}

/* egress_intrinsic_metadata_t: 5.8.1. Congestion states and the egress class of service are 0: nothing sets them. */
static void egress_front(struct ina_packet *pkt)
{
    struct ina_tna *tna = tna_of(pkt);
    const uint32_t length = pkt->wire_len + INA_TNA_FCS;
    const uint64_t enqueued = pkt->enq_time / 1000, delta = pkt->deq_time / 1000 - enqueued;
    uint8_t *at = front(pkt, INA_TNA_EGRESS_FRONT);
    put(at, 2, pkt->egress_port);
    put(at + 2, 3, cells(pkt->enq_qdepth));
    at[5] = 0;
    put(at + 6, 4, enqueued & 0x3ffff);
    put(at + 10, 3, cells(pkt->deq_qdepth));
    at[13] = at[14] = 0;
    put(at + 15, 4, delta < 0x3ffff ? delta : 0x3ffff);
    put(at + 19, 2, pkt->rid);
    at[21] = (pkt->instance_type & INA_TNA_FIRST) != 0;
    at[22] = tna->qid & 31;
    at[23] = at[24] = 0;
    put(at + 25, 2, length < UINT16_MAX ? length : UINT16_MAX);
    tna->front = INA_TNA_EGRESS_FRONT;
}

/* ---- traffic manager -------------------------------------------------------------------------------------------------- */

/* Sends a packet to the destination in its metadata: 5.4, 5.7. */
static void forward(struct ina_switch *sw, struct ina_packet *batch, unsigned i, uint64_t now)
{
    const struct ina_tna want = *tna_of(&batch[i]);
    const bool unicast = want.has_ucast && want.ucast_egress_port != INA_TNA_NO_PORT;
    const uint16_t cpu = sw->tna->replication.cpu_port;
    if (!unicast && !want.has_mcast_a && !want.has_mcast_b && !want.copy_to_cpu)
        ina_count_drop(sw, batch[i].ingress_port, INA_DROPPED_INGRESS);
    if (unicast)
        ina_copy_to(sw, batch, i, (struct ina_replica){want.ucast_egress_port, 0}, INA_NORMAL, now);
    if (want.has_mcast_a)
        ina_tna_replicate(sw, batch, i, want.mcast_grp_a, now);
    if (want.has_mcast_b)
        ina_tna_replicate(sw, batch, i, want.mcast_grp_b, now);
    if (want.copy_to_cpu)
        ina_copy_to(sw, batch, i, (struct ina_replica){cpu, 0}, INA_NORMAL | INA_TNA_FIRST, now);
}

/* Queues a mirrored copy, the frame at `data` with the mirror header in front, for its session. */
static void mirror(struct ina_switch *sw, const struct ina_packet *pkt, uint8_t *data, uint32_t len, uint32_t wire_len,
                   uint8_t type, unsigned passes)
{
    const struct ina_tna *want = tna_of(pkt);
    struct ina_packet copy = *pkt;
    copy.data = data;
    copy.len = len;
    copy.wire_len = wire_len;
    copy.clone_session = want->mirror_session;
    const uint32_t header = want->mirror_len;
    struct ina_buffer *b = ina_loop_push(sw, &copy, type, passes);
    if (b)
        memcpy(front(&b->pkt, header), want->mirror_header, header);
}

/* A mirrored copy reaches the traffic manager: 5.7.1, 8. */
static void to_session(struct ina_switch *sw, struct ina_packet *batch, unsigned i, uint8_t type, uint32_t id, uint64_t now)
{
    const uint8_t direction = type == INA_INGRESS_CLONE ? INA_TNA_INGRESS : INA_TNA_EGRESS;
    const struct ina_tna_session *session = id < INA_TNA_SESSIONS ? sw->tna->session[id] : NULL;
    struct ina_packet *pkt = &batch[i];
    if (!session || !session->enabled || !(session->directions & direction)) {
        ina_count_drop(sw, pkt->ingress_port, INA_DROPPED_NO_SESSION);
        return;
    }
    if (session->max_len && pkt->wire_len > session->max_len) {
        pkt->len = pkt->len < session->max_len ? pkt->len : session->max_len;
        pkt->wire_len = session->max_len;
    }
    *tna_of(pkt) = session->to;
    forward(sw, batch, i, now);
}

/* Carries out the requests of ingress: 5.6. `len` and `wire_len` are those of the frame as it came. */
static void after_ingress(struct ina_switch *sw, struct ina_packet *batch, unsigned i, bool resubmitted, uint32_t len,
                          uint32_t wire_len, uint64_t now)
{
    struct ina_packet *pkt = &batch[i];
    const struct ina_tna_pipe *pipe = pipe_of(sw, pkt->ingress_port);
    struct ina_tna *want = tna_of(pkt);
    uint8_t *original = sw->tna->originals ? sw->tna->originals + (size_t)i * sw->config.max_frame : NULL;
    if (pkt->verdict >= INA_FAILED || want->parser_drop) {
        ina_count_drop(sw, pkt->ingress_port, want->parser_drop ? INA_DROPPED_MALFORMED : ina_end_of(pkt->verdict, INA_DROPPED_INGRESS));
        return;
    }
    if (pkt->digest)
        ina_digest_add(sw, pkt, pipe->pipeline << 8 | pkt->digest, now);
    if (want->resubmit) { /* once, and not from quads 16 and 17: 7.14 */
        if (resubmitted || pkt->ingress_port % INA_TNA_PIPE_PORTS >= 64) {
            ina_count_drop(sw, pkt->ingress_port, INA_DROPPED_PASSES);
            return;
        }
        struct ina_packet again = *pkt;
        again.data = original;
        again.len = len;
        again.wire_len = wire_len;
        ina_loop_push(sw, &again, INA_RESUBMITTED, sw->passes[i]);
        return;
    }
    if (want->mirror)
        mirror(sw, pkt, original, len, wire_len, INA_INGRESS_CLONE, sw->passes[i]);
    if (pkt->verdict == INA_DROP)
        ina_count_drop(sw, pkt->ingress_port, INA_DROPPED_INGRESS);
    else
        forward(sw, batch, i, now);
}

static bool is_mirrored(uint8_t type)
{
    return type == INA_INGRESS_CLONE || type == INA_EGRESS_CLONE;
}

void ina_tna_process(struct ina_switch *sw, struct ina_packet *batch, unsigned n, const uint32_t *again, uint64_t now)
{
    uint32_t len[INA_BATCH], wire_len[INA_BATCH];
    uint8_t type[INA_BATCH];
    for (unsigned i = 0, end; i < n; i = end) {
        type[i] = batch[i].instance_type;
        if (is_mirrored(type[i])) {
            end = i + 1;
            continue;
        }
        const struct ina_tna_pipe *pipe = pipe_of(sw, batch[i].ingress_port);
        const struct ina_tables *const tables = tables_of(pipe, batch[i].ingress_port);
        for (end = i; end < n && !is_mirrored(batch[end].instance_type) && pipe_of(sw, batch[end].ingress_port) == pipe
             && tables_of(pipe, batch[end].ingress_port) == tables; end++) {
            struct ina_packet *pkt = &batch[end];
            type[end] = pkt->instance_type;
            len[end] = pkt->len;
            wire_len[end] = pkt->wire_len;
            if (type[end] == INA_RECIRCULATED)
                ina_pktgen_recirculated(sw->tna, pkt, now);
            if (pipe->program->flags & INA_PROGRAM_KEEP_INGRESS && pkt->len <= sw->config.max_frame)
                memcpy(sw->tna->originals + (size_t)end * sw->config.max_frame, pkt->data, pkt->len);
            ingress_front(sw, pkt, now);
            pkt->instance_type = INA_NORMAL;
        }
        pipe->program->ingress(pipe->state, tables, batch + i, end - i, now);
    }
    for (unsigned i = 0; i < n; i++) {
        sw->uses[i] = 1; /* held while copies are being added */
        if (is_mirrored(type[i]))
            to_session(sw, batch, i, type[i], ina_buffer_at(sw, again[i])->pkt.clone_session, now);
        else
            after_ingress(sw, batch, i, type[i] == INA_RESUBMITTED, len[i], wire_len[i], now);
        sw->uses[i]--;
    }
    ina_emit(sw, batch, now);
}

/* ---- egress ----------------------------------------------------------------------------------------------------------- */

static void after_egress(struct ina_switch *sw, uint16_t number, struct ina_packet *pkt, uint8_t passes, bool bypassed)
{
    bool sent = true;
    if (!bypassed) {
        if (tna_of(pkt)->mirror)
            mirror(sw, pkt, pkt->data, pkt->len, pkt->wire_len, INA_EGRESS_CLONE, passes);
        sent = pkt->verdict == INA_UNICAST;
        if (!sent)
            ina_count_drop(sw, number, ina_end_of(pkt->verdict, INA_DROPPED_EGRESS));
    }
    const struct ina_switch_port *port = &sw->ports[number];
    if (sent && port->loopback && !port->link)
        ina_loop_back(sw, number, pkt, passes);
    if (!sent || (port->loopback && !port->link))
        pkt->len = pkt->wire_len = 0;
}

void ina_tna_run_egress(struct ina_switch *sw, uint16_t number, struct ina_packet *pkts, unsigned n, const uint8_t *passes,
                        uint64_t now)
{
    const struct ina_tna_pipe *pipe = pipe_of(sw, number);
    for (unsigned i = 0, end; i < n; i = end) {
        const bool bypass = tna_of(&pkts[i])->bypass_egress;
        for (end = i; end < n && tna_of(&pkts[end])->bypass_egress == bypass; end++)
            if (!bypass)
                egress_front(&pkts[end]);
        if (!bypass)
            pipe->program->egress(pipe->state, tables_of(pipe, number), pkts + i, end - i, now);
        for (unsigned k = i; k < end; k++) {
            pkts[k].instance_type &= (uint8_t)~INA_TNA_FIRST;
            after_egress(sw, number, &pkts[k], passes[k], bypass);
        }
    }
}
