//! `dhara standalone`: the server's flags, as the topmost layer of its configuration.

use super::CliError;
use crate::config::{ByteSize, Config, Layer};
use crate::standalone;
use clap::Args;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Flags of `dhara standalone`. Each also reads `DHARA_<NAME>` and the file given by `--config`; a flag wins.
#[derive(Args, Clone, Debug)]
pub(crate) struct ServerFlags {
    /// Folder of all data [default: ./dhara-data].
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Where the controller listens [default: 127.0.0.1:9090]; port 0 takes a free one.
    #[arg(long, value_name = "ADDR")]
    listen_controller: Option<SocketAddr>,
    /// Where the segment store listens [default: 127.0.0.1:12345]; port 0 takes a free one.
    #[arg(long, value_name = "ADDR")]
    listen_store: Option<SocketAddr>,
    /// Where REST and health listen [default: 127.0.0.1:10080]; port 0 takes a free one.
    #[arg(long, value_name = "ADDR")]
    listen_rest: Option<SocketAddr>,
    /// Host that clients are told to connect to.
    #[arg(long, value_name = "HOST")]
    advertise: Option<String>,
    /// Number of containers of a new data folder, 1 to 512 [default: 1].
    #[arg(long, value_name = "COUNT")]
    containers: Option<u16>,
    /// Most bytes of log on disk [default: 16GiB].
    #[arg(long, value_name = "SIZE")]
    log_budget: Option<ByteSize>,
    /// TOML file with the same settings, for example `listen-store = "0.0.0.0:12345"`.
    #[arg(long, value_name = "FILE", env = "DHARA_CONFIG")]
    config: Option<PathBuf>,
}

impl ServerFlags {
    pub(super) async fn run(self) -> Result<(), CliError> {
        standalone::run(self.config()?).await
    }

    fn config(self) -> Result<Config, CliError> {
        let file = self.config.as_deref().map(Layer::from_file).transpose()?.unwrap_or_default();
        let environment = Layer::from_environment(|name| std::env::var(name).ok())?;
        let flags = Layer {
            data: self.data,
            listen_controller: self.listen_controller,
            listen_store: self.listen_store,
            listen_rest: self.listen_rest,
            advertise: self.advertise,
            containers: self.containers,
            log_budget: self.log_budget,
        };
        Ok(Config::resolve(file, environment, flags)?)
    }
}
