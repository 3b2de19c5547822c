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
    /// Where long-term storage is: a folder, s3://bucket/prefix, gs://bucket/prefix or az://container/prefix
    /// [default: the folder `tier` in the data folder].
    #[arg(long, value_name = "URL")]
    object_store: Option<String>,
    /// Address of the object store instead of the provider's own, for example https://minio:9000.
    #[arg(long, value_name = "URL")]
    object_store_endpoint: Option<String>,
    /// Region of an S3 bucket.
    #[arg(long, value_name = "NAME")]
    object_store_region: Option<String>,
    /// Lets keys and data pass in the clear to an http:// endpoint.
    #[arg(long, num_args = 0..=1, default_missing_value = "true", value_name = "BOOL")]
    object_store_allow_http: Option<bool>,
    /// Age in seconds at which bytes go to long-term storage at the latest [default: 120].
    #[arg(long, value_name = "SECONDS")]
    tier_after: Option<u32>,
    /// Most bytes of objects kept in memory in case they are read again [default: 256MiB].
    #[arg(long, value_name = "SIZE")]
    read_cache: Option<ByteSize>,
    /// TOML file with the same settings, for example `listen-store = "0.0.0.0:12345"`.
    #[arg(long, value_name = "FILE", env = "DHARA_CONFIG")]
    config: Option<PathBuf>,
}

impl ServerFlags {
    pub(super) async fn run(self) -> Result<(), CliError> {
        standalone::run(self.config()?).await
    }

    pub(super) fn config(self) -> Result<Config, CliError> {
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
            object_store: self.object_store,
            object_store_endpoint: self.object_store_endpoint,
            object_store_region: self.object_store_region,
            object_store_allow_http: self.object_store_allow_http,
            tier_after: self.tier_after,
            read_cache: self.read_cache,
        };
        Ok(Config::resolve(file, environment, flags)?)
    }
}
