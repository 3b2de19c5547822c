//! The local S3 server by itself, for trying and measuring: kept in memory, gone when it ends.

use anyhow::Result;
use clap::Parser;
use dhara_tests::s3::{BUCKET, S3Server};
use std::time::Duration;

/// Serves S3 on a free port of this machine until it is ended; what it holds is kept in memory.
///
/// It takes any key for good: AWS_ACCESS_KEY_ID=x AWS_SECRET_ACCESS_KEY=x dhara standalone --object-store s3://bucket
/// --object-store-endpoint ENDPOINT --object-store-allow-http
#[derive(Parser)]
struct Arguments {
    /// How long each call waits before it is carried out, milliseconds.
    #[arg(long, default_value_t = 0)]
    latency_ms: u64,
}

#[tokio::main]
#[allow(clippy::print_stdout, reason = "a program whose purpose is to print")]
async fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let server = S3Server::start().await?;
    server.knobs().latency = Duration::from_millis(arguments.latency_ms);
    println!("ready endpoint={} bucket={BUCKET}", server.endpoint());
    Ok(tokio::signal::ctrl_c().await?)
}
