/* A port that writes every frame it passes to a capture file (pcap with nanoseconds, link type Ethernet).
 *
 *   file header 24 | { seconds 4 | nanoseconds 4 | captured length 4 | length on the wire 4 | frame } ... in host order
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fault.h"

enum { BUFFER = 1 << 18, LINKTYPE_ETHERNET = 1 };

struct file_header {
    uint32_t magic;
    uint16_t major, minor;
    uint32_t zone, accuracy, snap_length, link_type;
};

struct record_header {
    uint32_t seconds, nanoseconds, captured, length;
};

_Static_assert(sizeof(struct file_header) == 24, "pcap file header");
_Static_assert(sizeof(struct record_header) == 16, "pcap record header");

struct pcap_port {
    struct ina_port port;
    struct ina_port *inner;
    int file;
    struct ina_pcap_report report;
    uint64_t in_buffer;     /* frames */
    off_t size;             /* of the file, whole records */
    size_t used;
    uint8_t buffer[BUFFER];
};

/* ---- the file -------------------------------------------------------------------------------------------------- */

/* Writes the buffer out, all of it; if that fails, the file ends where it did before and capture is over. */
static void flush(struct pcap_port *p)
{
    size_t at = 0;
    while (at < p->used && !p->report.error) {
        ssize_t n = write(p->file, p->buffer + at, p->used - at);
        if (n > 0)
            at += (size_t)n;
        else if (n == 0 || errno != EINTR)
            p->report.error = n == 0 ? EIO : errno;
    }
    if (!p->report.error) {
        p->size += (off_t)p->used;
    } else if (p->used) {
        p->report.captured -= p->in_buffer;
        p->report.missed += p->in_buffer;
        if (ftruncate(p->file, p->size) < 0 && errno != EINVAL) /* EINVAL: a pipe or device, which has no end to cut */
            p->report.error = errno;
    }
    p->used = 0;
    p->in_buffer = 0;
}

static void capture(struct pcap_port *p, const struct ina_packet *pkt, uint64_t now)
{
    if (p->report.error) {
        p->report.missed++;
        return;
    }
    uint64_t ns = now / 1000;
    struct record_header header = {
        .seconds = (uint32_t)(ns / 1000000000u),
        .nanoseconds = (uint32_t)(ns % 1000000000u),
        .captured = pkt->len,
        .length = pkt->wire_len > pkt->len ? pkt->wire_len : pkt->len,
    };
    if (sizeof header + pkt->len > BUFFER - p->used)
        flush(p);
    if (p->report.error || sizeof header + pkt->len > BUFFER) {
        p->report.missed++;
        return;
    }
    memcpy(p->buffer + p->used, &header, sizeof header);
    memcpy(p->buffer + p->used + sizeof header, pkt->data, pkt->len);
    p->used += sizeof header + pkt->len;
    p->in_buffer++;
    p->report.captured++;
}

/* ---- the port -------------------------------------------------------------------------------------------------- */

static int pcap_rx(struct ina_port *port, struct ina_packet *pkts, int max, uint64_t now)
{
    struct pcap_port *p = (struct pcap_port *)port;
    int n = ina_port_rx(p->inner, pkts, max, now);
    for (int i = 0; i < n; i++)
        capture(p, &pkts[i], now);
    port->stats = p->inner->stats;
    return n;
}

static void pcap_rx_done(struct ina_port *port, int n)
{
    ina_port_rx_done(((struct pcap_port *)port)->inner, n);
}

static int pcap_tx_get(struct ina_port *port, struct ina_packet *pkts, int want)
{
    struct pcap_port *p = (struct pcap_port *)port;
    int n = ina_port_tx_get(p->inner, pkts, want);
    port->stats = p->inner->stats;
    return n;
}

static void pcap_tx_put(struct ina_port *port, struct ina_packet *pkts, int n, uint64_t now)
{
    struct pcap_port *p = (struct pcap_port *)port;
    for (int i = 0; i < n; i++) /* now: once it is sent, the frame is the other side's */
        if (pkts[i].len && pkts[i].len <= port->max_frame)
            capture(p, &pkts[i], now);
    ina_port_tx_put(p->inner, pkts, n, now);
    port->stats = p->inner->stats;
}

static int pcap_arm(struct ina_port *port)
{
    struct pcap_port *p = (struct pcap_port *)port;
    int waiting = ina_port_arm(p->inner);
    if (!waiting)
        flush(p); /* idle time, and readers of the file see recent frames */
    return waiting;
}

static uint64_t pcap_next_due(const struct ina_port *port)
{
    return ina_port_next_due(((const struct pcap_port *)port)->inner);
}

static void pcap_close(struct ina_port *port)
{
    struct pcap_port *p = (struct pcap_port *)port;
    flush(p);
    close(p->file);
    ina_port_close(p->inner);
    free(p);
}

static const struct ina_port_ops PCAP_OPS = {
    .rx = pcap_rx,
    .rx_done = pcap_rx_done,
    .tx_get = pcap_tx_get,
    .tx_put = pcap_tx_put,
    .arm = pcap_arm,
    .next_due = pcap_next_due,
    .close = pcap_close,
};

struct ina_port *ina_port_pcap_wrap(struct ina_port *inner, const char *path)
{
    struct pcap_port *p = calloc(1, sizeof *p);
    if (!p)
        return NULL;
    p->port = (struct ina_port){
        .ops = &PCAP_OPS, .fd = inner->fd, .bell = inner->bell, .max_frame = inner->max_frame, .stats = inner->stats};
    p->inner = inner;
    p->file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (p->file < 0) {
        free(p);
        return NULL;
    }
    struct file_header header = {
        .magic = 0xa1b23c4d, .major = 2, .minor = 4, .snap_length = inner->max_frame, .link_type = LINKTYPE_ETHERNET};
    memcpy(p->buffer, &header, sizeof header);
    p->used = sizeof header;
    flush(p);
    if (p->report.error) {
        int error = p->report.error;
        close(p->file);
        free(p);
        errno = error;
        return NULL;
    }
    return &p->port;
}

void ina_port_pcap_report(const struct ina_port *port, struct ina_pcap_report *report)
{
    *report = ((const struct pcap_port *)port)->report;
}
