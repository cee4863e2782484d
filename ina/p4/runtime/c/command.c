/* The control plane's operations on a switch, one function for stepped and threaded use. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core.h"
#include "table.h"

static int set_tables(struct ina_switch *sw, const struct ina_command *c)
{
    if (sw->tna)
        return ina_tna_execute(sw, c);
    if (!c->tables || c->tables->count != sw->program->table_count)
        return -EINVAL;
    sw->tables = c->tables;
    return 0;
}

static int set_members(struct ina_members **table, const struct ina_command *c)
{
    if (!c->id || c->id >= INA_SWITCH_GROUPS || c->count > INA_SWITCH_GROUPS || (c->count && !c->data))
        return -EINVAL;
    struct ina_members *members = NULL;
    if (c->count) {
        members = malloc(sizeof *members + c->count * sizeof(struct ina_replica));
        if (!members)
            return -ENOMEM;
        members->count = c->count;
        members->truncate = (uint32_t)c->size;
        memcpy(members->member, c->data, c->count * sizeof(struct ina_replica));
        bool seen[INA_SWITCH_PORTS] = {false};
        members->one_each = true;
        for (uint32_t i = 0; i < c->count; i++) {
            uint32_t port = members->member[i].port;
            members->one_each &= port < INA_SWITCH_PORTS && !seen[port];
            if (port < INA_SWITCH_PORTS)
                seen[port] = true;
        }
    } else if (!table[c->id]) {
        return -ENOENT;
    }
    free(table[c->id]);
    table[c->id] = members;
    return 0;
}

static int add_port(struct ina_switch *sw, const struct ina_command *c)
{
    if (c->id >= INA_SWITCH_PORTS || c->id == INA_DROP_PORT || (sw->tna && !ina_tna_has(sw->tna, c->id)))
        return -EINVAL;
    struct ina_switch_port *port = &sw->ports[c->id];
    if (port->present || port->disabled)
        return -EEXIST;
    if (c->link) {
        port->link = ina_link_create(c->link);
        if (!port->link)
            return -ENOMEM;
        port->outlet = sw->outlet.put && !c->port;
        if (!port->outlet)
            sw->linked[sw->linked_count++] = (uint16_t)c->id;
    }
    port->port = c->port;
    port->merge = NULL;
    port->present = true;
    memset(&port->stats, 0, sizeof port->stats);
    return 0;
}

static int remove_port(struct ina_switch *sw, const struct ina_command *c)
{
    if (c->id >= INA_SWITCH_PORTS || !(sw->ports[c->id].present || sw->ports[c->id].disabled))
        return -ENOENT;
    struct ina_switch_port *port = &sw->ports[c->id];
    if (port->link) {
        if (port->outlet)
            ina_outlet_drop_all(sw, (uint16_t)c->id);
        else
            ina_link_drop_all(sw, (uint16_t)c->id);
        ina_link_destroy(port->link);
        port->link = NULL;
        uint32_t i = 0;
        while (i < sw->linked_count && sw->linked[i] != c->id)
            i++;
        if (!port->outlet)
            memmove(&sw->linked[i], &sw->linked[i + 1], (--sw->linked_count - i) * sizeof sw->linked[0]);
    }
    port->port = NULL;
    port->present = port->outlet = port->loopback = port->disabled = false;
    return 0;
}

static int copy_state(struct ina_switch *sw, const struct ina_command *c, bool write)
{
    uint64_t limit = sw->state_size;
    if (!c->count || !c->size || !c->data || c->size > limit || c->offset > limit - c->size)
        return -EINVAL;
    if (c->count > 1 && (c->stride < c->size || (limit - c->size - c->offset) / c->stride < c->count - 1))
        return -EINVAL;
    uint8_t *state = sw->state + c->offset, *data = c->data;
    for (uint32_t i = 0; i < c->count; i++, state += c->stride, data += c->size)
        memcpy(write ? state : data, write ? data : state, c->size);
    return 0;
}

const struct ina_entry *ina_table_find(const struct ina_table *table, const uint64_t *key)
{
    return ina_table_lookup(table, key);
}

int ina_switch_execute(struct ina_switch *sw, struct ina_command *c)
{
    uint64_t lost = 0;
    switch (c->op) {
    case INA_SET_TABLES:
        return c->result = set_tables(sw, c);
    case INA_SET_GROUP:
        return c->result = set_members(sw->groups, c);
    case INA_SET_SESSION:
        return c->result = set_members(sw->sessions, c);
    case INA_ADD_PORT:
        return c->result = add_port(sw, c);
    case INA_REMOVE_PORT:
        return c->result = remove_port(sw, c);
    case INA_READ_STATE:
    case INA_WRITE_STATE:
        return c->result = copy_state(sw, c, c->op == INA_WRITE_STATE);
    case INA_READ_PORT:
        if (c->id >= INA_SWITCH_PORTS || !c->data)
            return c->result = -EINVAL;
        memcpy(c->data, &sw->ports[c->id].stats, sizeof sw->ports[c->id].stats);
        return c->result = 0;
    case INA_SET_LINK:
        if (c->id >= INA_SWITCH_PORTS || !sw->ports[c->id].link || !c->link)
            return c->result = -EINVAL;
        ina_link_set_rate(sw->ports[c->id].link, c->link->rate_bps);
        ina_link_set_delay(sw->ports[c->id].link, c->link->delay_ps);
        return c->result = 0;
    case INA_READ_DIGESTS:
        if (!c->data || c->stride < sizeof(struct ina_digest) + sw->meta_size)
            return c->result = -EINVAL;
        c->count = ina_digest_drain(sw, c->data, c->stride, c->count, &lost);
        c->offset = lost;
        return c->result = 0;
    default:
        return c->result = sw->tna ? ina_tna_execute(sw, c) : -EINVAL;
    }
}

unsigned ina_switch_execute_all(struct ina_switch *sw, struct ina_command *commands, unsigned n, int stop_on_error)
{
    unsigned failed = 0;
    for (unsigned i = 0; i < n; i++) {
        if (failed && stop_on_error) {
            commands[i].result = -ECANCELED;
            failed++;
        } else if (ina_switch_execute(sw, &commands[i])) {
            failed++;
        }
    }
    return failed;
}
