//! Calls to the controller by name, with requests and replies as JSON, from the service description itself.
//!
//! Nothing generated is used, so a field that the server's own code lost would be missed here.

use super::Failure;
use anyhow::{Context, Result};
use bytes::{Buf, BufMut, Bytes};
use prost_reflect::{DescriptorPool, DynamicMessage, SerializeOptions, ServiceDescriptor};
use serde_json::Value as Json;
use std::path::Path;
use std::time::Duration;
use tokio::time::timeout;
use tonic::client::Grpc;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::metadata::{Ascii, MetadataKey, MetadataValue};
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status};

const SERVICE: &str = "io.pravega.controller.stream.api.grpc.v1.ControllerService";
/// Largest reply taken.
const REPLY_BYTES_MAX: usize = 1 << 26;
/// How long a call without a deadline of its own may take.
const CALL_TIMEOUT: Duration = Duration::from_secs(150);

/// A connection to a controller.
#[derive(Clone)]
pub struct Controller {
    service: ServiceDescriptor,
    channel: Channel,
}

/// A call.
#[derive(Clone, Debug, Default)]
pub struct Call {
    /// Name of the RPC.
    pub rpc: String,
    /// The request, unless `raw` is given.
    pub request: Json,
    /// The request's bytes.
    pub raw: Option<Bytes>,
    /// Metadata to go with it.
    pub metadata: Vec<(String, String)>,
    /// The client's deadline.
    pub deadline: Option<Duration>,
}

impl Controller {
    /// Reads the service description and names the server; connects with the first call.
    ///
    /// # Errors
    /// If the description cannot be read or the address is none.
    pub fn new(address: &str) -> Result<Self> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../wire/proto");
        let files = protox::compile(["controller.proto"], [folder])?;
        let pool = DescriptorPool::from_file_descriptor_set(files)?;
        let service = pool.get_service_by_name(SERVICE).context("the description has no such service")?;
        let channel = Endpoint::from_shared(format!("http://{address}"))?.connect_lazy();
        Ok(Self { service, channel })
    }

    /// The names of all RPCs.
    pub fn rpcs(&self) -> Vec<String> {
        self.service.methods().map(|method| method.name().to_owned()).collect()
    }

    /// Calls; the inner error is the name of the gRPC code with the message.
    ///
    /// # Errors
    /// If the request does not fit the description.
    pub async fn call(&self, call: &Call) -> Result<Result<Json, (String, String)>> {
        let method = self.service.methods().find(|method| method.name() == call.rpc);
        let method = method.with_context(|| format!("no RPC {}", call.rpc))?;
        let message = match &call.raw {
            Some(raw) => raw.clone(),
            None => encode(&method, &call.request)?,
        };
        let mut request = Request::new(message);
        for (key, value) in &call.metadata {
            let key: MetadataKey<Ascii> = key.parse()?;
            request.metadata_mut().insert(key, value.parse::<MetadataValue<Ascii>>()?);
        }
        let limit = call.deadline.unwrap_or(CALL_TIMEOUT);
        if let Some(deadline) = call.deadline {
            request.set_timeout(deadline);
        }
        let path = http::uri::PathAndQuery::try_from(format!("/{SERVICE}/{}", call.rpc))?;
        let mut client = Grpc::new(self.channel.clone()).max_decoding_message_size(REPLY_BYTES_MAX);
        let answered = timeout(limit, async {
            client.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
            client.unary(request, path, BytesCodec).await
        });
        match answered.await {
            Err(_elapsed) => Ok(Err(("DEADLINE_EXCEEDED".to_owned(), String::new()))),
            Ok(Err(status)) => {
                Ok(Err((code_name(&status, call.deadline.is_some()), status.message().to_owned())))
            }
            Ok(Ok(reply)) => {
                let message = DynamicMessage::decode(method.output(), reply.into_inner())?;
                let options = SerializeOptions::new().skip_default_fields(false);
                let mut json = message.serialize_with_options(serde_json::value::Serializer, &options)?;
                drop_nulls(&mut json);
                Ok(Ok(json))
            }
        }
    }
}

fn encode(method: &prost_reflect::MethodDescriptor, request: &Json) -> Result<Bytes> {
    use prost_reflect::prost::Message;
    let request = if request.is_null() { Json::Object(serde_json::Map::new()) } else { request.clone() };
    let message = DynamicMessage::deserialize(method.input(), request)
        .map_err(|error| Failure(format!("the transcript's request does not fit: {error}")))?;
    Ok(Bytes::from(message.encode_to_vec()))
}

/// Messages that are not set come out as null; a transcript calls them absent.
fn drop_nulls(json: &mut Json) {
    match json {
        Json::Object(members) => {
            members.retain(|_, value| !value.is_null());
            members.values_mut().for_each(drop_nulls);
        }
        Json::Array(items) => items.iter_mut().for_each(drop_nulls),
        _ => {}
    }
}

/// The name that gRPC gives the code. tonic calls its own expired deadline cancelled.
fn code_name(status: &Status, has_deadline: bool) -> String {
    if has_deadline && status.code() == Code::Cancelled {
        return "DEADLINE_EXCEEDED".to_owned();
    }
    let mut name = String::new();
    for character in format!("{:?}", status.code()).chars() {
        if character.is_uppercase() && !name.is_empty() {
            name.push('_');
        }
        name.push(character.to_ascii_uppercase());
    }
    name
}

#[derive(Clone, Copy, Default)]
struct BytesCodec;

impl Codec for BytesCodec {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;
    fn encoder(&mut self) -> Self {
        Self
    }
    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for BytesCodec {
    type Item = Bytes;
    type Error = Status;
    fn encode(&mut self, item: Bytes, to: &mut EncodeBuf<'_>) -> Result<(), Status> {
        to.put(item);
        Ok(())
    }
}

impl Decoder for BytesCodec {
    type Item = Bytes;
    type Error = Status;
    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(from.copy_to_bytes(from.remaining())))
    }
}
