"""Tables that every Tofino 1 has, whatever its program: names, ids, fields and their types.

Facts of the published bf_rt_*_tf1.json (Intel, Open-Tofino, share/bf_rt_shared); only the tables that are used here. One field a
line: `key ID NAME TYPE`, `data ID NAME TYPE`. A type `a|b` is a choice of strings, `TYPE*` is repeated, `TYPE!` read-only; the
lines of an action's fields follow that of the action (`action ID NAME`).
"""

from __future__ import annotations

import functools
import re
from typing import Any

SPEEDS = "BF_SPEED_NONE|BF_SPEED_1G|BF_SPEED_10G|BF_SPEED_25G|BF_SPEED_40G|BF_SPEED_40G_NB|BF_SPEED_40G_NON_BREAKABLE|" \
         "BF_SPEED_50G|BF_SPEED_100G|BF_SPEED_200G|BF_SPEED_400G"
FECS = "BF_FEC_TYP_NONE|BF_FEC_TYP_FIRECODE|BF_FEC_TYP_REED_SOLOMON|BF_FEC_TYP_FC|BF_FEC_TYP_RS"
AUTONEG = "PM_AN_DEFAULT|PM_AN_FORCE_ENABLE|PM_AN_FORCE_DISABLE"
LOOPBACK = "BF_LPBK_NONE|BF_LPBK_MAC_NEAR|BF_LPBK_MAC_FAR|BF_LPBK_PCS_NEAR|BF_LPBK_SERDES_NEAR|BF_LPBK_SERDES_FAR"

_STATISTICS = """
FramesReceivedOK FramesReceivedAll FramesReceivedwithFCSError FrameswithanyError OctetsReceivedinGoodFrames OctetsReceived
FramesReceivedwithUnicastAddresses FramesReceivedwithMulticastAddresses FramesReceivedwithBroadcastAddresses
FramesReceivedoftypePAUSE FramesReceivedwithLengthError FramesReceivedUndersized FramesReceivedOversized FragmentsReceived
JabberReceived PriorityPauseFrames CRCErrorStomped FrameTooLong RxVLANFramesGood FramesDroppedBufferFull
FramesReceivedLength_lt_64 FramesReceivedLength_eq_64 FramesReceivedLength_65_127 FramesReceivedLength_128_255
FramesReceivedLength_256_511 FramesReceivedLength_512_1023 FramesReceivedLength_1024_1518 FramesReceivedLength_1519_2047
FramesReceivedLength_2048_4095 FramesReceivedLength_4096_8191 FramesReceivedLength_8192_9215 FramesReceivedLength_9216
FramesTransmittedOK FramesTransmittedAll FramesTransmittedwithError OctetsTransmittedwithouterror OctetsTransmittedTotal
FramesTransmittedUnicast FramesTransmittedMulticast FramesTransmittedBroadcast FramesTransmittedPause
FramesTransmittedPriPause FramesTransmittedVLAN FramesTransmittedLength_lt_64 FramesTransmittedLength_eq_64
FramesTransmittedLength_65_127 FramesTransmittedLength_128_255 FramesTransmittedLength_256_511
FramesTransmittedLength_512_1023 FramesTransmittedLength_1024_1518 FramesTransmittedLength_1519_2047
FramesTransmittedLength_2048_4095 FramesTransmittedLength_4096_8191 FramesTransmittedLength_8192_9215
FramesTransmittedLength_9216
""".split()
_PRIORITIES = [f"{name.format(i)}" for name in (
    "Pri{}FramesTransmitted", "Pri{}FramesReceived", "TransmitPri{}Pause1USCount", "ReceivePri{}Pause1USCount")
    for i in range(8)]
STATISTICS = [f"${name}" for name in (*_STATISTICS, *_PRIORITIES, "ReceiveStandardPause1USCount", "FramesTruncated", "TimeInSec",
                                      "TimeinNSec", "TX_PPS", "RX_PPS", "TX_RATE", "RX_RATE")]

TABLES = f"""
table $PORT 0xff010001 PortConfigure 256
key 1 $DEV_PORT uint32
data 1 $SPEED {SPEEDS}
data 2 $FEC {FECS}
data 3 $N_LANES uint32
data 4 $PORT_ENABLE bool
data 5 $AUTO_NEGOTIATION {AUTONEG}
data 6 $LOOPBACK_MODE {LOOPBACK}
data 7 $TX_MTU uint32
data 8 $RX_MTU uint32
data 9 $TX_PFC_EN_MAP uint32
data 10 $RX_PFC_EN_MAP uint32
data 11 $TX_PAUSE_FRAME_EN bool
data 12 $RX_PAUSE_FRAME_EN bool
data 13 $CUT_THROUGH_EN bool
data 14 $PORT_DIR PM_PORT_DIR_DEFAULT|PM_PORT_DIR_TX_ONLY|PM_PORT_DIR_RX_ONLY
data 15 $MEDIA_TYPE BF_MEDIA_TYPE_COPPER|BF_MEDIA_TYPE_OPTICAL|BF_MEDIA_TYPE_UNKNOWN!
data 21 $IS_VALID bool!
data 22 $IS_INTERNAL bool!
data 23 $CONN_ID uint32!
data 24 $CHNL_ID uint32!
data 25 $PORT_UP bool!
data 26 $PORT_NAME string!

table $PORT_STAT 0xff010002 PortStat 256
key 1 $DEV_PORT uint32
{chr(10).join(f"data {i} {name} uint64" for i, name in enumerate(STATISTICS, 1))}

table $PORT_HDL_INFO 0xff010003 PortHdlInfo 256
key 1 $CONN_ID uint32
key 2 $CHNL_ID uint32
data 1 $DEV_PORT uint32!

table $PORT_STR_INFO 0xff010005 PortStrInfo 256
key 1 $PORT_NAME string
data 1 $DEV_PORT uint32!

table $pre.mgid 0xff020001 PreMgid 65536
key 1 $MGID uint16
data 1 $MULTICAST_NODE_ID uint32*
data 2 $MULTICAST_NODE_L1_XID_VALID bool*
data 3 $MULTICAST_NODE_L1_XID uint16*
data 4 $MULTICAST_ECMP_ID uint32*
data 5 $MULTICAST_ECMP_L1_XID_VALID bool*
data 6 $MULTICAST_ECMP_L1_XID uint16*

table $pre.node 0xff020002 PreNode 16777216
key 1 $MULTICAST_NODE_ID uint32
data 1 $MULTICAST_RID uint16
data 2 $MULTICAST_LAG_ID uint8*
data 3 $DEV_PORT uint32*

table $pre.ecmp 0xff020003 PreEcmp 16777216
key 1 $MULTICAST_ECMP_ID uint32
data 1 $MULTICAST_NODE_ID uint32*

table $pre.lag 0xff020004 PreLag 255
key 1 $MULTICAST_LAG_ID uint8
data 1 $DEV_PORT uint32*
data 2 $MULTICAST_LAG_REMOTE_MSB_COUNT uint32
data 3 $MULTICAST_LAG_REMOTE_LSB_COUNT uint32

table $pre.prune 0xff020005 PrePrune 288
key 1 $MULTICAST_L2_XID uint16
data 1 $DEV_PORT uint32*

table $pre.port 0xff020006 PrePort 288
key 1 $DEV_PORT uint32
data 1 $MULTICAST_BACKUP_PORT uint32
data 2 $MULTICAST_FORWARD_STATE bool
data 3 $MULTICAST_CLEAR_FAST_FAILOVER bool
data 4 $COPY_TO_CPU_PORT_ENABLE bool

table $mirror.cfg 0xff040001 MirrorCfg 1024
key 1 $sid uint16
action 1 $coalescing
data 1 $internal_header bytes:128
data 2 $internal_header_length uint32
data 3 $timeout_usec uint32
data 4 $extract_len uint32
action 2 $normal
action 0 -
data 5 $session_enable bool
data 6 $direction INGRESS|EGRESS|BOTH
data 7 $ucast_egress_port uint32
data 8 $ucast_egress_port_valid bool
data 9 $egress_port_queue uint32
data 10 $ingress_cos uint32
data 11 $packet_color GREEN|YELLOW|RED
data 12 $level1_mcast_hash uint32
data 13 $level2_mcast_hash uint32
data 14 $mcast_grp_a uint16
data 15 $mcast_grp_a_valid bool
data 16 $mcast_grp_b uint16
data 17 $mcast_grp_b_valid bool
data 18 $mcast_l1_xid uint16
data 19 $mcast_l2_xid uint16
data 20 $mcast_rid uint16
data 21 $icos_for_copy_to_cpu uint32
data 22 $copy_to_cpu bool
data 23 $max_pkt_len uint16

table tf1.pktgen.port_cfg 0xff030001 PktgenPortCfg 256
key 1 dev_port uint32
data 1 recirculation_enable bool
data 2 pktgen_enable bool
data 3 pattern_matching_enable bool
data 4 clear_port_down_enable bool

table tf1.pktgen.app_cfg 0xff030002 PktgenAppCfg 8
key 1 app_id uint32
action 1 trigger_timer_one_shot
data 1 timer_nanosec uint32
action 2 trigger_timer_periodic
data 1 timer_nanosec uint32
action 3 trigger_port_down
action 4 trigger_recirc_pattern
data 4 pattern_value uint32
data 5 pattern_mask uint32
action 0 -
data 12 app_enable bool
data 13 pkt_len uint16
data 14 pkt_buffer_offset uint16
data 15 pipe_local_source_port uint32
data 16 increment_source_port bool
data 17 batch_count_cfg uint16
data 18 packets_per_batch_cfg uint16
data 19 ibg uint32
data 20 ibg_jitter uint32
data 21 ipg uint32
data 22 ipg_jitter uint32
data 23 batch_counter uint64
data 24 pkt_counter uint64
data 25 trigger_counter uint64

table tf1.pktgen.pkt_buffer 0xff030003 PktgenPktBufferCfg 1024
key 1 pkt_buffer_offset uint32
key 2 pkt_buffer_size uint32
data 1 buffer bytes:8*

table tf1.dev.device_configuration 0xff060001 DevConfigure 1
data 1 sku UNKNOWN|BFN-T10-064Q|BFN-T10-032Q|BFN-T10-032D|BFN-T10-032D-020|BFN-T10-032D-018|BFN-T10-032D-012!
data 2 num_pipes uint32!
data 3 num_stages uint32!
data 4 num_max_ports uint32!
data 5 num_front_ports uint32!
data 6 pcie_cpu_port uint32!
data 7 eth_cpu_port_list uint32*!
data 8 internal_port_list uint32*!
data 9 external_port_list uint32*!
data 10 recirc_port_list uint32*!
data 11 intr_based_link_monitoring bool
data 12 flow_learn_intr_mode bool
data 13 lrt_dr_timeout_usec uint32
data 14 flow_learn_timeout_usec uint32
data 15 inactive_node_delete bool
data 16 selector_member_order bool
"""

ATTRIBUTES = {"$PORT": ["port_status_notif_cb"], "$PORT_STAT": ["poll_intvl_ms"], "$pre.mgid": ["pre_device_config"]}


def _type(text: str) -> dict[str, Any]:
    if "|" in text:
        return {"type": "string", "choices": text.split("|")}
    name, _, width = text.partition(":")
    return {"type": name} | ({"width": int(width)} if width else {})


@functools.cache
def fixed_tables() -> dict[str, Any]:
    """The bfrt.json that a server returns as `non_p4_config`."""
    tables: list[dict[str, Any]] = []
    action: dict[str, Any] | None = None
    for line in filter(None, TABLES.splitlines()):
        word, first, *rest = line.split()
        if word == "table":
            action = None
            tables.append({"name": first, "id": int(rest[0], 16), "table_type": rest[1], "size": int(rest[2]), "annotations": [],
                           "depends_on": [], "key": [], "data": [], "supported_operations": [],
                           "attributes": ATTRIBUTES.get(first, [])})
            continue
        table, name = tables[-1], rest[0]
        if word == "action":
            action = (
                {"id": int(first), "name": name, "action_scope": "TableOnly", "annotations": [], "data": []}
                if name != "-"
                else None
            )
            if action:
                table.setdefault("action_specs", []).append(action)
            continue
        kind, marks = re.fullmatch(r"(.*?)([*!]*)", rest[1]).groups()  # type: ignore[union-attr]
        field = {"id": int(first), "name": name, "repeated": "*" in marks, "annotations": [], "type": _type(kind)}
        if word == "key":
            table["key"].append({**field, "mandatory": True, "match_type": "Exact"})
        elif action is not None:
            action["data"].append({**field, "mandatory": False, "read_only": False})
        else:
            table["data"].append({"mandatory": False, "read_only": "!" in marks, "singleton": field})
    return {"schema_version": "1.0.0", "tables": tables, "learn_filters": []}
