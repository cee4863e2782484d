/* Declarations that the files of TNA's runtime share; not for Python or other code. */
#ifndef INA_TNA_CORE_H
#define INA_TNA_CORE_H

#include "core.h"
#include "tna_switch.h"

enum { INA_TNA_FIRST = 0x80 /* in instance_type of a replica: egress_rid_first */ };

struct ina_tna_lag {
    uint32_t before, count, after; /* members elsewhere, here, elsewhere again: h % all of them chooses */
    uint16_t port[INA_SWITCH_PORTS];
};

struct ina_tna_runtime {
    struct ina_tna_replication replication;
    struct ina_tna_port port[INA_SWITCH_PORTS];
    struct ina_tna_session *session[INA_TNA_SESSIONS];
    uint64_t prune[INA_TNA_PRUNES][INA_SWITCH_PORTS / 64]; /* a bit for each port */
    struct ina_tna_lag *lag[INA_TNA_LAGS];
    uint32_t **group;           /* INA_SWITCH_GROUPS images */
    uint8_t *originals;         /* INA_BATCH frames as they came, for programs that mirror or resubmit them */
    struct ina_pktgen *pktgen[INA_TNA_PIPES]; /* NULL: never configured */
    uint32_t pipes;
    struct ina_tna_pipe {
        const struct ina_program *program;
        const struct ina_tables *tables;
        const struct ina_tables *parser[INA_TNA_PARSERS]; /* for frames of its four ports; NULL: `tables` */
        uint8_t *state;
        uint32_t pipeline;      /* the program's place in the Switch's list */
    } pipe[INA_TNA_PIPES];
};

/* tna_pktgen.c */
int ina_pktgen_execute(struct ina_tna_runtime *tna, const struct ina_command *c);
void ina_pktgen_port_down(struct ina_tna_runtime *tna, uint32_t port);
void ina_pktgen_recirculated(struct ina_tna_runtime *tna, const struct ina_packet *pkt, uint64_t now);

/* tna_replication.c: a copy of packet i of the batch for each leaf of the group that is not pruned. */
void ina_tna_replicate(struct ina_switch *sw, struct ina_packet *batch, unsigned i, uint32_t group, uint64_t now);

#endif
