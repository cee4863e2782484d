/* A parameter server without help, for the Tofino native architecture: see ../ps.p4. */
#include "atp.p4"
