//! One running controller: built from the bottom up, stopped from the top down.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use dhara_stdx::{Clock, Entropy, net};
use dhara_wire::controller::controller_service_server::ControllerServiceServer;
use futures_util::future::BoxFuture;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tonic::transport::Server;
use tracing::{error, info};

use crate::background;
use crate::config::{ControllerConfig, HostPort};
use crate::error::StartError;
use crate::incoming::Incoming;
use crate::rest;
use crate::rpc::Rpc;
use crate::segment_client::WireSegmentClient;
use crate::service::Service;
use crate::store::Store;
use crate::workflow::Engine;

/// After how much silence a client is asked for a sign of life.
const SILENT_FOR: Duration = Duration::from_mins(1);
/// And how long it may take to give one.
const ANSWER_WITHIN: Duration = Duration::from_secs(20);

/// A running controller. Dropping the handle stops it without waiting.
#[derive(Debug)]
pub struct ControllerHandle {
    local_addr: SocketAddr,
    rest_addr: SocketAddr,
    serving: CancellationToken,
    working: CancellationToken,
    servers: TaskTracker,
    background: TaskTracker,
    rpc: Rpc,
    engine: Arc<Engine>,
}

impl ControllerHandle {
    /// Address of the gRPC service.
    pub fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    /// Address of the REST service.
    pub fn rest_addr(&self) -> SocketAddr {
        self.rest_addr
    }

    /// Stops: no new calls, those under way are answered or cut off by their clients, then the work stops where it
    /// is. What is unfinished goes on at the next start.
    ///
    /// # Cancel safety
    /// Dropped early: the controller stops all the same, unwatched.
    pub async fn shutdown(self) {
        self.serving.cancel();
        self.working.cancel();
        self.servers.close();
        self.servers.wait().await;
        self.rpc.ended().await;
        self.engine.ended().await;
        self.background.close();
        self.background.wait().await;
        info!("controller stopped");
    }
}

impl Drop for ControllerHandle {
    fn drop(&mut self) {
        self.serving.cancel();
        self.working.cancel();
    }
}

/// Starts a controller: takes its ports, prepares the tables, takes up what a crash has left behind, then serves.
///
/// # Errors
/// [`StartError`] if a setting is wrong, a port is taken, or the tables cannot be prepared within half a minute.
/// # Cancel safety
/// Dropped early: nothing is left running.
pub fn start(
    config: ControllerConfig,
    clock: Arc<dyn Clock>,
    entropy: Arc<dyn Entropy>,
) -> BoxFuture<'static, Result<ControllerHandle, StartError>> {
    // Boxed here, so that this crate alone compiles what is behind it, and not each that calls it once more.
    Box::pin(start_all(config, clock, entropy))
}

async fn start_all(
    config: ControllerConfig,
    clock: Arc<dyn Clock>,
    entropy: Arc<dyn Entropy>,
) -> Result<ControllerHandle, StartError> {
    check(&config)?;
    let (listener, local_addr) = listen(config.listen).await?;
    let (rest_listener, rest_addr) = listen(config.rest_listen).await?;
    let hosts = config.store_here.as_ref().unwrap_or(&config.store).iter().map(HostPort::to_string);
    let client = Arc::new(WireSegmentClient::new(hosts, config.container_count));
    let store = Arc::new(Store::new(client, clock, entropy));
    store.prepare().await.map_err(|error| StartError::Tables(Box::new(error)))?;

    let (serving, working) = (CancellationToken::new(), CancellationToken::new());
    let engine = Arc::new(Engine::new(store, working.clone()));
    let background = TaskTracker::new();
    background::spawn(&engine, &background, &working, config.sweep_interval);
    let advertised = HostPort { host: config.advertise_host.clone(), port: local_addr.port() };
    let (call_time_max, connections_max) = (config.call_time_max, config.connections_max);
    let rpc = Rpc::new(Arc::new(Service::new(engine.clone(), config, advertised)), call_time_max);

    let servers = TaskTracker::new();
    servers.spawn(serve_rpc(Incoming::new(listener, connections_max), rpc.clone(), serving.clone()));
    servers.spawn(serve_rest(Incoming::new(rest_listener, connections_max), serving.clone()));
    info!(%local_addr, %rest_addr, "controller started");
    Ok(ControllerHandle { local_addr, rest_addr, serving, working, servers, background, rpc, engine })
}

fn check(config: &ControllerConfig) -> Result<(), StartError> {
    let wrong = |setting, value: String| Err(StartError::Setting { setting, value });
    // Rust clients cut a host name at an underscore.
    let plain = |c: char| c.is_ascii_alphanumeric() || "-.[]:".contains(c);
    if config.advertise_host.is_empty() || !config.advertise_host.chars().all(plain) {
        return wrong("advertise_host", config.advertise_host.clone());
    }
    if let Some(store) =
        config.store.iter().find(|store| store.host.is_empty() || !store.host.chars().all(plain))
    {
        return wrong("store", store.to_string());
    }
    if config.store.is_empty() {
        return wrong("store", String::new());
    }
    if config.container_count == 0 {
        return wrong("container_count", String::from("0"));
    }
    Ok(())
}

async fn listen(address: SocketAddr) -> Result<(TcpListener, SocketAddr), StartError> {
    let error = |source| StartError::Listen { address, source };
    let listener = net::listen(address).await.map_err(error)?;
    let local = listener.local_addr().map_err(error)?;
    Ok((listener, local))
}

async fn serve_rpc(incoming: Incoming, rpc: Rpc, stop: CancellationToken) {
    let service = ControllerServiceServer::new(rpc);
    let builder = Server::builder().http2_keepalive_interval(Some(SILENT_FOR));
    let builder = builder.http2_keepalive_timeout(Some(ANSWER_WITHIN));
    let server = builder.serve_with_incoming_shutdown(service, incoming.stream(), stop.cancelled_owned());
    if let Err(error) = server.await {
        error!(%error, "serving gRPC");
    }
}

async fn serve_rest(incoming: Incoming, stop: CancellationToken) {
    let server = axum::serve(incoming, rest::router()).with_graceful_shutdown(stop.cancelled_owned());
    if let Err(error) = server.await {
        error!(%error, "serving REST");
    }
}
