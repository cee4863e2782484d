#include "protocol.h"
const struct ina_protocol ina_switchml __attribute__((weak));
#define S(n) void n(void); __attribute__((weak)) void n(void) { __builtin_trap(); }
S(ina_endpoint_start) S(ina_endpoint_submit) S(ina_endpoint_wait) S(ina_endpoint_next)
S(ina_endpoint_abort) S(ina_endpoint_stats) S(ina_endpoint_stop)
S(ina_port_udp_open) S(ina_port_fault_wrap) S(ina_port_pcap_wrap)
S(ina_port_fault_report)
S(ina_port_pcap_report)
S(ina_port_udp_bound)
