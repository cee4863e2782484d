"""The protobuf file of BFRuntime (package bfrt_proto), by names, numbers and types of its fields.

This is the published interface, to be met exactly: `bfruntime.proto` (Intel, Open-Tofino, share/bf_rt_shared/proto; open-p4studio
adds what is marked +). compiler/p4info/descriptions.py explains the form.
"""

from __future__ import annotations

from ina.p4.compiler.p4info.descriptions import File

PACKAGE = "bfrt_proto"
SERVICE = f"/{PACKAGE}.BfRuntime/"

BFRUNTIME = File("bfruntime.proto", PACKAGE, ("google/rpc/status.proto",), """
WriteRequest target=1:TargetDevice client_id=2:uint32 updates=3:Update* atomicity=4:Atomicity p4_name=5:string
WriteResponse status=1:Error*
ReadRequest target=1:TargetDevice client_id=2:uint32 entities=3:Entity* p4_name=4:string
ReadResponse entities=1:Entity* status=2:Error*
TargetDevice device_id=1:uint32 pipe_id=2:uint32 direction=3:uint32 prsr_id=4:uint32
Update type=1:Type entity=2:Entity
Entity entity/table_entry=1:TableEntry entity/table_usage=2:TableUsage entity/table_attribute=3:TableAttribute entity/table_operation=4:TableOperation entity/object_id=5:ObjectId entity/handle=6:HandleId
HandleId table_id=1:uint32 value/key=2:TableKey value/handle_id=3:uint32
TableEntry table_id=1:uint32 value/key=2:TableKey value/handle_id=7:uint32 data=3:TableData is_default_entry=4:bool table_read_flag=5:TableReadFlag table_mod_inc_flag=6:TableModIncFlag entry_tgt=8:TargetDevice table_flags=9:TableFlags
TableUsage table_id=1:uint32 usage=2:uint32 table_read_flag=3:TableReadFlag table_flags=4:TableFlags
TableAttribute table_id=1:uint32 attribute/idle_table=2:IdleTable attribute/entry_scope=3:EntryScope attribute/dyn_key_mask=4:DynKeyMask attribute/dyn_hashing=5:DynHashing attribute/byte_count_adj=6:ByteCountAdj attribute/port_status_notify=7:PortStatusChg attribute/intvl_ms=8:StatePullIntvl attribute/pre_device_config=9:PreDeviceConfig attribute/selector_update_notify=10:SelectorUpdateCb
TableOperation table_id=1:uint32 table_operations_type=2:string
TableData action_id=1:uint32 fields=2:DataField*
DataField field_id=1:uint32 value/stream=2:bytes value/float_val=3:float value/str_val=4:string value/int_arr_val=5:IntArray value/bool_arr_val=6:BoolArray value/container_arr_val=7:ContainerArray value/bool_val=8:bool value/str_arr_val=9:StrArray
DataField.IntArray val=1:uint32*
DataField.BoolArray val=1:bool*
DataField.StrArray val=1:string*
DataField.ContainerArray container=1:Container*
DataField.ContainerArray.Container val=1:DataField*
TableKey fields=1:KeyField*
KeyField field_id=1:uint32 match_type/exact=2:Exact match_type/ternary=3:Ternary match_type/lpm=4:LPM match_type/range=5:Range match_type/optional=6:Optional
KeyField.Exact value=1:bytes
KeyField.Ternary value=1:bytes mask=2:bytes
KeyField.LPM value=1:bytes prefix_len=2:int32
KeyField.Range low=1:bytes high=2:bytes
KeyField.Optional value=1:bytes is_valid=2:bool
TableReadFlag from_hw=1:bool key_only=2:bool
TableFlags from_hw=1:bool key_only=2:bool mod_del=3:bool reset_ttl=4:bool reset_stats=5:bool
TableModIncFlag type=1:Type
KeyFieldMask field_id=1:uint32 mask=2:bytes
DynKeyMask fields=1:KeyFieldMask*
DynHashing alg=1:uint32 seed=2:uint64
ByteCountAdj byte_count_adjust=1:int32
IdleTable ttl_query_interval=1:uint32 max_ttl=2:uint32 min_ttl=3:uint32 idle_table_mode=4:IdleTableMode enable=5:bool
StatePullIntvl intvl_val=1:uint32
PortStatusChg enable=1:bool
Mode scope/predef=1:PredefinedMode scope/user_defined=2:uint64 args=3:uint64
PreGlobalRid global_rid=1:uint32
PrePortProtection enable=1:bool
PreFastFailover enable=1:bool
PreMaxNodesBeforeYield count=1:uint32
PreMaxNodeThreshold node_count=1:uint32 port_lag_count=2:uint32
PreDeviceConfig pre_global_rid=1:PreGlobalRid pre_port_protection=2:PrePortProtection pre_fast_failover=3:PreFastFailover pre_max_nodes_before_yield=4:PreMaxNodesBeforeYield pre_max_node_threshold=5:PreMaxNodeThreshold
SelectorUpdateCb enable=1:bool
EntryScope gress_scope=1:Mode pipe_scope=2:Mode prsr_scope=3:Mode
ObjectId object/table_object=1:TableObject object/learn_object=2:LearnObject id=3:uint32
ObjectId.ActionName action=1:string
ObjectId.KeyFieldName field=1:string
ObjectId.DataFieldName action=1:string field=2:string
ObjectId.TableObject table_name=1:string names/action_name=2:ActionName names/key_field_name=3:KeyFieldName names/data_field_name=4:DataFieldName
ObjectId.LearnObject learn_name=1:string data_field_name=2:DataFieldName
StreamMessageRequest client_id=1:uint32 update/subscribe=2:Subscribe update/digest_ack=3:DigestListAck
Subscribe is_master=1:bool device_id=2:uint32 notifications=3:Notifications status=4:.google.rpc.Status
Subscribe.Notifications enable_learn_notifications=1:bool enable_idletimeout_notifications=2:bool enable_port_status_change_notifications=3:bool enable_entry_active_notifications=4:bool enable_selector_update_change_notifications=5:bool
DigestListAck digest_id=1:uint32 list_id=2:uint32
StreamMessageResponse update/subscribe=1:Subscribe update/digest=2:DigestList update/idle_timeout_notification=3:IdleTimeoutNotification update/port_status_change_notification=4:PortStatusChgNotification update/set_forwarding_pipeline_config_response=5:SetForwardingPipelineConfigResponse update/selector_update_change_notification=6:SelectorUpdateChgNotification
SubscribeResponse status=1:Error
DigestList digest_id=1:uint32 list_id=2:uint32 data=3:TableData* target=4:TargetDevice
IdleTimeoutNotification target=1:TargetDevice table_entry=2:TableEntry type=3:NotificationType
PortStatusChgNotification table_entry=1:TableEntry port_up=2:bool
SelectorUpdateChgNotification sel_group_id=1:uint32 act_member_id=2:uint32 logical_entry_index=3:uint32 is_add=4:bool
SetForwardingPipelineConfigRequest device_id=1:uint32 client_id=2:uint32 action=3:Action dev_init_mode=4:DevInitMode base_path=5:string config=6:ForwardingPipelineConfig*
SetForwardingPipelineConfigResponse set_forwarding_pipeline_config_response_type=1:SetForwardingPipelineConfigResponseType
ForwardingPipelineConfig p4_name=1:string bfruntime_info=2:bytes profiles=3:Profile*
ForwardingPipelineConfig.Profile profile_name=1:string context=2:bytes binary=3:bytes pipe_scope=4:uint32*
NonP4Config bfruntime_info=1:bytes
GetForwardingPipelineConfigRequest device_id=1:uint32 client_id=2:uint32
GetForwardingPipelineConfigResponse config=1:ForwardingPipelineConfig* non_p4_config=2:NonP4Config
Error canonical_code=1:int32 message=2:string space=3:string code=4:int32
""", """
WriteRequest.Atomicity CONTINUE_ON_ERROR ROLLBACK_ON_ERROR DATAPLANE_ATOMIC
Update.Type UNSPECIFIED INSERT MODIFY MODIFY_INC DELETE INSERT_OR_MODIFY RESET
TableModIncFlag.Type MOD_INC_ADD MOD_INC_DELETE
IdleTable.IdleTableMode IDLE_TABLE_POLL_MODE IDLE_TABLE_NOTIFY_MODE
Mode.PredefinedMode ALL SINGLE
IdleTimeoutNotification.NotificationType ENTRY_ACTIVE ENTRY_IDLE
SetForwardingPipelineConfigRequest.Action BIND VERIFY VERIFY_AND_WARM_INIT_BEGIN VERIFY_AND_WARM_INIT_BEGIN_AND_END WARM_INIT_END RECONCILE_AND_WARM_INIT_END
SetForwardingPipelineConfigRequest.DevInitMode FAST_RECONFIG HITLESS
SetForwardingPipelineConfigResponseType WARM_INIT_STARTED WARM_INIT_FINISHED
""")  # noqa: E501

FILES = (BFRUNTIME,)
NAMES = {PACKAGE: "bfrt"}
