"""The protobuf files of P4Runtime 1.6.0 (p4.v1, p4.config.v1), by names, numbers and types of their fields.

This is the published interface, to be met exactly (github.com/p4lang/p4runtime, proto/p4); the compiler, which writes P4Info, has
the files of p4.config.v1 (p4info/description.py). descriptions.py there explains the form.
Fields that the specification has deprecated are there, too: controllers still send some.
"""

from __future__ import annotations

from ina.p4.compiler.p4info.description import P4INFO, P4TYPES
from ina.p4.compiler.p4info.descriptions import File

P4DATA = File("p4/v1/p4data.proto", "p4.v1", (), """
P4Data data/bitstring=1:bytes data/varbit=2:P4Varbit data/bool=3:bool data/tuple=4:P4StructLike data/struct=5:P4StructLike data/header=6:P4Header data/header_union=7:P4HeaderUnion data/header_stack=8:P4HeaderStack data/header_union_stack=9:P4HeaderUnionStack data/enum=10:string data/error=11:string data/enum_value=12:bytes
P4Varbit bitstring=1:bytes bitwidth=2:int32
P4StructLike members=1:P4Data*
P4Header is_valid=1:bool bitstrings=2:bytes*
P4HeaderUnion valid_header_name=1:string valid_header=2:P4Header
P4HeaderStack entries=1:P4Header*
P4HeaderUnionStack entries=1:P4HeaderUnion*
""")  # noqa: E501

P4RUNTIME = File("p4/v1/p4runtime.proto", "p4.v1", ("google/protobuf/any.proto", "google/rpc/status.proto", "p4/config/v1/p4info.proto", "p4/v1/p4data.proto"), """
WriteRequest device_id=1:uint64 role_id=2:uint64 role=6:string election_id=3:Uint128 updates=4:Update* atomicity=5:Atomicity
WriteResponse
ReadRequest device_id=1:uint64 role=3:string entities=2:Entity*
ReadResponse entities=1:Entity*
Update type=1:Type entity=2:Entity
Entity entity/extern_entry=1:ExternEntry entity/table_entry=2:TableEntry entity/action_profile_member=3:ActionProfileMember entity/action_profile_group=4:ActionProfileGroup entity/meter_entry=5:MeterEntry entity/direct_meter_entry=6:DirectMeterEntry entity/counter_entry=7:CounterEntry entity/direct_counter_entry=8:DirectCounterEntry entity/packet_replication_engine_entry=9:PacketReplicationEngineEntry entity/value_set_entry=10:ValueSetEntry entity/register_entry=11:RegisterEntry entity/digest_entry=12:DigestEntry
ExternEntry extern_type_id=1:uint32 extern_id=2:uint32 entry=3:.google.protobuf.Any
TableEntry table_id=1:uint32 match=2:FieldMatch* action=3:TableAction priority=4:int32 controller_metadata=5:uint64 meter_config=6:MeterConfig counter_data=7:CounterData meter_counter_data=12:MeterCounterData is_default_action=8:bool idle_timeout_ns=9:int64 time_since_last_hit=10:IdleTimeout metadata=11:bytes is_const=13:bool
TableEntry.IdleTimeout elapsed_ns=1:int64
FieldMatch field_id=1:uint32 field_match_type/exact=2:Exact field_match_type/ternary=3:Ternary field_match_type/lpm=4:LPM field_match_type/range=6:Range field_match_type/optional=7:Optional field_match_type/other=100:.google.protobuf.Any
FieldMatch.Exact value=1:bytes
FieldMatch.Ternary value=1:bytes mask=2:bytes
FieldMatch.LPM value=1:bytes prefix_len=2:int32
FieldMatch.Range low=1:bytes high=2:bytes
FieldMatch.Optional value=1:bytes
TableAction type/action=1:Action type/action_profile_member_id=2:uint32 type/action_profile_group_id=3:uint32 type/action_profile_action_set=4:ActionProfileActionSet
Action action_id=1:uint32 params=4:Param*
Action.Param param_id=2:uint32 value=3:bytes
ActionProfileActionSet group_action=5:Action action_profile_actions=1:ActionProfileAction* action_selection_mode=2:ActionSelectionMode size_semantics=3:SizeSemantics
ActionProfileAction action=1:Action weight=2:int32 watch_kind/watch=3:int32 watch_kind/watch_port=4:bytes
ActionProfileMember action_profile_id=1:uint32 member_id=2:uint32 action=3:Action
ActionProfileGroup action_profile_id=1:uint32 group_id=2:uint32 members=3:Member* max_size=4:int32
ActionProfileGroup.Member member_id=1:uint32 weight=2:int32 watch_kind/watch=3:int32 watch_kind/watch_port=4:bytes
Index index=1:int64
MeterEntry meter_id=1:uint32 index=2:Index config=3:MeterConfig counter_data=4:MeterCounterData
DirectMeterEntry table_entry=1:TableEntry config=2:MeterConfig counter_data=3:MeterCounterData
MeterConfig cir=1:int64 cburst=2:int64 pir=3:int64 pburst=4:int64 eburst=5:int64
CounterEntry counter_id=1:uint32 index=2:Index data=3:CounterData
DirectCounterEntry table_entry=1:TableEntry data=2:CounterData
CounterData byte_count=1:int64 packet_count=2:int64
MeterCounterData green=1:CounterData yellow=2:CounterData red=3:CounterData
PacketReplicationEngineEntry type/multicast_group_entry=1:MulticastGroupEntry type/clone_session_entry=2:CloneSessionEntry
BackupReplica port=1:bytes instance=2:uint32
Replica port_kind/egress_port=1:uint32 port_kind/port=3:bytes instance=2:uint32 backup_replicas=4:BackupReplica*
MulticastGroupEntry multicast_group_id=1:uint32 replicas=2:Replica* metadata=3:bytes
CloneSessionEntry session_id=1:uint32 replicas=2:Replica* class_of_service=3:uint32 packet_length_bytes=4:int32
ValueSetMember match=1:FieldMatch*
ValueSetEntry value_set_id=1:uint32 members=2:ValueSetMember*
RegisterEntry register_id=1:uint32 index=2:Index data=3:.p4.v1.P4Data
DigestEntry digest_id=1:uint32 config=2:Config
DigestEntry.Config max_timeout_ns=1:int64 max_list_size=2:int32 ack_timeout_ns=3:int64
StreamMessageRequest update/arbitration=1:MasterArbitrationUpdate update/packet=2:PacketOut update/digest_ack=3:DigestListAck update/other=4:.google.protobuf.Any
PacketOut payload=1:bytes metadata=2:PacketMetadata*
DigestListAck digest_id=1:uint32 list_id=2:uint64
StreamMessageResponse update/arbitration=1:MasterArbitrationUpdate update/packet=2:PacketIn update/digest=3:DigestList update/idle_timeout_notification=4:IdleTimeoutNotification update/other=5:.google.protobuf.Any update/error=6:StreamError
PacketIn payload=1:bytes metadata=2:PacketMetadata*
DigestList digest_id=1:uint32 list_id=2:uint64 data=3:.p4.v1.P4Data* timestamp=4:int64
PacketMetadata metadata_id=1:uint32 value=2:bytes
MasterArbitrationUpdate device_id=1:uint64 role=2:Role election_id=3:Uint128 status=4:.google.rpc.Status
Role id=1:uint64 name=3:string config=2:.google.protobuf.Any
IdleTimeoutNotification table_entry=1:TableEntry* timestamp=2:int64
StreamError canonical_code=1:int32 message=2:string space=3:string code=4:int32 details/packet_out=5:PacketOutError details/digest_list_ack=6:DigestListAckError details/other=7:StreamOtherError
PacketOutError packet_out=1:PacketOut
DigestListAckError digest_list_ack=1:DigestListAck
StreamOtherError other=1:.google.protobuf.Any
Uint128 high=1:uint64 low=2:uint64
SetForwardingPipelineConfigRequest device_id=1:uint64 role_id=2:uint64 role=6:string election_id=3:Uint128 action=4:Action config=5:ForwardingPipelineConfig
SetForwardingPipelineConfigResponse
ForwardingPipelineConfig p4info=1:.p4.config.v1.P4Info p4_device_config=2:bytes cookie=3:Cookie
ForwardingPipelineConfig.Cookie cookie=1:uint64
GetForwardingPipelineConfigRequest device_id=1:uint64 response_type=2:ResponseType
GetForwardingPipelineConfigResponse config=1:ForwardingPipelineConfig
Error canonical_code=1:int32 message=2:string space=3:string code=4:int32 details=5:.google.protobuf.Any
CapabilitiesRequest device_id=1:uint64
CapabilitiesResponse p4runtime_api_version=1:string experimental=999:.google.protobuf.Any
""", """
SdnPort SDN_PORT_UNKNOWN SDN_PORT_MIN SDN_PORT_MAX=-257 SDN_PORT_RECIRCULATE=-6 SDN_PORT_CPU=-3
WriteRequest.Atomicity CONTINUE_ON_ERROR ROLLBACK_ON_ERROR DATAPLANE_ATOMIC
Update.Type UNSPECIFIED INSERT MODIFY DELETE
ActionProfileActionSet.ActionSelectionMode DEFAULT_MODE_DETERMINED_BY_ACTION_SELECTOR HASH RANDOM
ActionProfileActionSet.SizeSemantics DEFAULT_SIZE_DETERMINED_BY_ACTION_SELECTOR SUM_OF_WEIGHTS SUM_OF_MEMBERS
SetForwardingPipelineConfigRequest.Action UNSPECIFIED VERIFY VERIFY_AND_SAVE VERIFY_AND_COMMIT COMMIT RECONCILE_AND_COMMIT
GetForwardingPipelineConfigRequest.ResponseType ALL COOKIE_ONLY P4INFO_AND_COOKIE DEVICE_CONFIG_AND_COOKIE
""")  # noqa: E501

FILES = (P4DATA, P4TYPES, P4INFO, P4RUNTIME)
NAMES = {"p4.v1": "p4", "p4.config.v1": "config"}
