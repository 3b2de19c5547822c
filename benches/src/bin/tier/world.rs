//! Where a run takes place: the server's binary, its folder and its object store, and how figures are printed.

use anyhow::Result;
use dhara_benches::folder;
use dhara_benches::server::{Server, beside};
use dhara_client::{Client, ClientConfig, SegmentId, StreamName, StreamSettings};
use dhara_stdx::{Disk, RealDisk};
use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};

pub(crate) const SCOPE: &str = "bench";

/// Starts servers, one after the other, on the same data.
#[derive(Debug)]
pub(crate) struct World {
    binary: PathBuf,
    data: PathBuf,
    tier: Option<String>,
    endpoint: Option<String>,
}

impl World {
    pub(crate) fn new(
        binary: Option<PathBuf>,
        data: PathBuf,
        tier: Option<String>,
        endpoint: Option<String>,
    ) -> Result<Self> {
        let binary = match binary {
            Some(binary) => binary,
            None => beside()?,
        };
        Ok(Self { binary, data, tier, endpoint })
    }

    /// A world of its own for part `name` of a run.
    pub(crate) fn part(&self, name: &str) -> Self {
        let tier = self.tier.as_ref().map(|tier| format!("{}/{name}", tier.trim_end_matches('/')));
        let (binary, endpoint) = (self.binary.clone(), self.endpoint.clone());
        Self { binary, data: self.data.join(name), tier, endpoint }
    }

    /// Starts the server.
    pub(crate) async fn start(&self, settings: &[&str]) -> Result<Server> {
        let mut settings: Vec<String> = settings.iter().map(|&setting| setting.to_owned()).collect();
        if let Some(tier) = &self.tier {
            settings.extend(["--object-store".to_owned(), tier.clone()]);
        }
        if let Some(endpoint) = &self.endpoint {
            settings.extend(["--object-store-endpoint".to_owned(), endpoint.clone()]);
            settings.push("--object-store-allow-http=true".to_owned());
        }
        Server::start_binary(&self.binary, &self.data, &settings).await
    }

    /// The folder of long-term storage, unless it lies elsewhere.
    pub(crate) fn tier_folder(&self) -> Option<PathBuf> {
        self.tier.is_none().then(|| self.data.join("tier"))
    }

    /// The folder of the log.
    pub(crate) fn log_folder(&self) -> PathBuf {
        self.data.join("log")
    }

    /// Removes all data, to make room for the next part.
    pub(crate) fn clear(&self) -> Result<()> {
        Ok(std::fs::remove_dir_all(&self.data)?)
    }
}

/// A new stream with its segments.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) client: Client,
    pub(crate) name: StreamName,
    count: u16,
}

impl Stream {
    /// Creates a stream of `count` segments.
    pub(crate) async fn create(server: &Server, name: &str, count: u16) -> Result<Self> {
        let client = Client::connect(&server.controller, ClientConfig::default()).await?;
        client.admin().create_scope(SCOPE).await?;
        let name = StreamName::new(SCOPE, name);
        client.admin().create_stream(&name, &StreamSettings::fixed(count.into())).await?;
        Ok(Self { client, name, count })
    }

    /// A stream of `count` segments that is there.
    pub(crate) async fn open(controller: &str, name: StreamName, count: u16) -> Result<Self> {
        let client = Client::connect(controller, ClientConfig::default()).await?;
        Ok(Self { client, name, count })
    }

    /// The same stream after the server was started again.
    pub(crate) async fn reconnect(&mut self, server: &Server) -> Result<()> {
        self.client = Client::connect(&server.controller, ClientConfig::default()).await?;
        Ok(())
    }

    /// Names of its segments on the wire.
    pub(crate) fn segments(&self) -> Vec<String> {
        let segment = |number: u16| self.name.segment(SegmentId::new(number.into(), 0)).to_string();
        (0..self.count).map(segment).collect()
    }
}

/// A folder that was taken away; a file stands in its place.
pub(crate) struct Aside {
    folder: PathBuf,
    kept: PathBuf,
}

impl Aside {
    pub(crate) fn take(folder: &Path) -> Result<Self> {
        let aside = Self { folder: folder.to_owned(), kept: folder.with_extension("aside") };
        RealDisk.rename(&aside.folder, &aside.kept)?;
        std::fs::write(&aside.folder, [])?;
        Ok(aside)
    }

    pub(crate) fn give_back(self) -> Result<()> {
        std::fs::remove_file(&self.folder)?;
        Ok(RealDisk.rename(&self.kept, &self.folder)?)
    }
}

/// The files of `folder` that are objects with segments' bytes, without those of the index.
pub(crate) fn objects(folder: &Path) -> Result<BTreeMap<PathBuf, u64>> {
    let mut files = folder::files(folder)?;
    files.retain(|path, _bytes| is_object(path));
    Ok(files)
}

/// Whether a file in long-term storage holds segments' bytes.
pub(crate) fn is_object(path: &Path) -> bool {
    path.components().any(|part| part.as_os_str() == "objects")
}

pub(crate) fn line(text: &str) -> Result<()> {
    Ok(writeln!(std::io::stdout(), "{text}")?)
}

/// A figure and what it is of.
pub(crate) fn figure(what: &str, value: &str) -> Result<()> {
    line(&format!("  {what:44} {value}"))
}

/// `part` of `whole`, in percent.
pub(crate) fn share(part: f64, whole: f64) -> String {
    format!("{:.0} %", 100.0 * part / whole)
}
