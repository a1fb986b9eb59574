//! `weir bench make-db`: an OVN_Southbound-like database file of a wanted size.
//!
//! Mostly logical flows, with their datapaths and port bindings. The same arguments give the same
//! bytes. Rows are made twice, once for the record's hash and once for the file, so that a file of
//! any size needs no memory.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::ops::Range;
use std::path::Path;
use std::process::ExitCode;

use crate::Error;
use crate::args::Args;
use crate::dbfile;
use crate::rng::Rng;

pub(crate) const SCHEMA: &str = "/usr/share/ovn/ovn-sb.ovsschema";
/// Flows of one datapath, as in a switch with a few dozen ports.
const FLOWS_A_DATAPATH: usize = 600;
/// Port bindings of one datapath.
const PORTS_A_DATAPATH: usize = 20;
/// Flows looked at to learn how long one is.
const SAMPLE: usize = 2_000;
/// 2026-01-01 in milliseconds: the date of the first record; each later one is a second younger.
const DATE: u64 = 1_767_225_600_000;

/// Runs the command `make-db`.
pub(crate) fn command(args: &[String]) -> Result<ExitCode, Error> {
    let mut args = Args::new(args);
    let megabytes: f64 = args.value("--megabytes")?.unwrap_or(162.0);
    let records = args.value("--records")?.unwrap_or(1).max(1);
    let seed = args.value("--seed")?.unwrap_or(1);
    let schema = args.text("--schema")?.unwrap_or_else(|| SCHEMA.into());
    let words = args.words()?;
    let [path] = words.as_slice() else {
        return Err(Error::Usage("make-db needs the name of one file to write".into()));
    };
    let content = Content::sized(seed, megabytes * 1e6);
    let path = Path::new(path);
    let size = content.write_file(path, &schema, records)?;
    println!(
        "{}: {:.1} MB, {} logical flows, {} datapaths, {} port bindings, {records} transaction(s)",
        path.display(),
        size as f64 / 1e6,
        content.flows,
        content.datapaths,
        content.datapaths * PORTS_A_DATAPATH,
    );
    Ok(ExitCode::SUCCESS)
}

/// What the database holds. Rows are numbered: datapaths, then ports, then flows.
#[derive(Clone, Copy)]
pub(crate) struct Content {
    seed: u64,
    datapaths: usize,
    flows: usize,
}

impl Content {
    /// Content whose file has about `bytes` bytes.
    pub(crate) fn sized(seed: u64, bytes: f64) -> Self {
        let sample = Self { seed, datapaths: SAMPLE / FLOWS_A_DATAPATH + 1, flows: SAMPLE };
        let mut text = Vec::new();
        (0..sample.rows()).for_each(|n| sample.row(n, &mut text));
        let flows = (bytes / (text.len() as f64 / SAMPLE as f64)) as usize;
        Self { seed, datapaths: flows / FLOWS_A_DATAPATH + 1, flows }
    }

    /// Writes a new file; returns its size.
    pub(crate) fn write_file(
        &self,
        path: &Path,
        schema: &str,
        records: usize,
    ) -> Result<usize, Error> {
        let schema = dbfile::read_schema(schema.as_ref(), "of Debian's package ovn-common")?;
        let file = File::create_new(path).map_err(|e| Error::io("creating", path, e))?;
        let mut out = BufWriter::with_capacity(1 << 20, file);
        self.write(&mut out, &schema.to_string(), records)
            .map_err(|e| Error::io("writing", path, e))
    }

    pub(crate) fn rows(&self) -> usize {
        self.datapaths * (1 + PORTS_A_DATAPATH) + self.flows
    }

    /// Rows of the largest table, `Logical_Flow`.
    pub(crate) fn flows(&self) -> usize {
        self.flows
    }

    fn table(&self, n: usize) -> (&'static str, usize) {
        let ports = self.datapaths * PORTS_A_DATAPATH;
        match n {
            n if n < self.datapaths => ("Datapath_Binding", n),
            n if n < self.datapaths + ports => ("Port_Binding", n - self.datapaths),
            n => ("Logical_Flow", n - self.datapaths - ports),
        }
    }

    fn uuid(&self, table: &str, n: usize) -> String {
        let table = u64::from(table.as_bytes()[0]);
        let mut mix = Rng::new(self.seed ^ table << 56);
        Rng::new(mix.next() ^ n as u64).uuid()
    }

    fn write(&self, out: &mut dyn Write, schema: &str, records: usize) -> io::Result<usize> {
        let mut size = dbfile::record(out, &mut |out| out.write_all(schema.as_bytes()))?;
        let records = records.min(self.rows());
        for k in 0..records {
            let range = self.rows() * k / records..self.rows() * (k + 1) / records;
            size += dbfile::record(out, &mut |out| self.transaction(k, range.clone(), out))?;
        }
        out.flush()?;
        Ok(size)
    }

    /// Writes the record of the rows in `range`.
    fn transaction(&self, k: usize, range: Range<usize>, out: &mut dyn Write) -> io::Result<()> {
        const FLUSH: usize = 64 * 1024;
        let mut text = Vec::with_capacity(2 * FLUSH);
        write!(text, r#"{{"_date":{},"_is_diff":true"#, DATE + 1000 * k as u64)?;
        let mut table = "";
        for n in range {
            let (of, _) = self.table(n);
            if of != table {
                let close = if table.is_empty() { "" } else { "}" };
                write!(text, r#"{close},"{of}":{{"#)?;
                table = of;
            } else {
                text.push(b',');
            }
            self.row(n, &mut text);
            if text.len() > FLUSH {
                out.write_all(&text)?;
                text.clear();
            }
        }
        text.extend_from_slice(b"}}");
        out.write_all(&text)
    }

    /// Appends `"UUID":{ROW}`.
    fn row(&self, n: usize, text: &mut Vec<u8>) {
        let (table, n) = self.table(n);
        let _ = write!(text, r#""{}":"#, self.uuid(table, n));
        let _ = match table {
            "Datapath_Binding" => write!(
                text,
                r#"{{"tunnel_key":{},"external_ids":["map",[["logical-switch","{}"],["name","node-{n:05}"]]]}}"#,
                n + 1,
                self.uuid("switch", n),
            ),
            "Port_Binding" => self.port(n, text),
            _ => self.flow(n, text),
        };
    }

    fn port(&self, n: usize, text: &mut Vec<u8>) -> io::Result<()> {
        let (datapath, key) = (n / PORTS_A_DATAPATH, n % PORTS_A_DATAPATH + 1);
        write!(
            text,
            concat!(
                r#"{{"logical_port":"namespace-{:05}_pod-{:07}","datapath":["uuid","{}"],"#,
                r#""tunnel_key":{},"mac":"0a:58:{:02x}:{:02x}:{:02x}:{:02x} 10.{}.{}.{}","up":true,"#,
                r#""external_ids":["map",[["namespace","namespace-{:05}"],["pod","true"]]]}}"#
            ),
            datapath,
            n,
            self.uuid("Datapath_Binding", datapath),
            key,
            n >> 24 & 255,
            n >> 16 & 255,
            n >> 8 & 255,
            n & 255,
            128 + (n >> 16 & 63),
            n >> 8 & 255,
            n & 255,
            datapath,
        )
    }

    fn flow(&self, n: usize, text: &mut Vec<u8>) -> io::Result<()> {
        const STAGES: [(&str, &str, u8); 6] = [
            ("ls_in_check_port_sec", "ingress", 0),
            ("ls_in_acl_eval", "ingress", 9),
            ("ls_in_lb", "ingress", 13),
            ("ls_in_arp_rsp", "ingress", 22),
            ("ls_in_l2_lkup", "ingress", 27),
            ("ls_out_acl_eval", "egress", 4),
        ];
        let mut rng = Rng::new(Rng::new(self.seed).next() ^ n as u64);
        let (stage, pipeline, table) = STAGES[n % STAGES.len()];
        let datapath = (n / FLOWS_A_DATAPATH).min(self.datapaths - 1);
        write!(
            text,
            r#"{{"logical_datapath":["uuid","{}"],"pipeline":"{pipeline}","table_id":{table},"priority":{},"match":""#,
            self.uuid("Datapath_Binding", datapath),
            1000 + rng.below(2000),
        )?;
        match_and_actions(table, datapath, &mut rng, text)?;
        write!(
            text,
            r#"","external_ids":["map",[["source","northd.c:{}"],["stage-hint","{:08x}"],["stage-name","{stage}"],["switch","node-{datapath:05}"]]]}}"#,
            4000 + rng.below(9000),
            rng.next() >> 32,
        )
    }
}

/// Writes what a flow of `table` matches and does, from quote to quote.
fn match_and_actions(
    table: u8,
    datapath: usize,
    rng: &mut Rng,
    text: &mut Vec<u8>,
) -> io::Result<()> {
    let host = rng.below(1 << 22);
    let ip = format!("10.{}.{}.{}", 128 + (host >> 16), host >> 8 & 255, host & 255);
    let mac = format!("0a:58:0a:{:02x}:{:02x}:{:02x}", host >> 16, host >> 8 & 255, host & 255);
    let port = format!("namespace-{datapath:05}_pod-{:07}", rng.below(10_000_000));
    match table {
        0 => write!(
            text,
            r#"inport == \"{port}\" && eth.src == {{{mac}}} && ip4.src == {{0.0.0.0, {ip}}} && vlan.present == 0","actions":"reg0[15] = check_in_port_sec(); next;"#
        ),
        9 | 4 => write!(
            text,
            r#"reg0[7] == 1 && (outport == @a{:019} && ip4 && ip4.src == $a{:019} && tcp && tcp.dst == {} && inport != \"{port}\")","actions":"reg8[16] = 1; reg0[1] = 1; reg0[9] = 0; ct_commit {{ ct_mark.blocked = 0; }}; next;"#,
            rng.next() >> 1,
            rng.next() >> 1,
            1 + rng.below(65_000),
        ),
        13 => write!(
            text,
            r#"ct.new && ip4.dst == {ip} && reg1[16..23] == 6 && reg2[0..15] == {}","actions":"reg0[1] = 0; reg1 = {ip}; ct_lb_mark(backends=10.128.{}.{}:8080,10.129.{}.{}:8080,10.130.{}.{}:8080);"#,
            80 + rng.below(9000),
            rng.below(256),
            rng.below(256),
            rng.below(256),
            rng.below(256),
            rng.below(256),
            rng.below(256),
        ),
        22 => write!(
            text,
            r#"arp.tpa == {ip} && arp.op == 1","actions":"eth.dst = eth.src; eth.src = {mac}; arp.op = 2; arp.tha = arp.sha; arp.sha = {mac}; arp.tpa = arp.spa; arp.spa = {ip}; outport = inport; flags.loopback = 1; output;"#
        ),
        _ => write!(
            text,
            r#"eth.dst == {mac} && (ip4.dst == {ip} || arp.tpa == {ip}) && flags.loopback == 0","actions":"outport = \"{port}\"; flags.force_snat_for_lb = 0; output;"#
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;
    use std::collections::BTreeSet;

    fn file(content: Content, records: usize) -> String {
        let mut out = Vec::new();
        let size = content.write(&mut out, "{}", records).unwrap();
        assert_eq!(size, out.len());
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn the_size_comes_close_to_what_was_asked_for() {
        let content = Content::sized(1, 3e6);
        let size = file(content, 1).len() as f64;
        assert!((2.8e6..3.2e6).contains(&size), "{size}");
    }

    #[test]
    fn one_record_or_many_hold_the_same_rows() {
        let content = Content { seed: 7, datapaths: 3, flows: 1500 };
        let rows = |records| {
            let mut rows = BTreeSet::new();
            let text = file(content, records);
            let bodies: Vec<_> = text.lines().skip(3).step_by(2).collect();
            assert_eq!(bodies.len(), records);
            for body in bodies {
                let body: Value = serde_json::from_str(body).unwrap();
                for (table, of_table) in body.as_object().unwrap() {
                    for (uuid, row) in of_table.as_object().into_iter().flatten() {
                        assert!(rows.insert((table.clone(), uuid.clone(), row.to_string())));
                    }
                }
            }
            rows
        };
        let one = rows(1);
        assert_eq!(one.len(), 3 + 60 + 1500);
        assert_eq!(one, rows(100));
        assert_ne!(file(Content { seed: 8, ..content }, 1), file(content, 1));
        assert_eq!(file(content, 4), file(content, 4));
    }
}
