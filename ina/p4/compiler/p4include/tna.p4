// The Tofino native architecture (TNA) on Tofino 1: what programs include.

#ifndef _TNA_
#define _TNA_

// The Tofino generation, which programs test.
#ifndef __TARGET_TOFINO__
#define __TARGET_TOFINO__ 1
#endif

#include "tofino1_specs.p4"
#include "tofino1_arch.p4"

#endif
