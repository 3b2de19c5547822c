//! Power cuts on real files: a library preloaded into a server keeps what was flushed, and a cut drops all else.
//!
//! The library is `power-cut/power_cut.c`; it says what it takes for flushed. Linux only.

use anyhow::{Context, Result, bail, ensure};
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A flush that the library takes for nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lie {
    /// `fdatasync`, by which the log makes its frames durable.
    DataSync,
}

/// A folder under watch.
#[derive(Clone, Debug)]
pub struct PowerCut {
    watched: PathBuf,
    kept: PathBuf,
    environment: Vec<(&'static str, String)>,
}

impl PowerCut {
    /// Makes everything it needs inside of `folder`, the folder under watch among it, and compiles the library.
    ///
    /// # Errors
    /// If it cannot, for example since there is no C compiler.
    pub fn inside(folder: &Path) -> Result<Self> {
        let (watched, kept) = (folder.join("watched"), folder.join("kept"));
        fs::create_dir_all(&watched)?;
        fs::create_dir_all(&kept)?;
        let library = folder.join("power_cut.so");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("power-cut/power_cut.c");
        let mut compiler = Command::new("cc");
        compiler.args(["-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o"]).arg(&library);
        compiler.arg(&source).args(["-ldl", "-lpthread"]);
        ensure!(compiler.status().context("running cc")?.success(), "{} does not compile", source.display());
        let environment = [("LD_PRELOAD", &library), ("POWER_CUT_DATA", &watched), ("POWER_CUT_KEPT", &kept)];
        let environment = environment
            .into_iter()
            .map(|(name, path)| Ok((name, fs::canonicalize(path)?.display().to_string())))
            .collect::<Result<_>>()?;
        Ok(Self { watched, kept, environment })
    }

    /// The same, with flushes that keep nothing: what it watches must be found to lose data.
    #[must_use]
    pub fn with(mut self, lie: Lie) -> Self {
        let Lie::DataSync = lie;
        self.environment.push(("POWER_CUT_IGNORE", "fdatasync".to_owned()));
        self
    }

    /// The folder under watch.
    pub fn watched(&self) -> &Path {
        &self.watched
    }

    /// The variables of a process whose writes are watched.
    pub fn environment(&self) -> Vec<(&str, &str)> {
        self.environment.iter().map(|(name, value)| (*name, value.as_str())).collect()
    }

    /// Drops from the folder everything that was not flushed. Whoever wrote there must have ended.
    ///
    /// # Errors
    /// If no watched process has run since the last cut, or files cannot be changed.
    pub fn strike(&self) -> Result<()> {
        let root = fs::read_link(self.kept.join("tree")).context("nobody was watched")?;
        fs::remove_dir_all(&self.watched)?;
        self.restore(&root.to_string_lossy(), &self.watched)?;
        fs::remove_dir_all(&self.kept)?;
        fs::create_dir(&self.kept)?;
        Ok(())
    }

    fn restore(&self, id: &str, folder: &Path) -> Result<()> {
        fs::create_dir(folder)?;
        let names = match fs::read_to_string(self.kept.join(format!("{id}.dir"))) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            names => names?,
        };
        for entry in names.split_terminator('\0') {
            let (kind_and_id, name) = entry.split_once('/').with_context(|| format!("an entry {entry:?}"))?;
            let path = folder.join(name);
            match kind_and_id.split_at(1) {
                ("d", id) => self.restore(id, &path)?,
                // Linked and not copied: the copies have no use any more, and a file may have several names.
                ("f", id) => match fs::hard_link(self.kept.join(id), &path) {
                    Err(error) if error.kind() == ErrorKind::NotFound => fs::write(&path, [])?,
                    linked => linked?,
                },
                _ => bail!("an entry {entry:?}"),
            }
        }
        Ok(())
    }
}
