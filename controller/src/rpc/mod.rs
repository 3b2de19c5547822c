//! The gRPC service of Pravega's controller: messages are translated, `service` decides.
//!
//! Each call runs in a task of its own, so a client that leaves does not leave a change half made, and is answered
//! within a time limit of the server's own.

mod convert;
mod group;
mod scope;
mod segment;
mod stream;
mod table;
mod transaction;

use std::sync::Arc;
use std::time::Duration;

use dhara_stdx::Retry;
use dhara_wire::controller as proto;
use dhara_wire::controller::controller_service_server::ControllerService;
use tokio::time::timeout;
use tokio_util::task::TaskTracker;
use tonic::{Code, Request, Response, Status};
use tracing::{debug, warn};

use crate::service::{Service, ServiceError};

/// How much longer than the work it waits for a call may take.
const CALL_SLACK: Duration = Duration::from_secs(30);

/// The gRPC face of a controller.
#[derive(Debug, Clone)]
pub(crate) struct Rpc {
    service: Arc<Service>,
    calls: TaskTracker,
    call_time_max: Duration,
}

impl Rpc {
    /// The face of `service`, whose own calls wait no longer than `call_time_max`.
    pub(crate) fn new(service: Arc<Service>, call_time_max: Duration) -> Self {
        Self { service, calls: TaskTracker::new(), call_time_max: call_time_max + CALL_SLACK }
    }

    /// Waits for the calls under way.
    pub(crate) async fn ended(&self) {
        self.calls.close();
        self.calls.wait().await;
    }

    /// Runs one call in a task of its own and answers it in time.
    async fn answer<T: Send + 'static>(
        &self,
        name: &'static str,
        call: impl Future<Output = Result<T, Status>> + Send + 'static,
    ) -> Result<Response<T>, Status> {
        let limit = self.call_time_max;
        let task = self.calls.spawn(async move { timeout(limit, call).await });
        match task.await {
            Ok(Ok(Ok(reply))) => Ok(Response::new(reply)),
            Ok(Ok(Err(status))) => {
                debug!(call = name, code = ?status.code(), message = status.message(), "call refused");
                Err(status)
            }
            Ok(Err(_elapsed)) => Err(Status::deadline_exceeded("the call took too long")),
            Err(error) => {
                warn!(call = name, %error, "call ended in a panic");
                Err(Status::internal("the call ended unexpectedly"))
            }
        }
    }
}

impl From<ServiceError> for Status {
    fn from(error: ServiceError) -> Self {
        let code = match &error {
            ServiceError::Invalid(_) => Code::InvalidArgument,
            ServiceError::NotFound(_) => Code::NotFound,
            ServiceError::Precondition(_) => Code::FailedPrecondition,
            ServiceError::Deadline => Code::DeadlineExceeded,
            ServiceError::Store(store) if store.is_conflict() => Code::Aborted,
            ServiceError::Store(_) if error.retry() == Retry::Never => Code::Internal,
            ServiceError::Store(_) | ServiceError::Stopping => Code::Unavailable,
        };
        Self::new(code, error.to_string())
    }
}

/// Takes a message that must be there.
fn required<T>(what: &'static str, message: Option<T>) -> Result<T, Status> {
    message.ok_or_else(|| Status::invalid_argument(format!("{what} is missing")))
}

/// Forwards every call of the service to the method of the same name. Calls that need nothing stored are answered at
/// once, without a task.
macro_rules! calls {
    (
        at_once { $($quick:ident($quick_request:ident) -> $quick_reply:ident;)* }
        built { $($name:ident($request:ident) -> $reply:ident;)* }
    ) => {
        #[tonic::async_trait]
        impl ControllerService for Rpc {
            $(
                async fn $quick(
                    &self,
                    request: Request<proto::$quick_request>,
                ) -> Result<Response<proto::$quick_reply>, Status> {
                    Rpc::$quick(self, request.get_ref()).map(Response::new)
                }
            )*
            $(
                async fn $name(&self, request: Request<proto::$request>) -> Result<Response<proto::$reply>, Status> {
                    let rpc = self.clone();
                    self.answer(stringify!($name), async move { rpc.$name(request.into_inner()).await }).await
                }
            )*
        }
    };
}

calls! {
    at_once {
        get_controller_server_list(ServerRequest) -> ServerResponse;
        get_uri(SegmentId) -> NodeUri;
        get_delegation_token(StreamInfo) -> DelegationToken;
        get_controller_to_bucket_mapping(ControllerToBucketMappingRequest) -> ControllerToBucketMappingResponse;
    }
    built {
        create_scope(ScopeInfo) -> CreateScopeStatus;
        delete_scope(ScopeInfo) -> DeleteScopeStatus;
        check_scope_exists(ScopeInfo) -> ExistsResponse;
        list_scopes(ScopesRequest) -> ScopesResponse;
        list_streams_in_scope(StreamsInScopeRequest) -> StreamsInScopeResponse;
        list_streams_in_scope_for_tag(StreamsInScopeWithTagRequest) -> StreamsInScopeResponse;
        create_stream(StreamConfig) -> CreateStreamStatus;
        get_stream_configuration(StreamInfo) -> StreamConfig;
        check_stream_exists(StreamInfo) -> ExistsResponse;
        get_current_segments(StreamInfo) -> SegmentRanges;
        get_epoch_segments(GetEpochSegmentsRequest) -> SegmentRanges;
        get_segments(GetSegmentsRequest) -> SegmentsAtTime;
        get_segments_immediatly_following(SegmentId) -> SuccessorResponse;
        get_segments_immediately_following(SegmentId) -> SuccessorResponse;
        get_segments_between(StreamCutRange) -> StreamCutRangeResponse;
        is_segment_valid(SegmentId) -> SegmentValidityResponse;
        is_stream_cut_valid(StreamCut) -> StreamCutValidityResponse;
        update_stream(StreamConfig) -> UpdateStreamStatus;
        truncate_stream(StreamCut) -> UpdateStreamStatus;
        seal_stream(StreamInfo) -> UpdateStreamStatus;
        delete_stream(StreamInfo) -> DeleteStreamStatus;
        scale(ScaleRequest) -> ScaleResponse;
        check_scale(ScaleStatusRequest) -> ScaleStatusResponse;
        create_transaction(CreateTxnRequest) -> CreateTxnResponse;
        commit_transaction(TxnRequest) -> TxnStatus;
        abort_transaction(TxnRequest) -> TxnStatus;
        ping_transaction(PingTxnRequest) -> PingTxnStatus;
        check_transaction_state(TxnRequest) -> TxnState;
        list_completed_transactions(ListCompletedTxnRequest) -> ListCompletedTxnResponse;
        delete_scope_recursive(ScopeInfo) -> DeleteScopeStatus;
        remove_writer(RemoveWriterRequest) -> RemoveWriterResponse;
        note_timestamp_from_writer(TimestampFromWriter) -> TimestampResponse;
        create_key_value_table(KeyValueTableConfig) -> CreateKeyValueTableStatus;
        get_current_segments_key_value_table(KeyValueTableInfo) -> SegmentRanges;
        list_key_value_tables_in_scope(KvTablesInScopeRequest) -> KvTablesInScopeResponse;
        get_key_value_table_configuration(KeyValueTableInfo) -> KeyValueTableConfigResponse;
        delete_key_value_table(KeyValueTableInfo) -> DeleteKvTableStatus;
        list_subscribers(StreamInfo) -> SubscribersResponse;
        update_subscriber_stream_cut(SubscriberStreamCut) -> UpdateSubscriberStatus;
        create_reader_group(ReaderGroupConfiguration) -> CreateReaderGroupResponse;
        get_reader_group_config(ReaderGroupInfo) -> ReaderGroupConfigResponse;
        delete_reader_group(ReaderGroupInfo) -> DeleteReaderGroupStatus;
        update_reader_group(ReaderGroupConfiguration) -> UpdateReaderGroupResponse;
    }
}
