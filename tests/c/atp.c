/* The ATP worker and the parameter server under sanitizers: every buffer allocated at its exact size; lossy runs of mixed
 * tensors, plainly and behind a "switch" that adds up packets at random; and frames of random and of nearly right bytes into
 * both. Argument: rounds of these runs, one by default; each sends some 100000 such frames. */
#include <arpa/inet.h>

#include "atp_frame.h"
#include "lossy.h"
#include "protocols.h"
#include "ps.h"

#define BYTES(values) ((uint32_t)ina_lane_bytes(INA_LANE_INT32, values))

enum { SPOILED = 4, JOB = 5, LIFE = 0x3002 };

struct flight { /* a frame to worker `to`, or (WORKERS) to the server */
    uint8_t *bytes;
    uint32_t len, to;
};

static struct flight queue[MAX_QUEUE];
static uint32_t queued;
static unsigned long sent;
static const struct ina_address server = {{2, 0, 0, 0, 0xff, 0xfd}, 0xbed0, 0x0a00fffd};
static const struct ina_address relay = {{2, 0, 0, 0, 0xff, 0xfe}, 0xbef0, 0x0a00fffe};

static struct ina_address address(uint32_t worker)
{
    return (struct ina_address){{0, 0, 0, 0, 0, (uint8_t)(worker + 1)}, 4000 + JOB, 0x0a000001 + worker};
}

static void send_frame(const uint8_t *bytes, uint32_t len, uint32_t to, uint32_t loss)
{
    if (draw(100) < loss || queued == MAX_QUEUE)
        return;
    struct flight *f = &queue[queued++];
    *f = (struct flight){malloc(len), len, to};
    memcpy(f->bytes, bytes, len);
}

/* Would the frame be believed? Spoiled numbers, bitmaps and payloads of the right source are the link's business: a sum must
 * stay right. */
static int believable(const uint8_t *bytes, uint32_t len, const uint8_t *real)
{
    struct ina_atp_view view;
    struct ina_packet pkt = {.data = (uint8_t *)bytes, .len = len};
    return len >= INA_ATP_PAYLOAD && (!ina_atp_parse(&view, &pkt, BYTES(32)) || !ina_atp_parse(&view, &pkt, BYTES(64))) && view.job == JOB
           && view.life == LIFE && !memcmp(bytes + 26, real + 26, 12);
}

/* The switch: adds the frame to another one of its number that is on its way to the server, if there is one. */
static int absorbed(const struct flight *f, uint32_t values)
{
    struct ina_atp_view a, b;
    struct ina_packet pkt = {.data = f->bytes, .len = f->len};
    if (ina_atp_parse(&a, &pkt, BYTES(values)) < 0 || a.type != INA_ATP_DATA)
        return 0;
    for (uint32_t i = 0; i < queued; i++) {
        struct ina_packet other = {.data = queue[i].bytes, .len = queue[i].len};
        if (queue[i].to != WORKERS || queue[i].len != f->len || ina_atp_parse(&b, &other, BYTES(values)) < 0 || b.type != a.type
            || a.seq != b.seq || (a.bitmap & b.bitmap))
            continue;
        struct ina_atp_wire *h = (struct ina_atp_wire *)queue[i].bytes;
        h->bitmap = htonl(a.bitmap | b.bitmap);
        h->type_flags |= a.flags;
        h->exponent = a.exponent > b.exponent ? a.exponent : b.exponent;
        for (uint32_t k = 0; a.values && k < values; k++) {
            uint32_t x, y;
            memcpy(&x, a.values + 4 * k, 4);
            memcpy(&y, b.values + 4 * k, 4);
            x = htonl(ntohl(x) + ntohl(y));
            memcpy(h->payload + 4 * k, &x, 4);
        }
        const struct ina_check words = {{b.check0 + (a.values ? a.check0 : 0), b.check1 + (a.values ? a.check1 : 0)}};
        ina_check_seal(&h->check, b.check, words, &h->type_flags, 0);
        return 1;
    }
    return 0;
}

static void lossy_run(uint32_t slots, uint32_t values, uint32_t loss, int plain, uint32_t reply_in_place)
{
    const struct ina_protocol *protocol = plain ? &ina_ps : &ina_atp;
    struct worker workers[WORKERS] = {0};
    struct ina_worker_config configs[WORKERS];
    struct ina_ps_config config = {.self = server, .peer = relay, .job = JOB, .life = LIFE, .workers = WORKERS,
                                   .slots = slots, .values = values, .direct = (uint32_t)plain, .multicast = !plain};
    uint32_t count[TENSORS];
    for (uint32_t t = 0; t < TENSORS; t++)
        count[t] = draw(3) ? draw(2 * values) : draw(40 * values);
    for (uint32_t i = 0; i < WORKERS; i++) {
        struct worker *w = &workers[i];
        config.worker[i] = address(i);
        configs[i] = (struct ina_worker_config){
            .self = address(i), .peer = relay, .server = server, .job = JOB, .life = LIFE, .worker = i,
            .workers = WORKERS, .slots = slots, .values = values, .rto_min_ps = 1000000000, .rto_max_ps = 100000000000,
            .timeout_ps = 10000000000000, .reply_in_place = reply_in_place, .first_packet = (1ull << 40) - 50,
            .options_set = slots == 8 ? 2 : 0, .option = {0, 6}};
        w->state = aligned_alloc(64, protocol->state_size(&configs[i]));
        CHECK(protocol->init(w->state, &configs[i], 0) == 0);
        for (uint32_t t = 0; t < TENSORS; t++) {
            fill(w, i, t, count[t], t % 2, t % 3 == 0, 1);
            const int handle = protocol->next_handle(w->state);
            w->tensors[handle] = (struct ina_tensor){.in = w->in[t], .out = w->out[t], .count = count[t], .dtype = t % 2};
            CHECK(protocol->submit(w->state, w->tensors, handle, 0) == handle);
        }
    }
    void *ps = aligned_alloc(64, ina_ps_state_size(&config));
    CHECK(ina_ps_init(ps, &config, 0) == 0);

    const uint32_t frame_size = protocol->frame_size(&configs[0]);
    uint8_t *buffer = malloc(frame_size);
    uint64_t now = 1;
    while (workers[0].done + workers[1].done + workers[2].done < WORKERS * TENSORS) {
        CHECK(now < 9000000000000);
        for (uint32_t i = 0; i < WORKERS; i++) {
            for (;;) {
                struct ina_packet pkt = {.data = buffer, .tailroom = frame_size};
                if (!protocol->frames_to_send(workers[i].state, workers[i].tensors, &pkt, 1, now))
                    break;
                send_frame(pkt.data, pkt.len, WORKERS, loss);
                if (loss && !draw(50))
                    send_frame(pkt.data, pkt.len, WORKERS, loss);
            }
        }
        if (!queued) {
            uint64_t next = UINT64_MAX;
            for (uint32_t i = 0; i < WORKERS; i++) {
                const uint64_t t = protocol->next_timer(workers[i].state);
                next = t < next ? t : next;
            }
            CHECK(next != UINT64_MAX);
            now = next;
            continue;
        }
        const uint32_t pick = loss ? draw(queued) : 0;
        const struct flight f = queue[pick];
        memmove(&queue[pick], &queue[pick + 1], (--queued - pick) * sizeof f);
        now += 1000000;
        for (uint32_t i = 0; i < SPOILED; i++) {
            uint32_t len;
            uint8_t *bytes = spoiled(f.bytes, f.len, &len);
            struct ina_packet pkt = {.data = bytes, .len = len, .wire_len = len};
            ina_ps_job_of(&pkt);
            if (!believable(bytes, len, f.bytes)) {
                sent++;
                ina_ps_receive(ps, &pkt, now);
                protocol->receive(workers[draw(WORKERS)].state, workers[0].tensors, &pkt, 1, now);
            }
            free(bytes);
        }
        if (f.to == WORKERS) {
            if (!plain && draw(2) && absorbed(&f, values)) {
                free(f.bytes);
                continue;
            }
            if (!plain) { /* the switch's address */
                struct ina_atp_wire *h = (struct ina_atp_wire *)f.bytes;
                struct ina_internet net;
                ina_internet_write(&net, &relay, &server, f.len - INA_INTERNET_SIZE);
                h->net = net;
            }
            struct ina_packet pkt = {.data = f.bytes, .len = f.len, .wire_len = f.len};
            CHECK(ina_ps_job_of(&pkt) == JOB);
            ina_ps_receive(ps, &pkt, now);
            for (;;) {
                struct ina_packet answer = {.data = buffer, .tailroom = frame_size};
                if (!ina_ps_frames_to_send(ps, &answer, 1, now))
                    break;
                struct ina_atp_wire *h = (struct ina_atp_wire *)buffer;
                for (uint32_t i = 0; i < WORKERS; i++) {
                    const struct ina_address to = address(i);
                    if (!(ntohl(h->bitmap) >> i & 1))
                        continue;
                    ina_internet_write(&h->net, plain ? &server : &relay, &to, answer.len - INA_INTERNET_SIZE);
                    send_frame(buffer, answer.len, i, loss);
                }
            }
        } else {
            struct worker *w = &workers[f.to];
            struct ina_event events[INA_MAX_OPS];
            uint8_t *bytes = malloc(frame_size);
            memcpy(bytes, f.bytes, f.len);
            struct ina_packet pkt = {.data = bytes, .len = f.len, .wire_len = f.len, .tailroom = frame_size - f.len};
            if (protocol->receive(w->state, w->tensors, &pkt, 1, now))
                send_frame(pkt.data, pkt.len, WORKERS, loss);
            for (int n = protocol->events(w->state, events, INA_MAX_OPS); n-- > 0; w->done++) {
                CHECK(events[n].type == INA_EVENT_DONE);
                check(w, events[n].op, count[events[n].op], events[n].op % 2, 1);
            }
            free(bytes);
        }
        free(f.bytes);
    }
    while (queued)
        free(queue[--queued].bytes);
    forget(workers);
    free(ps);
    free(buffer);
}

int main(int argc, char **argv)
{
    for (long rounds = argc > 1 ? strtol(argv[1], NULL, 10) : 1; rounds > 0; rounds--)
        for (uint32_t loss = 0; loss <= 20; loss += 10)
            for (uint32_t slots = 1; slots <= 64; slots *= 8)
                for (int plain = 0; plain < 2; plain++)
                    lossy_run(slots, draw(2) ? 32 : 64, loss, plain, draw(2));
    printf("%lu spoiled frames\n", sent);
    return 0;
}
