//! The board for Grafana: each of its queries gives something on a Prometheus that scrapes a
//! volume.

use super::listening::Listening;
use super::rules::{metrics_in, unknown_in};
use super::{PATIENCE, scrub, scrub_slowly, serve_rich, tree, work};
use crate::common::User;
use headpond_testkit::{skip, tool};
use serde_json::Value;
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

const RANGE: &str = "10s";

/// What is empty on a volume whose disks answer at once.
const EMPTY: [&str; 1] = ["headpond_member_typical_read_seconds"];

/// The queries of all panels, with the variables as Grafana puts them in.
fn queries() -> Vec<String> {
    let board = fs::read_to_string(tree("monitoring/grafana/headpond.json")).unwrap();
    let board: Value = serde_json::from_str(&board).unwrap();
    let targets = |panel: &Value| panel["targets"].as_array().cloned().unwrap_or_default();
    let panels = board["panels"].as_array().unwrap();
    let all = panels.iter().flat_map(targets);
    all.map(|target| {
        let query = target["expr"].as_str().unwrap();
        query.replace("$volume", ".*").replace("$__rate_interval", RANGE)
    })
    .collect()
}

/// A server on loopback, with a folder of its own.
struct Prometheus {
    child: Child,
    port: u16,
}

impl Prometheus {
    fn start(program: &Path, user: &User, target: &str) -> Self {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let config = user.path("prometheus.yml");
        let text = format!(
            "global: {{ scrape_interval: 1s }}\nscrape_configs:\n  - job_name: headpond\n    \
             static_configs: [{{ targets: [\"{target}\"] }}]\n"
        );
        fs::write(&config, text).unwrap();
        let child = Command::new(program)
            .arg(format!("--config.file={}", config.display()))
            .arg(format!("--storage.tsdb.path={}", user.path("tsdb").display()))
            .arg(format!("--web.listen-address=127.0.0.1:{port}"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Self { child, port }
    }

    /// How many series a query has, with a number; an error is none.
    fn query(&self, query: &str) -> Result<usize, String> {
        let mut stream =
            TcpStream::connect(("127.0.0.1", self.port)).map_err(|error| error.to_string())?;
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let query: String = query.bytes().map(|byte| format!("%{byte:02x}")).collect();
        let request =
            format!("GET /api/v1/query?query={query} HTTP/1.0\r\nhost: localhost\r\n\r\n");
        stream.write_all(request.as_bytes()).map_err(|error| error.to_string())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).map_err(|error| error.to_string())?;
        let body = answer.split_once("\r\n\r\n").ok_or("no body")?.1;
        let body: Value = serde_json::from_str(body).map_err(|error| format!("{error}: {body}"))?;
        if body["status"] != "success" {
            return Err(body["error"].to_string());
        }
        let is_number = |series: &&Value| series["value"][1].as_str().is_some_and(|it| it != "NaN");
        Ok(body["data"]["result"].as_array().unwrap().iter().filter(is_number).count())
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn the_board_asks_for_metrics_that_there_are() {
    let queries = queries();
    assert!(queries.len() > 25, "{}", queries.len());
    for query in &queries {
        assert!(!metrics_in(query).is_empty(), "{query}");
        assert_eq!(unknown_in(query), Vec::<&str>::new(), "{query}");
        assert!(!query.contains('$'), "{query}");
    }
}

#[test]
fn each_query_of_the_board_gives_something_on_a_real_scrape() {
    let name = "each_query_of_the_board_gives_something_on_a_real_scrape";
    let Some(program) = tool("prometheus") else { skip!(name, "no prometheus") };
    let user = User::new();
    let _daemon = serve_rich(&user);
    scrub(&user);
    let listening = Listening::start(&user, &[]);
    let prometheus = Prometheus::start(&program, &user, &listening.address);
    let is_exempt = |query: &String| EMPTY.iter().any(|name| query.starts_with(name));
    let (exempt, mut open): (Vec<_>, Vec<_>) = queries().into_iter().partition(is_exempt);
    let (mut told, mut is_working) = (String::new(), false);
    let begun = Instant::now();
    while !open.is_empty() {
        work(&user, "v");
        user.ok(&["flush", "v"]);
        open.retain(|query| match prometheus.query(query) {
            Ok(series) => series == 0,
            Err(error) => {
                told = error;
                true
            }
        });
        // The end of a scrub is not known during the next one.
        if !is_working && open.iter().all(|query| query.contains("headpond_job_")) {
            scrub_slowly(&user);
            is_working = true;
        }
        assert!(begun.elapsed() < PATIENCE, "without a result: {open:?}, {told}");
    }
    for query in exempt {
        assert!(prometheus.query(&query).is_ok(), "{query}");
    }
    assert!(prometheus.query("rate(").is_err(), "a mistake is found");
}
