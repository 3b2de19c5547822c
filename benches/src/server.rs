//! A Dhara server of the benchmark's own, when no other one is to be measured.

use anyhow::{Context, Result, bail};
use std::path::Path;
use std::process::Stdio;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

/// A running server; it ends with this value.
#[derive(Debug)]
pub struct Server {
    process: Child,
    /// The controller's URI.
    pub controller: String,
}

impl Server {
    /// Starts the `dhara` binary beside this one, with its data in `dir`.
    ///
    /// # Errors
    /// If there is none, or it does not get ready.
    pub async fn start(dir: &Path) -> Result<Self> {
        let dhara = std::env::current_exe()?.with_file_name("dhara");
        let mut process = Command::new(&dhara)
            .arg("standalone")
            .args(["--listen-controller", "127.0.0.1:0", "--listen-store", "127.0.0.1:0"])
            .args(["--listen-rest", "127.0.0.1:0", "--data"])
            .arg(dir)
            .env("RUST_LOG", "warn")
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("starting {}; build it with the same profile first", dhara.display()))?;
        let output = process.stdout.take().context("no standard output")?;
        let mut lines = BufReader::new(output).lines();
        while let Some(line) = lines.next_line().await? {
            let ready = line.strip_prefix("ready ").and_then(|line| {
                line.split(' ').find_map(|word| word.strip_prefix("controller=").map(str::to_owned))
            });
            if let Some(controller) = ready {
                return Ok(Self { process, controller });
            }
        }
        bail!("{} did not get ready", dhara.display());
    }

    /// The server's process id, while it runs.
    pub fn id(&self) -> Option<u32> {
        self.process.id()
    }

    /// Ends the server.
    ///
    /// # Errors
    /// Whatever the system answers.
    pub async fn stop(mut self) -> Result<()> {
        Ok(self.process.kill().await?)
    }
}
