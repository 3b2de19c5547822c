//! Connections that come to one of the controller's ports, so many at a time.

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use dhara_stdx::net;
use futures_util::Stream;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tonic::transport::server::Connected;
use tracing::warn;

/// Wait after a connection could not be accepted, or found no place.
const PAUSE: Duration = Duration::from_millis(50);

/// A port with places for so many connections; one for which there is none is closed at once.
#[derive(Debug)]
pub(crate) struct Incoming {
    listener: TcpListener,
    places: Arc<Semaphore>,
}

/// A connection, which has its place until it is dropped.
#[derive(Debug)]
pub(crate) struct Peer {
    stream: TcpStream,
    _place: OwnedSemaphorePermit,
}

impl Incoming {
    pub(crate) fn new(listener: TcpListener, connections_max: usize) -> Self {
        Self { listener, places: Arc::new(Semaphore::new(connections_max)) }
    }

    /// The next connection. Cancel safe, but for one that is refused.
    async fn next(&self) -> (Peer, SocketAddr) {
        loop {
            match net::accept(&self.listener).await {
                Ok((stream, address)) => {
                    if let Ok(place) = Arc::clone(&self.places).try_acquire_owned() {
                        return (Peer { stream, _place: place }, address);
                    }
                    drop(stream);
                    warn!("too many connections");
                }
                // Out of descriptors, most likely: others will end.
                Err(error) => warn!(%error, "accept"),
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// All connections, one after the other.
    pub(crate) fn stream(self) -> impl Stream<Item = io::Result<Peer>> {
        futures_util::stream::unfold(self, |incoming| async move {
            let (peer, _address) = incoming.next().await;
            Some((Ok(peer), incoming))
        })
    }
}

impl axum::serve::Listener for Incoming {
    type Io = Peer;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Peer, SocketAddr) {
        self.next().await
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

impl Connected for Peer {
    type ConnectInfo = ();

    fn connect_info(&self) {}
}

impl AsyncRead for Peer {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, into)
    }
}

impl AsyncWrite for Peer {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncReadExt;

    #[tokio::test]
    async fn connection_without_a_place_is_closed_and_one_that_ends_leaves_its_own() {
        let listener = net::listen(SocketAddr::from(([127, 0, 0, 1], 0))).await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let incoming = Incoming::new(listener, 1);
        let first = net::connect(&address).await.unwrap();
        let (peer, _address) = incoming.next().await;
        let mut second = net::connect(&address).await.unwrap();
        let refused = async { second.read(&mut [0]).await.unwrap_or(0) };
        tokio::select! { biased;
            bytes = refused => assert_eq!(bytes, 0),
            _ = incoming.next() => panic!("there is one place"),
        }
        drop((first, peer));
        let _third = net::connect(&address).await.unwrap();
        incoming.next().await;
    }
}
