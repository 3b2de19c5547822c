//! Object stores, opened by where they are: a folder, S3, Google Cloud Storage or Azure.
//!
//! Where it is and how it is spoken to comes from the caller; who we are (keys, tokens, roles) comes from the
//! variables and files that each provider's own tools use, and never from here. Opening asks the store nothing:
//! [`super::probe`] does.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use object_store::aws::AmazonS3Builder;
use object_store::azure::MicrosoftAzureBuilder;
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::path::Path;
use object_store::prefix::PrefixStore;
use object_store::{ClientOptions, ObjectStore, RetryConfig};

use super::folder::Folder;

/// Connections that take longer than this are given up.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);
/// No single request takes longer, whatever its caller is ready to wait; callers have limits of their own, which grow for a
/// store behind a slow line. A part of 8 MiB gets through at 14 KB/s.
const REQUEST_LIMIT: Duration = Duration::from_mins(10);
/// How often a request is sent again below the caller: enough for a connection that was closed while idle, too few to
/// hide that a store is down from those who must slow down then.
const RETRIES_MAX: usize = 2;
/// No request is sent again after this.
const RETRY_LIMIT: Duration = Duration::from_secs(5);

/// How to speak to a store that is not a folder.
#[derive(Clone, Debug, Default)]
pub struct BackendOptions {
    /// Address to speak to instead of the provider's own, as `https://host:port`.
    pub endpoint: Option<String>,
    /// Region of an S3 bucket; if not given, what `AWS_REGION` says, else `us-east-1`.
    pub region: Option<String>,
    /// Whether an S3 bucket is named in the host and not in the path. Most servers but Amazon's want the path.
    pub virtual_hosted: bool,
    /// Whether `http://` endpoints are allowed: keys and data then pass in the clear.
    pub allow_http: bool,
    /// Whether S3 requests go unsigned, to a server that asks nobody for a key.
    pub unsigned: bool,
}

/// Why a store cannot be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BackendError {
    /// The place does not name a store.
    #[error("{place:?}: {what}")]
    Place {
        /// What was given.
        place: String,
        /// What is wrong with it.
        what: &'static str,
    },
    /// The endpoint is not an address, or one that was not allowed.
    #[error("endpoint {endpoint:?}: {what}")]
    Endpoint {
        /// What was given.
        endpoint: String,
        /// What is wrong with it.
        what: &'static str,
    },
    /// There is no such folder; none is made, since it may be a disk that is not mounted.
    #[error("there is no folder {path}")]
    NoFolder {
        /// The folder.
        path: PathBuf,
    },
    /// The folder cannot be opened.
    #[error("open the folder {path}")]
    Folder {
        /// The folder.
        path: PathBuf,
        /// What the file system says.
        #[source]
        source: object_store::Error,
    },
    /// Settings or credentials do not fit the provider.
    #[error("set up {place:?}")]
    Settings {
        /// What was given.
        place: String,
        /// What does not fit.
        #[source]
        source: object_store::Error,
    },
}

/// Where a store is.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Place {
    Folder(PathBuf),
    Bucket { provider: Provider, bucket: String, prefix: Path },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Provider {
    S3,
    Google,
    Azure,
}

/// Opens the store at `place`: a folder's path, `file:///path`, `s3://bucket/prefix`, `gs://bucket/prefix` or
/// `az://container/prefix`; the prefix may be missing. Azure's account is that of `AZURE_STORAGE_ACCOUNT_NAME`.
///
/// May read files (certificates, credentials), so it does not belong on a runtime thread.
///
/// # Errors
/// [`BackendError`] if the place cannot be understood, or the settings do not fit it.
pub fn open_store(place: &str, options: &BackendOptions) -> Result<Arc<dyn ObjectStore>, BackendError> {
    let (provider, bucket, prefix) = match parse(place)? {
        Place::Folder(path) => {
            if !path.is_dir() {
                return Err(BackendError::NoFolder { path });
            }
            return local_store(&path).map_err(|source| BackendError::Folder { path, source });
        }
        Place::Bucket { provider, bucket, prefix } => (provider, bucket, prefix),
    };
    if let Some(endpoint) = &options.endpoint {
        check_endpoint(endpoint, options.allow_http)?;
    }
    // Needed once in a process; another part of it may have chosen already, and then that holds.
    let _already = rustls::crypto::ring::default_provider().install_default();
    let opened = match provider {
        Provider::S3 => open_s3(bucket, options),
        Provider::Google => open_google(bucket, options),
        Provider::Azure => open_azure(bucket, options),
    };
    let store = opened.map_err(|source| BackendError::Settings { place: place.to_owned(), source })?;
    Ok(if prefix.is_root() { store } else { Arc::new(PrefixStore::new(store, prefix)) })
}

/// Opens a folder as an object store whose answered writes survive a loss of power.
///
/// # Errors
/// What the file system says if `folder` does not exist or is not a folder.
pub fn local_store(folder: &std::path::Path) -> object_store::Result<Arc<dyn ObjectStore>> {
    Ok(Arc::new(Folder::open(folder)?))
}

fn parse(place: &str) -> Result<Place, BackendError> {
    let refuse = |what| BackendError::Place { place: place.to_owned(), what };
    let Some((scheme, rest)) = place.split_once("://") else {
        return if place.is_empty() {
            Err(refuse("no folder and no address"))
        } else {
            Ok(Place::Folder(PathBuf::from(place)))
        };
    };
    let provider = match scheme {
        "file" => return parse_file(rest).map_err(refuse),
        "s3" => Provider::S3,
        "gs" => Provider::Google,
        "az" => Provider::Azure,
        _ => return Err(refuse("none of file, s3, gs and az")),
    };
    let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
    if bucket.is_empty() {
        return Err(refuse("no bucket"));
    }
    if !bucket.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_')) {
        return Err(refuse(
            "a bucket's name has letters, digits, dots and hyphens; keys and ports do not go here",
        ));
    }
    let prefix =
        Path::parse(prefix).map_err(|_source| refuse("the prefix has an empty or forbidden part"))?;
    if prefix.as_ref().contains(['?', '#']) {
        return Err(refuse("options do not go here"));
    }
    Ok(Place::Bucket { provider, bucket: bucket.to_owned(), prefix })
}

fn parse_file(path: &str) -> Result<Place, &'static str> {
    if !path.starts_with('/') {
        return Err("a file address has three slashes and then the full path");
    }
    if path.contains('%') {
        return Err("a path with % is given as a path, without file://");
    }
    Ok(Place::Folder(PathBuf::from(path)))
}

fn check_endpoint(endpoint: &str, allow_http: bool) -> Result<(), BackendError> {
    let refuse = |what| Err(BackendError::Endpoint { endpoint: endpoint.to_owned(), what });
    let host = match endpoint.split_once("://") {
        Some(("https", host)) => host,
        Some(("http", host)) if allow_http => host,
        Some(("http", _)) => return refuse("http is not allowed unless a setting says so"),
        _ => return refuse("an endpoint begins with https:// or http://"),
    };
    let host = host.trim_end_matches('/');
    if host.is_empty() || host.contains(['/', '?', '#', '@']) {
        return refuse("an endpoint is a host, with a port if need be, and nothing else");
    }
    Ok(())
}

fn open_s3(bucket: String, options: &BackendOptions) -> object_store::Result<Arc<dyn ObjectStore>> {
    let mut builder = AmazonS3Builder::from_env()
        .with_client_options(client(options))
        .with_allow_http(options.allow_http)
        .with_retry(retry())
        .with_virtual_hosted_style_request(options.virtual_hosted)
        .with_skip_signature(options.unsigned);
    if let Some(region) = &options.region {
        builder = builder.with_region(region);
    }
    if let Some(endpoint) = &options.endpoint {
        builder = builder.with_endpoint(match endpoint.split_once("://") {
            Some((scheme, host)) if options.virtual_hosted => format!("{scheme}://{bucket}.{host}"),
            _ => endpoint.clone(),
        });
    }
    Ok(Arc::new(builder.with_bucket_name(bucket).build()?))
}

fn open_google(bucket: String, options: &BackendOptions) -> object_store::Result<Arc<dyn ObjectStore>> {
    let mut builder = GoogleCloudStorageBuilder::from_env()
        .with_client_options(client(options))
        .with_retry(retry())
        .with_bucket_name(bucket);
    if let Some(endpoint) = &options.endpoint {
        builder = builder.with_base_url(endpoint);
    }
    Ok(Arc::new(builder.build()?))
}

fn open_azure(container: String, options: &BackendOptions) -> object_store::Result<Arc<dyn ObjectStore>> {
    let mut builder = MicrosoftAzureBuilder::from_env()
        .with_client_options(client(options))
        .with_allow_http(options.allow_http)
        .with_retry(retry())
        .with_container_name(container);
    if let Some(endpoint) = &options.endpoint {
        builder = builder.with_endpoint(endpoint.clone());
    }
    Ok(Arc::new(builder.build()?))
}

/// Limits on what goes over the network.
fn client(options: &BackendOptions) -> ClientOptions {
    ClientOptions::new()
        .with_allow_http(options.allow_http)
        .with_connect_timeout(CONNECT_LIMIT)
        .with_timeout(REQUEST_LIMIT)
}

fn retry() -> RetryConfig {
    RetryConfig { max_retries: RETRIES_MAX, retry_timeout: RETRY_LIMIT, ..RetryConfig::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bucket(provider: Provider, bucket: &str, prefix: &str) -> Place {
        Place::Bucket { provider, bucket: bucket.to_owned(), prefix: Path::from(prefix) }
    }

    #[test]
    fn places_are_understood() {
        let places = [
            ("data/tier", Place::Folder("data/tier".into())),
            ("/srv/tier", Place::Folder("/srv/tier".into())),
            ("file:///srv/tier", Place::Folder("/srv/tier".into())),
            ("s3://my.bucket-1", bucket(Provider::S3, "my.bucket-1", "")),
            ("s3://bucket/", bucket(Provider::S3, "bucket", "")),
            ("s3://bucket/a/b/", bucket(Provider::S3, "bucket", "a/b")),
            ("gs://bucket/a", bucket(Provider::Google, "bucket", "a")),
            ("az://container/a", bucket(Provider::Azure, "container", "a")),
        ];
        for (text, place) in places {
            assert_eq!(parse(text).unwrap(), place, "{text}");
        }
    }

    #[test]
    fn places_that_make_no_sense_are_refused_with_a_reason() {
        let places = [
            ("", "no folder"),
            ("file://srv/tier", "three slashes"),
            ("file:///srv/a%20b", "without file://"),
            ("http://host/bucket", "none of"),
            ("S3://bucket", "none of"),
            ("s3://", "no bucket"),
            ("s3:///prefix", "no bucket"),
            ("s3://key:secret@bucket/a", "keys and ports do not go here"),
            ("s3://bucket:9000/a", "keys and ports do not go here"),
            ("s3://bucket/a//b", "empty or forbidden part"),
            ("s3://bucket/../a", "empty or forbidden part"),
            ("s3://bucket/a?region=x", "options do not go here"),
        ];
        for (text, reason) in places {
            let refused = parse(text).unwrap_err().to_string();
            assert!(refused.contains(reason), "{text}: {refused}");
        }
    }

    #[test]
    fn plain_http_needs_a_setting() {
        assert!(check_endpoint("https://host:9000", false).is_ok());
        assert!(check_endpoint("http://host:9000/", true).is_ok());
        let endpoints = [
            ("http://host:9000", "http is not allowed"),
            ("host:9000", "begins with"),
            ("ftp://host", "begins with"),
            ("https://", "a host"),
            ("https://host/path", "a host"),
            ("https://key@host", "a host"),
        ];
        for (endpoint, reason) in endpoints {
            let refused = check_endpoint(endpoint, false).unwrap_err().to_string();
            assert!(refused.contains(reason), "{endpoint}: {refused}");
        }
    }

    #[test]
    fn folder_that_is_not_there_is_not_made() {
        let folder = tempfile::tempdir().unwrap();
        let missing = folder.path().join("missing");
        let opened = open_store(missing.to_str().unwrap(), &BackendOptions::default());
        assert!(matches!(opened, Err(BackendError::NoFolder { .. })));
        assert!(!missing.exists());
    }

    #[test]
    fn folder_syncs_what_it_answers() {
        let folder = tempfile::tempdir().unwrap();
        for place in [folder.path().display().to_string(), format!("file://{}", folder.path().display())] {
            let store = open_store(&place, &BackendOptions::default()).unwrap();
            assert!(format!("{store:?}").contains("fsync: true"));
        }
    }

    #[test]
    fn prefix_stands_before_every_name() {
        let options = BackendOptions {
            endpoint: Some("http://127.0.0.1:1".to_owned()),
            allow_http: true,
            ..BackendOptions::default()
        };
        let with = open_store("s3://bucket/some/prefix", &options).unwrap();
        assert!(with.to_string().contains("some/prefix"), "{with}");
        let without = open_store("s3://bucket", &options).unwrap();
        assert!(without.to_string().contains("bucket"), "{without}");
    }
}
