/* Packet generators of a TNA switch: applications that timers, ports going down and recirculated packets trigger.
 *
 *     off ─ enabled ─> armed ─ first poll ─> waiting ─ timer ─> running ─> waiting (periodic) or done
 *             └─ (port down, pattern) ─> idle ─ trigger ─> running ─> idle
 *
 * Time is that of the polls. While an application runs, ports that go down wait, and other packets of its pattern are not
 * seen. Jitter and other applications' packets do not delay anything: each keeps its own time.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tna_core.h"

enum phase { OFF, ARMED, WAITING, RUNNING, IDLE, DONE };
enum { MOST = 256 /* packets of one poll: the rest is due at once */, OVERHEAD = 24 /* bytes on the wire, with the FCS */ };

struct app {
    struct ina_tna_app set;
    struct ina_tna_app_counters counters;
    enum phase phase;
    uint64_t next;          /* when it is due */
    uint64_t again;         /* periodic: the next trigger */
    uint64_t batch_start;
    uint32_t batch, packet; /* which comes */
    uint32_t key;           /* of the trigger: port, or the pattern's lower 24 bits */
};

struct ina_pktgen {
    uint8_t sends;                       /* port 68 is enabled */
    uint8_t patterns;                    /* a bit for each of ports 68..71 */
    uint8_t armed_ports[INA_TNA_PIPE_PORTS]; /* that trigger when they go down */
    uint8_t down[INA_TNA_APPS][INA_TNA_PIPE_PORTS]; /* triggers that wait */
    struct app app[INA_TNA_APPS];
    uint8_t buffer[INA_TNA_PKTGEN_BUFFER];
};

/* ---- what the control plane sets --------------------------------------------------------------------------------------- */

static struct ina_pktgen *of_pipe(struct ina_tna_runtime *tna, uint32_t pipe)
{
    if (pipe >= tna->pipes)
        return NULL;
    if (!tna->pktgen[pipe])
        tna->pktgen[pipe] = calloc(1, sizeof *tna->pktgen[pipe]);
    return tna->pktgen[pipe];
}

static int set_app(struct ina_pktgen *gen, unsigned number, const struct ina_tna_app *set)
{
    if (!set || set->trigger > INA_TNA_PATTERN || set->port >= INA_TNA_PIPE_PORTS || !set->batches || !set->packets
        || set->batches > 1u << 16 || set->packets > 1u << 16 || set->length > INA_TNA_PKTGEN_BUFFER
        || set->at > INA_TNA_PKTGEN_BUFFER - set->length)
        return -EINVAL;
    struct app *app = &gen->app[number];
    const bool was = app->set.enabled;
    app->set = *set;
    if (!set->enabled) {
        app->phase = OFF;
    } else if (!was) {
        app->phase = set->trigger <= INA_TNA_PERIODIC ? ARMED : IDLE;
        memset(gen->down[number], 0, sizeof gen->down[number]);
    }
    return 0;
}

static int set_port(struct ina_pktgen *gen, unsigned local, uint32_t flags)
{
    if (local == INA_TNA_LOOPBACK)
        gen->sends = (flags & INA_TNA_PKTGEN_ENABLE) != 0;
    else if (flags & INA_TNA_PKTGEN_ENABLE)
        return -EINVAL;
    if (local >= INA_TNA_LOOPBACK && local < INA_TNA_LOOPBACK + 4) {
        const uint8_t bit = (uint8_t)(1u << (local - INA_TNA_LOOPBACK));
        gen->patterns = (uint8_t)(flags & INA_TNA_PKTGEN_PATTERN ? gen->patterns | bit : gen->patterns & ~bit);
    } else if (flags & INA_TNA_PKTGEN_PATTERN) {
        return -EINVAL;
    }
    if (flags & INA_TNA_PKTGEN_CLEAR)
        gen->armed_ports[local] = 1;
    return 0;
}

int ina_pktgen_execute(struct ina_tna_runtime *tna, const struct ina_command *c)
{
    if (c->op < INA_TNA_SET_APP || c->op > INA_TNA_SET_PKTGEN_PORT)
        return -EINVAL;
    uint32_t each = c->op == INA_TNA_SET_PKTGEN_PORT ? INA_TNA_PIPE_PORTS : INA_TNA_APPS;
    each = c->op == INA_TNA_SET_PKTGEN_BUFFER ? 1 : each;
    if (c->id / each >= tna->pipes)
        return -EINVAL;
    struct ina_pktgen *gen = of_pipe(tna, c->id / each);
    if (!gen)
        return -ENOMEM;
    switch (c->op) {
    case INA_TNA_SET_APP:
        return set_app(gen, c->id % each, c->data);
    case INA_TNA_READ_APP: {
        struct app *app = &gen->app[c->id % each];
        if (!c->data)
            return -EINVAL;
        if (c->count)
            memcpy(&app->counters, c->data, sizeof app->counters);
        else
            memcpy(c->data, &app->counters, sizeof app->counters);
        return 0;
    }
    case INA_TNA_SET_PKTGEN_BUFFER:
        if (!c->data || c->offset > INA_TNA_PKTGEN_BUFFER || c->count > INA_TNA_PKTGEN_BUFFER - c->offset)
            return -EINVAL;
        memcpy(gen->buffer + c->offset, c->data, c->count);
        return 0;
    default:
        return set_port(gen, c->id % each, c->count);
    }
}

/* ---- triggers ---------------------------------------------------------------------------------------------------------- */

static void begin(struct app *app, uint32_t key, uint64_t now)
{
    app->phase = RUNNING;
    app->key = key;
    app->counters.triggers++;
    app->batch = app->packet = 0;
    app->batch_start = app->next = now;
}

void ina_pktgen_port_down(struct ina_tna_runtime *tna, uint32_t port)
{
    struct ina_pktgen *gen = tna->pktgen[port / INA_TNA_PIPE_PORTS];
    const uint32_t local = port % INA_TNA_PIPE_PORTS;
    if (!gen || !gen->sends || !gen->armed_ports[local])
        return;
    gen->armed_ports[local] = 0;
    for (unsigned a = 0; a < INA_TNA_APPS; a++)
        if (gen->app[a].phase != OFF && gen->app[a].set.trigger == INA_TNA_PORT_DOWN)
            gen->down[a][local] = 1;
}

void ina_pktgen_recirculated(struct ina_tna_runtime *tna, const struct ina_packet *pkt, uint64_t now)
{
    struct ina_pktgen *gen = tna->pktgen[pkt->ingress_port / INA_TNA_PIPE_PORTS];
    const unsigned local = pkt->ingress_port % INA_TNA_PIPE_PORTS;
    if (!gen || !gen->sends || pkt->len < 4 || local < INA_TNA_LOOPBACK || local >= INA_TNA_LOOPBACK + 4
        || !(gen->patterns >> (local - INA_TNA_LOOPBACK) & 1))
        return;
    const uint8_t *d = pkt->data;
    const uint32_t first = (uint32_t)d[0] << 24 | (uint32_t)d[1] << 16 | (uint32_t)d[2] << 8 | d[3];
    for (unsigned a = 0; a < INA_TNA_APPS; a++) {
        struct app *app = &gen->app[a];
        if (app->phase == IDLE && app->set.trigger == INA_TNA_PATTERN && !((first ^ app->set.pattern) & app->set.mask))
            begin(app, first & 0xffffff, now);
    }
}

/* The lowest port whose trigger waits, or -1. */
static int waiting_port(const struct ina_pktgen *gen, unsigned app)
{
    if (gen->app[app].phase != IDLE || gen->app[app].set.trigger != INA_TNA_PORT_DOWN)
        return -1;
    const uint8_t *found = memchr(gen->down[app], 1, sizeof gen->down[app]);
    return found ? (int)(found - gen->down[app]) : -1;
}

/* ---- time -------------------------------------------------------------------------------------------------------------- */

static uint64_t due_of(const struct ina_pktgen *gen, unsigned a)
{
    const struct app *app = &gen->app[a];
    if (!gen->sends)
        return UINT64_MAX;
    if (app->phase == ARMED || waiting_port(gen, a) >= 0)
        return 0;
    return app->phase == WAITING || app->phase == RUNNING ? app->next : UINT64_MAX;
}

uint64_t ina_tna_next_due(const struct ina_switch *sw)
{
    uint64_t due = UINT64_MAX;
    for (uint32_t p = 0; p < sw->tna->pipes; p++)
        for (unsigned a = 0; sw->tna->pktgen[p] && a < INA_TNA_APPS; a++) {
            const uint64_t next = due_of(sw->tna->pktgen[p], a);
            due = next < due ? next : due;
        }
    return due;
}

/* One packet of application `a` enters by its pipe. */
static void generate(struct ina_switch *sw, uint32_t pipe, unsigned a)
{
    struct ina_pktgen *gen = sw->tna->pktgen[pipe];
    struct app *app = &gen->app[a];
    const struct ina_tna_app *set = &app->set;
    uint8_t frame[INA_TNA_PKTGEN_HEADER + INA_TNA_PKTGEN_BUFFER];
    const uint32_t length = INA_TNA_PKTGEN_HEADER + set->length;
    frame[0] = (uint8_t)(pipe << 3 | a);
    frame[1] = set->trigger == INA_TNA_PATTERN ? (uint8_t)(app->key >> 16) : 0;
    const uint32_t middle = set->trigger <= INA_TNA_PERIODIC ? app->batch : app->key;
    frame[2] = (uint8_t)(middle >> 8);
    frame[3] = (uint8_t)middle;
    frame[4] = (uint8_t)(app->packet >> 8);
    frame[5] = (uint8_t)app->packet;
    memcpy(frame + INA_TNA_PKTGEN_HEADER, gen->buffer + set->at, set->length);
    const uint32_t local = (set->port + (set->increment ? app->packet : 0)) % INA_TNA_PIPE_PORTS;
    const uint16_t port = (uint16_t)(pipe * INA_TNA_PIPE_PORTS + local);
    const uint64_t now = app->next, lasts = (length + OVERHEAD) * 80ull;
    app->counters.packets++;
    if (++app->packet < set->packets) {
        app->next = now + (set->packet_gap_ps > lasts ? set->packet_gap_ps : lasts);
    } else {
        app->counters.batches++;
        app->packet = 0;
        app->next = app->batch_start + set->batch_gap_ps;
        app->next = app->next > now + lasts ? app->next : now + lasts;
        app->batch_start = app->next;
        if (++app->batch == set->batches) {
            app->phase = set->trigger >= INA_TNA_PORT_DOWN ? IDLE : set->trigger == INA_TNA_PERIODIC ? WAITING : DONE;
            if (app->phase == WAITING)
                app->next = app->again > app->next ? app->again : app->next;
        }
    }
    const int error = ina_switch_input_frame(sw, frame, length, port, now);
    if (error)
        ina_count_drop(sw, port, error == -EMSGSIZE ? INA_DROPPED_TOO_LONG : INA_DROPPED_NO_MEMORY);
}

void ina_tna_poll(struct ina_switch *sw, uint64_t now)
{
    for (unsigned sent = 0; sent < MOST;) {
        uint64_t due = UINT64_MAX;
        uint32_t pipe = 0, chosen = 0;
        for (uint32_t p = 0; p < sw->tna->pipes; p++)
            for (unsigned a = 0; sw->tna->pktgen[p] && a < INA_TNA_APPS; a++)
                if (due_of(sw->tna->pktgen[p], a) < due) {
                    due = due_of(sw->tna->pktgen[p], a);
                    pipe = p;
                    chosen = a;
                }
        if (due == UINT64_MAX || due > now)
            return;
        struct app *app = &sw->tna->pktgen[pipe]->app[chosen];
        const int port = waiting_port(sw->tna->pktgen[pipe], chosen);
        if (app->phase == ARMED) {
            app->phase = WAITING;
            app->next = now + app->set.timer_ps;
        } else if (port >= 0) {
            sw->tna->pktgen[pipe]->down[chosen][port] = 0;
            begin(app, pipe * INA_TNA_PIPE_PORTS + (uint32_t)port, now);
        } else if (app->phase == WAITING) {
            app->again = app->next + app->set.timer_ps;
            begin(app, 0, app->next);
        } else {
            generate(sw, pipe, chosen);
            sent++;
        }
    }
}
