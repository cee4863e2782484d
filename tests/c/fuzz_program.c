/* Mutated packets through a compiled program, in buffers without slack: built with sanitizers, it finds reads and writes
 * beside a frame, its metadata or the state. Packets that enter again do so, a bounded number of times. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "program.h"
#include "table.h"

struct fuzz {
    const struct ina_program *program;
    const struct ina_tables *tables;
    void *state;
    uint64_t random, now;
    uint64_t sent, dropped, again;
};

static uint64_t draw(struct fuzz *f, uint64_t below)
{
    f->random ^= f->random << 13, f->random ^= f->random >> 7, f->random ^= f->random << 17;
    return (uint64_t)((unsigned __int128)f->random * below >> 64);
}

static void fail(const char *what)
{
    fprintf(stderr, "broken: %s\n", what);
    abort();
}

static void *exactly(size_t bytes, size_t alignment)
{
    void *p = NULL;
    if (posix_memalign(&p, alignment, bytes ? bytes : 1))
        fail("no memory");
    return p;
}

static void pass(struct fuzz *f, const uint8_t *frame, uint32_t len, const struct ina_packet *before, unsigned depth);

static void egress(struct fuzz *f, const struct ina_packet *from, unsigned depth)
{
    uint32_t tail = (uint32_t)draw(f, 3) * 40;
    uint8_t *room = exactly(INA_HEADROOM + (size_t)from->len + tail, 8);
    struct ina_packet pkt = *from;
    pkt.headroom = INA_HEADROOM;
    pkt.tailroom = tail;
    pkt.data = memcpy(room + INA_HEADROOM, from->data, from->len);
    pkt.meta = memcpy(exactly(f->program->meta_size, 64), from->meta, f->program->meta_size);
    pkt.rid = (uint16_t)draw(f, 4);
    pkt.clone = pkt.digest = 0;
    f->program->egress(f->state, f->tables, &pkt, 1, f->now);
    if (pkt.verdict == INA_UNICAST || pkt.verdict == INA_RECIRCULATE) {
        if (pkt.data < room || pkt.data + pkt.len > room + INA_HEADROOM + from->len + tail)
            fail("the frame lies beside its buffer");
        if (pkt.len > from->len + f->program->max_grow)
            fail("the frame grew more than max_grow");
        volatile uint8_t sum = 0;
        for (uint32_t i = 0; i < pkt.len; i++)
            sum = (uint8_t)(sum + pkt.data[i]);
    }
    f->sent += pkt.verdict == INA_UNICAST;
    f->dropped += pkt.verdict != INA_UNICAST && pkt.verdict != INA_RECIRCULATE;
    if (pkt.clone || pkt.verdict == INA_RECIRCULATE) {
        pkt.instance_type = pkt.clone ? INA_EGRESS_CLONE : INA_RECIRCULATED;
        pkt.field_list = pkt.clone ? pkt.clone_list : pkt.field_list;
        pass(f, pkt.data, pkt.len, &pkt, depth + 1);
    }
    free(pkt.meta);
    free(room);
}

static void pass(struct fuzz *f, const uint8_t *frame, uint32_t len, const struct ina_packet *before, unsigned depth)
{
    if (depth > 4 || !len)
        return;
    uint32_t tail = (uint32_t)draw(f, 3) * 40;
    uint8_t *room = exactly(INA_HEADROOM + (size_t)len + tail, 8);
    struct ina_packet pkt = {0};
    if (before)
        pkt.instance_type = before->instance_type, pkt.field_list = before->field_list;
    pkt.data = memcpy(room + INA_HEADROOM, frame, len);
    pkt.len = pkt.wire_len = len;
    pkt.headroom = INA_HEADROOM;
    pkt.tailroom = tail;
    pkt.ingress_port = (uint16_t)draw(f, 5);
    pkt.ingress_time = f->now;
    pkt.meta = exactly(f->program->meta_size, 64);
    if (before)
        memcpy(pkt.meta, before->meta, f->program->meta_size);
    else
        memset(pkt.meta, (int)draw(f, 256), f->program->meta_size);
    f->program->ingress(f->state, f->tables, &pkt, 1, f->now);
    f->again += before != NULL;
    struct ina_packet copy = pkt;
    if (pkt.verdict == INA_UNICAST || pkt.verdict == INA_MULTICAST)
        for (uint64_t copies = pkt.verdict == INA_MULTICAST ? 1 + draw(f, 3) : 1; copies; copies--)
            egress(f, &pkt, depth);
    else
        f->dropped += pkt.verdict != INA_RESUBMIT;
    if (pkt.verdict == INA_RESUBMIT) {
        copy.instance_type = INA_RESUBMITTED;
        pass(f, pkt.data, pkt.len, &copy, depth + 1);
    }
    if (pkt.clone) {
        copy.instance_type = INA_INGRESS_CLONE;
        copy.field_list = copy.clone_list;
        pass(f, pkt.data, pkt.len, &copy, depth + 1);
    }
    free(pkt.meta);
    free(room);
}

static void start(const struct fuzz *f, uint64_t seed)
{
    memset(f->state, 0, f->program->state_size);
    f->program->init(f->state, seed);
}

/* `packets` of them, made from `count` frames that lie one after the other; results: sent, dropped, entered again. */
void fuzz(const struct ina_program *program, const struct ina_tables *tables, const uint8_t *frames,
          const uint32_t *lengths, uint32_t count, uint64_t packets, uint64_t seed, uint64_t *results)
{
    struct fuzz f = {.program = program, .tables = tables, .random = seed * 2 + 1};
    f.state = exactly(program->state_size, 64);
    start(&f, seed);
    uint8_t *frame = malloc(65536);
    for (uint64_t n = 0; n < packets; n++) {
        if (!draw(&f, 200)) /* from the start: some programs go on to a state in which they refuse most */
            start(&f, n);
        uint64_t chosen = draw(&f, count), at = 0;
        for (uint64_t i = 0; i < chosen; i++)
            at += lengths[i];
        uint32_t len = lengths[chosen];
        memcpy(frame, frames + at, len);
        for (uint64_t k = draw(&f, 4); k; k--) {
            uint64_t where = draw(&f, len < 80 || draw(&f, 2) ? len : 80);
            switch (draw(&f, 6)) {
            case 0: frame[where] ^= (uint8_t)(1u << draw(&f, 8)); break;
            case 1: frame[where] = (uint8_t)draw(&f, 256); break;
            case 2: frame[where] = draw(&f, 2) ? 0xff : 0; break;
            case 3: len = 1 + (uint32_t)draw(&f, len); break;
            case 4: /* longer */
                for (uint64_t more = draw(&f, 64); more && len < 9000; more--)
                    frame[len++] = (uint8_t)draw(&f, 256);
                break;
            default: memmove(frame + where, frame + draw(&f, len), 1 + draw(&f, (uint64_t)len - where) / 8); break;
            }
        }
        if (!draw(&f, 50))
            for (uint32_t i = 0; i < len; i++)
                frame[i] = (uint8_t)draw(&f, 256);
        f.now += draw(&f, 1000000000);
        pass(&f, frame, len, NULL, 0);
    }
    free(frame);
    free(f.state);
    results[0] = f.sent, results[1] = f.dropped, results[2] = f.again;
}
