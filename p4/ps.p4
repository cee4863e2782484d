/* A parameter server without help: the switch only relays, every worker's packet to the server and every answer to its
 * worker. It is atp.p4, whose jobs have no aggregators here (`aggregate` 0, ina/aggregation/entries/ps.py), so that both are
 * compared over the same frames, workers and server.
 */
#define PROTOCOL "ps"
#include "atp.p4"
