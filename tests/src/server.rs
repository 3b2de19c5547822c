//! A `dhara standalone` process under test.

use anyhow::{Context, Result, bail, ensure};
use parking_lot::Mutex;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::{Duration, SystemTime};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::{Child, ChildStdout, Command};
use tokio::time::{Instant, timeout};

/// How long a start may take before it counts as failed; generous, since a debug build may share its cores.
const START_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a graceful stop may take.
const STOP_TIMEOUT: Duration = Duration::from_secs(30);

/// A running server; killed when dropped.
pub struct Server {
    child: Child,
    output: BufReader<ChildStdout>,
    /// Controller, `HOST:PORT`.
    pub controller: String,
    /// Segment store, `HOST:PORT`.
    pub store: String,
    /// REST, `http://HOST:PORT`.
    pub rest: String,
    /// From exec to the ready line.
    pub ready_after: Duration,
}

/// The binary to test: `DHARA_BIN`, or the workspace's own, built first if it is older than its sources.
///
/// `cargo test --workspace` builds it before any test runs; asking cargo again for this package alone would build half of
/// the dependencies anew, with other features.
///
/// # Errors
/// If it cannot be built.
pub fn binary() -> Result<PathBuf> {
    static FOUND: Mutex<Option<PathBuf>> = Mutex::new(None);
    let mut found = FOUND.lock();
    if found.is_none() {
        *found = Some(find_or_build()?);
    }
    found.clone().context("found just now")
}

fn find_or_build() -> Result<PathBuf> {
    if let Some(path) = std::env::var_os("DHARA_BIN") {
        return Ok(PathBuf::from(path));
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("the workspace's root")?;
    // Test programs lie in <target>/<profile>/deps, programs in <target>/<profile>.
    let this = std::env::current_exe()?;
    let mut folder = this.parent().context("a program lies in a folder")?;
    if folder.ends_with("deps") {
        folder = folder.parent().context("deps lies in the profile's folder")?;
    }
    let built = folder.join("dhara");
    if let Ok(modified) = built.metadata().and_then(|metadata| metadata.modified())
        && modified > newest_source(root)?
    {
        return Ok(built);
    }
    let mut build = std::process::Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    build.current_dir(root).args(["build", "--quiet", "--package", "dhara", "--bin", "dhara"]);
    build.arg("--target-dir").arg(folder.parent().context("the profile lies in the target folder")?);
    if folder.ends_with("release") {
        build.arg("--release");
    }
    ensure!(build.status().context("running cargo")?.success(), "the server does not build");
    Ok(built)
}

/// When the newest file that the binary is built from was written.
fn newest_source(root: &Path) -> Result<SystemTime> {
    let parts = ["src", "stdx", "wire", "segmentstore", "controller", "client"];
    let mut folders: Vec<PathBuf> = parts.iter().map(|part| root.join(part)).collect();
    let mut newest = root.join("Cargo.lock").metadata()?.modified()?;
    while let Some(folder) = folders.pop() {
        for entry in folder.read_dir()? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                folders.push(entry.path());
            } else {
                newest = newest.max(entry.metadata()?.modified()?);
            }
        }
    }
    Ok(newest)
}

/// The arguments that start a server on free ports with its data in `data`.
pub fn arguments(data: &Path) -> Vec<String> {
    let mut arguments = vec!["standalone".to_owned(), "--data".to_owned(), data.display().to_string()];
    for listener in ["--listen-controller", "--listen-store", "--listen-rest"] {
        arguments.extend([listener.to_owned(), "127.0.0.1:0".to_owned()]);
    }
    arguments
}

impl Server {
    /// Starts `binary` on free ports with its data in `data`, and waits until it is ready.
    ///
    /// # Errors
    /// If it ends, or says something else, before it is ready.
    pub async fn start(binary: &Path, data: &Path) -> Result<Self> {
        Self::start_with(binary, data, &[], &[]).await
    }

    /// As [`Server::start`], with more arguments and environment variables.
    ///
    /// # Errors
    /// If it ends, or says something else, before it is ready.
    pub async fn start_with(
        binary: &Path,
        data: &Path,
        more: &[&str],
        environment: &[(&str, &str)],
    ) -> Result<Self> {
        Self::spawn(binary, data, more, environment)?.ready().await
    }

    /// As [`Server::start_with`], without waiting.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn spawn(
        binary: &Path,
        data: &Path,
        more: &[&str],
        environment: &[(&str, &str)],
    ) -> Result<Starting> {
        let start = Instant::now();
        let mut child = Command::new(binary)
            .args(arguments(data))
            .args(more)
            .env("RUST_LOG", std::env::var_os("RUST_LOG").unwrap_or_else(|| "warn".into()))
            .envs(environment.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("starting {}", binary.display()))?;
        let output = BufReader::new(child.stdout.take().context("standard output is piped")?);
        Ok(Starting { child, output, start })
    }
    /// The process id.
    ///
    /// # Errors
    /// If the process has ended.
    pub fn pid(&self) -> Result<u32> {
        self.child.id().context("the server has ended")
    }

    /// Ends the process as a power cut would: SIGKILL.
    ///
    /// # Errors
    /// If it cannot be waited for.
    pub async fn kill(mut self) -> Result<()> {
        self.child.kill().await.context("killing the server")
    }

    /// Asks it to stop by SIGTERM; returns its exit status and what it still printed.
    ///
    /// # Errors
    /// If it does not stop in time.
    pub async fn stop(self) -> Result<(ExitStatus, String)> {
        terminate(self.child, self.output).await
    }

    /// Resident memory, KiB.
    ///
    /// # Errors
    /// If the system does not tell.
    pub fn resident_kib(&self) -> Result<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid()?))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
        Ok(line.trim().trim_end_matches("kB").trim().parse()?)
    }
}

/// A server that may not be ready yet.
#[derive(Debug)]
pub struct Starting {
    child: Child,
    output: BufReader<ChildStdout>,
    start: Instant,
}

impl Starting {
    /// Waits until it is ready.
    ///
    /// # Errors
    /// If it ends, or says something else, before it is ready.
    pub async fn ready(self) -> Result<Server> {
        let Self { child, mut output, start } = self;
        let line = timeout(START_TIMEOUT, ready_line(&mut output)).await.context("not ready in time")??;
        let ready_after = start.elapsed();
        let part = |name: &str| -> Result<String> {
            let word = line.split_whitespace().find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
            Ok(word.with_context(|| format!("no {name}= in {line:?}"))?.to_owned())
        };
        let controller = part("controller")?.trim_start_matches("tcp://").to_owned();
        Ok(Server { child, output, controller, store: part("store")?, rest: part("rest")?, ready_after })
    }

    /// Asks it to stop by SIGTERM; returns its exit status and what it printed.
    ///
    /// # Errors
    /// If it does not stop in time.
    pub async fn stop(self) -> Result<(ExitStatus, String)> {
        terminate(self.child, self.output).await
    }
}

async fn terminate(mut child: Child, mut output: BufReader<ChildStdout>) -> Result<(ExitStatus, String)> {
    let pid = child.id().context("the server has ended")?;
    let sent = Command::new("kill").arg("-TERM").arg(pid.to_string()).status().await?;
    ensure!(sent.success(), "SIGTERM could not be sent");
    let mut rest = String::new();
    timeout(STOP_TIMEOUT, output.read_to_string(&mut rest)).await.context("did not stop in time")??;
    let status = timeout(STOP_TIMEOUT, child.wait()).await.context("did not stop in time")??;
    Ok((status, rest))
}

async fn ready_line(output: &mut BufReader<ChildStdout>) -> Result<String> {
    let mut before = String::new();
    loop {
        let mut line = String::new();
        if output.read_line(&mut line).await? == 0 {
            bail!("the server ended before it was ready; it printed {before:?}");
        }
        if line.starts_with("ready ") {
            return Ok(line.trim().to_owned());
        }
        before.push_str(&line);
    }
}

/// A process that was to end by itself.
#[derive(Debug)]
pub struct Ended {
    /// Its exit status.
    pub status: ExitStatus,
    /// Everything it printed, standard output first.
    pub printed: String,
}

/// Runs `binary` with `arguments` and waits for its end.
///
/// # Errors
/// If it is still running after `limit`; it is killed then.
pub async fn run_to_end(binary: &Path, arguments: &[String], limit: Duration) -> Result<Ended> {
    let mut command = Command::new(binary);
    command.args(arguments).stdin(Stdio::null()).kill_on_drop(true);
    let output = timeout(limit, command.output()).await.context("still running")??;
    let mut printed = String::from_utf8_lossy(&output.stdout).into_owned();
    printed.push_str(&String::from_utf8_lossy(&output.stderr));
    Ok(Ended { status: output.status, printed })
}
