//! Controller and segment store in one process: the only file that names concrete types across crates.
//!
//! It builds bottom-up (store, controller, REST) and stops top-down, so that nothing is ever called before it can
//! answer or after it has gone.

use crate::cli::CliError;
use crate::config::Config;
use dhara_controller::{ControllerConfig, ControllerHandle, HostPort, StartError};
use dhara_segmentstore::container::Rules;
use dhara_segmentstore::read::ReadConfig;
use dhara_segmentstore::store::{Seams, SegmentStore, StoreConfig};
use dhara_segmentstore::tier::BackendOptions;
use dhara_stdx::chain;
use dhara_stdx::clock::SystemClock;
use dhara_stdx::disk::RealDisk;
use dhara_stdx::entropy::SystemEntropy;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::error::Error;
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::Instant;
use tracing::{info, warn};

/// Where a server that is ready can be reached.
#[derive(Clone, Debug)]
struct Ready<'a> {
    advertise: &'a str,
    controller: SocketAddr,
    store: SocketAddr,
    rest: SocketAddr,
    data: &'a Path,
    within: Duration,
}

impl Ready<'_> {
    /// The two lines that scripts wait for: our own, and the one that Pravega's tools know.
    fn lines(&self) -> String {
        let host = self.advertise;
        format!(
            "ready controller=tcp://{host}:{} store={host}:{} rest=http://{host}:{} data={} in {} ms\n\
             Controller Services started successfully.\n",
            self.controller.port(),
            self.store.port(),
            self.rest.port(),
            self.data.display(),
            self.within.as_millis(),
        )
    }
}

/// How long a server that stops waits for calls of the controller that are under way.
const LAST_CALLS: Duration = Duration::from_secs(2);

/// Runs a standalone server until SIGTERM or SIGINT.
pub(crate) async fn run(config: Config) -> Result<(), CliError> {
    let started = Instant::now();
    start_log(&config);
    raise_open_files();
    let mut signals = Signals::listen().map_err(server_error)?;
    let seams = seams()?;
    let store_config = store_config(&config);
    // A start waits for an object store that is away, and must end all the same when it is asked to.
    let store = tokio::select! { biased;
        signal = signals.next() => {
            stopped_early(signal);
            return Ok(());
        }
        store = SegmentStore::start(&store_config, seams.clone()) => store.map_err(server_error)?,
    };
    let controller = tokio::select! { biased;
        signal = signals.next() => {
            store.stop().await;
            stopped_early(signal);
            return Ok(());
        }
        controller = start_controller(&config, &store, &seams) => controller,
    };
    let controller = match controller {
        Ok(controller) => controller,
        Err(error) => {
            store.stop().await;
            return Err(server_error(error));
        }
    };
    announce(&Ready {
        advertise: &config.advertise,
        controller: controller.local_addr(),
        store: store.local_addr(),
        rest: controller.rest_addr(),
        data: &config.data,
        within: started.elapsed(),
    })?;
    let failed = until_ended(&store, &mut signals).await;
    stop(controller, store, signals).await;
    failed.map_or(Ok(()), |why| Err(CliError::Server(why)))
}

/// Stops top-down, unless a second signal wants it at once.
async fn stop(controller: ControllerHandle, store: SegmentStore, mut signals: Signals) {
    let stopping = async {
        stop_controller(controller).await;
        store.stop().await;
    };
    tokio::select! { biased;
        () = stopping => info!("stopped"),
        // What was acknowledged is in the log; the next start does what this stop has not.
        signal = signals.next() => warn!(signal, "ends at once"),
    }
}

/// A peer that says nothing any more must not keep the store from its last flush; the controller ends all the same.
async fn stop_controller(controller: ControllerHandle) {
    if tokio::time::timeout(LAST_CALLS, controller.shutdown()).await.is_err() {
        info!("some peers of the controller did not leave in time");
    }
}

/// The real world.
pub(crate) fn seams() -> Result<Seams, CliError> {
    let entropy = SystemEntropy::handle().map_err(server_error)?;
    Ok(Seams { disk: Arc::new(RealDisk), clock: SystemClock::handle(), entropy })
}

/// Starts the controller, which reaches the store as every client does.
async fn start_controller(
    config: &Config,
    store: &SegmentStore,
    seams: &Seams,
) -> Result<ControllerHandle, StartError> {
    let at_store = HostPort { host: config.advertise.clone(), port: store.local_addr().port() };
    let (_, each_service) = connections(open_files());
    let controller_config = ControllerConfig {
        // What is advertised is for others: from here it may lead nowhere, or to another server.
        store_here: Some(vec![here(store.local_addr())]),
        connections_max: each_service,
        listen: config.listen_controller,
        rest_listen: config.listen_rest,
        advertise_host: config.advertise.clone(),
        ..ControllerConfig::local(at_store, config.containers)
    };
    dhara_controller::start(controller_config, Arc::clone(&seams.clock), Arc::clone(&seams.entropy)).await
}

/// A port of this machine, as this process reaches it.
fn here(address: SocketAddr) -> HostPort {
    let ip = match address.ip() {
        IpAddr::V4(any) if any.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(any) if any.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    let host = if ip.is_ipv6() { format!("[{ip}]") } else { ip.to_string() };
    HostPort { host, port: address.port() }
}

/// The signals that ask the server to stop.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn listen() -> std::io::Result<Self> {
        let (terminate, interrupt) = (SignalKind::terminate(), SignalKind::interrupt());
        Ok(Self { terminate: signal(terminate)?, interrupt: signal(interrupt)? })
    }

    /// Waits for one; its name.
    async fn next(&mut self) -> &'static str {
        tokio::select! { biased;
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }
}

fn stopped_early(signal: &'static str) {
    info!(signal, "stopped before the server was ready");
}

/// Waits until the store fails, and says why, or a signal comes.
async fn until_ended(store: &SegmentStore, signals: &mut Signals) -> Option<String> {
    // Each of these ends the server; none repeats often enough to starve another.
    let (ended, failed) = tokio::select! {
        biased;
        why = store.failed() => ("a failure of the segment store", Some(why)),
        signal = signals.next() => (signal, None),
    };
    info!(on = ended, "stopping");
    failed
}

/// How the segment store is set up by the server's settings.
pub(crate) fn store_config(config: &Config) -> StoreConfig {
    /// Bytes of index blocks kept in memory.
    const INDEX_CACHE_BYTES: usize = 256 << 20;
    StoreConfig {
        data: config.data.clone(),
        listen: config.listen_store,
        containers: config.containers,
        log_budget_bytes: config.log_budget.bytes(),
        object_store: config.object_store.clone(),
        backend: BackendOptions {
            endpoint: config.object_store_endpoint.clone(),
            region: config.object_store_region.clone(),
            allow_http: config.object_store_allow_http,
            ..BackendOptions::default()
        },
        rules: Rules { age: Duration::from_secs(config.tier_after.into()), ..Rules::default() },
        read: ReadConfig::of_cache(config.read_cache.bytes()),
        index_cache_bytes: INDEX_CACHE_BYTES,
        connections_max: connections(open_files()).0,
    }
}

/// Files that this process may have open; `None` for as many as it likes.
fn open_files() -> Option<u64> {
    getrlimit(Resource::Nofile).current
}

/// Asks for as many open files as the system lets a process have; usually it gives far fewer unasked.
fn raise_open_files() {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current != maximum
        && let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })
    {
        warn!(%error, "the limit of open files stays as it is");
    }
}

/// Connections to the store and to each service of the controller at one time: 50,000 and 10,000, or what the limit of open
/// files leaves beside our own.
fn connections(open_files: Option<u64>) -> (usize, usize) {
    const OWN_FILES: u64 = 512;
    let left = open_files.map_or(u64::MAX, |files| files.saturating_sub(OWN_FILES));
    let share =
        |of: u64, most: u64| usize::try_from((left / 8).saturating_mul(of).clamp(16, most)).unwrap_or(16);
    (share(6, 50_000), share(1, 10_000))
}

fn announce(ready: &Ready<'_>) -> Result<(), CliError> {
    let mut out = std::io::stdout().lock();
    out.write_all(ready.lines().as_bytes()).and_then(|()| out.flush()).map_err(CliError::Output)
}

/// Logs to standard error, from `info` up unless `RUST_LOG` says otherwise, and first of all what the server runs with.
fn start_log(config: &Config) {
    let filter = tracing_subscriber::EnvFilter::try_from_default_env()
        .unwrap_or_else(|_unset| tracing_subscriber::EnvFilter::new("info"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    info!(config = config.describe(), "starting");
}

/// One line that says what was being done and why it did not work, down to the cause.
fn server_error(error: impl Error) -> CliError {
    CliError::Server(chain(&error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_stay_below_the_limit_of_open_files() {
        assert_eq!(connections(Some(1024)), (384, 64));
        assert_eq!(connections(Some(100)), (16, 16));
        assert_eq!(connections(Some(1 << 20)), (50_000, 10_000));
        assert_eq!(connections(None), (50_000, 10_000));
    }

    #[test]
    fn store_is_reached_here_wherever_it_listens() {
        for (listens, reached) in [
            ("127.0.0.1:1", "127.0.0.1:1"),
            ("0.0.0.0:2", "127.0.0.1:2"),
            ("[::]:3", "[::1]:3"),
            ("10.1.2.3:4", "10.1.2.3:4"),
        ] {
            assert_eq!(here(listens.parse().unwrap()).to_string(), reached);
        }
    }

    #[test]
    fn ready_line_has_the_documented_form() {
        let at = |port| SocketAddr::from(([127, 0, 0, 1], port));
        let ready = Ready {
            advertise: "127.0.0.1",
            controller: at(9090),
            store: at(12345),
            rest: at(10080),
            data: Path::new("./dhara-data"),
            within: Duration::from_millis(43),
        };
        assert_eq!(
            ready.lines(),
            "ready controller=tcp://127.0.0.1:9090 store=127.0.0.1:12345 rest=http://127.0.0.1:10080 \
             data=./dhara-data in 43 ms\nController Services started successfully.\n"
        );
    }
}
