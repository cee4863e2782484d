/* A parameter server without help, for the Tofino native architecture: see ../ps.p4. */
#define PROTOCOL "ps"
#include "atp.p4"
