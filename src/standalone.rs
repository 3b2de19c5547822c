//! Controller and segment store in one process: the only file that names concrete types across crates.
//!
//! It builds bottom-up (store, controller, REST) and stops top-down, so that nothing is ever called before it can
//! answer or after it has gone.

use crate::cli::CliError;
use crate::config::Config;
use std::io::Write;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::Instant;
use tracing::info;

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

/// Runs a standalone server until SIGTERM or SIGINT.
pub(crate) async fn run(config: Config) -> Result<(), CliError> {
    let started = Instant::now();
    start_log();
    info!(config = config.describe(), "starting");
    let mut terminate = signal(SignalKind::terminate()).map_err(server_error)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(server_error)?;
    let ready = Ready {
        advertise: &config.advertise,
        controller: config.listen_controller,
        store: config.listen_store,
        rest: config.listen_rest,
        data: &config.data,
        within: started.elapsed(),
    };
    announce(&ready)?;
    // Either ends the server; neither repeats often enough to starve the other.
    tokio::select! {
        biased;
        _ = terminate.recv() => info!("stopping on SIGTERM"),
        _ = interrupt.recv() => info!("stopping on SIGINT"),
    }
    Ok(())
}

fn announce(ready: &Ready<'_>) -> Result<(), CliError> {
    let mut out = std::io::stdout().lock();
    out.write_all(ready.lines().as_bytes()).and_then(|()| out.flush()).map_err(CliError::Output)
}

/// Logs to standard error, from `info` up unless `RUST_LOG` says otherwise.
fn start_log() {
    let filter = tracing_subscriber::EnvFilter::try_from_default_env()
        .unwrap_or_else(|_unset| tracing_subscriber::EnvFilter::new("info"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
}

fn server_error(error: impl std::error::Error) -> CliError {
    CliError::Server(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

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
