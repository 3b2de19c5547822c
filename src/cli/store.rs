//! `dhara store`: what an operator asks of a segment store and its folder.

use super::output::Output;
use super::{CliError, ServerFlags};
use crate::standalone::{seams, store_config};
use clap::{Args, Subcommand};
use dhara_segmentstore::log::{LogConfig, check};
use dhara_segmentstore::store::recover_lost_log;
use dhara_segmentstore::tier::{Objects, local_store, open_store, verify_object};
use dhara_segmentstore::types::ContainerId;
use dhara_stdx::chain;
use dhara_wire::command::{Command, FlushToStorage};
use dhara_wire::peer::{ConnectionConfig, RawConnection};
use serde_json::json;
use std::sync::Arc;

#[derive(Debug, Subcommand)]
pub(super) enum StoreCommand {
    /// Brings everything acknowledged so far to long-term storage; afterwards the log is not needed.
    Flush(Flush),
    /// Lists or checks the objects in long-term storage.
    #[command(subcommand)]
    Objects(ObjectsCommand),
    /// Looks at the log.
    #[command(subcommand)]
    Log(LogCommand),
    /// Goes on without what is lost, and lists what is given up. The server must not run.
    Recover(Recover),
}

#[derive(Args, Debug)]
pub(super) struct Flush {
    /// Where the segment store listens.
    #[arg(long, value_name = "ADDR", env = "DHARA_STORE", default_value = "127.0.0.1:12345")]
    store: String,
    /// Containers to flush; may be given more than once [default: all].
    #[arg(long, value_name = "NUMBER")]
    container: Vec<i32>,
    /// Prints JSON, one value a line.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Subcommand)]
pub(super) enum ObjectsCommand {
    /// Lists objects: container, name, size, level, ranges.
    List(Folder),
    /// Reads every object and checks every byte of it; exit status 1 if any is damaged.
    Verify(Folder),
}

#[derive(Debug, Subcommand)]
pub(super) enum LogCommand {
    /// Reads the whole log as a start would, changes nothing, and names what cannot be read.
    Check(Folder),
}

#[derive(Args, Debug)]
pub(super) struct Folder {
    #[command(flatten)]
    server: ServerFlags,
    /// Prints JSON, one value a line.
    #[arg(long)]
    json: bool,
}

#[derive(Args, Debug)]
pub(super) struct Recover {
    /// The log is gone for good: go on with what lies in objects, as of the last index flush.
    #[arg(long, required = true)]
    log_lost: bool,
    #[command(flatten)]
    folder: Folder,
}

impl StoreCommand {
    pub(super) async fn run(self) -> Result<(), CliError> {
        match self {
            Self::Flush(flush) => flush.run().await,
            Self::Objects(ObjectsCommand::List(folder)) => folder.objects(false).await,
            Self::Objects(ObjectsCommand::Verify(folder)) => folder.objects(true).await,
            Self::Log(LogCommand::Check(folder)) => folder.check_log(),
            Self::Recover(recover) => recover.folder.recover_lost_log().await,
        }
    }
}

impl Flush {
    async fn run(self) -> Result<(), CliError> {
        let mut output = Output::stdout(self.json);
        // The protocol does not tell how many there are: the first that is not there ends the walk.
        let numbers: Vec<i32> =
            if self.container.is_empty() { (0..512).collect() } else { self.container.clone() };
        for (flushed, container_id) in numbers.into_iter().enumerate() {
            match flush(&self.store, container_id).await {
                Ok(()) => {}
                Err(_missing) if self.container.is_empty() && flushed > 0 => break,
                Err(error) => return Err(error),
            }
            output
                .put(&format!("container {container_id} flushed"), &json!({ "container": container_id }))?;
        }
        output.flush()
    }
}

async fn flush(store: &str, container_id: i32) -> Result<(), CliError> {
    let failed = |error: &dyn std::error::Error| {
        CliError::Server(format!("flush container {container_id} of {store}: {}", chain(error)))
    };
    let config = ConnectionConfig::default();
    let connection = RawConnection::connect(store, config).await.map_err(|error| failed(&error))?;
    let delegation_token = String::new();
    let asked = FlushToStorage { container_id, delegation_token, request_id: 1 };
    match connection.call(asked).await.map_err(|error| failed(&error))? {
        Command::StorageFlushed(_) => Ok(()),
        other => Err(CliError::Server(format!("flush container {container_id} of {store}: {other:?}"))),
    }
}

impl Folder {
    async fn objects(self, verify: bool) -> Result<(), CliError> {
        let config = store_config(&self.server.config()?);
        let store = match &config.object_store {
            Some(place) => {
                open_store(place, &config.backend).map_err(|error| CliError::Server(chain(&error)))?
            }
            None => {
                local_store(&config.data.join("tier")).map_err(|error| CliError::Server(chain(&error)))?
            }
        };
        let mut output = Output::stdout(self.json);
        let (mut checked, mut damaged) = (0_u64, 0_u64);
        for container in (0..config.containers).map(ContainerId) {
            let objects = Objects::new(Arc::clone(&store), container);
            let listed = objects.list().await.map_err(|error| CliError::Server(chain(&error)))?;
            for (id, bytes) in listed {
                let footer = if verify {
                    let whole = objects.range(id, 0, bytes).await;
                    whole
                        .map_err(|error| chain(&error))
                        .and_then(|whole| verify_object(&whole).map_err(|error| chain(&error)))
                } else {
                    objects.footer(id).await.map_err(|error| chain(&error))
                };
                checked += 1;
                let object = objects.path(id).to_string();
                match footer {
                    Ok(footer) => output.put(
                        &format!(
                            "{object} {bytes} bytes, level {}, {} ranges",
                            footer.level,
                            footer.ranges.len()
                        ),
                        &json!({ "object": object, "bytes": bytes, "level": footer.level,
                                 "ranges": footer.ranges.len(), "sound": true }),
                    )?,
                    Err(error) => {
                        damaged += 1;
                        output.put(
                            &format!("{object} {bytes} bytes, damaged: {error}"),
                            &json!({ "object": object, "bytes": bytes, "sound": false, "error": error }),
                        )?;
                    }
                }
            }
        }
        output.flush()?;
        if damaged == 0 {
            Ok(())
        } else {
            Err(CliError::Server(format!("{damaged} of {checked} objects are damaged")))
        }
    }

    fn check_log(self) -> Result<(), CliError> {
        let config = store_config(&self.server.config()?);
        let log = LogConfig::new(config.data.join("log"), config.containers);
        let seams = seams()?;
        let report = check(&log, seams.disk).map_err(|error| CliError::Server(chain(&error)))?;
        let mut output = Output::stdout(self.json);
        output.put(
            &format!(
                "log is sound: {} files, {} frames, {} of them would be written again",
                report.files, report.frames, report.unproven_frames
            ),
            &json!({ "files": report.files, "frames": report.frames, "unproven_frames": report.unproven_frames }),
        )?;
        output.flush()
    }

    async fn recover_lost_log(self) -> Result<(), CliError> {
        let config = store_config(&self.server.config()?);
        let given_up = Box::pin(recover_lost_log(&config, seams()?))
            .await
            .map_err(|error| CliError::Server(chain(&error)))?;
        let mut output = Output::stdout(self.json);
        for lost in &given_up {
            output.put(
                &format!(
                    "{} of container {}: bytes {} to {} are given up, {} of them lay in the log only",
                    lost.segment,
                    lost.container,
                    lost.start,
                    lost.length,
                    lost.length - lost.stored
                ),
                &json!({ "segment": lost.segment, "container": lost.container.0, "start": lost.start,
                         "stored": lost.stored, "length": lost.length }),
            )?;
        }
        if given_up.is_empty() && !output.is_json() {
            output.put("no byte that the index knows of is given up", &json!(null))?;
        }
        if !output.is_json() {
            let later =
                "what was acknowledged after the last index flush went with the log and cannot be listed";
            output.put(later, &json!(null))?;
        }
        output.flush()
    }
}
