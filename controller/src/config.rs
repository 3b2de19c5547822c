//! Settings of the controller.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use crate::stream::transaction::LeaseLimits;

/// A host with a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostPort {
    /// Name, IPv4 address, or IPv6 address in brackets.
    pub host: String,
    /// Port.
    pub port: u16,
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

/// Settings of one controller.
#[derive(Debug, Clone)]
pub struct ControllerConfig {
    /// Address of the gRPC service; port 0 takes a free one.
    pub listen: SocketAddr,
    /// Address of the REST service; port 0 takes a free one.
    pub rest_listen: SocketAddr,
    /// Host under which clients reach this controller: letters, digits, dots and minus, or an IPv6 address in
    /// brackets.
    pub advertise_host: String,
    /// Segment stores, as clients reach them; containers are spread over them in turn.
    pub store: Vec<HostPort>,
    /// The same stores as this controller reaches them, if it goes another way.
    pub store_here: Option<Vec<HostPort>>,
    /// Connections to each of the two services at one time; more are closed at once.
    pub connections_max: usize,
    /// Number of containers of the cluster, fixed when it was created; at least 1.
    pub container_count: u16,
    /// Limits of transactions: leases of 10 s to 10 min and a life of a day as Pravega has them.
    pub leases: LeaseLimits,
    /// Time within which a call that waits for work is answered; the work goes on. Pravega's is 2 min.
    pub call_time_max: Duration,
    /// Time between two looks at unfinished work.
    pub sweep_interval: Duration,
}

impl ControllerConfig {
    /// Settings for a controller and one segment store, both on this machine, on free ports.
    pub fn local(store: HostPort, container_count: u16) -> Self {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        Self {
            listen: any,
            rest_listen: any,
            advertise_host: String::from("127.0.0.1"),
            store: vec![store],
            store_here: None,
            connections_max: 10_000,
            container_count,
            leases: LeaseLimits::PRAVEGA,
            call_time_max: Duration::from_mins(2),
            sweep_interval: Duration::from_secs(30),
        }
    }
}
