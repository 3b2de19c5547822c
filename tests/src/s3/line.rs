//! Connections that can be cut.
//!
//! HTTP has no way to say that an answer is lost; a broken connection is one. Every connection has a token, and once
//! that is cancelled neither side gets another byte through it.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::extract::connect_info::Connected;
use axum::serve::{IncomingStream, Listener};
use dhara_stdx::net;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

/// Time before a listener tries again after the system refused to accept.
const PAUSE: Duration = Duration::from_millis(50);

/// The end of a connection that a handler holds.
#[derive(Clone, Debug)]
pub(super) struct Line(CancellationToken);

impl Line {
    /// Breaks the connection.
    pub(super) fn cut(&self) {
        self.0.cancel();
    }

    /// Waits until it is broken.
    pub(super) async fn gone(&self) {
        self.0.cancelled().await;
    }
}

/// Takes connections that break with the server's life, or each for itself.
pub(super) struct LineListener {
    pub(super) listener: TcpListener,
    pub(super) life: CancellationToken,
}

impl Listener for LineListener {
    type Io = LineStream;
    type Addr = Line;

    async fn accept(&mut self) -> (LineStream, Line) {
        loop {
            if let Ok((stream, _peer)) = net::accept(&self.listener).await {
                let token = self.life.child_token();
                let cut = Box::pin(token.clone().cancelled_owned());
                return (LineStream { stream, cut }, Line(token));
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    fn local_addr(&self) -> io::Result<Line> {
        Ok(Line(self.life.clone()))
    }
}

impl Connected<IncomingStream<'_, LineListener>> for Line {
    fn connect_info(stream: IncomingStream<'_, LineListener>) -> Self {
        stream.remote_addr().clone()
    }
}

/// A connection that ends when its token says so.
pub(super) struct LineStream {
    stream: TcpStream,
    cut: Pin<Box<WaitForCancellationFutureOwned>>,
}

impl LineStream {
    /// An error if the line is cut; if not, whoever polls is woken when it is.
    fn check(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        match self.cut.as_mut().poll(context) {
            Poll::Ready(()) => Err(io::ErrorKind::ConnectionReset.into()),
            Poll::Pending => Ok(()),
        }
    }
}

impl AsyncRead for LineStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.check(context)?;
        Pin::new(&mut self.stream).poll_read(context, into)
    }
}

impl AsyncWrite for LineStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.check(context)?;
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.check(context)?;
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
