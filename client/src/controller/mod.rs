//! Calls to the controller, each with its outcomes as types and its failures classified.
//!
//! A call whose answer was lost is made again: every call here is safe to repeat. What the controller refuses is
//! returned at once and never tried again.

mod scope;
mod segment;
mod settings;
mod stream;

pub use scope::Page;
pub use segment::{SegmentWithRange, Successor};
pub use settings::{Retention, Scaling, StreamSettings};

use crate::config::{ClientConfig, RetryPolicy};
use dhara_stdx::Retry;
use dhara_wire::controller::controller_service_client::ControllerServiceClient;
use dhara_wire::controller::{ScopeInfo, StreamInfo};
use dhara_wire::name::StreamName;
use std::time::Duration;
use tokio::time::Instant;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Response, Status};
use tracing::debug;

type Service = ControllerServiceClient<Channel>;

/// How often a call is made whose failure may well be the caller's fault: Pravega answers bad arguments with the same
/// codes as trouble of its own.
const DOUBTFUL_ATTEMPTS_MAX: u32 = 4;

/// Why a controller did not do as asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ControllerError {
    /// The URI has another form than `tcp://host:port`.
    #[error("controller URI {uri:?} is not tcp://host:port")]
    Uri {
        /// The URI as given.
        uri: String,
    },
    /// Nobody answers there.
    #[error("connecting to controller {uri}")]
    Connect {
        /// The controller's URI.
        uri: String,
        /// What the transport says.
        #[source]
        source: Box<tonic::transport::Error>,
    },
    /// The call ended with a gRPC error.
    #[error("calling {rpc}: {} ({:?})", status.message(), status.code())]
    Call {
        /// The call.
        rpc: &'static str,
        /// Its status.
        status: Box<Status>,
    },
    /// The controller answered that it will not.
    #[error("{subject}: {refusal}")]
    Refused {
        /// What was to be changed or asked about.
        subject: String,
        /// Why not.
        refusal: Refusal,
    },
    /// The answer lacks what the protocol promises.
    #[error("answer of {rpc} lacks {what}")]
    Malformed {
        /// The call.
        rpc: &'static str,
        /// What it lacks.
        what: &'static str,
    },
}

/// Why a controller refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// Trouble of the controller's own.
    #[error("the controller could not do it now")]
    Failure,
    /// There is no such scope.
    #[error("scope does not exist")]
    ScopeNotFound,
    /// There is no such stream.
    #[error("stream does not exist")]
    StreamNotFound,
    /// The name breaks the rules.
    #[error("name is not allowed")]
    InvalidName,
    /// The stream takes no more changes.
    #[error("stream is sealed")]
    Sealed,
    /// Only a sealed stream can be deleted.
    #[error("stream is not sealed")]
    NotSealed,
    /// Only an empty scope can be deleted.
    #[error("scope is not empty")]
    NotEmpty,
    /// The segments named are not those that take appends now, or too few would remain.
    #[error("segments are not current, or too few would remain")]
    NotCurrent,
    /// The request makes no sense to the controller.
    #[error("request is not valid")]
    Invalid,
}

impl ControllerError {
    /// Whether the same call may be made again.
    pub fn retry(&self) -> Retry {
        match self {
            Self::Connect { .. } | Self::Refused { refusal: Refusal::Failure, .. } => Retry::Safe,
            Self::Call { status, .. } => match patience(status.code()) {
                Patience::None => Retry::Never,
                Patience::Some | Patience::Full => Retry::Unknown,
            },
            Self::Uri { .. } | Self::Malformed { .. } | Self::Refused { .. } => Retry::Never,
        }
    }

    /// Whether the controller says that the scope or stream asked about is not there.
    pub fn is_not_found(&self) -> bool {
        match self {
            Self::Call { status, .. } => status.code() == Code::NotFound,
            Self::Refused { refusal, .. } => {
                matches!(refusal, Refusal::ScopeNotFound | Refusal::StreamNotFound)
            }
            _ => false,
        }
    }
}

/// A connection to a controller. Clones share it.
#[derive(Clone, Debug)]
pub struct Controller {
    service: Service,
    retry: RetryPolicy,
    request_timeout: Duration,
}

impl Controller {
    /// Connects to the controller at `uri`, which is `tcp://host:port`.
    ///
    /// # Errors
    /// [`ControllerError::Uri`] or [`ControllerError::Connect`]; a first connection is tried once.
    /// # Cancel safety
    /// Dropped early: no connection is left.
    pub(crate) async fn connect(uri: &str, config: &ClientConfig) -> Result<Self, ControllerError> {
        let malformed = || ControllerError::Uri { uri: uri.to_owned() };
        let address = uri.strip_prefix("tcp://").or_else(|| uri.strip_prefix("pravega://"));
        let address = address.map(|address| address.trim_end_matches('/'));
        let address = address.filter(|address| !address.is_empty()).ok_or_else(malformed)?;
        let endpoint = Endpoint::from_shared(format!("http://{address}")).map_err(|_any| malformed())?;
        let endpoint = endpoint.connect_timeout(config.connect_timeout).tcp_nodelay(true);
        let channel = endpoint
            .connect()
            .await
            .map_err(|source| ControllerError::Connect { uri: uri.to_owned(), source: Box::new(source) })?;
        Ok(Self {
            service: ControllerServiceClient::new(channel),
            retry: config.retry.clone(),
            request_timeout: config.request_timeout,
        })
    }

    /// Makes a call until it is answered, refused, or tried for too long.
    async fn call<T, F>(
        &self,
        rpc: &'static str,
        call: impl Fn(Service) -> F + Send,
    ) -> Result<T, ControllerError>
    where
        F: Future<Output = Result<Response<T>, Status>> + Send,
        T: Send,
    {
        let started = Instant::now();
        let mut failed = 0;
        loop {
            let answer = tokio::time::timeout(self.request_timeout, call(self.service.clone())).await;
            let status = match answer {
                Ok(Ok(response)) => return Ok(response.into_inner()),
                Ok(Err(status)) => status,
                Err(_elapsed) => Status::deadline_exceeded("no answer in time"),
            };
            failed += 1;
            let again = match patience(status.code()) {
                Patience::None => false,
                Patience::Some => failed < DOUBTFUL_ATTEMPTS_MAX,
                Patience::Full => true,
            };
            if !again || started.elapsed() >= self.retry.give_up_after {
                return Err(ControllerError::Call { rpc, status: Box::new(status) });
            }
            debug!(rpc, failed, code = ?status.code(), "controller call is made again");
            tokio::time::sleep(self.retry.pause(failed)).await;
        }
    }
}

enum Patience {
    None,
    Some,
    Full,
}

fn patience(code: Code) -> Patience {
    match code {
        Code::Ok
        | Code::AlreadyExists
        | Code::InvalidArgument
        | Code::NotFound
        | Code::OutOfRange
        | Code::PermissionDenied
        | Code::Unauthenticated
        | Code::Unimplemented => Patience::None,
        Code::Unknown | Code::Internal => Patience::Some,
        _ => Patience::Full,
    }
}

fn refused<T>(subject: &(impl ToString + ?Sized), refusal: Refusal) -> Result<T, ControllerError> {
    Err(ControllerError::Refused { subject: subject.to_string(), refusal })
}

/// Turns the status of a missing stream into the refusal that other calls answer with.
fn found<T>(stream: &StreamName, answer: Result<T, ControllerError>) -> Result<T, ControllerError> {
    match answer {
        Err(error) if error.is_not_found() => refused(stream, Refusal::StreamNotFound),
        answer => answer,
    }
}

fn scope_info(scope: &str) -> ScopeInfo {
    ScopeInfo { scope: scope.to_owned() }
}

fn stream_info(stream: &StreamName) -> StreamInfo {
    StreamInfo { scope: stream.scope.clone(), stream: stream.stream.clone(), ..StreamInfo::default() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dhara_stdx::net;
    use std::net::SocketAddr;

    #[tokio::test]
    async fn lost_controller_is_called_until_patience_ends() {
        let listener = net::listen(SocketAddr::from(([127, 0, 0, 1], 0))).await.unwrap();
        let uri = format!("tcp://{}", listener.local_addr().unwrap());
        let give_up_after = Duration::from_millis(200);
        let retry = RetryPolicy { give_up_after, ..RetryPolicy::default() };
        let config = ClientConfig { retry, ..ClientConfig::default() };
        let (controller, accepted) = tokio::join!(Controller::connect(&uri, &config), net::accept(&listener));
        drop((accepted.unwrap(), listener));
        let started = Instant::now();
        let error = controller.unwrap().scope_exists("sc").await.unwrap_err();
        assert!(matches!(error, ControllerError::Call { .. }), "{error}");
        assert_eq!(error.retry(), Retry::Unknown, "{error}");
        assert!(started.elapsed() >= give_up_after, "{error}");
    }

    #[tokio::test]
    async fn uri_without_scheme_or_host_is_refused() {
        for uri in ["", "127.0.0.1:9090", "http://127.0.0.1:9090", "tcp://", "tcp://a b"] {
            let refused = Controller::connect(uri, &ClientConfig::default()).await;
            assert!(matches!(refused, Err(ControllerError::Uri { .. })), "{uri}");
        }
    }
}
