//! A Kafka client of a few requests, by hand: what the checks say to a broker does not pass through weir's code.

use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use super::logs::{crc32c, walk};

/// No answer of these requests is larger.
const LARGEST: usize = 64 << 20;

/// One connection.
#[derive(Debug)]
pub(super) struct Raw {
    stream: TcpStream,
    correlation: i32,
}

/// What a Fetch said about one partition.
#[derive(Debug)]
pub(super) struct Fetched {
    pub(super) error: i16,
    pub(super) high_watermark: i64,
    pub(super) last_stable_offset: i64,
    /// Producer id and first offset.
    pub(super) aborted: Vec<(i64, i64)>,
    pub(super) records: Vec<u8>,
}

/// One record batch to produce: no compression, keys and values as given.
#[derive(Debug, Clone)]
pub(super) struct Batch {
    pub(super) producer_id: i64,
    pub(super) producer_epoch: i16,
    pub(super) base_sequence: i32,
    pub(super) records: Vec<(String, String)>,
}

impl Raw {
    pub(super) fn connect(address: &str) -> Result<Self> {
        let address = address.to_socket_addrs()?.next().context("no address")?;
        let stream = TcpStream::connect_timeout(&address, Duration::from_secs(5))?;
        stream.set_read_timeout(Some(Duration::from_secs(20)))?;
        stream.set_write_timeout(Some(Duration::from_secs(20)))?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, correlation: 0 })
    }

    /// Sends one request with header version 1 and returns the body behind header version 0.
    fn call(&mut self, key: i16, version: i16, body: &[u8]) -> Result<Vec<u8>> {
        self.correlation += 1;
        let mut frame = Writer::default();
        frame.i16(key);
        frame.i16(version);
        frame.i32(self.correlation);
        frame.string(Some("xtask"));
        frame.0.extend_from_slice(body);
        let mut message = i32::try_from(frame.0.len())?.to_be_bytes().to_vec();
        message.extend_from_slice(&frame.0);
        self.stream.write_all(&message).context("the request could not be sent")?;
        let mut size = [0; 4];
        self.stream.read_exact(&mut size).context("no answer")?;
        let size = usize::try_from(i32::from_be_bytes(size)).context("a negative frame size")?;
        ensure!((4..=LARGEST).contains(&size), "an answer of {size} bytes");
        let mut answer = vec![0; size];
        self.stream.read_exact(&mut answer).context("a cut answer")?;
        let body = answer.split_off(4);
        ensure!(answer == self.correlation.to_be_bytes(), "an answer to another request");
        Ok(body)
    }

    /// Produce version 7: error code and base offset.
    pub(super) fn produce(&mut self, topic: &str, partition: i32, batch: &Batch) -> Result<(i16, i64)> {
        let records = batch.encode()?;
        let mut body = Writer::default();
        body.string(None);
        body.i16(-1);
        body.i32(10_000);
        body.i32(1);
        body.string(Some(topic));
        body.i32(1);
        body.i32(partition);
        body.i32(i32::try_from(records.len())?);
        body.0.extend_from_slice(&records);
        let answer = self.call(0, 7, &body.0)?;
        let mut reader = Reader(&answer);
        ensure!(reader.i32()? == 1, "one topic was asked for");
        reader.string()?;
        ensure!(reader.i32()? == 1 && reader.i32()? == partition, "one partition was asked for");
        Ok((reader.i16()?, reader.i64()?))
    }

    /// Fetches from the start to where the isolation ends; a response may end with a segment. The ends are those of
    /// the last response, the aborted transactions of all.
    pub(super) fn fetch_all(&mut self, topic: &str, partition: i32, committed: bool) -> Result<Fetched> {
        let mut all = self.fetch(topic, partition, 0, committed)?;
        let mut last = all.records.clone();
        loop {
            let (batches, _) = walk(&last);
            let Some(batch) = batches.last() else { return Ok(all) };
            let next = self.fetch(topic, partition, batch.last_offset + 1, committed)?;
            ensure!(
                next.error == 0,
                "Fetch answered error {} at offset {}",
                next.error,
                batch.last_offset + 1
            );
            all.aborted.extend(next.aborted);
            all.records.extend_from_slice(&next.records);
            (all.high_watermark, all.last_stable_offset) = (next.high_watermark, next.last_stable_offset);
            last = next.records;
        }
    }

    /// Fetch version 11 of one partition, without waiting.
    pub(super) fn fetch(
        &mut self,
        topic: &str,
        partition: i32,
        offset: i64,
        committed: bool,
    ) -> Result<Fetched> {
        let mut body = Writer::default();
        body.i32(-1);
        body.i32(100);
        body.i32(0);
        body.i32(32 << 20);
        body.i8(i8::from(committed));
        body.i32(0);
        body.i32(-1);
        body.i32(1);
        body.string(Some(topic));
        body.i32(1);
        body.i32(partition);
        body.i32(-1);
        body.i64(offset);
        body.i64(-1);
        body.i32(32 << 20);
        body.i32(0);
        body.string(Some(""));
        let answer = self.call(1, 11, &body.0)?;
        let mut reader = Reader(&answer);
        reader.i32()?;
        let error = reader.i16()?;
        ensure!(error == 0, "Fetch answered error {error}");
        reader.i32()?;
        ensure!(reader.i32()? == 1, "one topic was asked for");
        reader.string()?;
        ensure!(reader.i32()? == 1 && reader.i32()? == partition, "one partition was asked for");
        let error = reader.i16()?;
        let high_watermark = reader.i64()?;
        let last_stable_offset = reader.i64()?;
        reader.i64()?;
        let mut aborted = Vec::new();
        for _ in 0..reader.i32()?.max(0) {
            aborted.push((reader.i64()?, reader.i64()?));
        }
        reader.i32()?;
        let size = usize::try_from(reader.i32()?.max(0))?;
        let records = reader.take(size)?.to_vec();
        Ok(Fetched { error, high_watermark, last_stable_offset, aborted, records })
    }

    /// ListOffsets version 2: the newest offset under either isolation.
    pub(super) fn end_offset(&mut self, topic: &str, partition: i32, committed: bool) -> Result<i64> {
        let mut body = Writer::default();
        body.i32(-1);
        body.i8(i8::from(committed));
        body.i32(1);
        body.string(Some(topic));
        body.i32(1);
        body.i32(partition);
        body.i64(-1);
        let answer = self.call(2, 2, &body.0)?;
        let mut reader = Reader(&answer);
        reader.i32()?;
        ensure!(reader.i32()? == 1, "one topic was asked for");
        reader.string()?;
        ensure!(reader.i32()? == 1 && reader.i32()? == partition, "one partition was asked for");
        let error = reader.i16()?;
        ensure!(error == 0, "ListOffsets answered error {error}");
        reader.i64()?;
        reader.i64()
    }

    /// Metadata version 7: the leader epoch of each partition, in order.
    pub(super) fn leader_epochs(&mut self, topic: &str) -> Result<Vec<i32>> {
        let mut body = Writer::default();
        body.i32(1);
        body.string(Some(topic));
        body.i8(0);
        let answer = self.call(3, 7, &body.0)?;
        let mut reader = Reader(&answer);
        reader.i32()?;
        for _ in 0..reader.i32()?.max(0) {
            reader.i32()?;
            reader.string()?;
            reader.i32()?;
            reader.string()?;
        }
        reader.string()?;
        reader.i32()?;
        ensure!(reader.i32()? == 1, "one topic was asked for");
        let error = reader.i16()?;
        ensure!(error == 0, "Metadata answered error {error} for {topic}");
        reader.string()?;
        reader.take(1)?;
        let mut epochs = Vec::new();
        for _ in 0..reader.i32()?.max(0) {
            reader.i16()?;
            let partition = reader.i32()?;
            reader.i32()?;
            epochs.push((partition, reader.i32()?));
            for _ in 0..3 {
                for _ in 0..reader.i32()?.max(0) {
                    reader.i32()?;
                }
            }
        }
        epochs.sort_unstable();
        Ok(epochs.into_iter().map(|(_, epoch)| epoch).collect())
    }

    /// OffsetForLeaderEpoch version 3: the epoch answered for, and where it ends.
    pub(super) fn end_of_epoch(&mut self, topic: &str, partition: i32, epoch: i32) -> Result<(i32, i64)> {
        let mut body = Writer::default();
        body.i32(-1);
        body.i32(1);
        body.string(Some(topic));
        body.i32(1);
        body.i32(partition);
        body.i32(-1);
        body.i32(epoch);
        let answer = self.call(23, 3, &body.0)?;
        let mut reader = Reader(&answer);
        reader.i32()?;
        ensure!(reader.i32()? == 1, "one topic was asked for");
        reader.string()?;
        ensure!(reader.i32()? == 1, "one partition was asked for");
        let error = reader.i16()?;
        ensure!(error == 0 && reader.i32()? == partition, "OffsetForLeaderEpoch answered error {error}");
        Ok((reader.i32()?, reader.i64()?))
    }

    /// InitProducerId version 1, without a transactional id: producer id and epoch.
    pub(super) fn init_producer_id(&mut self) -> Result<(i64, i16)> {
        let mut body = Writer::default();
        body.string(None);
        body.i32(60_000);
        let answer = self.call(22, 1, &body.0)?;
        let mut reader = Reader(&answer);
        reader.i32()?;
        let error = reader.i16()?;
        ensure!(error == 0, "InitProducerId answered error {error}");
        Ok((reader.i64()?, reader.i16()?))
    }
}

impl Batch {
    /// The bytes of a batch of magic 2 at offset 0.
    pub(super) fn encode(&self) -> Result<Vec<u8>> {
        let count = i32::try_from(self.records.len())?;
        if count == 0 {
            bail!("a batch needs a record");
        }
        let mut checked = Writer::default();
        checked.i16(0);
        checked.i32(count - 1);
        let now =
            i64::try_from(std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?.as_millis())?;
        checked.i64(now);
        checked.i64(now);
        checked.i64(self.producer_id);
        checked.i16(self.producer_epoch);
        checked.i32(self.base_sequence);
        checked.i32(count);
        for (delta, (key, value)) in (0_i64..).zip(&self.records) {
            let mut record = Writer::default();
            record.i8(0);
            record.varint(0);
            record.varint(delta);
            for part in [key, value] {
                record.varint(i64::try_from(part.len())?);
                record.0.extend_from_slice(part.as_bytes());
            }
            record.varint(0);
            checked.varint(i64::try_from(record.0.len())?);
            checked.0.extend_from_slice(&record.0);
        }
        let mut batch = Writer::default();
        batch.i64(0);
        batch.i32(i32::try_from(checked.0.len() + 9)?);
        batch.i32(-1);
        batch.i8(2);
        batch.0.extend_from_slice(&crc32c(&checked.0).to_be_bytes());
        batch.0.extend_from_slice(&checked.0);
        Ok(batch.0)
    }
}

/// Kafka's numbers and texts, one behind the other.
#[derive(Debug, Default)]
pub(super) struct Writer(pub(super) Vec<u8>);

impl Writer {
    pub(super) fn i8(&mut self, value: i8) {
        self.0.extend_from_slice(&value.to_be_bytes());
    }

    pub(super) fn i16(&mut self, value: i16) {
        self.0.extend_from_slice(&value.to_be_bytes());
    }

    pub(super) fn i32(&mut self, value: i32) {
        self.0.extend_from_slice(&value.to_be_bytes());
    }

    pub(super) fn i64(&mut self, value: i64) {
        self.0.extend_from_slice(&value.to_be_bytes());
    }

    fn string(&mut self, value: Option<&str>) {
        match value {
            None => self.i16(-1),
            Some(text) => {
                self.i16(i16::try_from(text.len()).unwrap_or(i16::MAX));
                self.0.extend_from_slice(text.as_bytes());
            }
        }
    }

    pub(super) fn varint(&mut self, value: i64) {
        let mut rest = ((value << 1) ^ (value >> 63)).cast_unsigned();
        while rest >= 0x80 {
            self.0.push(u8::try_from(rest & 0x7f).unwrap_or(0) | 0x80);
            rest >>= 7;
        }
        self.0.push(u8::try_from(rest).unwrap_or(0));
    }
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, size: usize) -> Result<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(size).context("the answer is cut short")?;
        self.0 = rest;
        Ok(taken)
    }

    fn i16(&mut self) -> Result<i16> {
        Ok(i16::from_be_bytes(self.take(2)?.try_into()?))
    }

    fn i32(&mut self) -> Result<i32> {
        Ok(i32::from_be_bytes(self.take(4)?.try_into()?))
    }

    fn i64(&mut self) -> Result<i64> {
        Ok(i64::from_be_bytes(self.take(8)?.try_into()?))
    }

    fn string(&mut self) -> Result<Option<&'a [u8]>> {
        let size = self.i16()?;
        if size < 0 { Ok(None) } else { self.take(usize::try_from(size)?).map(Some) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interop::logs;

    #[test]
    fn a_batch_reads_back_as_what_was_meant() {
        let batch = Batch {
            producer_id: 5,
            producer_epoch: 1,
            base_sequence: 7,
            records: vec![("k".to_owned(), "v".to_owned()), ("key".to_owned(), String::new())],
        };
        let bytes = batch.encode().expect("it encodes");
        let (batches, valid) = logs::walk(&bytes);
        assert_eq!((batches.len(), valid), (1, bytes.len()));
        assert_eq!((batches[0].producer_id, batches[0].base_sequence, batches[0].count), (5, 7, 2));
        let keys: Vec<_> =
            logs::keys(&bytes, &batches[0]).expect("records").into_iter().map(|(_, key)| key).collect();
        assert_eq!(keys, ["k", "key"]);
    }

    #[test]
    fn varints_are_zig_zag() {
        for (value, bytes) in [(0_i64, vec![0_u8]), (-1, vec![1]), (1, vec![2]), (64, vec![0x80, 1])] {
            let mut writer = Writer::default();
            writer.varint(value);
            assert_eq!(writer.0, bytes, "{value}");
        }
    }
}
