/* The SwitchML worker under sanitizers: every buffer allocated at its exact size, lossy runs of mixed tensors in place and
 * not, and frames of random and of nearly right bytes. Then, with an argument "bench", packets per second. */
#include <time.h>

#include "codec.h"
#include "lossy.h"
#include "model_switch.h"

struct flight { /* a frame to worker `to`, or from it to the switch */
    uint8_t *bytes;
    uint32_t len, to;
    int up;
};

static struct flight queue[MAX_QUEUE];
static uint32_t queued;

static void send_frame(const uint8_t *bytes, uint32_t len, uint32_t to, int up, uint32_t loss)
{
    if (draw(100) < loss || queued == MAX_QUEUE)
        return;
    struct flight *f = &queue[queued++];
    *f = (struct flight){malloc(len), len, to, up};
    memcpy(f->bytes, bytes, len);
}

/* Random bytes and one real frame with a few bytes changed must not be taken, nor read or written out of bounds. */
static void fuzz(struct worker *w, uint64_t now, const uint8_t *real, uint32_t real_len)
{
    uint32_t len;
    uint8_t *bytes = spoiled(real, real_len, &len);
    /* Changed payloads and exponents are the link's business: here a sum must stay right. */
    if (len < INA_WIRE_PAYLOAD || memcmp(bytes, real, 50)) {
        const struct ina_wire_frame *h = (const struct ina_wire_frame *)bytes;
        struct ina_packet pkt = {.data = bytes, .len = len, .wire_len = len};
        if (len < INA_WIRE_PAYLOAD || ntohs(h->net.udp_len) > len - INA_INTERNET_UDP || h->e1 != 1
            || (h->type_overflow_size >> 4) > 2)
            ina_switchml.receive(w->state, w->tensors, &pkt, 1, now);
    }
    free(bytes);
}

static void lossy_run(uint32_t slots, uint32_t values, uint32_t loss, uint32_t reply_in_place)
{
    struct worker workers[WORKERS] = {0};
    struct ina_worker_config configs[WORKERS];
    struct model_switch model;
    uint32_t count[TENSORS];
    for (uint32_t t = 0; t < TENSORS; t++)
        count[t] = draw(3) ? draw(2 * values) : draw(40 * values);
    for (uint32_t i = 0; i < WORKERS; i++) {
        struct worker *w = &workers[i];
        configs[i] = model_config(i, WORKERS, slots, values);
        configs[i].reply_in_place = reply_in_place;
        configs[i].first_packet = 0xfffffff0u;
        w->state = aligned_alloc(64, ina_switchml.state_size(&configs[i]));
        CHECK(ina_switchml.init(w->state, &configs[i], 0) == 0);
        for (uint32_t t = 0; t < TENSORS; t++) {
            fill(w, i, t, count[t], t % 2, t % 3 == 0, 0);
            const int handle = ina_switchml.next_handle(w->state);
            w->tensors[handle] = (struct ina_tensor){.in = w->in[t], .out = w->out[t], .count = count[t], .dtype = t % 2};
            CHECK(ina_switchml.submit(w->state, w->tensors, handle, 0) == handle);
        }
    }
    model_switch_init(&model, configs);

    const uint32_t frame_size = ina_switchml.frame_size(&configs[0]);
    uint8_t *buffer = malloc(frame_size);
    uint64_t now = 1;
    while (workers[0].done + workers[1].done + workers[2].done < WORKERS * TENSORS) {
        CHECK(now < 9000000000000);
        for (uint32_t i = 0; i < WORKERS; i++) {
            for (;;) {
                struct ina_packet pkt = {.data = buffer, .tailroom = frame_size};
                if (!ina_switchml.frames_to_send(workers[i].state, workers[i].tensors, &pkt, 1, now))
                    break;
                send_frame(pkt.data, pkt.len, i, 1, loss);
            }
        }
        if (!queued) { /* all lost: the next timer */
            uint64_t next = UINT64_MAX;
            for (uint32_t i = 0; i < WORKERS; i++) {
                const uint64_t t = ina_switchml.next_timer(workers[i].state);
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
        uint8_t *bytes = malloc(frame_size);
        memcpy(bytes, f.bytes, f.len);
        struct ina_packet pkt = {.data = bytes, .len = f.len, .wire_len = f.len, .tailroom = frame_size - f.len};
        if (f.up) {
            const uint32_t to = model_switch_process(&model, f.to, &pkt);
            for (uint32_t i = 0; i < WORKERS; i++) {
                if (to >> i & 1) {
                    model_address(&model, i, &pkt);
                    send_frame(pkt.data, pkt.len, i, 0, loss);
                    if (loss && !draw(50))
                        send_frame(pkt.data, pkt.len, i, 0, loss);
                }
            }
        } else {
            struct worker *w = &workers[f.to];
            struct ina_event events[INA_MAX_OPS];
            fuzz(w, now, f.bytes, f.len);
            if (ina_switchml.receive(w->state, w->tensors, &pkt, 1, now))
                send_frame(pkt.data, pkt.len, f.to, 1, loss);
            for (int n = ina_switchml.events(w->state, events, INA_MAX_OPS); n-- > 0; w->done++) {
                CHECK(events[n].type == INA_EVENT_DONE);
                check(w, events[n].op, count[events[n].op], events[n].op % 2, 0);
            }
        }
        free(bytes);
        free(f.bytes);
    }
    while (queued)
        free(queue[--queued].bytes);
    forget(workers);
    model_switch_free(&model);
    free(buffer);
}

static void exact_code(void)
{
    for (uint32_t n = 0; n < 20000; n++) {
        float x[3], y[3];
        uint8_t wire[3 * INA_EXACT_WORDS * 4];
        for (int i = 0; i < 3; i++) {
            uint32_t bits = draw(UINT32_MAX);
            memcpy(&x[i], &bits, 4);
        }
        ina_codec_encode_exact(wire, x, 3);
        ina_codec_decode_exact(y, wire, 3, 1, 1);
        for (int i = 0; i < 3; i++)
            CHECK(x[i] == y[i] || (x[i] != x[i] && y[i] != y[i]));
        for (int e = INA_EXP_MIN; e <= INA_EXP_MAX; e += 37)
            ina_codec_encode(INA_LANE_INT32, wire, x, 3, e, 25);
    }
}

/* One worker's side alone: each frame it sends comes back at once as the result. */
static void bench(uint32_t values, uint32_t dtype)
{
    struct ina_worker_config config = model_config(0, 1, 512, values);
    config.reply_in_place = 1;
    const uint64_t count = 1u << 18; /* 1 MiB: fits in L2 with the frames */
    struct ina_tensor tensors[INA_MAX_OPS];
    void *state = aligned_alloc(64, ina_switchml.state_size(&config)), *data = aligned_alloc(64, 4 * count);
    memset(data, 0, 4 * count);
    const uint32_t size = ina_switchml.frame_size(&config);
    uint8_t *frames = malloc((size_t)config.slots * size);
    struct ina_packet pkts[512];
    struct model_switch model;
    model_switch_init(&model, &config);
    ina_switchml.init(state, &config, 0);

    uint64_t packets = 0, now = 0;
    struct timespec a, b;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &a);
    double seconds = 0;
    while (seconds < 0.5) {
        const int handle = ina_switchml.next_handle(state);
        tensors[handle] = (struct ina_tensor){.in = data, .out = data, .count = count, .dtype = dtype};
        ina_switchml.submit(state, tensors, handle, now);
        for (int i = 0; i < 512; i++)
            pkts[i] = (struct ina_packet){.data = frames + (size_t)i * size, .tailroom = size};
        int n = ina_switchml.frames_to_send(state, tensors, pkts, 512, now);
        while (n) {
            int kept = 0;
            for (int i = 0; i < n; i++) {
                model_address(&model, 0, &pkts[i]);
                packets++;
                if (ina_switchml.receive(state, tensors, &pkts[i], 1, ++now))
                    pkts[kept++] = pkts[i];
            }
            n = kept ? kept : ina_switchml.frames_to_send(state, tensors, pkts, 512, now);
        }
        struct ina_event event;
        CHECK(ina_switchml.events(state, &event, 1) == 1 && event.type == INA_EVENT_DONE);
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &b);
        seconds = (double)(b.tv_sec - a.tv_sec) + (double)(b.tv_nsec - a.tv_nsec) / 1e9;
    }
    printf("%s, %4u values: %6.2f Mpps, %6.1f Gb/s of payload\n", dtype ? "float32" : "int32  ", values,
           (double)packets / seconds / 1e6, (double)packets / seconds * values * 32 / 1e9);
    model_switch_free(&model);
    free(frames);
    free(state);
    free(data);
}

int main(int argc, char **argv)
{
    if (argc > 1 && !strcmp(argv[1], "bench")) {
        for (uint32_t values = 64; values <= 1024; values *= values == 256 ? 4 : 2)
            for (uint32_t dtype = 0; dtype < 2; dtype++)
                bench(values, dtype);
        return 0;
    }
    exact_code();
    for (uint32_t loss = 0; loss <= 20; loss += 10)
        for (uint32_t slots = 1; slots <= 64; slots *= 8)
            for (uint32_t in_place = 0; in_place < 2; in_place++)
                lossy_run(slots, draw(2) ? 32 : 64, loss, in_place);
    return 0;
}
