/* Every function that looks at a received frame's bytes: of SwitchML (frame.h), ATP (atp_frame.h), the parameter server.
 *
 *     which 1 | config 1 | frame
 *
 * Bit 7 of `which`: the frame begins as a right one, and what follows says how it is edited and cut. */
#include <arpa/inet.h>

#include "atp_frame.h"
#include "frame.h"
#include "fuzz.h"
#include "ps.h"
#include "sealing.h"

static const uint32_t SIZES[] = {32, 64, 128, 256, 1024, 2048};

static struct ina_worker_config config_of(uint32_t bits)
{
    return (struct ina_worker_config){
        .self = {{2, 0, 0, 0, 1, 0}, 4001, 0x0a000001}, .peer = {{2, 0, 0, 0, 0xff, 0xfe}, 0xbee0, 0x0a00fffe},
        .job = bits & 1, .life = 1 + (bits >> 1 & 1), .workers = 2, .slots = 1u << (bits >> 2 & 7),
        .values = SIZES[(bits >> 5) % 3],
    };
}

/* A result for the worker, as a switch would send it. */
static void write_result(uint8_t *bytes, const struct ina_frame_template *t, const struct ina_worker_config *config)
{
    struct ina_packet pkt = {.data = bytes, .tailroom = ina_frame_length(t, INA_WIRE_DATA, 1)};
    struct ina_wire_frame *h = ina_frame_write(&pkt, t, INA_WIRE_DATA, 1, 7, 0, 0);
    ina_check_seal(&h->check, INA_CHECK_SUM, (struct ina_check){{1, 2}}, &h->type_overflow_size, 0);
    h->net.src_ip = htonl(config->peer.ip), h->net.src_port = htons(config->peer.port);
    h->net.dst_ip = htonl(config->self.ip), h->net.dst_port = htons(config->self.port);
    memset(h->payload, 0x5a, 4 * config->values);
}

static void write_sums(uint8_t *bytes, const struct ina_worker_config *config)
{
    struct ina_packet pkt = {.data = bytes, .tailroom = INA_ATP_PAYLOAD + 4 * config->values};
    struct ina_internet net;
    ina_internet_write(&net, &config->self, &config->peer, INA_ATP_PAYLOAD - INA_INTERNET_SIZE + 4 * config->values);
    memset(ina_atp_write(&pkt, &net, INA_ATP_DATA, 0, 1, ina_atp_identity(1, 1, 5), 3, 4 * config->values), 0x5a,
           4 * config->values);
    ina_atp_complete(&pkt, 3, INA_CHECK_SUM, (struct ina_check){{1, 2}});
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input in = {data, data + size};
    const uint32_t which = (uint32_t)take(&in, 1);
    const uint32_t bits = (uint32_t)take(&in, 1);
    const struct ina_worker_config config = config_of(bits);
    struct ina_frame_template template;
    CHECK(ina_frame_prepare(&template, &config, bits & 2 ? 4 : 1, INA_CHECK_SUM) == 0);

    uint32_t len = (uint32_t)(in.end - in.at);
    uint8_t *bytes;
    if (which & 0x80) {
        const uint32_t whole = which & 1 ? INA_ATP_PAYLOAD + 4 * config.values : ina_frame_length(&template, INA_WIRE_DATA, 1);
        uint8_t *right = exactly(whole);
        if (which & 1)
            write_sums(right, &config);
        else
            write_result(right, &template, &config);
        edit(&in, right, 80);
        if (which & 1 && which & 0x7c) /* else the checksum of the headers tells */
            seal_again(&((struct ina_atp_wire *)right)->check, &((struct ina_atp_wire *)right)->type_flags, 0);
        else if (which & 0x7c)
            seal_again(&((struct ina_wire_frame *)right)->check, &((struct ina_wire_frame *)right)->type_overflow_size,
                       ina_kinds[((struct ina_wire_frame *)right)->type_overflow_size >> INA_WIRE_TYPE_SHIFT].extra);
        len = which & 2 ? whole - choose(&in, whole) : whole;
        bytes = memcpy(exactly(len), right, len);
        free(right);
    } else {
        bytes = memcpy(exactly(len), in.at, len);
    }
    struct ina_packet pkt = {.data = bytes, .len = len, .wire_len = len};

    struct ina_frame_view any, result;
    const enum ina_frame_verdict verdict = ina_frame_parse_any(&any, &pkt, &template, &config);
    if (verdict == INA_FRAME_OK) {
        CHECK(any.slot < config.slots && any.set <= 1 && any.kind < INA_WIRE_KINDS);
        CHECK(!any.values || any.values == ina_frame_zeros || any.values == bytes + INA_WIRE_PAYLOAD + ina_kinds[any.kind].extra);
        touch(any.values, any.values ? 4 * config.values : 0);
    }
    if (ina_frame_is_result(&result, &pkt, &template)) { /* the fast path takes nothing that the other one does not */
        CHECK(verdict == INA_FRAME_OK && any.kind == result.kind && any.values);
        CHECK(result.tsi == any.tsi && result.slot == any.slot && result.set == any.set && result.overflow == any.overflow
              && result.e0 == any.e0 && result.values == any.values);
    }

    struct ina_atp_view atp;
    if (ina_atp_parse(&atp, &pkt, (uint32_t)ina_lane_bytes(config.lane, config.values)) == 0) {
        CHECK(atp.type >= INA_ATP_DATA && atp.type <= INA_ATP_REFUSED && atp.seq <= INA_ATP_SEQUENCE_MASK);
        if (atp.values)
            touch(atp.values, 4 * config.values);
        CHECK(!ina_atp_upwards(atp.type) || ina_ps_job_of(&pkt) == atp.job);
    }
    CHECK(ina_ps_job_of(&pkt) >= -1 && ina_ps_job_of(&pkt) < 256);
    free(bytes);
    return 0;
}
