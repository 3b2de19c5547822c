//! A Dhara server of the benchmark's own, when no other one is to be measured.

use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

/// A running server; it ends with this value.
#[derive(Debug)]
pub struct Server {
    process: Child,
    /// The controller's URI.
    pub controller: String,
    /// Host and port of the segment store.
    pub store: String,
}

impl Server {
    /// Starts the `dhara` binary beside this one, with its data in `dir`.
    ///
    /// # Errors
    /// If there is none, or it does not get ready.
    pub async fn start(dir: &Path) -> Result<Self> {
        Self::start_binary(&beside()?, dir, &[]).await
    }

    /// Starts `dhara` with its data in `dir` and further `settings` of its `standalone` command.
    ///
    /// # Errors
    /// If there is none, or it does not get ready.
    pub async fn start_binary(dhara: &Path, dir: &Path, settings: &[String]) -> Result<Self> {
        let mut process = Command::new(dhara)
            .arg("standalone")
            .args(["--listen-controller", "127.0.0.1:0", "--listen-store", "127.0.0.1:0"])
            .args(["--listen-rest", "127.0.0.1:0", "--data"])
            .arg(dir)
            .args(settings)
            .env("RUST_LOG", "warn")
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("starting {}; build it with the same profile first", dhara.display()))?;
        let output = process.stdout.take().context("no standard output")?;
        let mut lines = BufReader::new(output).lines();
        while let Some(line) = lines.next_line().await? {
            let Some(ready) = line.strip_prefix("ready ") else { continue };
            let field = |name| ready.split(' ').find_map(|word| word.strip_prefix(name).map(str::to_owned));
            let controller = field("controller=").context("no controller in the ready line")?;
            let store = field("store=").context("no store in the ready line")?;
            return Ok(Self { process, controller, store });
        }
        bail!("{} did not get ready", dhara.display());
    }

    /// The server's process id, while it runs.
    pub fn id(&self) -> Option<u32> {
        self.process.id()
    }

    /// Memory that the server's process holds now, and the most it ever held, in bytes, mapped files included; `None`
    /// where the system does not tell.
    pub fn resident_bytes(&self) -> Option<(u64, u64)> {
        resident(&std::fs::read_to_string(format!("/proc/{}/status", self.id()?)).ok()?)
    }

    /// Ends the server at once, as a crash of its process would.
    ///
    /// # Errors
    /// Whatever the system answers.
    pub async fn stop(mut self) -> Result<()> {
        Ok(self.process.kill().await?)
    }
}

/// Where the `dhara` binary is that was built together with this one.
///
/// # Errors
/// If the system does not tell where this one is.
pub fn beside() -> Result<PathBuf> {
    Ok(std::env::current_exe()?.with_file_name("dhara"))
}

fn resident(status: &str) -> Option<(u64, u64)> {
    let kib = |name| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next()?.parse::<u64>().ok()
    };
    Some((kib("VmRSS:")? * 1024, kib("VmHWM:")? * 1024))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resident_memory_is_read_in_bytes() {
        let status = "Name:\tdhara\nVmHWM:\t    2048 kB\nVmRSS:\t    1024 kB\n";
        assert_eq!(resident(status), Some((1 << 20, 2 << 20)));
        assert_eq!(resident("Name:\tdhara\n"), None);
    }
}
