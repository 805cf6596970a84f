//! `headpond metrics --listen`, and who asks it.

use super::scrape::Scrape;
use super::{MIB, PATIENCE};
use crate::common::User;
use headpond_api::outcome::Exit;
use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::process::Child;
use std::time::{Duration, Instant};

const TOKEN: &str = "0123456789abcdef0123";
/// More than are served at a time.
const CROWD: usize = 40;

/// The command, which is killed at the end.
pub struct Listening {
    child: Child,
    pub address: String,
}

impl Listening {
    pub fn start(user: &User, args: &[&str]) -> Self {
        let args = [&["metrics", "--listen=127.0.0.1:0"], args].concat();
        let mut child = user.start(&args);
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("metrics at http://");
        let address = address.and_then(|it| it.strip_suffix("/metrics"));
        let address = address.unwrap_or_else(|| panic!("{line:?}")).to_owned();
        Self { child, address }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    /// Status and body of the answer to these bytes; 0 where there is none.
    fn answer(&self, request: &str) -> (u16, String) {
        let mut stream = self.connect();
        let mut bytes = Vec::new();
        // It may be closed at any time.
        let _ = stream.write_all(request.as_bytes());
        let _ = stream.read_to_end(&mut bytes);
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let status = text.split(' ').nth(1).and_then(|it| it.parse().ok()).unwrap_or(0);
        (status, text.split_once("\r\n\r\n").unwrap_or_default().1.to_owned())
    }

    fn get(&self, path: &str, headers: &str) -> (u16, String) {
        self.answer(&format!("GET {path} HTTP/1.1\r\n{headers}\r\n"))
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn create(user: &User) {
    let device = user.file("plain.img", 16 * MIB);
    user.ok(&["create", "v", "--raid", "0", &device]);
}

#[test]
fn an_address_has_the_metrics_for_those_who_name_the_machine_and_nothing_else() {
    let user = User::new();
    create(&user);
    let daemon = user.serve("v");
    let listening = Listening::start(&user, &[]);
    let host = format!("host: {}\r\n", listening.address);
    let (status, text) = listening.get("/metrics", &host);
    assert_eq!(status, 200, "{text}");
    let serving = [("volume", "v"), ("state", "serving")];
    assert_eq!(Scrape::of(&text).value("headpond_volume_state", &serving), 1.0);
    for (expected, path, headers) in [
        (421, "/metrics", "host: evil.example\r\n"),
        (421, "/metrics", "host: localhost.evil.example:80\r\n"),
        (400, "/metrics", ""),
        (400, "/metrics", "host: localhost\r\nhost: evil.example\r\n"),
        (400, "http://evil.example/metrics", "host: localhost\r\n"),
        (404, "/", "host: localhost\r\n"),
        (404, "/v1/status", "host: localhost\r\n"),
        (404, "/metrics/../v1/status", "host: localhost\r\n"),
    ] {
        let (status, text) = listening.get(path, headers);
        assert_eq!(status, expected, "{path} {headers}: {text}");
        assert!(!text.contains("headpond_"), "{text}");
    }
    for request in [
        "POST /metrics HTTP/1.1\r\nhost: localhost\r\ncontent-length: 0\r\n\r\n",
        "DELETE /metrics HTTP/1.1\r\nhost: localhost\r\n\r\n",
    ] {
        assert_eq!(listening.answer(request).0, 405, "{request}");
    }
    let long = format!("host: localhost\r\nx: {}\r\n", "y".repeat(100_000));
    let (status, text) = listening.get("/metrics", &long);
    assert!([0, 400, 431].contains(&status), "{status}: {text}");
    let _ = listening.answer("\u{0}\u{1}\u{2} hello\r\n\r\n");
    drop(daemon);
    until_stopped(&listening, &host);
}

/// It goes on where a daemon does not.
fn until_stopped(listening: &Listening, host: &str) {
    super::until("the daemon's end is told", || {
        let (status, text) = listening.get("/metrics", host);
        assert_eq!(status, 200, "{text}");
        Scrape::of(&text).value("headpond_alerts", &[("kind", "daemon_ended")]) == 1.0
    });
}

#[test]
fn a_token_is_asked_for_where_there_is_one_and_needed_where_others_reach_it() {
    let user = User::new();
    create(&user);
    let token = user.path("token");
    fs::write(&token, TOKEN).unwrap();
    let shown = token.display().to_string();
    for (args, part) in [
        (&["metrics", "--listen=0.0.0.0:0"][..], "reached by other machines"),
        (&["metrics", "--listen=127.0.0.1:0", "--token-file", &shown], "mode 0600"),
        (&["metrics", "--listen=127.0.0.1:0", "--token-file", "/nonexistent"], "cannot read"),
    ] {
        fs::set_permissions(&token, Permissions::from_mode(0o644)).unwrap();
        let ended = user.run(args);
        assert_eq!(ended.code, Exit::Refused as i32, "{args:?}: {}", ended.err);
        assert!(ended.err.contains(part), "{args:?}: {}", ended.err);
    }
    let ended = user.run(&["metrics", "--listen"]);
    assert_eq!(ended.code, Exit::Usage as i32, "no address: {}", ended.err);
    fs::set_permissions(&token, Permissions::from_mode(0o600)).unwrap();
    user.configure(&format!("metrics-token-file = {shown:?}\nmetrics-host = \"storage1\"\n"));
    let listening = Listening::start(&user, &[]);
    for (expected, headers) in [
        (200, format!("host: storage1:1\r\nauthorization: Bearer {TOKEN}\r\n")),
        (401, "host: storage1\r\n".to_owned()),
        (401, format!("host: localhost\r\nauthorization: Bearer {TOKEN}x\r\n")),
        (401, format!("host: localhost\r\nauthorization: Basic {TOKEN}\r\n")),
        (421, format!("host: storage2\r\nauthorization: Bearer {TOKEN}\r\n")),
    ] {
        let (status, text) = listening.get("/metrics", &headers);
        assert_eq!(status, expected, "{headers}: {text}");
        assert_eq!(text.contains("headpond_"), expected == 200, "{text}");
    }
}

#[test]
fn clients_that_are_slow_or_many_keep_nobody_out_for_long() {
    let user = User::new();
    create(&user);
    let listening = Listening::start(&user, &[]);
    let host = "host: localhost\r\n";
    // Some send nothing, some half a request; the first of them have all places.
    let mut slow: Vec<TcpStream> = (0..CROWD).map(|_| listening.connect()).collect();
    for stream in slow.iter_mut().step_by(2) {
        let _ = stream.write_all(b"GET /metrics HTTP/1.1\r\nhost: local");
    }
    let begun = Instant::now();
    super::until("a place", || listening.get("/metrics", host).0 == 200);
    assert!(begun.elapsed() < PATIENCE);
    // They were closed, all of them.
    for mut stream in slow {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest);
        assert!(!String::from_utf8_lossy(&rest).contains("headpond_"));
    }
    // Who reads nothing of its answer delays no other.
    let mut unread = listening.connect();
    unread.write_all(format!("GET /metrics HTTP/1.1\r\n{host}\r\n").as_bytes()).unwrap();
    assert_eq!(listening.get("/metrics", host).0, 200);
}

#[test]
fn however_often_it_is_asked_the_volumes_are_asked_once_a_second() {
    let user = User::new();
    create(&user);
    let _daemon = user.serve("v");
    let listening = Listening::start(&user, &[]);
    let mut texts = std::collections::BTreeSet::new();
    let (begun, mut asked) = (Instant::now(), 0);
    while begun.elapsed() < Duration::from_secs(2) {
        let (status, text) = listening.get("/metrics", "host: localhost\r\n");
        assert_eq!(status, 200);
        texts.insert(text);
        asked += 1;
    }
    // Each snapshot has a time of its own.
    let most = begun.elapsed().as_secs() as usize + 2;
    assert!(texts.len() <= most && asked > texts.len(), "{} of {asked}", texts.len());
}
