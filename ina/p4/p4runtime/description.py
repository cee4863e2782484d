"""The protobuf files of P4Runtime 1.6.0 (p4.v1, p4.config.v1), by names, numbers and types of their fields.

This is the published interface, to be met exactly (github.com/p4lang/p4runtime, proto/p4); descriptions.py explains the form.
Fields that the specification has deprecated are there, too: controllers still send some.
"""

from __future__ import annotations

from ina.p4.rpc.descriptions import File

P4DATA = File("p4/v1/p4data.proto", "p4.v1", (), """
P4Data data/bitstring=1:bytes data/varbit=2:P4Varbit data/bool=3:bool data/tuple=4:P4StructLike data/struct=5:P4StructLike data/header=6:P4Header data/header_union=7:P4HeaderUnion data/header_stack=8:P4HeaderStack data/header_union_stack=9:P4HeaderUnionStack data/enum=10:string data/error=11:string data/enum_value=12:bytes
P4Varbit bitstring=1:bytes bitwidth=2:int32
P4StructLike members=1:P4Data*
P4Header is_valid=1:bool bitstrings=2:bytes*
P4HeaderUnion valid_header_name=1:string valid_header=2:P4Header
P4HeaderStack entries=1:P4Header*
P4HeaderUnionStack entries=1:P4HeaderUnion*
""")  # noqa: E501

P4TYPES = File("p4/config/v1/p4types.proto", "p4.config.v1", (), """
P4TypeInfo structs=1:map<string,P4StructTypeSpec> headers=2:map<string,P4HeaderTypeSpec> header_unions=3:map<string,P4HeaderUnionTypeSpec> enums=4:map<string,P4EnumTypeSpec> error=5:P4ErrorTypeSpec serializable_enums=6:map<string,P4SerializableEnumTypeSpec> new_types=7:map<string,P4NewTypeSpec>
P4DataTypeSpec type_spec/bitstring=1:P4BitstringLikeTypeSpec type_spec/bool=2:P4BoolType type_spec/tuple=3:P4TupleTypeSpec type_spec/struct=4:P4NamedType type_spec/header=5:P4NamedType type_spec/header_union=6:P4NamedType type_spec/header_stack=7:P4HeaderStackTypeSpec type_spec/header_union_stack=8:P4HeaderUnionStackTypeSpec type_spec/enum=9:P4NamedType type_spec/error=10:P4ErrorType type_spec/serializable_enum=11:P4NamedType type_spec/new_type=12:P4NamedType
P4NamedType name=1:string
P4BoolType
P4ErrorType
P4BitstringLikeTypeSpec type_spec/bit=1:P4BitTypeSpec type_spec/int=2:P4IntTypeSpec type_spec/varbit=3:P4VarbitTypeSpec annotations=4:string* annotation_locations=5:SourceLocation* structured_annotations=6:StructuredAnnotation*
P4BitTypeSpec bitwidth=1:int32
P4IntTypeSpec bitwidth=1:int32
P4VarbitTypeSpec max_bitwidth=1:int32
P4TupleTypeSpec members=1:P4DataTypeSpec*
P4StructTypeSpec members=1:Member* annotations=2:string* annotation_locations=3:SourceLocation* structured_annotations=4:StructuredAnnotation*
P4StructTypeSpec.Member name=1:string type_spec=2:P4DataTypeSpec
P4HeaderTypeSpec members=1:Member* annotations=2:string* annotation_locations=3:SourceLocation* structured_annotations=4:StructuredAnnotation*
P4HeaderTypeSpec.Member name=1:string type_spec=2:P4BitstringLikeTypeSpec
P4HeaderUnionTypeSpec members=1:Member* annotations=2:string* annotation_locations=3:SourceLocation* structured_annotations=4:StructuredAnnotation*
P4HeaderUnionTypeSpec.Member name=1:string header=2:P4NamedType
P4HeaderStackTypeSpec header=1:P4NamedType size=2:int32
P4HeaderUnionStackTypeSpec header_union=1:P4NamedType size=2:int32
KeyValuePair key=1:string value=2:Expression
KeyValuePairList kv_pairs=1:KeyValuePair*
Expression value/string_value=1:string value/int64_value=2:int64 value/bool_value=3:bool
ExpressionList expressions=1:Expression*
StructuredAnnotation name=1:string body/expression_list=2:ExpressionList body/kv_pair_list=3:KeyValuePairList source_location=4:SourceLocation
SourceLocation file=1:string line=2:int32 column=3:int32
P4EnumTypeSpec members=1:Member* annotations=2:string* annotation_locations=4:SourceLocation* structured_annotations=3:StructuredAnnotation*
P4EnumTypeSpec.Member name=1:string annotations=2:string* annotation_locations=4:SourceLocation* structured_annotations=3:StructuredAnnotation*
P4SerializableEnumTypeSpec underlying_type=1:P4BitTypeSpec members=2:Member* annotations=3:string* annotation_locations=5:SourceLocation* structured_annotations=4:StructuredAnnotation*
P4SerializableEnumTypeSpec.Member name=1:string value=2:bytes annotations=3:string* annotation_locations=5:SourceLocation* structured_annotations=4:StructuredAnnotation*
P4ErrorTypeSpec members=1:string*
P4NewTypeTranslation uri=1:string sdn_type/sdn_bitwidth=2:int32 sdn_type/sdn_string=3:SdnString
P4NewTypeTranslation.SdnString
P4NewTypeSpec representation/original_type=1:P4DataTypeSpec representation/translated_type=2:P4NewTypeTranslation annotations=3:string* annotation_locations=5:SourceLocation* structured_annotations=4:StructuredAnnotation*
""")  # noqa: E501

P4INFO = File("p4/config/v1/p4info.proto", "p4.config.v1", ("google/protobuf/any.proto", "p4/config/v1/p4types.proto"), """
P4Info pkg_info=1:PkgInfo tables=2:Table* actions=3:Action* action_profiles=4:ActionProfile* counters=5:Counter* direct_counters=6:DirectCounter* meters=7:Meter* direct_meters=8:DirectMeter* controller_packet_metadata=9:ControllerPacketMetadata* value_sets=10:ValueSet* registers=11:Register* digests=12:Digest* externs=100:Extern* type_info=200:.p4.config.v1.P4TypeInfo
Documentation brief=1:string description=2:string
PlatformProperties multicast_group_table_size=1:int32 multicast_group_table_total_replicas=2:int32 multicast_group_table_max_replicas_per_entry=3:int32
PkgInfo name=1:string version=2:string doc=3:Documentation annotations=4:string* annotation_locations=10:.p4.config.v1.SourceLocation* arch=5:string organization=6:string contact=7:string url=8:string structured_annotations=9:.p4.config.v1.StructuredAnnotation* platform_properties=11:PlatformProperties
P4Ids
Preamble id=1:uint32 name=2:string alias=3:string annotations=4:string* annotation_locations=7:.p4.config.v1.SourceLocation* doc=5:Documentation structured_annotations=6:.p4.config.v1.StructuredAnnotation*
Extern extern_type_id=1:uint32 extern_type_name=2:string instances=3:ExternInstance*
ExternInstance preamble=1:Preamble info=2:.google.protobuf.Any
MatchField id=1:uint32 name=2:string annotations=3:string* annotation_locations=10:.p4.config.v1.SourceLocation* bitwidth=4:int32 match/match_type=5:MatchType match/other_match_type=7:string doc=6:Documentation type_name=8:.p4.config.v1.P4NamedType structured_annotations=9:.p4.config.v1.StructuredAnnotation*
TableActionCall action_id=1:uint32 arguments=4:Argument*
TableActionCall.Argument param_id=2:uint32 value=3:bytes
Table preamble=1:Preamble match_fields=2:MatchField* action_refs=3:ActionRef* const_default_action_id=4:uint32 initial_default_action=5:TableActionCall implementation_id=6:uint32 direct_resource_ids=7:uint32* size=8:int64 idle_timeout_behavior=9:IdleTimeoutBehavior is_const_table=10:bool has_initial_entries=11:bool other_properties=100:.google.protobuf.Any
ActionRef id=1:uint32 scope=3:Scope annotations=2:string* annotation_locations=5:.p4.config.v1.SourceLocation* structured_annotations=4:.p4.config.v1.StructuredAnnotation*
Action preamble=1:Preamble params=2:Param*
Action.Param id=1:uint32 name=2:string annotations=3:string* annotation_locations=8:.p4.config.v1.SourceLocation* bitwidth=4:int32 doc=5:Documentation type_name=6:.p4.config.v1.P4NamedType structured_annotations=7:.p4.config.v1.StructuredAnnotation*
ActionProfile preamble=1:Preamble table_ids=2:uint32* with_selector=3:bool size=4:int64 max_group_size=5:int32 selector_size_semantics/sum_of_weights=6:SumOfWeights selector_size_semantics/sum_of_members=7:SumOfMembers weights_disallowed=8:bool
ActionProfile.SumOfWeights
ActionProfile.SumOfMembers max_member_weight=1:int32
CounterSpec unit=1:Unit
Counter preamble=1:Preamble spec=2:CounterSpec size=3:int64 index_type_name=4:.p4.config.v1.P4NamedType
DirectCounter preamble=1:Preamble spec=2:CounterSpec direct_table_id=3:uint32
MeterSpec unit=1:Unit type=2:Type
Meter preamble=1:Preamble spec=2:MeterSpec size=3:int64 index_type_name=4:.p4.config.v1.P4NamedType
DirectMeter preamble=1:Preamble spec=2:MeterSpec direct_table_id=3:uint32
ControllerPacketMetadata preamble=1:Preamble metadata=2:Metadata*
ControllerPacketMetadata.Metadata id=1:uint32 name=2:string annotations=3:string* annotation_locations=7:.p4.config.v1.SourceLocation* bitwidth=4:int32 type_name=5:.p4.config.v1.P4NamedType structured_annotations=6:.p4.config.v1.StructuredAnnotation*
ValueSet preamble=1:Preamble match=2:MatchField* size=3:int32
Register preamble=1:Preamble type_spec=2:.p4.config.v1.P4DataTypeSpec size=3:int32 index_type_name=4:.p4.config.v1.P4NamedType
Digest preamble=1:Preamble type_spec=2:.p4.config.v1.P4DataTypeSpec
""", """
P4Ids.Prefix UNSPECIFIED ACTION TABLE VALUE_SET CONTROLLER_HEADER PSA_EXTERNS_START=16 ACTION_PROFILE COUNTER DIRECT_COUNTER METER DIRECT_METER REGISTER DIGEST OTHER_EXTERNS_START=128 MAX=255
MatchField.MatchType UNSPECIFIED EXACT=2 LPM TERNARY RANGE OPTIONAL
Table.IdleTimeoutBehavior NO_TIMEOUT NOTIFY_CONTROL
ActionRef.Scope TABLE_AND_DEFAULT TABLE_ONLY DEFAULT_ONLY GROUP_ACTION
CounterSpec.Unit UNSPECIFIED BYTES PACKETS BOTH
MeterSpec.Unit UNSPECIFIED BYTES PACKETS
MeterSpec.Type TWO_RATE_THREE_COLOR SINGLE_RATE_THREE_COLOR SINGLE_RATE_TWO_COLOR
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
