//! The controller as the crash workload sees it: `None` is "gone or not now", a wrong answer an error.

use anyhow::{Context, Result, bail, ensure};
use dhara_wire::codec::Uuid;
use dhara_wire::controller as proto;
use dhara_wire::controller::controller_service_client::ControllerServiceClient;
use dhara_wire::controller::create_stream_status::Status as Created;
use dhara_wire::controller::scale_response::ScaleStreamStatus as Started;
use dhara_wire::controller::scale_status_response::ScaleStatus as Scaled;
use dhara_wire::name::{SegmentId, StreamName};
use std::time::Duration;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Response, Status};

/// A call later than this counts as lost: the controller hangs.
const CALL_TIMEOUT: Duration = Duration::from_secs(20);
/// Segments that a stream is created with.
const SEGMENTS: i32 = 2;

/// A segment of a stream and its part of the key space.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Range {
    /// The segment.
    pub(crate) id: SegmentId,
    /// First position.
    pub(crate) low: f64,
    /// End of its positions.
    pub(crate) high: f64,
}

/// One stream at one controller.
#[derive(Clone)]
pub(crate) struct Stream {
    client: ControllerServiceClient<Channel>,
    /// Its name.
    pub(crate) name: StreamName,
}

/// The reply, none if the server went away, an error for any answer that only a fault explains.
fn reply<T>(result: Result<Response<T>, Status>) -> Result<Option<T>> {
    match result {
        Ok(reply) => Ok(Some(reply.into_inner())),
        Err(status) => match status.code() {
            Code::Unavailable | Code::Unknown | Code::Cancelled | Code::Aborted => Ok(None),
            // How tonic calls a connection that broke under a call.
            Code::Internal if status.message().contains("h2 protocol") => Ok(None),
            Code::DeadlineExceeded => bail!("the controller hangs: {status}"),
            _ => bail!("the controller answered {status}"),
        },
    }
}

fn ranges(ranges: Vec<proto::SegmentRange>) -> Result<Vec<Range>> {
    let one = |range: proto::SegmentRange| {
        let id = SegmentId::from_raw(range.segment_id.context("a range names its segment")?.segment_id);
        Ok(Range { id, low: range.min_key, high: range.max_key })
    };
    ranges.into_iter().map(one).collect()
}

impl Stream {
    /// Names a stream at a controller; connects with the first call.
    ///
    /// # Errors
    /// If the address is none.
    pub(crate) fn at(controller: &str, scope: &str, stream: &str) -> Result<Self> {
        let endpoint = Endpoint::from_shared(format!("http://{controller}"))?.timeout(CALL_TIMEOUT);
        let client = ControllerServiceClient::new(endpoint.connect_lazy());
        Ok(Self { client, name: StreamName::new(scope, stream) })
    }

    fn info(&self) -> proto::StreamInfo {
        proto::StreamInfo {
            scope: self.name.scope.clone(),
            stream: self.name.stream.clone(),
            access_operation: 0,
        }
    }

    /// Creates scope and stream, if they are not there.
    ///
    /// # Errors
    /// If they cannot be created.
    pub(crate) async fn create(&mut self) -> Result<()> {
        let scope = proto::ScopeInfo { scope: self.name.scope.clone() };
        reply(self.client.create_scope(scope).await)?.context("the controller is gone")?;
        let config = proto::StreamConfig {
            stream_info: Some(self.info()),
            scaling_policy: Some(proto::ScalingPolicy {
                scale_type: proto::scaling_policy::ScalingPolicyType::FixedNumSegments.into(),
                min_num_segments: SEGMENTS,
                ..Default::default()
            }),
            ..Default::default()
        };
        let status =
            reply(self.client.create_stream(config).await)?.context("the controller is gone")?.status();
        ensure!(matches!(status, Created::Success | Created::StreamExists), "creating a stream: {status:?}");
        Ok(())
    }

    /// The segments that take appends now.
    ///
    /// # Errors
    /// If the controller breaks a promise.
    pub(crate) async fn current(&mut self) -> Result<Option<Vec<Range>>> {
        let Some(current) = reply(self.client.get_current_segments(self.info()).await)? else {
            return Ok(None);
        };
        let mut found = ranges(current.segment_ranges)?;
        found.sort_by(|a, b| a.low.total_cmp(&b.low));
        let whole = found.first().is_some_and(|first| first.low.to_bits() == 0)
            && found.last().is_some_and(|last| last.high.to_bits() == 1.0_f64.to_bits())
            && found.windows(2).all(|two| two[0].high.to_bits() == two[1].low.to_bits());
        ensure!(whole, "{}: ranges with gaps or overlaps: {found:?}", self.name);
        Ok(Some(found))
    }

    /// The segments that follow `segment`; none as long as it is not sealed.
    ///
    /// # Errors
    /// If the controller breaks a promise.
    pub(crate) async fn successors(&mut self, segment: SegmentId) -> Result<Option<Vec<Range>>> {
        let id = proto::SegmentId { stream_info: Some(self.info()), segment_id: segment.raw() };
        let Some(found) = reply(self.client.get_segments_immediately_following(id).await)? else {
            return Ok(None);
        };
        ranges(found.segments.into_iter().filter_map(|entry| entry.segment).collect()).map(Some)
    }

    /// All segments from the stream's head to its tail, in the order of their ids.
    ///
    /// # Errors
    /// If the controller breaks a promise or is gone.
    pub(crate) async fn all(&mut self) -> Result<Vec<SegmentId>> {
        // Nothing is ever truncated, so the stream begins with the segments of its creation.
        let from = (0..SEGMENTS).map(|number| (SegmentId::new(number, 0).raw(), 0)).collect();
        let request = proto::StreamCutRange { stream_info: Some(self.info()), from, ..Default::default() };
        let found =
            reply(self.client.get_segments_between(request).await)?.context("the controller is gone")?;
        let mut ids: Vec<SegmentId> =
            found.segments.into_iter().map(|id| SegmentId::from_raw(id.segment_id)).collect();
        ids.sort_by_key(|id| id.raw());
        Ok(ids)
    }

    /// Replaces `sealed` by segments with the ranges `new`; the epoch it belongs to if the scale was started.
    ///
    /// # Errors
    /// If the controller breaks a promise.
    pub(crate) async fn scale(
        &mut self,
        sealed: &[Range],
        new: &[(f64, f64)],
    ) -> Result<Option<Option<i32>>> {
        let entry =
            |(start, end): &(f64, f64)| proto::scale_request::KeyRangeEntry { start: *start, end: *end };
        let request = proto::ScaleRequest {
            stream_info: Some(self.info()),
            sealed_segments: sealed.iter().map(|range| range.id.raw()).collect(),
            new_key_ranges: new.iter().map(entry).collect(),
            scale_timestamp: 0,
        };
        let Some(answer) = reply(self.client.scale(request).await)? else { return Ok(None) };
        match answer.status() {
            Started::Started => Ok(Some(Some(answer.epoch))),
            Started::PreconditionFailed | Started::Failure => Ok(Some(None)),
        }
    }

    /// Whether the scale of `epoch` is done.
    ///
    /// # Errors
    /// If the controller breaks a promise.
    pub(crate) async fn is_scaled(&mut self, epoch: i32) -> Result<Option<bool>> {
        let request = proto::ScaleStatusRequest { stream_info: Some(self.info()), epoch };
        let Some(answer) = reply(self.client.check_scale(request).await)? else { return Ok(None) };
        match answer.status() {
            Scaled::Success => Ok(Some(true)),
            Scaled::InProgress => Ok(Some(false)),
            other => bail!("checking the scale of epoch {epoch}: {other:?}"),
        }
    }

    /// Begins a transaction: its id and the segments that it may write to.
    ///
    /// # Errors
    /// If the controller breaks a promise.
    pub(crate) async fn begin(&mut self, lease: Duration) -> Result<Option<(Uuid, Vec<Range>)>> {
        let request = proto::CreateTxnRequest {
            stream_info: Some(self.info()),
            lease: i64::try_from(lease.as_millis())?,
            scale_grace_period: 0,
        };
        let Some(begun) = reply(self.client.create_transaction(request).await)? else { return Ok(None) };
        let id = begun.txn_id.context("a transaction has an id")?;
        let bits = (u128::from(id.high_bits.cast_unsigned()) << 64) | u128::from(id.low_bits.cast_unsigned());
        Ok(Some((Uuid(bits), ranges(begun.active_segments)?)))
    }

    fn transaction(&self, id: Uuid) -> proto::TxnRequest {
        let half = |bits: u128| u64::try_from(bits & u128::from(u64::MAX)).unwrap_or_default().cast_signed();
        proto::TxnRequest {
            stream_info: Some(self.info()),
            txn_id: Some(proto::TxnId { high_bits: half(id.0 >> 64), low_bits: half(id.0) }),
            writer_id: String::new(),
            timestamp: i64::MIN,
        }
    }

    /// Asks for a commit, or an abort; whether the controller took it.
    ///
    /// # Errors
    /// If the controller breaks a promise.
    pub(crate) async fn end(&mut self, id: Uuid, commit: bool) -> Result<Option<bool>> {
        let request = self.transaction(id);
        let answer = if commit {
            self.client.commit_transaction(request).await
        } else {
            self.client.abort_transaction(request).await
        };
        Ok(reply(answer)?.map(|answer| answer.status() == proto::txn_status::Status::Success))
    }

    /// The state of a transaction.
    ///
    /// # Errors
    /// If the controller breaks a promise.
    pub(crate) async fn state(&mut self, id: Uuid) -> Result<Option<proto::txn_state::State>> {
        Ok(reply(self.client.check_transaction_state(self.transaction(id)).await)?
            .map(|answer| answer.state()))
    }
}
