//! Calls about transactions.

use dhara_wire::controller as proto;
use tonic::Status;

use super::Rpc;
use super::convert::{segment_ranges, stream_name};
use crate::service::{End, Pinged, TransactionEnding};
use crate::stream::{TransactionId, TransactionState};

impl Rpc {
    pub(super) async fn create_transaction(
        &self,
        request: proto::CreateTxnRequest,
    ) -> Result<proto::CreateTxnResponse, Status> {
        let (scope, stream) = stream_name(request.stream_info)?;
        let begun = self.service.begin(&scope, &stream, request.lease).await?;
        Ok(proto::CreateTxnResponse {
            txn_id: Some(proto::TxnId { high_bits: begun.id.high, low_bits: begun.id.low }),
            active_segments: segment_ranges(&scope, &stream, &begun.segments).segment_ranges,
            delegation_token: String::new(),
        })
    }

    pub(super) async fn commit_transaction(
        &self,
        request: proto::TxnRequest,
    ) -> Result<proto::TxnStatus, Status> {
        // The least time and an empty writer mean that there is none.
        let told = request.timestamp != i64::MIN && !request.writer_id.is_empty();
        let mark = told.then(|| (request.writer_id.clone(), request.timestamp));
        self.end(request, End::Commit(mark)).await
    }

    pub(super) async fn abort_transaction(
        &self,
        request: proto::TxnRequest,
    ) -> Result<proto::TxnStatus, Status> {
        self.end(request, End::Abort).await
    }

    async fn end(&self, request: proto::TxnRequest, end: End) -> Result<proto::TxnStatus, Status> {
        use proto::txn_status::Status as Answer;
        let (scope, stream) = stream_name(request.stream_info)?;
        let id = transaction_id(super::required("transaction id", request.txn_id)?);
        let status = match self.service.end((&scope, &stream), id, end).await? {
            TransactionEnding::Accepted => Answer::Success,
            // The statuses for a missing stream or transaction are in the proto, but no server has ever sent them.
            TransactionEnding::Refused | TransactionEnding::StreamNotFound | TransactionEnding::NotFound => {
                Answer::Failure
            }
        };
        Ok(proto::TxnStatus { status: status.into() })
    }

    pub(super) async fn ping_transaction(
        &self,
        request: proto::PingTxnRequest,
    ) -> Result<proto::PingTxnStatus, Status> {
        use proto::ping_txn_status::Status as Answer;
        let (scope, stream) = stream_name(request.stream_info)?;
        let id = transaction_id(super::required("transaction id", request.txn_id)?);
        let status = match self.service.ping((&scope, &stream), id, request.lease).await? {
            Pinged::Renewed => Answer::Ok,
            Pinged::LeaseTooLarge => Answer::LeaseTooLarge,
            Pinged::MaxExecutionTimeExceeded => Answer::MaxExecutionTimeExceeded,
            Pinged::Committed => Answer::Committed,
            Pinged::Aborted => Answer::Aborted,
            Pinged::Unknown => Answer::Unknown,
        };
        Ok(proto::PingTxnStatus { status: status.into() })
    }

    pub(super) async fn check_transaction_state(
        &self,
        request: proto::TxnRequest,
    ) -> Result<proto::TxnState, Status> {
        use proto::txn_state::State as Answer;
        let (scope, stream) = stream_name(request.stream_info)?;
        let Some(id) = request.txn_id.map(transaction_id) else {
            return Ok(proto::TxnState { state: Answer::Unknown.into() });
        };
        let state = match self.service.transaction_state((&scope, &stream), id).await? {
            None => Answer::Unknown,
            Some(TransactionState::Open) => Answer::Open,
            Some(TransactionState::Committing) => Answer::Committing,
            Some(TransactionState::Committed) => Answer::Committed,
            Some(TransactionState::Aborting) => Answer::Aborting,
            Some(TransactionState::Aborted) => Answer::Aborted,
        };
        Ok(proto::TxnState { state: state.into() })
    }

    pub(super) async fn list_completed_transactions(
        &self,
        request: proto::ListCompletedTxnRequest,
    ) -> Result<proto::ListCompletedTxnResponse, Status> {
        use proto::txn_response::Status as Answer;
        let (scope, stream) = stream_name(request.stream_info)?;
        let completed = self.service.completed_transactions(&scope, &stream).await?;
        let response = completed.into_iter().map(|(id, state)| {
            let status =
                if state == TransactionState::Committed { Answer::Committed } else { Answer::Aborted };
            let txn_id = Some(proto::TxnId { high_bits: id.high, low_bits: id.low });
            proto::TxnResponse { txn_id, status: status.into() }
        });
        Ok(proto::ListCompletedTxnResponse { response: response.collect() })
    }
}

fn transaction_id(message: proto::TxnId) -> TransactionId {
    TransactionId { high: message.high_bits, low: message.low_bits }
}
