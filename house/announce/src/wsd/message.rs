//! Messages of WS-Discovery (2005/04) and of the transfer of metadata: SOAP 1.2 in XML.
//!
//! ```text
//! client                                   this computer
//! Probe (multicast)              ->        ProbeMatches: its id, types, and the address for metadata
//! Resolve (multicast)            ->        ResolveMatches: the same
//! Get (HTTP)                     ->        GetResponse: name, workgroup, model
//!                                <-        Hello, Bye (multicast): it came, it goes
//! ```

use std::fmt::Write;
use std::net::Ipv4Addr;

use roxmltree::{Document, Node};

use crate::Device;

/// The longest request that is read, in bytes.
pub(crate) const MAX_REQUEST: usize = 16 << 10;

const SOAP: &str = "http://www.w3.org/2003/05/soap-envelope";
const ADDRESSING: &str = "http://schemas.xmlsoap.org/ws/2004/08/addressing";
const DISCOVERY: &str = "http://schemas.xmlsoap.org/ws/2005/04/discovery";
const TRANSFER: &str = "http://schemas.xmlsoap.org/ws/2004/09/transfer";
const METADATA: &str = "http://schemas.xmlsoap.org/ws/2004/09/mex";
const PROFILE: &str = "http://schemas.xmlsoap.org/ws/2006/02/devprof";
const COMPUTER: &str = "http://schemas.microsoft.com/windows/pub/2005/07";
const ANONYMOUS: &str = "http://schemas.xmlsoap.org/ws/2004/08/addressing/role/anonymous";
const EVERYONE: &str = "urn:schemas-xmlsoap-org:ws:2005:04:discovery";

/// A request of a client, with the id of its message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    /// A search for all computers.
    Probe(String),
    /// A request for the address of this computer.
    Resolve(String),
    /// A request for the name of the computer.
    Get(String),
}

/// Reads a request for a device. None: it is for others, or it is not a request.
pub(crate) fn parse(bytes: &[u8], device: &Device) -> Option<Request> {
    let text = std::str::from_utf8(bytes.get(..bytes.len().min(MAX_REQUEST))?).ok()?;
    let document = Document::parse(text).ok()?;
    let envelope = document.root_element();
    let header = child(envelope, SOAP, "Header")?;
    let body = child(envelope, SOAP, "Body")?;
    let id = child(header, ADDRESSING, "MessageID")?.text()?.trim().to_owned();
    if let Some(probe) = child(body, DISCOVERY, "Probe") {
        let types = child(probe, DISCOVERY, "Types").and_then(|types| types.text()).unwrap_or("");
        let names = types.split_whitespace().map(|name| name.rsplit(':').next().unwrap_or(name));
        let mut names = names.peekable();
        let is_own = names.peek().is_none() || names.any(|it| ["Device", "Computer"].contains(&it));
        return is_own.then_some(Request::Probe(id));
    }
    if let Some(resolve) = child(body, DISCOVERY, "Resolve") {
        let reference = child(resolve, ADDRESSING, "EndpointReference")?;
        let address = child(reference, ADDRESSING, "Address")?.text()?.trim().to_owned();
        return (address == device.urn()).then_some(Request::Resolve(id));
    }
    let action = child(header, ADDRESSING, "Action")?.text()?.trim();
    (action == format!("{TRANSFER}/Get")).then_some(Request::Get(id))
}

fn child<'a, 'i>(of: Node<'a, 'i>, namespace: &'static str, name: &str) -> Option<Node<'a, 'i>> {
    of.children().find(|node| node.is_element() && node.has_tag_name((namespace, name)))
}

impl Device {
    /// Its identifier as clients see it.
    pub(crate) fn urn(&self) -> String {
        urn(self.id)
    }
}

/// Writes the messages of a device, which it numbers.
pub(crate) struct MessageWriter {
    device: Device,
    /// Distinguishes this start of the device from earlier ones: seconds since 1970.
    instance: u32,
    port: u16,
    count: u32,
}

impl MessageWriter {
    pub(crate) fn new(device: Device, instance: u32, port: u16) -> Self {
        Self { device, instance, port, count: 0 }
    }

    /// The computer came, with that address.
    pub(crate) fn hello(&mut self, address: Ipv4Addr) -> String {
        let body = format!("<d:Hello>{}</d:Hello>", self.endpoint(address));
        self.message(&format!("{DISCOVERY}/Hello"), EVERYONE, None, &body)
    }

    /// The computer goes.
    pub(crate) fn bye(&mut self) -> String {
        let body = format!("<d:Bye>{}</d:Bye>", self.reference());
        self.message(&format!("{DISCOVERY}/Bye"), EVERYONE, None, &body)
    }

    /// The answer to a request that came by a datagram; none: such a request comes by HTTP.
    pub(crate) fn discovery_answer(
        &mut self,
        request: &Request,
        address: Ipv4Addr,
    ) -> Option<String> {
        let (name, id) = match request {
            Request::Probe(id) => ("Probe", id),
            Request::Resolve(id) => ("Resolve", id),
            Request::Get(_) => return None,
        };
        let endpoint = self.endpoint(address);
        let body =
            format!("<d:{name}Matches><d:{name}Match>{endpoint}</d:{name}Match></d:{name}Matches>");
        let action = format!("{DISCOVERY}/{name}Matches");
        Some(self.message(&action, ANONYMOUS, Some(id), &body))
    }

    /// The answer to a request that came by HTTP; none: such a request comes by a datagram.
    pub(crate) fn metadata(&mut self, request: &Request) -> Option<String> {
        let Request::Get(id) = request else { return None };
        let Device { name, workgroup, .. } = &self.device;
        let (name, workgroup) = (escape(name), escape(workgroup));
        let urn = self.device.urn();
        let body = format!(
            "<m:Metadata>\
             <m:MetadataSection Dialect=\"{PROFILE}/ThisDevice\"><p:ThisDevice>\
             <p:FriendlyName>{name}</p:FriendlyName></p:ThisDevice></m:MetadataSection>\
             <m:MetadataSection Dialect=\"{PROFILE}/ThisModel\"><p:ThisModel>\
             <p:Manufacturer>Poolhouse</p:Manufacturer><p:ModelName>Poolhouse</p:ModelName>\
             <n:DeviceCategory>Computers</n:DeviceCategory></p:ThisModel></m:MetadataSection>\
             <m:MetadataSection Dialect=\"{PROFILE}/Relationship\">\
             <p:Relationship Type=\"{PROFILE}/host\"><p:Host>\
             <a:EndpointReference><a:Address>{urn}</a:Address></a:EndpointReference>\
             <p:Types>n:Computer</p:Types><p:ServiceId>{urn}</p:ServiceId>\
             <n:Computer>{name}/Workgroup:{workgroup}</n:Computer>\
             </p:Host></p:Relationship></m:MetadataSection></m:Metadata>"
        );
        Some(self.message(&format!("{TRANSFER}/GetResponse"), ANONYMOUS, Some(id), &body))
    }

    fn reference(&self) -> String {
        format!(
            "<a:EndpointReference><a:Address>{}</a:Address></a:EndpointReference>",
            self.device.urn()
        )
    }

    /// Its id, types, and the address for metadata.
    fn endpoint(&self, address: Ipv4Addr) -> String {
        format!(
            "{}<d:Types>p:Device n:Computer</d:Types>\
             <d:XAddrs>http://{address}:{}/</d:XAddrs><d:MetadataVersion>1</d:MetadataVersion>",
            self.reference(),
            self.port
        )
    }

    fn message(&mut self, action: &str, to: &str, relates: Option<&str>, body: &str) -> String {
        self.count = self.count.wrapping_add(1);
        let Self { device, instance, count, .. } = self;
        let mut id = device.id;
        let (_, end) = id.split_at_mut(8);
        for (to, from) in
            end.iter_mut().zip(instance.to_be_bytes().into_iter().chain(count.to_be_bytes()))
        {
            *to = from;
        }
        let id = urn(id);
        let mut text = format!(
            "<?xml version=\"1.0\" encoding=\"utf-8\"?><s:Envelope xmlns:s=\"{SOAP}\" \
             xmlns:a=\"{ADDRESSING}\" xmlns:d=\"{DISCOVERY}\" xmlns:m=\"{METADATA}\" \
             xmlns:p=\"{PROFILE}\" xmlns:n=\"{COMPUTER}\"><s:Header><a:To>{to}</a:To>\
             <a:Action>{action}</a:Action><a:MessageID>{id}</a:MessageID>"
        );
        if let Some(relates) = relates {
            // writing to a string cannot fail
            let _ = write!(text, "<a:RelatesTo>{}</a:RelatesTo>", escape(relates));
        }
        let _ = write!(
            text,
            "<d:AppSequence InstanceId=\"{instance}\" MessageNumber=\"{count}\"/></s:Header>\
             <s:Body>{body}</s:Body></s:Envelope>"
        );
        text
    }
}

/// Text in the form of XML. Characters that XML does not allow are left out.
fn escape(text: &str) -> String {
    let mut escaped = String::new();
    for c in text.chars().filter(|c| !c.is_control()) {
        match c {
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '&' => escaped.push_str("&amp;"),
            '"' => escaped.push_str("&quot;"),
            c => escaped.push(c),
        }
    }
    escaped
}

fn urn(id: [u8; 16]) -> String {
    let mut text = String::from("urn:uuid:");
    for (at, byte) in id.iter().enumerate() {
        if [4, 6, 8, 10].contains(&at) {
            text.push('-');
        }
        // writing to a string cannot fail
        let _ = write!(text, "{byte:02x}");
    }
    text
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use roxmltree::Document;

    use super::{ADDRESSING, COMPUTER, DISCOVERY, MessageWriter, Request, SOAP, TRANSFER, parse};
    use crate::Device;

    fn device() -> Device {
        let id = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16];
        Device { name: "nas <1>".to_owned(), id, workgroup: "WORKGROUP".to_owned() }
    }

    /// A request as Windows sends it.
    fn request(action: &str, body: &str) -> Vec<u8> {
        format!(
            "<?xml version=\"1.0\" encoding=\"utf-8\"?><soap:Envelope xmlns:soap=\"{SOAP}\" \
             xmlns:wsa=\"{ADDRESSING}\" xmlns:wsd=\"{DISCOVERY}\" xmlns:pub=\"{COMPUTER}\">\
             <soap:Header><wsa:To>urn:x</wsa:To><wsa:Action>{action}</wsa:Action>\
             <wsa:MessageID> urn:uuid:7 </wsa:MessageID></soap:Header><soap:Body>{body}</soap:Body>\
             </soap:Envelope>"
        )
        .into_bytes()
    }

    fn probe(types: &str) -> Option<Request> {
        let types = format!("<wsd:Probe><wsd:Types>{types}</wsd:Types></wsd:Probe>");
        parse(&request("p", &types), &device())
    }

    fn resolve(address: &str) -> Option<Request> {
        let body = format!(
            "<wsd:Resolve><wsa:EndpointReference><wsa:Address>{address}</wsa:Address>\
             </wsa:EndpointReference></wsd:Resolve>"
        );
        parse(&request("r", &body), &device())
    }

    const ID: &str = "urn:uuid:7";
    const URN: &str = "urn:uuid:01020304-0506-0708-090a-0b0c0d0e0f10";

    #[test]
    fn requests_for_computers_are_read() {
        let id = || ID.to_owned();
        for types in ["wsdp:Device", "pub:Computer", "x:Printer pub:Computer", ""] {
            assert_eq!(probe(types), Some(Request::Probe(id())), "{types}");
        }
        let all = parse(&request("p", "<wsd:Probe/>"), &device());
        assert_eq!(all, Some(Request::Probe(id())));
        assert_eq!(probe("x:Printer"), None);
        assert_eq!(resolve(URN), Some(Request::Resolve(id())));
        assert_eq!(resolve("urn:uuid:other"), None);
        let get = request(&format!("{TRANSFER}/Get"), "");
        assert_eq!(parse(&get, &device()), Some(Request::Get(id())));
    }

    #[test]
    fn other_bytes_are_not_requests() {
        let expanding = b"<!DOCTYPE a [<!ENTITY b \"cccc\">]><a>&b;&b;</a>";
        let long = vec![b'<'; 1 << 20];
        for bytes in [&b""[..], b"<", b"GET / HTTP/1.1\r\n", &[0xff, 0xfe], expanding, &long] {
            assert_eq!(parse(bytes, &device()), None);
        }
        let whole = request(&format!("{TRANSFER}/Get"), "");
        for end in 0..whole.len() {
            assert_eq!(parse(&whole[..end], &device()), None);
        }
    }

    #[test]
    fn answers_are_xml_with_the_name_and_address() {
        let mut writer = MessageWriter::new(device(), 99, 5357);
        let address = Ipv4Addr::new(192, 168, 1, 5);
        let request = Request::Probe("urn:uuid:7&".to_owned());
        let answer = writer.discovery_answer(&request, address).unwrap();
        for part in [URN, "http://192.168.1.5:5357/", "ProbeMatch>", "urn:uuid:7&amp;"] {
            assert!(answer.contains(part), "{part}: {answer}");
        }
        let get = Request::Get(ID.to_owned());
        let metadata = writer.metadata(&get).unwrap();
        let text = Document::parse(&metadata).unwrap();
        let computer = text.descendants().find(|it| it.has_tag_name((COMPUTER, "Computer")));
        assert_eq!(computer.and_then(|it| it.text()), Some("nas <1>/Workgroup:WORKGROUP"));
        assert!(writer.metadata(&request).is_none());
        assert!(writer.discovery_answer(&get, address).is_none());
        let ids: Vec<_> = [writer.hello(address), writer.bye(), answer, metadata]
            .iter()
            .map(|text| {
                let text = Document::parse(text).unwrap();
                let id = text.descendants().find(|it| it.has_tag_name((ADDRESSING, "MessageID")));
                id.unwrap().text().unwrap().to_owned()
            })
            .collect();
        assert!((1..ids.len()).all(|at| !ids[..at].contains(&ids[at])), "{ids:?}");
    }
}
