/* The packet replication engine: multicast trees of two levels, pruned (Tofino Native Architecture 5.7.3). */
#include "tna_core.h"

static bool is_down(const struct ina_tna_runtime *tna, uint16_t port)
{
    return tna->port[port].down;
}

static uint16_t live(const struct ina_tna_runtime *tna, uint16_t port)
{
    return tna->replication.protect && is_down(tna, port) ? tna->port[port].backup : port;
}

/* The member that `hash` chooses; INA_TNA_NO_PORT: it is on another device, or there is none. */
static uint16_t lag_member(const struct ina_tna_runtime *tna, const struct ina_tna_lag *lag, uint32_t hash)
{
    if (!lag || !lag->count)
        return INA_TNA_NO_PORT;
    uint32_t at = hash % (lag->before + lag->count + lag->after);
    if (at < lag->before || at - lag->before >= lag->count)
        return INA_TNA_NO_PORT;
    uint16_t chosen = lag->port[at - lag->before];
    if (!is_down(tna, chosen))
        return chosen;
    uint32_t up = 0;
    for (uint32_t m = 0; m < lag->count; m++)
        up += !is_down(tna, lag->port[m]);
    if (!up)
        return chosen;
    uint32_t nth = hash % up;
    for (uint32_t m = 0;; m++)
        if (!is_down(tna, lag->port[m]) && !nth--)
            return lag->port[m];
}

/* Offset of a branch's node, 0: none. */
static uint32_t choose(const uint32_t *branch, uint32_t hash)
{
    const uint32_t choices = branch[1], *node = branch + 2;
    if (!(branch[0] >> 17 & 1))
        return node[0];
    if (node[hash % choices])
        return node[hash % choices];
    uint32_t nodes = 0;
    for (uint32_t c = 0; c < choices; c++)
        nodes += node[c] != 0;
    if (!nodes)
        return 0;
    uint32_t nth = hash % nodes;
    for (uint32_t c = 0;; c++)
        if (node[c] && !nth--)
            return node[c];
}

void ina_tna_replicate(struct ina_switch *sw, struct ina_packet *batch, unsigned i, uint32_t group, uint64_t now)
{
    const struct ina_tna_runtime *tna = sw->tna;
    const struct ina_tna *want = (const void *)batch[i].meta;
    const uint32_t *image = tna->group[group];
    if (!image) {
        ina_count_drop(sw, batch[i].ingress_port, INA_DROPPED_NO_GROUP);
        return;
    }
    static const uint64_t nothing[INA_SWITCH_PORTS / 64];
    const uint64_t *prune = want->level2_exclusion_id < INA_TNA_PRUNES ? tna->prune[want->level2_exclusion_id] : nothing;
    uint8_t type = INA_REPLICATED | INA_TNA_FIRST;
    for (uint32_t b = 0; b < image[0]; b++) {
        const uint32_t *branch = image + image[1 + b];
        if (branch[0] >> 16 & 1 && (branch[0] & 0xffff) == want->level1_exclusion_id)
            continue;
        const uint32_t at = choose(branch, want->level1_mcast_hash);
        if (!at)
            continue;
        const uint32_t *node = image + at, ports = node[1], lags = node[2];
        const bool pruning = want->rid == node[0] || want->rid == tna->replication.global_rid;
        for (uint32_t leaf = 0; leaf < ports + lags; leaf++) {
            uint16_t port = (uint16_t)node[3 + leaf];
            if (leaf >= ports)
                port = lag_member(tna, tna->lag[port], want->level2_mcast_hash);
            if (port == INA_TNA_NO_PORT || (pruning && prune[port / 64] >> port % 64 & 1))
                continue;
            ina_copy_to(sw, batch, i, (struct ina_replica){live(tna, port), (uint16_t)node[0]}, type, now);
            type = INA_REPLICATED;
        }
    }
}
