/* Updates in virtual time: one frame each between hosts, sent once, and a queue before a wire that merges those that wait (after
 * OLAF, arXiv 2507.05876).
 *
 *     | Ethernet, IPv4, UDP 42 | group 4 | senders 4 | words, 4 each |
 *
 * Words are in the machine's order: only its own emulator reads them. In a queue with `ina_update_merge` an update meets the latest one
 * of its group that waits there:
 *
 *     no sender in common     the words are added up, modulo 2^32, and the senders are those of both
 *     the same senders        the waiting one is replaced
 *     some in common          it waits behind, as an update of a group that does not wait there does
 *
 * Group 0 is never merged. So each word of a frame that leaves is the sum of one word of each sender that it names, and no update of a
 * sender passes an earlier one of it.
 */
#ifndef INA_EMULATOR_UPDATES_H
#define INA_EMULATOR_UPDATES_H

#include <stdint.h>

#include "protocol.h"
#include "switch.h"

struct ina_update_queue {    /* context of ina_update_merge */
    uint32_t udp_port;       /* that updates are for */
    uint32_t reserved;
    uint64_t added, replaced; /* updates that came and were added up; that waited and were replaced */
};
enum ina_merged ina_update_merge(void *queue, uint8_t *waiting, uint32_t waiting_len, const uint8_t *arriving, uint32_t len);

/* One host's end. A tensor is a whole payload, group and senders included; its tag is the rank that it is sent to, and it is done when
 * the frame has left the machine. With the tag of its own rank it is a buffer for the next frame of that size that comes from anyone,
 * the oldest first; a frame that finds none is dropped, and counted. Nothing is sent again. */
struct ina_updates;
struct ina_updates *ina_updates_create(const struct ina_address *addresses, uint32_t ranks, uint32_t rank); /* NULL + errno */
void ina_updates_destroy(struct ina_updates *updates);
void ina_updates_get_stats(const struct ina_updates *updates, struct ina_worker_stats *stats);

extern const struct ina_protocol ina_updates_machine;

#endif
