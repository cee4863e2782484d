"""The protobuf files of p4.config.v1: P4Info, and the types that it names, of P4Runtime 1.6.0.

This is the published interface, to be met exactly (github.com/p4lang/p4runtime, proto/p4); descriptions.py explains the form.
"""

from __future__ import annotations

from ina.p4.compiler.p4info.descriptions import File

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
