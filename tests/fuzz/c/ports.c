/* Ports over sockets and wrappers of ports: a UDP port whose peer sends anything, and a port with tags, faults and a capture.
 *
 *     config 1 | { operation 1 | its numbers } ...
 */
#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fault.h"
#include "fuzz.h"
#include "internet.h"
#include "tag.h"

enum { OPERATIONS = 100, FRAMES = 8, MAX_FRAME = 256 };

struct world {
    struct ina_port *near, *far; /* far: of memory; NULL: the peer is a socket */
    int peer, captured, tagged;
    uint32_t out;
    uint64_t now;
};

static double probability(struct input *in)
{
    return (double)choose(in, 11) / 10;
}

static struct ina_port *with_faults(struct ina_port *inner, struct input *in)
{
    const uint32_t bits = (uint32_t)take(in, 1);
    struct ina_fault_config faults[2];
    for (int i = 0; i < 2; i++)
        faults[i] = (struct ina_fault_config){
            .loss = probability(in) / 2, .duplicate = probability(in), .reorder = probability(in), .corrupt = probability(in) / 2,
            .duplicate_delay_ps = take(in, 2), .reorder_delay_ps = take(in, 2), .seed = take(in, 1)};
    struct ina_port *port = ina_port_fault_wrap(inner, bits & 1 ? &faults[0] : NULL, bits & 2 ? &faults[1] : NULL, bits >> 2 & 15);
    return port ? port : inner;
}

static void open_ports(struct world *w, struct input *in)
{
    const uint32_t bits = (uint32_t)take(in, 1);
    w->peer = -1;
    if (bits & 1) {
        int fds[2];
        CHECK(ina_udp_pair(fds) == 0);
        const struct ina_udp_config config = {.src_ip = 1, .dst_ip = 2, .src_port = 3, .dst_port = 4, .max_frame = MAX_FRAME,
                                              .frames = FRAMES};
        w->near = ina_port_udp_adopt(&config, fds[0]);
        close(fds[0]);
        w->peer = fds[1];
    } else {
        struct ina_port *pair[2];
        CHECK(ina_port_mem_pair(FRAMES, MAX_FRAME, pair) == 0);
        w->near = pair[0], w->far = pair[1];
    }
    CHECK(w->near);
    if (bits & 8) {
        static const uint8_t key[INA_TAG_KEY];
        struct ina_port *tagged = ina_port_tag_wrap(w->near, key, key);
        CHECK(tagged);
        w->near = tagged;
        w->tagged = 1;
    }
    if (bits & 2)
        w->near = with_faults(w->near, in);
    if (bits & 4) {
        struct ina_port *captured = ina_port_pcap_wrap(w->near, "/dev/null");
        CHECK(captured);
        w->near = captured;
        w->captured = 1;
    }
}

/* Makes a payload one that the port takes, if the number is a new one, and a frame of it where frames have headers; its length. */
static uint32_t with_tag(const struct world *w, uint8_t *bytes, uint32_t length, uint64_t number)
{
    static const uint64_t key[2];
    const uint32_t headers = w->far ? INA_INTERNET_SIZE : 0;
    memmove(bytes + headers, bytes, length);
    ina_tag_write(key, number, &(struct ina_tag_payload){bytes + headers, length}, 1);
    if (w->far)
        ina_internet_write((struct ina_internet *)bytes, &(struct ina_address){0}, &(struct ina_address){0}, length + INA_TAG_SIZE);
    return headers + length + INA_TAG_SIZE;
}

/* From the peer: bytes of the input. */
static void arrive(struct world *w, struct input *in)
{
    uint8_t bytes[2 * MAX_FRAME] = {0};
    const uint32_t bits = (uint32_t)take(in, 1);
    uint32_t len = choose(in, sizeof bytes);
    for (uint32_t i = 0; i < (bits & 31); i++)
        bytes[i] = (uint8_t)take(in, 1);
    if (w->tagged && bits & 32)
        len = with_tag(w, bytes, len < MAX_FRAME ? len : MAX_FRAME, take(in, 2));
    if (!w->far) {
        (void)!send(w->peer, bytes, len, MSG_DONTWAIT);
        return;
    }
    struct ina_packet pkt;
    if (ina_port_tx_get(w->far, &pkt, 1)) {
        pkt.len = len < pkt.tailroom ? len : pkt.tailroom;
        pkt.wire_len = bits & 0x80 ? pkt.len + choose(in, MAX_FRAME) : pkt.len;
        memcpy(pkt.data, bytes, pkt.len);
        ina_port_tx_put(w->far, &pkt, 1, w->now);
    }
}

static void receive(struct world *w, struct input *in)
{
    struct ina_packet pkts[FRAMES];
    const int n = ina_port_rx(w->near, pkts, 1 + (int)choose(in, FRAMES), w->now);
    CHECK(n >= 0 && n <= FRAMES);
    for (int i = 0; i < n; i++) {
        CHECK(pkts[i].len && pkts[i].len <= MAX_FRAME && pkts[i].wire_len >= pkts[i].len);
        touch(pkts[i].data, pkts[i].len);
        memset(pkts[i].data - pkts[i].headroom, 0xa5, pkts[i].headroom + pkts[i].len + pkts[i].tailroom);
    }
    w->out += (uint32_t)n;
}

static void transmit(struct world *w, struct input *in)
{
    struct ina_packet pkts[FRAMES];
    const int want = (int)choose(in, FRAMES + 1), n = ina_port_tx_get(w->near, pkts, want);
    CHECK(n >= 0 && n <= want);
    for (int i = 0; i < n; i++) {
        const uint32_t bits = (uint32_t)take(in, 1), room = pkts[i].tailroom;
        uint8_t *const first = memset(pkts[i].data - pkts[i].headroom, 0, pkts[i].headroom + room);
        if (bits & 1) { /* UDP over IPv4 */
            const uint32_t udp = choose(in, 256);
            pkts[i].data[12] = 8, pkts[i].data[14] = 0x45, pkts[i].data[23] = 17;
            pkts[i].data[38] = (uint8_t)(udp >> 8), pkts[i].data[39] = (uint8_t)udp;
        }
        if (bits & 2)
            edit(in, pkts[i].data, 42);
        pkts[i].len = (uint32_t)take(in, bits & 4 ? 2 : 1);
        pkts[i].wire_len = bits & 8 ? (uint32_t)take(in, 2) : pkts[i].len;
        if (bits & 16)
            pkts[i].data += (int)choose(in, 512) - 256;
        /* Ports refuse what lies beside the frame that they have lent. A capture looks at it before they do. */
        const int64_t at = pkts[i].data - first, area = INA_PORT_HEADROOM + room;
        if (w->captured && (at < 0 || at > area || pkts[i].len > area - at))
            pkts[i].data = first, pkts[i].len = pkts[i].len < room ? pkts[i].len : room;
    }
    ina_port_tx_put(w->near, pkts, n - (int)choose(in, 3), w->now);
}

static void drain(struct world *w)
{
    struct ina_packet pkts[FRAMES];
    uint8_t bytes[MAX_FRAME];
    if (!w->far) {
        while (recv(w->peer, bytes, sizeof bytes, MSG_DONTWAIT) >= 0)
            ;
        return;
    }
    for (int n; (n = ina_port_rx(w->far, pkts, FRAMES, w->now)) > 0; ina_port_rx_done(w->far, n))
        for (int i = 0; i < n; i++)
            touch(pkts[i].data, pkts[i].len);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input in = {data, data + size};
    struct world w = {0};
    open_ports(&w, &in);
    for (uint32_t n = 0; n < OPERATIONS && in.at != in.end; n++) {
        switch (take(&in, 1) % 8) {
        case 0:
        case 1: arrive(&w, &in); break;
        case 2: receive(&w, &in); break;
        case 3: {
            const uint32_t back = choose(&in, w.out + 1);
            ina_port_rx_done(w.near, (int)back);
            w.out -= back;
            break;
        }
        case 4: transmit(&w, &in); break;
        case 5: w.now += take(&in, 2); break;
        case 6: drain(&w); break;
        default: ina_port_arm(w.near); ina_port_next_due(w.near); break;
        }
    }
    ina_port_close(w.near);
    if (w.far)
        ina_port_close(w.far);
    if (w.peer >= 0)
        close(w.peer);
    return 0;
}
