//! Where long-term storage is, and what is wrong with it.

use super::Options;
use crate::ledger::chance::Chance;
use crate::s3::{BUCKET, Calls, Fault, Outage, S3Server, What};
use anyhow::{Context, Result};
use std::fs::File;
use std::io::{ErrorKind, Write};
use std::path::Path;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// What is wrong with long-term storage in the middle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Trouble {
    /// Nothing.
    None,
    /// A bucket that answers everything with 503.
    Errors,
    /// A bucket that takes every call and never answers.
    Silence,
    /// A bucket whose server is gone: connections are refused.
    Gone,
    /// A bucket that takes a second for each call.
    Slow,
    /// A bucket whose calls go wrong at random: 409, 500 and 503, bodies cut short, and things done whose answer is lost.
    Faults,
    /// A folder on a small file system of its own, which somebody else fills to its last byte.
    Full,
}

/// Long-term storage.
pub(super) struct Place {
    /// How the server is told of it.
    pub(super) flags: Vec<String>,
    bucket: Option<S3Server>,
}

/// How often calls get new faults.
const FAULTS_EVERY: Duration = Duration::from_millis(20);
/// What a full file system is filled with at a time.
const BALLAST_BYTES: usize = 64 << 10;

impl Place {
    /// Brings up what the trouble is for.
    pub(super) async fn make(options: &Options) -> Result<Self> {
        if options.trouble == Trouble::Full {
            let store = options.small_folder()?.join("tier");
            std::fs::create_dir_all(&store)?;
            let flags = vec!["--object-store".to_owned(), store.display().to_string()];
            return Ok(Self { flags, bucket: None });
        }
        let bucket = S3Server::start().await?;
        let flags = [
            "--object-store",
            &format!("s3://{BUCKET}/dhara"),
            "--object-store-endpoint",
            &bucket.endpoint(),
            "--object-store-allow-http",
        ];
        let flags = flags.map(str::to_owned).to_vec();
        Ok(Self { flags, bucket: Some(bucket) })
    }

    /// Makes trouble for as long as the options say, and ends it.
    pub(super) async fn trouble(&mut self, options: &Options) -> Result<()> {
        if options.trouble == Trouble::Full {
            return fill(options.small_folder()?, options.troubled).await;
        }
        let bucket = self.bucket.as_mut().context("all other troubles are a bucket's")?;
        match options.trouble {
            Trouble::Errors => bucket.knobs().outage = Outage::Errors,
            Trouble::Silence => bucket.knobs().outage = Outage::Silence,
            Trouble::Slow => bucket.knobs().latency = Duration::from_secs(1),
            Trouble::Gone => bucket.kill().await,
            Trouble::None | Trouble::Faults | Trouble::Full => {}
        }
        if options.trouble == Trouble::Faults {
            faults(bucket, options).await;
        } else {
            sleep(options.troubled).await;
        }
        if options.trouble == Trouble::Gone {
            bucket.restart().await?;
        }
        *bucket.knobs() = crate::s3::Knobs::default();
        Ok(())
    }
}

/// Keeps a random fault or two before the next calls.
async fn faults(bucket: &S3Server, options: &Options) {
    let mut chance = Chance::new(options.seed);
    let end = Instant::now() + options.troubled;
    while Instant::now() < end {
        let what = match chance.within(0..6) {
            0 => What::Status(409),
            1 => What::Status(500),
            2 => What::Status(503),
            3 => What::Torn,
            _ => What::Lost,
        };
        let calls = match chance.within(0..8) {
            0..4 => Calls::Writes,
            4 | 5 => Calls::Reads,
            6 => Calls::Deletes,
            _ => Calls::Lists,
        };
        {
            let mut knobs = bucket.knobs();
            knobs.faults.retain(|fault| fault.times > 0);
            if knobs.faults.len() < 4 {
                knobs.faults.push(Fault::next(calls, what));
            }
        }
        sleep(FAULTS_EVERY).await;
    }
}

/// Takes every byte that the file system has left, again and again, and gives all of it back at the end.
async fn fill(folder: &Path, time: Duration) -> Result<()> {
    let path = folder.join("ballast");
    #[allow(clippy::disallowed_methods, reason = "this is the disk's foe, not its user")]
    let mut ballast = File::create(&path).with_context(|| format!("creating {}", path.display()))?;
    let end = Instant::now() + time;
    let mut piece = vec![0x5a; BALLAST_BYTES];
    while Instant::now() < end {
        match ballast.write(&piece) {
            Ok(_written) => {}
            Err(full) if full.kind() == ErrorKind::StorageFull => {
                // A smaller piece may still fit; once none does, whatever is freed is taken a moment later.
                if piece.len() > 1 {
                    piece.truncate(piece.len() / 2);
                } else {
                    piece.resize(BALLAST_BYTES, 0x5a);
                    sleep(FAULTS_EVERY).await;
                }
            }
            Err(other) => return Err(other).context("filling the file system"),
        }
    }
    std::fs::remove_file(&path).context("removing the ballast")
}
