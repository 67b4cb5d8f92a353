//! A client of a driver: bound to one program, and named things instead of numbers.

use std::sync::Arc;
use std::time::Duration;

use prost::Message;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Streaming};

use crate::MAX_MESSAGE_BYTES;
use crate::info::{Info, InfoError};
use crate::proto::{
    ALL_PIPES, ANY, Entity, EntityKind, Error, ForwardingPipelineConfig,
    GetForwardingPipelineConfigRequest, ReadRequest, SYNC, SetForwardingPipelineConfigRequest,
    Status, StreamMessageRequest, StreamMessageResponse, StreamRequest, StreamResponse, Subscribe,
    TableEntry, TargetDevice, Update, UpdateType, WriteRequest,
};
use crate::service::bf_runtime_client::BfRuntimeClient;

/// How long a driver may take until it knows a client and its program.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// Most updates of a request, and bytes of the answer's headers: where one is refused, what became
/// of each is reported there, in some 150 bytes.
const BATCH: usize = 4096;
const MOST_HEADER_BYTES: u32 = 1 << 20;

/// How long a driver may take to begin an answer: to clear a large register is the longest.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);

/// Which driver, device and program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The driver's address: host and port.
    pub address: String,
    /// The device.
    pub device: u32,
    /// The number this client is known by; no other client of the driver may have it.
    pub client: u32,
    /// The program's name.
    pub program: String,
}

/// What goes wrong with a driver.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Nobody there.
    #[error(
        "no driver answers at {address}: {problem}; is bf_switchd running there, with its BFRuntime \
         service?"
    )]
    Connect {
        /// The address.
        address: String,
        /// What the system says.
        problem: String,
    },
    /// The driver does not take this client.
    #[error("the driver does not take client {client}: {problem}; give another number")]
    Subscribe {
        /// The client's number.
        client: u32,
        /// What the driver says.
        problem: String,
    },
    /// Another program.
    #[error(
        "the driver runs {found}, not the program `{wanted}`; load it, or name the one it runs"
    )]
    Program {
        /// The program asked for.
        wanted: String,
        /// Those that run.
        found: String,
    },
    /// A call failed.
    #[error("{call}: {problem}")]
    Call {
        /// What was to be done.
        call: &'static str,
        /// What the driver says.
        problem: String,
        /// The code of gRPC.
        code: Code,
    },
    /// An update was refused.
    #[error("table {table}: {problem}")]
    Refused {
        /// The table.
        table: String,
        /// What the driver says.
        problem: String,
        /// The code of gRPC.
        code: Code,
    },
    /// Something the program does not have.
    #[error(transparent)]
    Info(#[from] InfoError),
}

impl ClientError {
    /// Whether the driver itself is gone, so that nothing but connecting anew can help.
    pub fn is_lost(&self) -> bool {
        match self {
            Self::Connect { .. } => true,
            Self::Call { code, .. } => matches!(code, Code::Unavailable | Code::Cancelled),
            _ => false,
        }
    }
}

/// A client. Clones share its connection and may be used at the same time.
#[derive(Clone, Debug)]
pub struct Client {
    rpc: BfRuntimeClient<Channel>,
    options: Arc<Options>,
    info: Arc<Info>,
    /// Kept open for as long as the driver is to know this client.
    _stream: Arc<Stream>,
}

#[derive(Debug)]
struct Stream {
    _to: mpsc::Sender<StreamMessageRequest>,
    _from: Streaming<StreamMessageResponse>,
}

fn failed(call: &'static str) -> impl Fn(tonic::Status) -> ClientError {
    move |status| ClientError::Call {
        call,
        problem: status.message().to_owned(),
        code: status.code(),
    }
}

impl Client {
    /// Connects to the driver, makes itself known to it and binds the program.
    ///
    /// # Errors
    /// Nobody there, a number that is taken, another program.
    pub async fn connect(options: Options) -> Result<Client, ClientError> {
        let address = options.address.clone();
        let silent = |_| ClientError::Connect {
            address,
            problem: format!("it has not answered for {} s", CONNECT_TIMEOUT.as_secs()),
        };
        tokio::time::timeout(CONNECT_TIMEOUT, Client::shake_hands(options)).await.map_err(silent)?
    }

    async fn shake_hands(options: Options) -> Result<Client, ClientError> {
        let unreachable =
            |problem: String| ClientError::Connect { address: options.address.clone(), problem };
        let channel = Endpoint::from_shared(format!("http://{}", options.address))
            .map_err(|error| unreachable(error.to_string()))?
            .timeout(CALL_TIMEOUT)
            .http2_max_header_list_size(MOST_HEADER_BYTES)
            .tcp_nodelay(true)
            .connect()
            .await
            .map_err(|error| unreachable(innermost(&error)))?;
        let mut rpc = BfRuntimeClient::new(channel)
            .max_decoding_message_size(MAX_MESSAGE_BYTES)
            .max_encoding_message_size(MAX_MESSAGE_BYTES);
        let stream = subscribe(&mut rpc, &options).await?;
        let (device_id, client_id) = (options.device, options.client);
        let request = GetForwardingPipelineConfigRequest { device_id, client_id };
        let call = "asking what runs on the device";
        let running = rpc.get_forwarding_pipeline_config(request).await.map_err(failed(call))?;
        let running = running.into_inner();
        let found = running.config.iter().find(|config| config.p4_name == options.program);
        let Some(program) = found else {
            let names: Vec<&str> = running.config.iter().map(|config| &*config.p4_name).collect();
            return Err(ClientError::Program {
                wanted: options.program.clone(),
                found: if names.is_empty() { "no program".to_owned() } else { names.join(", ") },
            });
        };
        let fixed = running.non_p4_config.as_ref().map_or(&[][..], |fixed| &fixed.bfruntime_info);
        let info = Info::from_json(&[&program.bfruntime_info, fixed])?;
        let named = ForwardingPipelineConfig {
            p4_name: options.program.clone(),
            ..ForwardingPipelineConfig::default()
        };
        let request = SetForwardingPipelineConfigRequest {
            device_id,
            client_id,
            action: 0,
            config: vec![named],
        };
        rpc.set_forwarding_pipeline_config(request).await.map_err(failed("binding the program"))?;
        let (options, info) = (Arc::new(options), Arc::new(info));
        Ok(Client { rpc, options, info, _stream: Arc::new(stream) })
    }

    /// The program's names.
    pub fn info(&self) -> &Info {
        &self.info
    }

    fn target(&self) -> TargetDevice {
        TargetDevice {
            device_id: self.options.device,
            pipe_id: ALL_PIPES,
            direction: ANY,
            prsr_id: ANY,
        }
    }

    /// Makes changes in order; each is tried, whatever became of those before.
    ///
    /// # Errors
    /// The first one that was refused, with its table.
    pub async fn write(&self, mut updates: Vec<Update>) -> Result<(), ClientError> {
        let mut result = Ok(());
        while !updates.is_empty() {
            let rest = updates.split_off(updates.len().min(BATCH));
            result = result.and(self.write_at_once(updates).await);
            if result.as_ref().is_err_and(ClientError::is_lost) {
                break;
            }
            updates = rest;
        }
        result
    }

    async fn write_at_once(&self, updates: Vec<Update>) -> Result<(), ClientError> {
        let tables: Vec<u32> = updates.iter().map(table_of).collect();
        let request = WriteRequest {
            target: Some(self.target()),
            client_id: self.options.client,
            updates,
            p4_name: self.options.program.clone(),
        };
        let refused = |status: tonic::Status| match first_error(&status) {
            Some((at, error)) => {
                let id = tables.get(at).copied().unwrap_or_default();
                let table = self.info.table_by_id(id);
                ClientError::Refused {
                    table: table.map_or_else(|| id.to_string(), |table| table.name.clone()),
                    problem: error.message,
                    code: Code::from_i32(error.canonical_code),
                }
            }
            None => failed("writing")(status),
        };
        self.rpc.clone().write(request).await.map_err(refused)?;
        Ok(())
    }

    /// Reads entities; without a key, all entries of a table.
    ///
    /// # Errors
    /// When the driver refuses.
    pub async fn read(&self, entities: Vec<Entity>) -> Result<Vec<TableEntry>, ClientError> {
        let request = ReadRequest {
            target: Some(self.target()),
            client_id: self.options.client,
            entities,
            p4_name: self.options.program.clone(),
        };
        let reading = failed("reading");
        let mut pieces = self.rpc.clone().read(request).await.map_err(&reading)?.into_inner();
        let mut entries = Vec::new();
        while let Some(piece) = pieces.message().await.map_err(&reading)? {
            entries.extend(piece.entities.into_iter().filter_map(|entity| match entity.entity {
                Some(EntityKind::TableEntry(entry)) => Some(entry),
                _ => None,
            }));
        }
        Ok(entries)
    }

    /// Elements of a register or counter as the hardware has them now: for each index of `range`
    /// its values.
    ///
    /// # Errors
    /// When there is no such register, or the driver refuses.
    pub async fn elements(
        &self,
        name: &str,
        range: std::ops::Range<u32>,
    ) -> Result<Vec<Vec<u64>>, ClientError> {
        let table = self.info.table(name)?;
        // In the protocol, doing something to a table is a change.
        self.write(vec![update(UpdateType::Insert, table.operation(SYNC))]).await?;
        let mut values = vec![Vec::new(); range.len()];
        // All of it in one request: naming every element takes longer than sending the others.
        for entry in self.read(vec![table.entry(None, None)]).await? {
            if let Some((index, lanes)) = table.element(&entry)
                && let Some(at) = (index as u32).checked_sub(range.start)
                && let Some(place) = values.get_mut(at as usize)
            {
                *place = lanes;
            }
        }
        Ok(values)
    }
}

/// A change of an entity.
pub fn update(kind: UpdateType, entity: Entity) -> Update {
    Update { r#type: kind.into(), entity: Some(entity) }
}

fn table_of(update: &Update) -> u32 {
    match update.entity.as_ref().and_then(|entity| entity.entity.as_ref()) {
        Some(EntityKind::TableEntry(entry)) => entry.table_id,
        Some(EntityKind::TableOperation(operation)) => operation.table_id,
        None => 0,
    }
}

/// The first update that failed: its position and the error.
fn first_error(status: &tonic::Status) -> Option<(usize, Error)> {
    let status = Status::decode(status.details()).ok()?;
    let errors = status.details.iter().map(|any| Error::decode(&*any.value));
    let mut failed = errors.enumerate().filter_map(|(at, error)| Some((at, error.ok()?)));
    failed.find(|(_, error)| error.canonical_code != 0)
}

/// Opens the client's stream and waits until the driver knows it.
async fn subscribe(
    rpc: &mut BfRuntimeClient<Channel>,
    options: &Options,
) -> Result<Stream, ClientError> {
    let refused = |problem: String| ClientError::Subscribe { client: options.client, problem };
    let (to, requests) = mpsc::channel(4);
    let subscribe = Subscribe { device_id: options.device, status: None };
    let first = StreamMessageRequest {
        client_id: options.client,
        update: Some(StreamRequest::Subscribe(subscribe)),
    };
    // There is room for it.
    let _ = to.try_send(first);
    let answers = rpc.stream_channel(ReceiverStream::new(requests)).await;
    let mut from = answers.map_err(|status| refused(status.message().to_owned()))?.into_inner();
    let answer = from.message().await.map_err(|status| refused(status.message().to_owned()))?;
    match answer.and_then(|answer| answer.update) {
        Some(StreamResponse::Subscribe(Subscribe { status, .. })) => {
            match status.filter(|status| status.code != 0) {
                None => Ok(Stream { _to: to, _from: from }),
                Some(status) => Err(refused(status.message)),
            }
        }
        None => Err(refused("it closed the stream".to_owned())),
    }
}

/// What lies at the bottom of an error: "connection refused" rather than "transport error".
fn innermost(error: &dyn std::error::Error) -> String {
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost.to_string()
}
