//! The TCP server: Pravega's segment store protocol on one port.
//!
//! One task per connection reads and dispatches, one writes. Requests go to the container of their segment; reads
//! take the published view. Malformed input closes its connection after the replies that were due; nothing is sent
//! that was not asked for, and an idle connection lives for ever.

mod append;
mod connection;
mod dispatch;
mod load;
mod outbox;
mod read;
mod reply;
mod table;

use crate::container::ContainerHandle;
use crate::operation::ConnectionId;
use connection::Connection;
use dhara_stdx::budget::ByteBudget;
use dhara_stdx::entropy::Entropy;
use parking_lot::RwLock;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{debug, warn};

/// Bytes that frames above 64 KiB may hold in memory until their replies.
const FRAME_BUDGET_BYTES: u64 = 256 * 1024 * 1024;

/// Wait after a connection could not be accepted, or found no place.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// The containers of this process, each open or about to be opened again.
#[derive(Clone)]
pub struct Containers {
    slots: Arc<Vec<RwLock<Option<ContainerHandle>>>>,
    count: u32,
}

impl Containers {
    /// `count` containers, none open yet.
    pub fn new(count: u16) -> Self {
        Self { slots: Arc::new((0..count).map(|_| RwLock::new(None)).collect()), count: u32::from(count) }
    }

    /// Puts an opened container in its place, or takes it out.
    pub fn set(&self, number: u16, handle: Option<ContainerHandle>) {
        *self.slots[usize::from(number)].write() = handle;
    }

    /// The container of a segment's canonical name; `None` while it is not open.
    pub fn of(&self, name: &str) -> Option<ContainerHandle> {
        let number = dhara_wire::hash::container_of(name, self.count);
        self.slots.get(usize::try_from(number).ok()?)?.read().clone()
    }

    /// A container by its number; `None` if there is none, or it is not open.
    pub fn get(&self, number: i32) -> Option<ContainerHandle> {
        self.slots.get(usize::try_from(number).ok()?)?.read().clone()
    }

    /// How many there are, open or not.
    pub(crate) fn count(&self) -> u32 {
        self.count
    }

    /// All open containers.
    pub fn open(&self) -> impl Iterator<Item = ContainerHandle> + '_ {
        self.slots.iter().filter_map(|slot| slot.read().clone())
    }
}

/// How the server is set up.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// Connections at one time; more are closed at once.
    pub connections_max: usize,
    /// Where what was read from long-term storage is written to its readers.
    pub storage: Handle,
}

/// What all connections share.
pub(crate) struct Shared {
    containers: Containers,
    frames: ByteBudget,
    entropy: Arc<dyn Entropy>,
    storage: Handle,
    stop: CancellationToken,
}

/// A server that accepts connections until it is stopped.
pub struct Server {
    address: SocketAddr,
    stop: CancellationToken,
    tasks: TaskTracker,
}

impl Server {
    /// Serves `containers` on a listener that is bound already.
    ///
    /// # Errors
    /// If the listener's own address cannot be had.
    pub fn start(
        listener: TcpListener,
        containers: Containers,
        entropy: Arc<dyn Entropy>,
        config: &ServerConfig,
    ) -> io::Result<Self> {
        let address = listener.local_addr()?;
        let stop = CancellationToken::new();
        let tasks = TaskTracker::new();
        let shared = Arc::new(Shared {
            containers,
            frames: ByteBudget::new(FRAME_BUDGET_BYTES),
            entropy,
            storage: config.storage.clone(),
            stop: stop.clone(),
        });
        let places = Arc::new(Semaphore::new(config.connections_max));
        drop(tasks.spawn(accept(listener, shared, places, tasks.clone())));
        Ok(Self { address, stop, tasks })
    }

    /// Where the server listens.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Stops accepting, closes all connections and waits for their tasks.
    ///
    /// # Cancel safety
    /// May be called again.
    pub async fn stop(&self) {
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>, places: Arc<Semaphore>, tasks: TaskTracker) {
    let mut number = 0;
    loop {
        let accepted = tokio::select! { biased;
            // Stopping is rare and final; accepting cannot starve behind it.
            () = shared.stop.cancelled() => return,
            accepted = dhara_stdx::net::accept(&listener) => accepted,
        };
        let Some(stream) = accepted_or_pause(accepted).await else { continue };
        let Ok(place) = Arc::clone(&places).try_acquire_owned() else {
            drop(stream);
            warn!("too many connections");
            // As many lines of the log as that, and no more.
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        number += 1;
        drop(tasks.spawn(serve(stream, ConnectionId(number), Arc::clone(&shared), place)));
    }
}

async fn accepted_or_pause(accepted: io::Result<(TcpStream, SocketAddr)>) -> Option<TcpStream> {
    match accepted {
        Ok((stream, _peer)) => Some(stream),
        Err(error) => {
            // Out of descriptors, most likely: others will end.
            warn!(%error, "accept");
            tokio::time::sleep(ACCEPT_PAUSE).await;
            None
        }
    }
}

async fn serve(stream: TcpStream, id: ConnectionId, shared: Arc<Shared>, place: OwnedSemaphorePermit) {
    debug!(connection = id.0, "connection accepted");
    Connection::serve(stream, id, shared).await;
    drop(place);
}
