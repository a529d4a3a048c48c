//! HTTP/1.1 on one connection that stays open, and no more of it than these calls need.
//!
//! The client shares the machine with the server that it measures, so that whatever it takes is taken from the server. A
//! library's client does a multiple of this work for each call.

use crate::floor::Result;
use std::io::Write;
use std::net::SocketAddr;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const HEAD_END: &[u8] = b"\r\n\r\n";
/// Longer heads than the server's are not HTTP.
const HEAD_BYTES_MAX: usize = 8 * 1024;
const READ_BYTES: usize = 64 * 1024;

/// A connection.
pub(crate) struct Connection {
    stream: TcpStream,
    address: SocketAddr,
    request: Vec<u8>,
    answer: Vec<u8>,
}

/// The head of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Head {
    status: u16,
    /// Where the body begins, and its length.
    body_at: usize,
    body_bytes: usize,
}

impl Connection {
    pub(crate) async fn open(address: SocketAddr) -> Result<Connection> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Connection { stream, address, request: Vec::new(), answer: Vec::with_capacity(READ_BYTES) })
    }

    /// Asks for a path, and answers the status and the body.
    pub(crate) async fn get(&mut self, path: &str) -> Result<(u16, &[u8])> {
        self.request.clear();
        write!(self.request, "GET {path} HTTP/1.1\r\nhost: {}\r\n\r\n", self.address)?;
        self.exchange().await
    }

    /// Posts JSON, and answers the status and the body.
    pub(crate) async fn post(&mut self, path: &str, json: &[u8]) -> Result<(u16, &[u8])> {
        self.request.clear();
        write!(
            self.request,
            "POST {path} HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
            self.address,
            json.len()
        )?;
        self.request.extend_from_slice(json);
        self.exchange().await
    }

    /// Posts JSON, and insists on a status.
    pub(crate) async fn expect(&mut self, wanted: u16, path: &str, json: &[u8]) -> Result<&[u8]> {
        let (status, body) = self.post(path, json).await?;
        if status == wanted {
            return Ok(body);
        }
        Err(format!("{path} answered {status}: {}", String::from_utf8_lossy(body)).into())
    }

    async fn exchange(&mut self) -> Result<(u16, &[u8])> {
        self.stream.write_all(&self.request).await?;
        self.answer.clear();
        let head = loop {
            self.read().await?;
            if let Some(head) = head(&self.answer)? {
                break head;
            }
        };
        let end = head.body_at + head.body_bytes;
        self.answer.reserve(end.saturating_sub(self.answer.len()));
        while self.answer.len() < end {
            self.read().await?;
        }
        Ok((head.status, &self.answer[head.body_at..end]))
    }

    async fn read(&mut self) -> Result<()> {
        match self.stream.read_buf(&mut self.answer).await? {
            0 => Err("the server has closed the connection".into()),
            _ => Ok(()),
        }
    }
}

/// The head of an answer, as soon as it is there.
fn head(answer: &[u8]) -> Result<Option<Head>> {
    let searched = &answer[..answer.len().min(HEAD_BYTES_MAX)];
    let Some(end) = searched.windows(HEAD_END.len()).position(|window| window == HEAD_END) else {
        return if answer.len() < HEAD_BYTES_MAX { Ok(None) } else { Err("an answer without a head".into()) };
    };
    let mut lines = std::str::from_utf8(&answer[..end])?.split("\r\n");
    let status = lines.next().and_then(|line| line.split(' ').nth(1)).ok_or("an answer without a status")?.parse()?;
    let length = lines
        .filter_map(|line| line.split_once(':'))
        .find(|(name, _)| name.eq_ignore_ascii_case("content-length"))
        .ok_or("an answer that does not say its length")?;
    Ok(Some(Head { status, body_at: end + HEAD_END.len(), body_bytes: length.1.trim().parse()? }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_read_once_it_is_whole() {
        let answer = b"HTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\n{}";
        assert_eq!(head(&answer[..30]).unwrap(), None);
        assert_eq!(head(answer).unwrap(), Some(Head { status: 201, body_at: 43, body_bytes: 2 }));
        assert!(head(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n").is_err());
    }
}
