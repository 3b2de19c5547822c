//! TCP as the house uses it: the only place that binds or connects.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use rustix::net::sockopt;
use tokio::net::{TcpListener, TcpSocket, TcpStream};

/// Connections that may wait to be accepted.
const BACKLOG: u32 = 1024;

/// A connection that was silent for so long is looked after by the system, every [`PROBE_EVERY`] and [`PROBES`] times.
const SILENT_FOR: Duration = Duration::from_mins(1);
const PROBE_EVERY: Duration = Duration::from_secs(10);
const PROBES: u32 = 6;

/// Listens on `addr`; port 0 takes a free one. The system looks after idle connections, so that peers which vanished
/// without a word do not keep theirs for more than two minutes.
///
/// # Errors
/// Whatever the system answers to bind.
/// # Cancel safety
/// Dropped early: nothing listens.
#[allow(clippy::unused_async, reason = "a future like the rest of this module, as it is in tokio")]
pub async fn listen(addr: SocketAddr) -> io::Result<TcpListener> {
    let socket = if addr.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    // An address whose last server has just ended is free.
    socket.set_reuseaddr(true)?;
    // What is accepted inherits it.
    socket.set_keepalive(true)?;
    sockopt::set_tcp_keepidle(&socket, SILENT_FOR)?;
    sockopt::set_tcp_keepintvl(&socket, PROBE_EVERY)?;
    sockopt::set_tcp_keepcnt(&socket, PROBES)?;
    socket.bind(addr)?;
    socket.listen(BACKLOG)
}

/// Takes the next connection of `listener`, without Nagle's delay.
///
/// # Errors
/// Whatever the system answers; after a resource error the caller pauses before it accepts again.
/// # Cancel safety
/// Dropped early: no connection is lost.
pub async fn accept(listener: &TcpListener) -> io::Result<(TcpStream, SocketAddr)> {
    let (stream, peer) = listener.accept().await?;
    // A peer that has already gone refuses the option; the first read will tell.
    drop(stream.set_nodelay(true));
    Ok((stream, peer))
}

/// Connects to `host:port`, a name or an address, without Nagle's delay.
///
/// # Errors
/// Whatever the system answers to resolve or connect.
/// # Cancel safety
/// Dropped early: no connection is left.
#[allow(clippy::disallowed_methods, reason = "the one place that connects")]
pub async fn connect(addr: &str) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(addr).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn both_ends_send_without_delay_and_vanished_peers_are_found_out() {
        let listener = listen(SocketAddr::from(([127, 0, 0, 1], 0))).await.unwrap();
        let addr = listener.local_addr().unwrap().to_string();
        let (near, far) = tokio::join!(connect(&addr), accept(&listener));
        assert!(near.unwrap().nodelay().unwrap());
        let far = far.unwrap().0;
        assert!(far.nodelay().unwrap());
        assert_eq!(sockopt::tcp_keepidle(&far).unwrap(), SILENT_FOR);
        assert!(TcpSocket::from_std_stream(far.into_std().unwrap()).keepalive().unwrap());
    }
}
