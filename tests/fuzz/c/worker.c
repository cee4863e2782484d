/* A worker of any protocol (-DPROTOCOL=ina_switchml): submit, send, receive, time, expire, abort, in any order, with frames of
 * any bytes. Frames are best made of those that it has sent, turned round as a switch or server would, and then edited.
 *
 *     config 2 | { operation 1 | its numbers } ...
 */
#include <arpa/inet.h>
#include <errno.h>
#include <math.h>

#include "atp_frame.h"
#include "fuzz.h"
#include "protocols.h"
#include "route.h"
#include "sealing.h"
#include "wire.h"

enum { KEPT = 8, OPERATIONS = 400, MOST = 700 /* elements */, PIECES = 8, MOST_OF_PIECE = 200 /* elements */ };

struct world {
    const struct ina_protocol *protocol;
    struct ina_worker_config config;
    void *state;
    struct ina_tensor tensors[INA_MAX_OPS];
    void *in[INA_MAX_OPS], *out[INA_MAX_OPS];
    struct ina_piece *pieces[INA_MAX_OPS];
    uint64_t *ends[INA_MAX_OPS];
    uint8_t flies[INA_MAX_OPS];
    int chosen; /* handle of the latest tensor with an offer before it, -1: none */
    uint64_t now;
    uint32_t frame_size, next;
    uint8_t *kept[KEPT];
    uint32_t kept_len[KEPT];
};

/* 1: frames are SwitchML's, 0: ATP's. */
static int speaks_switchml(void)
{
    return PROTOCOL.options == ina_switchml.options;
}

static struct ina_worker_config config_of(struct input *in)
{
    const uint32_t bits = (uint32_t)take(in, 2);
    const int switchml = speaks_switchml(); /* its option is of shards; the others' are window and exponent */
    return (struct ina_worker_config){
        .self = {{2, 0, 0, 0, 1, 0}, 4001, 0x0a000001}, .peer = {{2, 0, 0, 0, 0xff, 0xfe}, 0xbee0, 0x0a00fffe},
        .server = {{2, 0, 0, 0, 0xff, 0xfd}, 0xbed0, 0x0a00fffd}, .job = 1, .life = 1,
        .worker = bits & 1 ? 1 : 0, .workers = 2 + (bits >> 1 & 1) - (bits >> 2 & ~bits & 1), .slots = 1u << (bits >> 3 & 3),
        .values = bits & 0x20 ? 64 : 32, .reply_in_place = bits >> 6 & 1, .first_packet = bits & 0x80 ? 0xfffffffcu : 0,
        .options_set = switchml ? bits >> 10 & 1 : (uint32_t)((bits >> 8 & 7) != 0) | (bits >> 10 & 2),
        .option = {switchml ? 2 : bits >> 8 & 7, (int64_t)(bits >> 12) - 6}, .rto_min_ps = 1000000, .rto_max_ps = 100000000, .timeout_ps = 10000000000,
    };
}

static void forget(struct world *w, uint32_t op)
{
    if (w->out[op] != w->in[op])
        free(w->out[op]);
    free(w->in[op]);
    free(w->pieces[op]);
    free(w->ends[op]);
    w->in[op] = w->out[op] = NULL;
    w->pieces[op] = NULL, w->ends[op] = NULL;
    w->flies[op] = 0;
}

/* An offer, right before the tensor that is chosen by it. 0: it is not taken, and neither is one behind it. */
static int offer(struct world *w, struct input *in)
{
    const uint32_t bits = (uint32_t)take(in, 1);
    const int handle = w->protocol->next_handle(w->state);
    if (handle < 0) {
        CHECK(handle == -EAGAIN || handle == -EPIPE);
        return 0;
    }
    forget(w, (uint32_t)handle);
    w->in[handle] = w->out[handle] = exactly(1);
    w->tensors[handle] = (struct ina_tensor){
        .in = w->in[handle], .out = w->out[handle], .part = INA_PART_OFFER,
        .offer = {.state = bits & 3, .least = bits >> 2 & 7, .rivals = bits >> 5}};
    const int result = w->protocol->submit(w->state, w->tensors, handle, w->now);
    CHECK(result == handle || result == -EINVAL || result == -EPIPE || result == -EAGAIN);
    w->flies[handle] = result == handle;
    return result == handle;
}

/* More of the latest offer: it gives, passes, or needs fewer others. */
static void amend(struct world *w, uint32_t bits)
{
    if (w->chosen < 0)
        return;
    const int handle = (w->chosen + INA_MAX_OPS - 1) % INA_MAX_OPS;
    if (!w->flies[w->chosen] || w->tensors[handle].part != INA_PART_OFFER)
        return;
    const struct ina_offer before = w->tensors[handle].offer;
    w->tensors[handle].offer = (struct ina_offer){.state = bits & 3, .least = bits >> 2 & 3, .rivals = bits >> 4 & 3};
    const int result = w->protocol->amend(w->state, w->tensors, handle, w->now);
    CHECK(result == 0 || result == -EINVAL);
    if (result < 0)
        w->tensors[handle].offer = before;
    else if ((bits & 3) == INA_OFFER_GIVE)
        w->tensors[w->chosen].in = w->in[w->chosen];
}

/* Gives a tensor up to PIECES pieces, apart from each other in the worker's memory, mostly of sets that may be. Returns the elements that
 * the memory has room for. */
static uint32_t route(struct world *w, struct input *in, struct ina_tensor *tensor, int handle)
{
    const uint32_t pieces = choose(in, PIECES + 1), all = (1u << w->config.workers) - 1;
    struct ina_piece *piece = w->pieces[handle] = exactly(pieces * sizeof *piece);
    uint32_t room = 0;
    tensor->count = 0;
    for (uint32_t i = 0; i < pieces; i++, piece++) {
        const uint32_t sets = (uint32_t)take(in, 1), count = choose(in, MOST_OF_PIECE);
        const uint32_t sources = tensor->dtype != INA_INT32 && !(sets & 0x40) ? all : sets & 7;
        *piece = (struct ina_piece){.count = count, .at = room, .sources = sources & (sets & 0x80 ? ~0u : all),
                                    .receivers = sets >> 3 & (sets & 0x80 ? 7 : all)};
        room += count + (sets & 3); /* and some that belong to no piece */
        tensor->count += count;
    }
    tensor->routed = 1;
    tensor->pieces = w->pieces[handle], tensor->pieces_count = pieces;
    tensor->ends = w->ends[handle] = exactly(pieces * sizeof *tensor->ends);
    return room;
}

static void submit(struct world *w, struct input *in)
{
    const int chosen = w->protocol->offers && take(in, 1) & 3 && offer(w, in); /* most tensors */
    const int routed = w->protocol->routes && take(in, 1) & 3; /* most tensors */
    const int handle = w->protocol->next_handle(w->state);
    const uint32_t bits = (uint32_t)take(in, 1), count = (uint32_t)take(in, 2) % MOST;
    if (handle < 0) {
        CHECK(handle == -EAGAIN || handle == -EPIPE);
        return;
    }
    CHECK(handle < INA_MAX_OPS && !w->flies[handle]);
    forget(w, (uint32_t)handle);
    const uint32_t dtype = !(bits & 4) ? INA_INT32 : bits & 128 ? INA_BFLOAT16 + count % 2 : INA_FLOAT32;
    const size_t size = dtype > INA_FLOAT32 ? 2 : 4;
    struct ina_tensor tensor = {
        .count = count, .dtype = dtype, .average = bits >> 3 & 1, .reduction = (bits >> 4 & 3) == 3 ? INA_SUM : bits >> 4 & 3,
        .tag = bits >> 6 & 1, .part = chosen ? INA_PART_CHOSEN : INA_PART_PLAIN};
    const uint32_t room = routed ? route(w, in, &tensor, handle) : count;
    w->in[handle] = exactly(size * room);
    w->out[handle] = bits & 1 ? w->in[handle] : exactly(size * room);
    const uint32_t seed = (uint32_t)take(in, 4);
    for (uint32_t i = 0; i < room; i++) { /* floats of all sizes, among them NaN and infinities where the seed has them */
        const uint32_t value = seed + (bits & 2 ? i : 0) * 2654435761u;
        memcpy((uint8_t *)w->in[handle] + size * i, &value, size);
    }
    tensor.in = w->in[handle], tensor.out = w->out[handle];
    w->tensors[handle] = tensor;
    if (chosen && w->tensors[(handle + INA_MAX_OPS - 1) % INA_MAX_OPS].offer.state != INA_OFFER_GIVE)
        w->tensors[handle].in = NULL; /* until it gives */
    const int result = w->protocol->submit(w->state, w->tensors, handle, w->now);
    CHECK(result == handle || result == -EINVAL || result == -EPIPE || result == -EAGAIN);
    w->flies[handle] = result == handle;
    w->chosen = chosen && result == handle ? handle : -1;
}

static void send_frames(struct world *w, struct input *in)
{
    struct ina_packet pkts[4];
    uint8_t *room[4];
    const int n = 1 + (int)choose(in, 4);
    for (int i = 0; i < n; i++) {
        room[i] = exactly(w->frame_size);
        pkts[i] = (struct ina_packet){.data = room[i], .tailroom = w->frame_size};
    }
    const int filled = w->protocol->frames_to_send(w->state, w->tensors, pkts, n, w->now);
    CHECK(filled >= 0 && filled <= n);
    for (int i = 0; i < n; i++) {
        if (i >= filled) {
            free(room[i]);
            continue;
        }
        CHECK(pkts[i].data == room[i] && pkts[i].len && pkts[i].len <= w->frame_size);
        const uint32_t slot = w->next++ % KEPT;
        free(w->kept[slot]);
        w->kept[slot] = room[i];
        w->kept_len[slot] = pkts[i].len;
    }
}

static void receive(struct world *w, struct input *in, const uint8_t *bytes, uint32_t len)
{
    const uint32_t tail = take(in, 1) & 1 && len < w->frame_size ? w->frame_size - len : 0;
    uint8_t *frame = memcpy(exactly(len + tail), bytes, len);
    struct ina_packet pkt = {.data = frame, .len = len, .wire_len = len, .tailroom = tail};
    const int again = w->protocol->receive(w->state, w->tensors, &pkt, 1, w->now);
    CHECK(again == 0 || (again == 1 && w->config.reply_in_place));
    if (again) {
        CHECK(pkt.data >= frame && pkt.data + pkt.len <= frame + len + tail);
        touch(pkt.data, pkt.len);
    }
    free(frame);
}

/* As many equal contributions: what is linear is so many times that of one. `extra`: bytes between check header and values. */
static void sum_of_all(uint8_t *frame, uint32_t len, struct ina_check_header *check, uint32_t extra, uint32_t contributions)
{
    check->check0 = htonl(ntohl(check->check0) * contributions);
    check->check1 = htonl(ntohl(check->check1) * contributions);
    for (uint8_t *value = (uint8_t *)(check + 1) + extra; value + 4 <= frame + len; value += 4) {
        uint32_t word;
        memcpy(&word, value, 4);
        word = htonl(ntohl(word) * contributions);
        memcpy(value, &word, 4);
    }
}

static void set_length(struct ina_internet *net, uint32_t len)
{
    net->total_len = htons((uint16_t)(len - INA_INTERNET_IP));
    net->udp_len = htons((uint16_t)(len - INA_INTERNET_UDP));
}

/* The answer to a frame from and for some: the sum of as many equal contributions as it has members, zeros where this worker brings none;
 * and it has values if this worker is a receiver, and only then, unless it is `wrong`. Returns its length. */
static uint32_t sum_of_members(const struct world *w, uint8_t *frame, uint32_t len, struct ina_check_header *check, uint32_t wrong)
{
    uint8_t *payload = (uint8_t *)(check + 1);
    uint32_t sets[2]; /* receivers, members */
    memcpy(sets, payload, sizeof sets);
    sum_of_all(frame, len, check, sizeof sets, (uint32_t)__builtin_popcount(sets[1]));
    const uint32_t values = (ntohl(sets[0]) >> w->config.worker & 1) != wrong ? w->config.values : 0;
    len = (uint32_t)(payload - frame) + (uint32_t)sizeof sets + 4 * values; /* the room behind the frame is 0 */
    struct ina_wire_frame *h = (struct ina_wire_frame *)frame;
    if (speaks_switchml())
        h->type_overflow_size = (uint8_t)((h->type_overflow_size & ~INA_WIRE_SIZE)
                                          | (values ? (uint32_t)ina_wire_size_code(values) : INA_WIRE_SIZE_NONE));
    set_length(&h->net, len);
    return len;
}

/* A frame that was sent comes back: as it was, or as its answer. */
static void answer(struct world *w, struct input *in)
{
    const uint32_t slot = choose(in, KEPT), how = (uint32_t)take(in, 1), whole = w->kept_len[slot];
    if (!whole)
        return;
    uint8_t *frame = exactly(w->frame_size + 8);
    memset(frame, 0, w->frame_size + 8);
    memcpy(frame, w->kept[slot], whole);
    struct ina_wire_frame *h = (struct ina_wire_frame *)frame;
    const int switchml = speaks_switchml();
    const struct ina_kind *kind = &(switchml ? ina_kinds : ina_atp_kinds)[h->type_overflow_size >> INA_WIRE_TYPE_SHIFT];
    const int offered = switchml && kind->contributors == INA_CONTRIBUTORS_OFFERING, some = kind->contributors == INA_CONTRIBUTORS_SOURCES;
    struct ina_check_header *check = switchml ? &h->check : &((struct ina_atp_wire *)frame)->check;
    uint32_t len = whole;
    if (how & 1) {
        if (offered) { /* decided, or open; mostly with contributors that may be */
            struct ina_wire_offer *o = (struct ina_wire_offer *)h->payload;
            o->state = how & 0x10 ? INA_OFFER_OPEN : INA_OFFER_DECIDED;
            o->ranks = htonl(how & 0x20 ? (uint32_t)take(in, 4) : how >> 6 & 1 ? (1u << w->config.workers) - 1 : 0);
        } else if (some) {
            len = sum_of_members(w, frame, whole, check, how >> 4 & 1);
        } else {
            sum_of_all(frame, whole, check, 0, w->config.workers);
        }
        const uint32_t ip = h->net.src_ip;
        const uint16_t port = h->net.src_port;
        h->net.src_ip = h->net.dst_ip, h->net.src_port = h->net.dst_port;
        h->net.dst_ip = ip, h->net.dst_port = port;
        if (!switchml) { /* ATP's results are of another type, and say who gets them */
            struct ina_atp_wire *a = (struct ina_atp_wire *)frame;
            a->type_flags = (uint8_t)(kind->result << 4 | (how >> 4 & 7));
            a->bitmap = htonl((1u << w->config.workers) - 1);
            if (some)
                memcpy(&a->bitmap, a->payload + offsetof(struct ina_atp_receivers, members), sizeof a->bitmap);
        }
    }
    if (how & 2) /* others are missing */
        len = switchml ? INA_WIRE_PAYLOAD + 4 : INA_ATP_PAYLOAD + 4;
    if (how & 2) {
        frame[INA_INTERNET_SIZE] = switchml ? INA_WIRE_PENDING << 4 | INA_WIRE_SIZE_NONE : INA_ATP_PENDING << 4;
        set_length(&h->net, len);
    }
    if (how & 4)
        edit(in, frame, len < 80 ? len : 80);
    if (!(how & 0x80)) /* else the checksum of the headers tells */
        seal_again(check, frame + INA_INTERNET_SIZE, how & 2 ? 0 : kind->extra);
    if (how & 8)
        len -= choose(in, len);
    receive(w, in, frame, len);
    free(frame);
}

/* Contributors are workers of the job, and this one only if it has given. */
static void check_contributors(const struct world *w, const struct ina_event *event)
{
    const struct ina_tensor *tensor = &w->tensors[event->op];
    CHECK(!(event->contributors >> w->config.workers));
    if (tensor->part == INA_PART_OFFER && event->contributors >> w->config.worker & 1)
        CHECK(tensor->offer.state == INA_OFFER_GIVE);
    if (tensor->part == INA_PART_CHOSEN && event->contributors >> w->config.worker & 1)
        CHECK(tensor->in);
    CHECK(tensor->part != INA_PART_PLAIN || !event->contributors);
}

static void events(struct world *w)
{
    struct ina_event events[INA_MAX_OPS];
    const int n = w->protocol->events(w->state, events, INA_MAX_OPS);
    CHECK(n >= 0 && n <= INA_MAX_OPS);
    for (int i = 0; i < n; i++) {
        CHECK(events[i].type == INA_EVENT_DONE || events[i].type == INA_EVENT_FAILED);
        CHECK((events[i].type == INA_EVENT_DONE) == (events[i].code == INA_OK));
        if (events[i].type == INA_EVENT_DONE)
            check_contributors(w, &events[i]);
        if (events[i].op < INA_MAX_OPS && w->flies[events[i].op]) /* once each */
            forget(w, events[i].op);
        else
            CHECK(events[i].type == INA_EVENT_FAILED);
    }
}

static void raw(struct world *w, struct input *in)
{
    uint32_t len = (uint32_t)take(in, 2) % 400;
    if (len > in->end - in->at)
        len = (uint32_t)(in->end - in->at);
    const uint8_t *bytes = in->at;
    in->at += len;
    receive(w, in, bytes, len);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input in = {data, data + size};
    struct world w = {.protocol = &PROTOCOL, .now = 1, .chosen = -1};
    w.config = config_of(&in);
    const size_t bytes = w.protocol->state_size(&w.config);
    if (!bytes)
        return 0;
    w.state = aligned(bytes);
    if (w.protocol->init(w.state, &w.config, 0) == 0) {
        w.frame_size = w.protocol->frame_size(&w.config);
        for (uint32_t n = 0; n < OPERATIONS && in.at != in.end; n++) {
            switch (take(&in, 1) % 8) {
            case 0: submit(&w, &in); break;
            case 1: send_frames(&w, &in); break;
            case 2:
            case 3: answer(&w, &in); break;
            case 4: raw(&w, &in); break;
            case 5: w.now += take(&in, 2) << choose(&in, 24); break;
            case 6: {
                const uint32_t what = (uint32_t)take(&in, 1);
                if (what & 0x40 && w.protocol->offers) {
                    amend(&w, what);
                    break;
                }
                const int result = what & 0x80 ? w.protocol->abort(w.state, INA_ERR_ABORTED, w.now)
                                               : w.protocol->expire(w.state, what & 15, w.now);
                CHECK(result <= 0);
                break;
            }
            default: events(&w); break;
            }
            w.protocol->next_timer(w.state);
        }
    }
    for (uint32_t op = 0; op < INA_MAX_OPS; op++)
        forget(&w, op);
    for (uint32_t i = 0; i < KEPT; i++)
        free(w.kept[i]);
    free(w.state);
    return 0;
}
