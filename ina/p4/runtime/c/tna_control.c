/* The control plane's operations for TNA only. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "table.h"
#include "tna_core.h"

static int set_tables(struct ina_switch *sw, const struct ina_command *c)
{
    bool found = false;
    for (uint32_t p = 0; p < sw->tna->pipes; p++) {
        struct ina_tna_pipe *pipe = &sw->tna->pipe[p];
        if (pipe->pipeline != c->id)
            continue;
        if (!c->tables || c->tables->count != pipe->program->table_count)
            return -EINVAL;
        pipe->tables = c->tables;
        memset(pipe->parser, 0, sizeof pipe->parser);
        found = true;
    }
    return found ? 0 : -EINVAL;
}

static int set_pipe_tables(struct ina_tna_runtime *tna, const struct ina_command *c)
{
    if (c->id >= tna->pipes || c->count > INA_TNA_PARSERS || !c->tables)
        return -EINVAL;
    struct ina_tna_pipe *pipe = &tna->pipe[c->id];
    if (c->tables->count != pipe->program->table_count)
        return -EINVAL;
    if (c->count) {
        pipe->parser[c->count - 1] = c->tables;
    } else {
        pipe->tables = c->tables;
        memset(pipe->parser, 0, sizeof pipe->parser);
    }
    return 0;
}

static bool node_fits(const uint32_t *image, uint32_t words, uint32_t at)
{
    if (at < 1 || at > words || words - at < 3 || image[at] > UINT16_MAX || image[at + 1] > words || image[at + 2] > words
        || words - at - 3 < image[at + 1] + image[at + 2])
        return false;
    const uint32_t *leaf = image + at + 3;
    for (uint32_t i = 0; i < image[at + 1] + image[at + 2]; i++)
        if (leaf[i] >= (i < image[at + 1] ? (uint32_t)INA_SWITCH_PORTS : (uint32_t)INA_TNA_LAGS))
            return false;
    return true;
}

/* Checks that every offset of a group's image stays inside it: the data plane checks none. */
static bool image_fits(const uint32_t *image, uint32_t words)
{
    if (image[0] > words - 1)
        return false;
    for (uint32_t b = 0; b < image[0]; b++) {
        const uint32_t at = image[1 + b];
        if (at > words || words - at < 2 || !image[at + 1] || image[at + 1] > words - at - 2)
            return false;
        for (uint32_t choice = 0; choice < image[at + 1]; choice++)
            if (image[at + 2 + choice] && !node_fits(image, words, image[at + 2 + choice]))
                return false;
    }
    return true;
}

static int set_group(struct ina_tna_runtime *tna, const struct ina_command *c)
{
    if (c->id >= INA_SWITCH_GROUPS || (c->count && !c->data))
        return -EINVAL;
    uint32_t *image = NULL;
    if (c->count) {
        if (!image_fits(c->data, c->count))
            return -EINVAL;
        image = malloc(c->count * sizeof *image);
        if (!image)
            return -ENOMEM;
        memcpy(image, c->data, c->count * sizeof *image);
    } else if (!tna->group[c->id]) {
        return -ENOENT;
    }
    free(tna->group[c->id]);
    tna->group[c->id] = image;
    return 0;
}

static int set_lag(struct ina_tna_runtime *tna, const struct ina_command *c)
{
    if (c->id >= INA_TNA_LAGS || c->count > INA_SWITCH_PORTS || (c->count && !c->data) || c->offset > UINT16_MAX
        || c->stride > UINT16_MAX)
        return -EINVAL;
    struct ina_tna_lag *lag = calloc(1, sizeof *lag);
    if (!lag)
        return -ENOMEM;
    lag->before = (uint32_t)c->offset;
    lag->count = c->count;
    lag->after = (uint32_t)c->stride;
    if (c->count)
        memcpy(lag->port, c->data, c->count * sizeof lag->port[0]);
    for (uint32_t i = 0; i < c->count; i++)
        if (lag->port[i] >= INA_SWITCH_PORTS) {
            free(lag);
            return -EINVAL;
        }
    free(tna->lag[c->id]);
    tna->lag[c->id] = lag;
    return 0;
}

static int set_prune(struct ina_tna_runtime *tna, const struct ina_command *c)
{
    const uint16_t *port = c->data;
    if (c->id >= INA_TNA_PRUNES || c->count > INA_SWITCH_PORTS || (c->count && !port))
        return -EINVAL;
    for (uint32_t i = 0; i < c->count; i++)
        if (port[i] >= INA_SWITCH_PORTS)
            return -EINVAL;
    memset(tna->prune[c->id], 0, sizeof tna->prune[c->id]);
    for (uint32_t i = 0; i < c->count; i++)
        tna->prune[c->id][port[i] / 64] |= 1ull << port[i] % 64;
    return 0;
}

static int set_session(struct ina_tna_runtime *tna, const struct ina_command *c)
{
    if (!c->id || c->id >= INA_TNA_SESSIONS)
        return -EINVAL;
    struct ina_tna_session *session = NULL;
    if (c->data) {
        session = malloc(sizeof *session);
        if (!session)
            return -ENOMEM;
        memcpy(session, c->data, sizeof *session);
    } else if (!tna->session[c->id]) {
        return -ENOENT;
    }
    free(tna->session[c->id]);
    tna->session[c->id] = session;
    return 0;
}

static int set_port(struct ina_tna_runtime *tna, const struct ina_command *c)
{
    const struct ina_tna_port *port = c->data;
    if (c->id >= INA_SWITCH_PORTS || !port || port->backup >= INA_SWITCH_PORTS)
        return -EINVAL;
    tna->port[c->id] = *port;
    return 0;
}

static int set_loopback(struct ina_switch *sw, const struct ina_command *c)
{
    if (c->id >= INA_SWITCH_PORTS || !(sw->ports[c->id].present || sw->ports[c->id].disabled))
        return -ENOENT;
    if (c->count && sw->ports[c->id].port)
        return -EINVAL;
    if (c->count && sw->ports[c->id].outlet && ina_link_depth(sw->ports[c->id].link))
        return -EBUSY;
    sw->ports[c->id].loopback = c->count != 0;
    if (sw->ports[c->id].loopback && sw->ports[c->id].outlet) { /* its frames come back to this switch, not to an outlet */
        sw->ports[c->id].outlet = false;
        sw->linked[sw->linked_count++] = (uint16_t)c->id;
    }
    return 0;
}

static int set_enabled(struct ina_switch *sw, const struct ina_command *c)
{
    if (c->id >= INA_SWITCH_PORTS || !(sw->ports[c->id].present || sw->ports[c->id].disabled))
        return -ENOENT;
    if (sw->ports[c->id].present && !c->count)
        ina_pktgen_port_down(sw->tna, c->id);
    sw->ports[c->id].present = c->count != 0;
    sw->ports[c->id].disabled = c->count == 0;
    return 0;
}

int ina_tna_execute(struct ina_switch *sw, const struct ina_command *c)
{
    struct ina_tna_runtime *tna = sw->tna;
    switch (c->op) {
    case INA_SET_TABLES:
        return set_tables(sw, c);
    case INA_TNA_SET_PIPE_TABLES:
        return set_pipe_tables(tna, c);
    case INA_TNA_SET_GROUP:
        return set_group(tna, c);
    case INA_TNA_SET_LAG:
        return set_lag(tna, c);
    case INA_TNA_SET_PRUNE:
        return set_prune(tna, c);
    case INA_TNA_SET_REPLICATION: {
        const struct ina_tna_replication *replication = c->data;
        if (!replication)
            return -EINVAL;
        tna->replication = *replication;
        return 0;
    }
    case INA_TNA_SET_PORT:
        return set_port(tna, c);
    case INA_TNA_SET_SESSION:
        return set_session(tna, c);
    case INA_TNA_SET_LOOPBACK:
        return set_loopback(sw, c);
    case INA_TNA_SET_ENABLED:
        return set_enabled(sw, c);
    default:
        return ina_pktgen_execute(tna, c);
    }
}
