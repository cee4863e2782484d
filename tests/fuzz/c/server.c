/* The parameter server's jobs (ps_jobs.h): added, removed and sent to in any order.
 *
 *     { operation 1 | its numbers } ...
 */
#include <arpa/inet.h>

#include "atp_frame.h"
#include "fuzz.h"
#include "ps_jobs.h"
#include "sealing.h"

enum { OPERATIONS = 400, JOBS = 4, VALUES = 32 };
static const struct ina_address SELF = {{2, 0, 0, 0, 0xff, 0xfd}, 0xbed0, 0x0a00fffd}, SWITCH = {{2, 0, 0, 0, 0xff, 0xfe}, 0xbef0, 0x0a00fffe};

static struct ina_address worker(uint32_t i)
{
    return (struct ina_address){{2, 0, 0, 0, 1, (uint8_t)i}, (uint16_t)(4001 + i), 0x0a000001 + i};
}

static void add(struct ina_ps_jobs *jobs, struct input *in)
{
    const uint32_t bits = (uint32_t)take(in, 1);
    struct ina_ps_config config = {
        .self = SELF, .peer = SWITCH, .job = choose(in, JOBS), .life = 1, .workers = 1 + (bits & 3), .slots = 1u << (bits >> 2 & 3),
        .values = VALUES, .direct = bits >> 4 & 1, .multicast = bits >> 5 & 1};
    for (uint32_t i = 0; i < INA_BITMAP_WORKERS; i++)
        config.worker[i] = worker(i);
    if (bits & 0x40) /* any numbers, as no controller would send them */
        config.workers = (uint32_t)take(in, 4), config.slots = (uint32_t)take(in, 4) & 0xff0000ff, config.life = (uint32_t)take(in, 4);
    ina_ps_jobs_add(jobs, &config, 0);
}

static void frame(struct ina_ps_jobs *jobs, struct input *in, uint64_t now)
{
    const uint32_t bits = (uint32_t)take(in, 1), from = choose(in, 4), with_values = bits & 1;
    uint32_t len = INA_ATP_PAYLOAD + (with_values ? 4 * VALUES : 0);
    uint8_t *bytes = exactly(len);
    struct ina_packet pkt = {.data = bytes, .tailroom = len};
    struct ina_internet net;
    const struct ina_address address = worker(from);
    ina_internet_write(&net, bits & 2 ? &SWITCH : &address, &SELF, len - INA_INTERNET_SIZE);
    static const uint8_t TYPES[] = {INA_ATP_DATA, INA_ATP_FLOATS, INA_ATP_MAXIMA, INA_ATP_DATA};
    const uint32_t bitmap = bits & 0x40 ? (uint32_t)take(in, 1) & 15 : 1u << from;
    const uint32_t type = TYPES[bits >> 2 & 3], job = choose(in, JOBS);
    const uint64_t seq = take(in, 1);
    const int exponent = (int)take(in, 1);
    uint8_t *values = ina_atp_write(&pkt, &net, type, bits & 0x10 ? INA_ATP_RESEND : 0, 3, ina_atp_identity(1, job, seq), bitmap,
                                    len - INA_ATP_PAYLOAD);
    const uint32_t kind = type == INA_ATP_FLOATS ? INA_CHECK_FLOATS : INA_CHECK_INTEGERS;
    struct ina_check check = ina_check_begin(ina_atp_nonce(1, job, seq, kind, exponent), (uint32_t)__builtin_popcount(bitmap));
    if (with_values) {
        memset(values, (int)take(in, 1), 4 * VALUES);
        ina_check_add(INA_LANE_INT32, &check, values, VALUES);
    }
    ina_atp_complete(&pkt, exponent, INA_CHECK_SUM, check);
    if (bits & 0x20) {
        edit(in, bytes, len < 80 ? len : 80);
        if (take(in, 1) & 7) /* else the checksum of the headers tells */
            seal_again(&((struct ina_atp_wire *)bytes)->check, &((struct ina_atp_wire *)bytes)->type_flags, 0);
    }
    if (bits & 0x80) {
        len -= choose(in, len);
        uint8_t *shorter = memcpy(exactly(len), bytes, len);
        free(bytes);
        bytes = shorter;
    }
    pkt = (struct ina_packet){.data = bytes, .len = len, .wire_len = len};
    CHECK(ina_ps_machine.receive(jobs, NULL, &pkt, 1, now) == 0);
    free(bytes);
}

static void send_frames(struct ina_ps_jobs *jobs, struct input *in, uint64_t now)
{
    struct ina_packet pkts[4];
    uint8_t *room[4];
    const int n = 1 + (int)choose(in, 4);
    const uint32_t size = take(in, 1) & 1 ? INA_ATP_PAYLOAD + 4 * VALUES - 1 - choose(in, 64) : INA_ATP_PAYLOAD + 4 * VALUES;
    for (int i = 0; i < n; i++) {
        room[i] = exactly(size);
        pkts[i] = (struct ina_packet){.data = room[i], .tailroom = size};
    }
    const int filled = ina_ps_machine.frames_to_send(jobs, NULL, pkts, n, now);
    CHECK(filled >= 0 && filled <= n);
    for (int i = 0; i < n; i++) {
        struct ina_atp_view view;
        if (i < filled) { /* what the server sends, workers can read */
            CHECK(ina_atp_parse(&view, &pkts[i], (uint32_t)ina_lane_bytes(INA_LANE_INT32, VALUES)) == 0 && !ina_atp_upwards(view.type));
            touch(pkts[i].data, pkts[i].len);
        }
        free(room[i]);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input in = {data, data + size};
    struct ina_ps_jobs *jobs = ina_ps_jobs_create();
    struct ina_ps_stats stats;
    CHECK(jobs);
    for (uint32_t n = 0; n < OPERATIONS && in.at != in.end; n++) {
        switch (take(&in, 1) % 8) {
        case 0: add(jobs, &in); break;
        case 1: ina_ps_jobs_remove(jobs, choose(&in, JOBS)); break;
        case 2: ina_ps_jobs_stats(jobs, (uint32_t)take(&in, 4), &stats); break;
        case 3: {
            uint32_t len = choose(&in, 200);
            len = len < in.end - in.at ? len : (uint32_t)(in.end - in.at);
            uint8_t *bytes = memcpy(exactly(len), in.at, len);
            struct ina_packet pkt = {.data = bytes, .len = len, .wire_len = len};
            in.at += len;
            ina_ps_machine.receive(jobs, NULL, &pkt, 1, n);
            free(bytes);
            break;
        }
        case 4: send_frames(jobs, &in, n); break;
        default: frame(jobs, &in, n); break;
        }
        ina_ps_machine.next_timer(jobs);
    }
    ina_ps_jobs_destroy(jobs);
    return 0;
}
