//! The one configuration tree of a server process.
//!
//! Four layers give a value, later ones win: defaults, the TOML file, `DHARA_*` environment variables, flags. They are
//! read once, at start; nothing else in the process reads the environment. [`Config::describe`] is printed at start, so
//! that a log always says what a server ran with.

use serde::{Deserialize, Deserializer};
use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// What names an environment variable of this process.
const ENVIRONMENT_PREFIX: &str = "DHARA_";

/// How a standalone server is set up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Config {
    /// Folder of all data; created if missing. One process at a time may use it. Default `./dhara-data`.
    pub(crate) data: PathBuf,
    /// Where the controller listens for gRPC; port 0 takes a free one. Default `127.0.0.1:9090`.
    pub(crate) listen_controller: SocketAddr,
    /// Where the segment store listens; port 0 takes a free one. Default `127.0.0.1:12345`.
    pub(crate) listen_store: SocketAddr,
    /// Where REST and health listen; port 0 takes a free one. Default `127.0.0.1:10080`.
    pub(crate) listen_rest: SocketAddr,
    /// Host name or address that clients are told to connect to. Default: the controller's listening address, or
    /// `127.0.0.1` if that is unspecified.
    pub(crate) advertise: String,
    /// Number of containers, `1..=512`. Fixed when the data folder is made; a later start must give the same number.
    /// Default 1: merges never cross containers, and one admits more than a small machine's clients send.
    pub(crate) containers: u16,
    /// Most bytes that the log may take on disk before appends are refused, at least 256 MiB. Default 16 GiB.
    pub(crate) log_budget: ByteSize,
    /// Where long-term storage is: a folder, `s3://bucket/prefix`, `gs://bucket/prefix` or `az://container/prefix`. Keys
    /// come from the environment variables of the provider's own tools. Default: the folder `tier` in the data folder.
    pub(crate) object_store: Option<String>,
    /// Address of the object store instead of the provider's own, as `https://host:port`. Default: none.
    pub(crate) object_store_endpoint: Option<String>,
    /// Region of an S3 bucket. Default: what `AWS_REGION` says, else `us-east-1`.
    pub(crate) object_store_region: Option<String>,
    /// Whether keys and data may pass in the clear to an `http://` endpoint. Default false.
    pub(crate) object_store_allow_http: bool,
    /// Age in seconds at which bytes go to long-term storage at the latest, 1 to 86400: what a lost log disk would lose.
    /// Default 120.
    pub(crate) tier_after: u32,
    /// Most bytes of objects kept in memory in case they are read again, at least 1 MiB; up to half as many again, 128 MiB
    /// at most, are on their way to readers. Default 256 MiB.
    pub(crate) read_cache: ByteSize,
}

/// One layer of settings; `None` leaves the value to the layers below.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct Layer {
    /// See [`Config::data`].
    pub(crate) data: Option<PathBuf>,
    /// See [`Config::listen_controller`].
    pub(crate) listen_controller: Option<SocketAddr>,
    /// See [`Config::listen_store`].
    pub(crate) listen_store: Option<SocketAddr>,
    /// See [`Config::listen_rest`].
    pub(crate) listen_rest: Option<SocketAddr>,
    /// See [`Config::advertise`].
    pub(crate) advertise: Option<String>,
    /// See [`Config::containers`].
    pub(crate) containers: Option<u16>,
    /// See [`Config::log_budget`].
    pub(crate) log_budget: Option<ByteSize>,
    /// See [`Config::object_store`].
    pub(crate) object_store: Option<String>,
    /// See [`Config::object_store_endpoint`].
    pub(crate) object_store_endpoint: Option<String>,
    /// See [`Config::object_store_region`].
    pub(crate) object_store_region: Option<String>,
    /// See [`Config::object_store_allow_http`].
    pub(crate) object_store_allow_http: Option<bool>,
    /// See [`Config::tier_after`].
    pub(crate) tier_after: Option<u32>,
    /// See [`Config::read_cache`].
    pub(crate) read_cache: Option<ByteSize>,
}

/// Why there is no usable configuration.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum ConfigError {
    /// The file cannot be read.
    #[error("reading configuration file {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system says.
        #[source]
        source: std::io::Error,
    },
    /// The file is not TOML of the known settings.
    #[error("parsing configuration file {}", path.display())]
    Parse {
        /// The file.
        path: PathBuf,
        /// Where and what.
        #[source]
        source: Box<toml::de::Error>,
    },
    /// An environment variable does not hold a value of its type.
    #[error("environment variable {name}={value} is not {expected}")]
    Environment {
        /// Its name.
        name: String,
        /// Its value.
        value: String,
        /// What it should be.
        expected: &'static str,
    },
    /// A value lies outside its safe range.
    #[error("{setting} is {value}, must be {range}")]
    Range {
        /// The setting.
        setting: &'static str,
        /// Its value.
        value: String,
        /// What it may be.
        range: &'static str,
    },
}

impl Config {
    /// Lays `flags` over `environment` over `file` over the defaults and checks the result.
    pub(crate) fn resolve(file: Layer, environment: Layer, flags: Layer) -> Result<Self, ConfigError> {
        let given = flags.over(environment).over(file);
        let listen_controller =
            given.listen_controller.unwrap_or_else(|| SocketAddr::from(([127, 0, 0, 1], 9090)));
        let config = Self {
            data: given.data.unwrap_or_else(|| PathBuf::from("./dhara-data")),
            listen_controller,
            listen_store: given.listen_store.unwrap_or_else(|| SocketAddr::from(([127, 0, 0, 1], 12345))),
            listen_rest: given.listen_rest.unwrap_or_else(|| SocketAddr::from(([127, 0, 0, 1], 10080))),
            advertise: given.advertise.unwrap_or_else(|| advertised_host(listen_controller.ip())),
            containers: given.containers.unwrap_or(1),
            log_budget: given.log_budget.unwrap_or(ByteSize::gib(16)),
            object_store: given.object_store,
            object_store_endpoint: given.object_store_endpoint,
            object_store_region: given.object_store_region,
            object_store_allow_http: given.object_store_allow_http.unwrap_or(false),
            tier_after: given.tier_after.unwrap_or(120),
            read_cache: given.read_cache.unwrap_or(ByteSize::mib(256)),
        };
        config.check()?;
        Ok(config)
    }

    /// One line that shows every setting.
    pub(crate) fn describe(&self) -> String {
        let unset = || "default".to_owned();
        format!(
            "data={} listen-controller={} listen-store={} listen-rest={} advertise={} containers={} log-budget={} \
             object-store={} object-store-endpoint={} object-store-region={} object-store-allow-http={} tier-after={} \
             read-cache={}",
            self.data.display(),
            self.listen_controller,
            self.listen_store,
            self.listen_rest,
            self.advertise,
            self.containers,
            self.log_budget,
            self.object_store.clone().unwrap_or_else(|| self.data.join("tier").display().to_string()),
            self.object_store_endpoint.clone().unwrap_or_else(unset),
            self.object_store_region.clone().unwrap_or_else(unset),
            self.object_store_allow_http,
            self.tier_after,
            self.read_cache,
        )
    }

    fn check(&self) -> Result<(), ConfigError> {
        let range = |setting, value: String, range| Err(ConfigError::Range { setting, value, range });
        if !(1..=512).contains(&self.containers) {
            return range("containers", self.containers.to_string(), "1 to 512");
        }
        if self.log_budget < ByteSize::mib(256) {
            return range("log-budget", self.log_budget.to_string(), "at least 256MiB");
        }
        if !(1..=86_400).contains(&self.tier_after) {
            return range("tier-after", self.tier_after.to_string(), "1 to 86400 seconds");
        }
        if self.read_cache < ByteSize::mib(1) {
            return range("read-cache", self.read_cache.to_string(), "at least 1MiB");
        }
        if !is_host(&self.advertise) {
            let names = "a host name of letters, digits, '.' and '-', or an address";
            return range("advertise", self.advertise.clone(), names);
        }
        Ok(())
    }
}

impl Layer {
    /// Reads the settings in the TOML file at `path`.
    pub(crate) fn from_file(path: &Path) -> Result<Self, ConfigError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| ConfigError::Read { path: path.to_owned(), source })?;
        toml::from_str(&text)
            .map_err(|source| ConfigError::Parse { path: path.to_owned(), source: Box::new(source) })
    }

    /// Takes the `DHARA_*` variables out of what `lookup` finds by name. Other variables of that prefix are left
    /// alone, since orchestrators set some after a service's name.
    pub(crate) fn from_environment(lookup: impl Fn(&str) -> Option<String>) -> Result<Self, ConfigError> {
        let variable = |setting: &str| {
            let name = format!("{ENVIRONMENT_PREFIX}{setting}");
            let value = lookup(&name).filter(|value| !value.is_empty());
            value.map(|value| (name, value))
        };
        Ok(Self {
            data: variable("DATA").map(|(_name, value)| PathBuf::from(value)),
            listen_controller: parsed(variable("LISTEN_CONTROLLER"), "an address and port")?,
            listen_store: parsed(variable("LISTEN_STORE"), "an address and port")?,
            listen_rest: parsed(variable("LISTEN_REST"), "an address and port")?,
            advertise: variable("ADVERTISE").map(|(_name, value)| value),
            containers: parsed(variable("CONTAINERS"), "a number from 1 to 512")?,
            log_budget: parsed(variable("LOG_BUDGET"), "a size such as 16GiB")?,
            object_store: variable("OBJECT_STORE").map(|(_name, value)| value),
            object_store_endpoint: variable("OBJECT_STORE_ENDPOINT").map(|(_name, value)| value),
            object_store_region: variable("OBJECT_STORE_REGION").map(|(_name, value)| value),
            object_store_allow_http: parsed(variable("OBJECT_STORE_ALLOW_HTTP"), "true or false")?,
            tier_after: parsed(variable("TIER_AFTER"), "seconds from 1 to 86400")?,
            read_cache: parsed(variable("READ_CACHE"), "a size such as 256MiB")?,
        })
    }

    fn over(self, below: Self) -> Self {
        Self {
            data: self.data.or(below.data),
            listen_controller: self.listen_controller.or(below.listen_controller),
            listen_store: self.listen_store.or(below.listen_store),
            listen_rest: self.listen_rest.or(below.listen_rest),
            advertise: self.advertise.or(below.advertise),
            containers: self.containers.or(below.containers),
            log_budget: self.log_budget.or(below.log_budget),
            object_store: self.object_store.or(below.object_store),
            object_store_endpoint: self.object_store_endpoint.or(below.object_store_endpoint),
            object_store_region: self.object_store_region.or(below.object_store_region),
            object_store_allow_http: self.object_store_allow_http.or(below.object_store_allow_http),
            tier_after: self.tier_after.or(below.tier_after),
            read_cache: self.read_cache.or(below.read_cache),
        }
    }
}

/// A number of bytes; written `512`, `64KiB`, `256MiB` or `16GiB`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ByteSize(u64);

const UNITS: [(&str, u64); 3] = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];

impl ByteSize {
    /// `count` times 2³⁰ bytes.
    pub(crate) const fn gib(count: u64) -> Self {
        Self(count << 30)
    }

    /// `count` times 2²⁰ bytes.
    pub(crate) const fn mib(count: u64) -> Self {
        Self(count << 20)
    }

    /// The number of bytes.
    pub(crate) const fn bytes(self) -> u64 {
        self.0
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whole = UNITS.iter().find(|(_unit, bytes)| self.0 >= *bytes && self.0.is_multiple_of(*bytes));
        match whole {
            Some((unit, bytes)) => write!(f, "{}{unit}", self.0 / bytes),
            None => write!(f, "{}", self.0),
        }
    }
}

/// A text that is no size.
#[derive(Debug, thiserror::Error)]
#[error("{0} is not a size such as 512, 64KiB, 256MiB or 16GiB")]
pub(crate) struct ByteSizeError(String);

impl FromStr for ByteSize {
    type Err = ByteSizeError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let unit = UNITS.iter().find(|(unit, _bytes)| text.ends_with(unit));
        let (digits, scale) = match unit {
            Some((unit, bytes)) => (text.trim_end_matches(unit), *bytes),
            None => (text, 1),
        };
        let count: Option<u64> = digits.trim().parse().ok();
        count
            .and_then(|count| count.checked_mul(scale))
            .map(Self)
            .ok_or_else(|| ByteSizeError(text.to_owned()))
    }
}

impl<'de> Deserialize<'de> for ByteSize {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from)?.parse().map_err(serde::de::Error::custom)
    }
}

fn parsed<T: FromStr>(
    variable: Option<(String, String)>,
    expected: &'static str,
) -> Result<Option<T>, ConfigError> {
    let Some((name, value)) = variable else { return Ok(None) };
    match value.parse() {
        Ok(parsed) => Ok(Some(parsed)),
        Err(_any) => Err(ConfigError::Environment { name, value, expected }),
    }
}

fn advertised_host(listening: IpAddr) -> String {
    match listening {
        address if address.is_unspecified() => "127.0.0.1".to_owned(),
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => format!("[{address}]").to_uppercase(),
    }
}

/// Whether clients can use `host`: the official Rust client cuts a name at characters outside this set.
fn is_host(host: &str) -> bool {
    let name = !host.is_empty() && host.chars().all(|c| c.is_ascii_alphanumeric() || c == '.' || c == '-');
    let bracketed = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    name || IpAddr::from_str(host).is_ok() || bracketed.is_some_and(|six| Ipv6Addr::from_str(six).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(text: &str) -> Layer {
        toml::from_str(text).unwrap()
    }

    #[test]
    fn host_is_a_name_or_an_address() {
        for host in ["a", "a-b.c", "10.0.0.1", "::1", "[::1]"] {
            assert!(is_host(host), "{host}");
        }
        for none in ["", "a_b", "[::1", "::1]", "[[::1]]", "[10.0.0.1]", "[a]", "a:1"] {
            assert!(!is_host(none), "{none}");
        }
    }

    #[test]
    fn defaults_are_the_documented_ones() {
        let config = Config::resolve(Layer::default(), Layer::default(), Layer::default()).unwrap();
        assert_eq!(
            config.describe(),
            "data=./dhara-data listen-controller=127.0.0.1:9090 listen-store=127.0.0.1:12345 \
             listen-rest=127.0.0.1:10080 advertise=127.0.0.1 containers=1 log-budget=16GiB \
             object-store=./dhara-data/tier object-store-endpoint=default object-store-region=default \
             object-store-allow-http=false tier-after=120 read-cache=256MiB"
        );
    }

    #[test]
    fn flags_win_over_environment_over_file() {
        let below = file("data = 'file'\nadvertise = 'file'\nlisten-rest = '127.0.0.1:1'");
        let environment = Layer::from_environment(|name| match name {
            "DHARA_DATA" | "DHARA_ADVERTISE" => Some("environment".to_owned()),
            _ => None,
        });
        let flags = Layer { data: Some(PathBuf::from("flag")), ..Layer::default() };
        let config = Config::resolve(below, environment.unwrap(), flags).unwrap();
        assert_eq!(config.data, PathBuf::from("flag"));
        assert_eq!(config.advertise, "environment");
        assert_eq!(config.listen_rest.port(), 1);
    }

    #[test]
    fn address_of_version_six_is_advertised_in_brackets() {
        let six = file("listen-controller = '[::1]:9090'");
        assert_eq!(Config::resolve(six, Layer::default(), Layer::default()).unwrap().advertise, "[::1]");
    }

    #[test]
    fn unknown_setting_in_the_file_is_refused() {
        assert!(toml::from_str::<Layer>("dtaa = 'x'").is_err());
    }

    #[test]
    fn values_outside_their_range_are_refused() {
        for text in [
            "containers = 0",
            "containers = 513",
            "log-budget = '255MiB'",
            "tier-after = 0",
            "read-cache = '1023KiB'",
            "advertise = 'a_b'",
        ] {
            let refused = Config::resolve(file(text), Layer::default(), Layer::default());
            assert!(matches!(refused, Err(ConfigError::Range { .. })), "{text}");
        }
    }

    #[test]
    fn malformed_variable_is_named() {
        let error = Layer::from_environment(|name| (name == "DHARA_LISTEN_REST").then(|| "x".to_owned()));
        assert_eq!(
            error.unwrap_err().to_string(),
            "environment variable DHARA_LISTEN_REST=x is not an address and port"
        );
    }

    #[test]
    fn unspecified_address_is_not_advertised() {
        let open = file("listen-controller = '0.0.0.0:9090'");
        let config = Config::resolve(open, Layer::default(), Layer::default()).unwrap();
        assert_eq!(config.advertise, "127.0.0.1");
    }

    #[test]
    fn sizes_read_as_they_are_written() {
        for text in ["0", "512", "64KiB", "256MiB", "16GiB"] {
            assert_eq!(text.parse::<ByteSize>().unwrap().to_string(), text);
        }
        assert!("x".parse::<ByteSize>().is_err());
        assert!("99999999999GiB".parse::<ByteSize>().is_err());
        assert_eq!("2GiB".parse::<ByteSize>().unwrap().bytes(), 2 << 30);
    }
}
