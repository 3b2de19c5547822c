//! Serves a controller in front of a running segment store: `serve STORE_HOST:PORT [CONTROLLER_PORT [REST_PORT]]`.

#![allow(clippy::print_stdout, reason = "the ports are what it is started for")]

use std::net::SocketAddr;

use anyhow::Context;
use dhara_controller::{ControllerConfig, HostPort, start};
use dhara_stdx::{SystemClock, SystemEntropy};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let store = arguments.next().context("usage: serve STORE_HOST:PORT [CONTROLLER_PORT [REST_PORT]]")?;
    let (host, port) = store.rsplit_once(':').context("the store is HOST:PORT")?;
    let mut config = ControllerConfig::local(HostPort { host: host.to_owned(), port: port.parse()? }, 4);
    let mut address = || -> anyhow::Result<SocketAddr> {
        let port = arguments.next().map_or(Ok(0), |port| port.parse())?;
        Ok(SocketAddr::from(([127, 0, 0, 1], port)))
    };
    config.listen = address()?;
    config.rest_listen = address()?;
    let handle = start(config, SystemClock::handle(), SystemEntropy::handle()?).await?;
    println!("ready controller={} rest={}", handle.local_addr(), handle.rest_addr());
    tokio::signal::ctrl_c().await?;
    handle.shutdown().await;
    Ok(())
}
