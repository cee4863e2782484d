/* Updates: frames that are sent once, and merged where they wait. */
#include "updates.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "internet.h"

enum { GROUP = 0, SENDERS = 4, WORDS = 8 }; /* offsets in the payload */
enum phase { FREE = 0, SENDING, RECEIVING, DONE };

/* ---- the queue */

static uint32_t word(const uint8_t *at)
{
    uint32_t value;
    memcpy(&value, at, sizeof value);
    return value;
}

static void set_word(uint8_t *at, uint32_t value)
{
    memcpy(at, &value, sizeof value);
}

/* Returns the payload of an update, and its size in *bytes; NULL: the frame is something else. */
static const uint8_t *update_in(const struct ina_update_queue *queue, const uint8_t *frame, uint32_t len, uint32_t *bytes)
{
    const int payload = ina_internet_port_of(frame, len) == (int)queue->udp_port
                            ? ina_internet_payload((const struct ina_internet *)frame, len) : -1;
    if (payload < WORDS || payload % 4)
        return NULL;
    *bytes = (uint32_t)payload;
    return frame + INA_INTERNET_SIZE;
}

enum ina_merged ina_update_merge(void *context, uint8_t *waiting, uint32_t waiting_len, const uint8_t *arriving, uint32_t len)
{
    struct ina_update_queue *queue = context;
    uint32_t bytes, held_bytes;
    const uint8_t *update = update_in(queue, arriving, len, &bytes);
    if (!update || !word(update + GROUP))
        return INA_MERGE_BEHIND;
    if (!update_in(queue, waiting, waiting_len, &held_bytes)
        || ((const struct ina_internet *)waiting)->dst_ip != ((const struct ina_internet *)arriving)->dst_ip)
        return INA_MERGE_OTHER; /* of another kind, or for another host */
    uint8_t *held = waiting + INA_INTERNET_SIZE;
    if (word(held + GROUP) != word(update + GROUP))
        return INA_MERGE_OTHER;
    const uint32_t senders = word(held + SENDERS), more = word(update + SENDERS);
    if (bytes != held_bytes || (senders != more && senders & more))
        return INA_MERGE_BEHIND;
    if (senders == more) {
        memcpy(held, update, bytes);
        queue->replaced++;
        return INA_MERGE_DONE;
    }
    set_word(held + SENDERS, senders | more);
    for (uint32_t at = WORDS; at < bytes; at += 4)
        set_word(held + at, word(held + at) + word(update + at));
    queue->added++;
    return INA_MERGE_DONE;
}

/* ---- a host's end */

struct ina_updates {
    struct ina_address *addresses;
    uint32_t ranks, rank;
    uint8_t phase[INA_MAX_OPS];  /* enum phase, by handle */
    uint64_t order[INA_MAX_OPS]; /* of submission */
    uint64_t submitted;
    struct ina_worker_stats stats;
};

struct ina_updates *ina_updates_create(const struct ina_address *addresses, uint32_t ranks, uint32_t rank)
{
    struct ina_updates *u = calloc(1, sizeof *u);
    if (u && (u->addresses = malloc(ranks * sizeof *addresses))) {
        memcpy(u->addresses, addresses, ranks * sizeof *addresses);
        u->ranks = ranks;
        u->rank = rank;
        return u;
    }
    free(u);
    errno = ENOMEM;
    return NULL;
}

void ina_updates_destroy(struct ina_updates *u)
{
    if (u)
        free(u->addresses);
    free(u);
}

void ina_updates_get_stats(const struct ina_updates *u, struct ina_worker_stats *stats)
{
    *stats = u->stats;
}

/* Returns the handle that has been in a phase for longest, -1: none is. */
static int oldest(const struct ina_updates *u, enum phase phase)
{
    int found = -1;
    for (int i = 0; i < INA_MAX_OPS; i++)
        if (u->phase[i] == phase && (found < 0 || u->order[i] < u->order[found]))
            found = i;
    return found;
}

static int next_handle(const void *state)
{
    const int handle = oldest(state, FREE);
    return handle < 0 ? -EAGAIN : handle;
}

static int submit(void *state, const struct ina_tensor *tensors, int handle, uint64_t now)
{
    (void)now;
    struct ina_updates *u = state;
    const struct ina_tensor *tensor = &tensors[handle];
    if (!ina_tensor_valid(tensor) || tensor->tag >= u->ranks || sizeof(uint32_t) * tensor->count < WORDS
        || sizeof(uint32_t) * tensor->count > UINT16_MAX - INA_INTERNET_SIZE)
        return -EINVAL;
    u->phase[handle] = tensor->tag == u->rank ? RECEIVING : SENDING;
    u->order[handle] = u->submitted++;
    return handle;
}

static void finish(struct ina_updates *u, int handle, uint64_t elements)
{
    u->phase[handle] = DONE;
    u->stats.tensors++;
    u->stats.elements += elements;
}

static int receive(void *state, const struct ina_tensor *tensors, struct ina_packet *pkts, int n, uint64_t now)
{
    (void)now;
    struct ina_updates *u = state;
    for (int i = 0; i < n; i++) {
        const int bytes = pkts[i].len < INA_INTERNET_SIZE ? -1
                              : ina_internet_payload((const struct ina_internet *)pkts[i].data, pkts[i].len);
        const int handle = oldest(u, RECEIVING);
        u->stats.rx_packets++;
        u->stats.rx_bytes += pkts[i].wire_len;
        if (handle < 0 || bytes < 0 || (uint64_t)bytes != sizeof(uint32_t) * tensors[handle].count) {
            u->stats.drop_malformed++;
            continue;
        }
        memcpy(tensors[handle].out, pkts[i].data + INA_INTERNET_SIZE, (size_t)bytes);
        u->stats.results++;
        finish(u, handle, tensors[handle].count);
    }
    return 0;
}

static int frames_to_send(void *state, const struct ina_tensor *tensors, struct ina_packet *pkts, int n, uint64_t now)
{
    (void)now;
    struct ina_updates *u = state;
    int sent = 0;
    for (int handle; sent < n && (handle = oldest(u, SENDING)) >= 0; sent++) {
        const struct ina_tensor *tensor = &tensors[handle];
        const uint32_t bytes = (uint32_t)(sizeof(uint32_t) * tensor->count);
        struct ina_packet *pkt = &pkts[sent];
        ina_internet_write((struct ina_internet *)pkt->data, &u->addresses[u->rank], &u->addresses[tensor->tag], bytes);
        memcpy(pkt->data + INA_INTERNET_SIZE, tensor->in, bytes);
        pkt->len = pkt->wire_len = INA_INTERNET_SIZE + bytes;
        u->stats.tx_packets++;
        u->stats.tx_bytes += pkt->wire_len;
        finish(u, handle, tensor->count);
    }
    return sent;
}

static uint64_t next_timer(const void *state)
{
    (void)state;
    return UINT64_MAX;
}

static int events(void *state, struct ina_event *events, int max)
{
    struct ina_updates *u = state;
    int count = 0;
    for (int handle; count < max && (handle = oldest(u, DONE)) >= 0;) {
        events[count++] = (struct ina_event){.type = INA_EVENT_DONE, .op = (uint32_t)handle};
        u->phase[handle] = FREE;
    }
    return count;
}

const struct ina_protocol ina_updates_machine = {
    .name = "updates",
    .reductions = 1 << INA_SUM,
    .next_handle = next_handle,
    .submit = submit,
    .receive = receive,
    .frames_to_send = frames_to_send,
    .next_timer = next_timer,
    .events = events,
};
