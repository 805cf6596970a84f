//! A user at the command line, in a folder of their own.

pub mod loop_device;
pub mod machine;
pub mod work;

use headpond_api::answers::{SCHEMA, ServiceState, Stats, Status, Versioned};
use headpond_raid::ArrayStatus;
use headpond_volume::CacheStatus;
use serde::de::DeserializeOwned;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

pub const PROGRAM: &str = env!("CARGO_BIN_EXE_headpond");
/// The file of the configuration, which is no description.
pub const CONFIG: &str = "config";
const START_PATIENCE: Duration = Duration::from_secs(30);

/// A folder with descriptions, sockets and device files; everything ends with it.
pub struct User {
    folder: tempfile::TempDir,
}

/// A daemon; killed where the test ends without stopping it.
pub struct Daemon {
    child: Child,
    log: PathBuf,
}

/// How a command ended.
pub struct Ended {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl User {
    pub fn new() -> Self {
        Self { folder: headpond_testkit::tempdir() }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A file of `bytes` zeros; its path as text.
    pub fn file(&self, name: &str, bytes: u64) -> String {
        let path = self.path(name);
        std::fs::File::create(&path).unwrap().set_len(bytes).unwrap();
        path.display().to_string()
    }

    /// Gives the machine a configuration.
    pub fn configure(&self, text: &str) {
        std::fs::write(self.path(CONFIG), text).unwrap();
    }

    /// Moves a file to where no volume looks for it.
    pub fn take_away(&self, file: &str) {
        std::fs::create_dir_all(self.path("away")).unwrap();
        std::fs::rename(file, self.away(file)).unwrap();
    }

    pub fn bring_back(&self, file: &str) {
        std::fs::rename(self.away(file), file).unwrap();
    }

    fn away(&self, file: &str) -> PathBuf {
        self.path("away").join(Path::new(file).file_name().unwrap())
    }

    pub fn socket(&self, name: &str) -> PathBuf {
        self.path(&format!("{name}.sock"))
    }

    pub fn uri(&self, name: &str) -> String {
        format!("nbd+unix:///?socket={}", self.socket(name).display())
    }

    /// Runs `headpond` with these arguments.
    pub fn run<S: AsRef<str>>(&self, args: &[S]) -> Ended {
        let output = self.command(args).output().unwrap();
        Ended::of(&output)
    }

    /// Runs `headpond` with its lines folded, as in a pipe.
    pub fn run_folded<S: AsRef<str>>(&self, args: &[S]) -> Ended {
        Ended::of(&self.command(args).env_remove("COLUMNS").output().unwrap())
    }

    /// Runs `headpond` with its state in another folder.
    pub fn run_in_state<S: AsRef<str>>(&self, state: &str, args: &[S]) -> Ended {
        Ended::of(&self.command(args).env("HEADPOND_STATE", state).output().unwrap())
    }

    /// Runs `headpond`, and nobody reads its output.
    pub fn run_unread<S: AsRef<str>>(&self, args: &[S]) -> Ended {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        self.run_into(writer, args)
    }

    /// Runs `headpond` with its output going there.
    pub fn run_into<S: AsRef<str>>(&self, output: impl Into<Stdio>, args: &[S]) -> Ended {
        Ended::of(&self.command(args).stdout(output).output().unwrap())
    }

    /// Starts `headpond` with these arguments.
    pub fn start<S: AsRef<str>>(&self, args: &[S]) -> Child {
        self.command(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    /// Runs `headpond` and expects success; what it printed.
    pub fn ok<S: AsRef<str>>(&self, args: &[S]) -> String {
        let ended = self.run(args);
        let words: Vec<&str> = args.iter().map(AsRef::as_ref).collect();
        assert_eq!(ended.code, 0, "{}: {}{}", words.join(" "), ended.out, ended.err);
        ended.out
    }

    /// Runs `headpond ... --json` and expects success; a document that the API has no type for.
    pub fn json<S: AsRef<str>>(&self, args: &[S]) -> serde_json::Value {
        serde_json::from_str(&self.ok(args)).expect("JSON")
    }

    /// Runs `headpond ... --json` and expects success; what it answered.
    pub fn answer<A: DeserializeOwned>(&self, args: &[&str]) -> A {
        parse(&self.ok(&[args, &["--json"]].concat()))
    }

    /// The state of a volume, with the exit code that belongs to it.
    pub fn status(&self, name: &str) -> Status {
        let ended = self.run(&["status", name, "--json"]);
        let status: Status = parse(&ended.out);
        let code = match status.state {
            ServiceState::Stopped | ServiceState::NotAnswering => 5,
            _ if status.is_healthy() && status.is_well() => 0,
            _ => 3,
        };
        assert_eq!(ended.code, code, "{name}: {}", ended.out);
        status
    }

    /// The array of a served volume's first core.
    pub fn array(&self, name: &str) -> ArrayStatus {
        self.status(name).array().expect("it is served").clone()
    }

    /// The cache of a served volume.
    pub fn live_cache(&self, name: &str) -> CacheStatus {
        self.status(name).live_cache().expect("it is served with a cache").clone()
    }

    /// What a served volume has done: its name, and what `stats` is told beside it.
    pub fn stats(&self, args: &[&str]) -> Stats {
        self.answer(&[&["stats"], args].concat())
    }

    /// `headpond serve`, once it answers.
    pub fn serve(&self, name: &str) -> Daemon {
        self.serve_with(&["serve", name])
    }

    /// A daemon that is started in another folder.
    pub fn serve_in(&self, folder: &Path, args: &[&str]) -> Daemon {
        let mut command = self.command(args);
        command.current_dir(folder);
        self.wait_for(command, args[1])
    }

    /// `headpond serve` with something more in its environment.
    pub fn serve_in_env(&self, name: &str, key: &str, value: &str) -> Daemon {
        let mut command = self.command(&["serve", name]);
        command.env(key, value);
        self.wait_for(command, name)
    }

    pub fn serve_with(&self, args: &[&str]) -> Daemon {
        self.wait_for(self.command(args), args[1])
    }

    fn wait_for(&self, mut command: Command, name: &str) -> Daemon {
        let log = self.path("serve.log");
        let file = std::fs::File::create(&log).unwrap();
        command.stdout(file.try_clone().unwrap()).stderr(file);
        let mut daemon = Daemon { child: command.spawn().unwrap(), log };
        let begun = Instant::now();
        while !self.is_serving(name) {
            let ended = daemon.child.try_wait().unwrap();
            assert!(ended.is_none(), "serve ended with {ended:?}: {}", daemon.log());
            assert!(begun.elapsed() < START_PATIENCE, "no answer: {}", daemon.log());
            std::thread::sleep(Duration::from_millis(20));
        }
        daemon
    }

    fn is_serving(&self, name: &str) -> bool {
        // While it starts there may be no answer.
        let answer = self.run(&["status", name, "--json"]).out;
        let status = serde_json::from_str::<Versioned<Status>>(&answer);
        status.is_ok_and(|status| status.answer.state == ServiceState::Serving)
    }

    fn command<S: AsRef<str>>(&self, args: &[S]) -> Command {
        let mut command = Command::new(PROGRAM);
        command.args(args.iter().map(AsRef::as_ref)).env("HEADPOND_STATE", self.folder.path());
        // The same on each machine, unless the test says otherwise.
        let config = Some(self.path(CONFIG)).filter(|path| path.exists());
        command.env("HEADPOND_CONFIG", config.unwrap_or("/dev/null".into()));
        // Lines as they are said, not folded.
        command.env("COLUMNS", "1000");
        command.current_dir(self.folder.path()).stdin(Stdio::null());
        command
    }
}

impl Daemon {
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// kill -9, of a daemon that has not ended by itself.
    pub fn kill(mut self) {
        let ended = self.child.try_wait().unwrap();
        assert!(ended.is_none(), "ended by itself with {ended:?}: {}", self.log());
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// The exit code, where it ends by itself within that time.
    pub fn ended_within(&mut self, timeout: Duration) -> Option<i32> {
        let begun = Instant::now();
        loop {
            match self.child.try_wait().unwrap() {
                Some(ended) => return Some(ended.code().unwrap_or(-1)),
                None if begun.elapsed() > timeout => return None,
                None => std::thread::sleep(Duration::from_millis(20)),
            }
        }
    }

    /// Waits for its own end; the exit code.
    pub fn wait(mut self) -> i32 {
        self.child.wait().unwrap().code().unwrap_or(-1)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Ended {
    pub fn of(output: &Output) -> Self {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let code = output.status.code().unwrap_or(-1);
        Self { code, out: text(&output.stdout), err: text(&output.stderr) }
    }
}

/// What a document of this version says.
pub fn parse<A: DeserializeOwned>(document: &str) -> A {
    let document: Versioned<A> =
        serde_json::from_str(document).unwrap_or_else(|error| panic!("{error}: {document}"));
    assert_eq!(document.schema, SCHEMA);
    document.answer
}

/// What a control socket answers to these bytes, before it closes the connection.
pub fn answer_to(socket: &Path, request: &str) -> String {
    let mut stream = UnixStream::connect(socket).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// Runs a client program that is known to be there, and expects success.
pub fn client(program: &Path, args: &[String]) -> String {
    let output = Command::new(program).args(args).stdin(Stdio::null()).output().unwrap();
    let ended = Ended::of(&output);
    assert_eq!(
        ended.code,
        0,
        "{} {}: {}{}",
        program.display(),
        args.join(" "),
        ended.out,
        ended.err
    );
    ended.out
}

/// Processes that run in a folder.
pub fn running_in(folder: &Path) -> Vec<u32> {
    let processes = std::fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| {
        let is_in = std::fs::read_link(entry.path().join("cwd")).is_ok_and(|cwd| cwd == folder);
        entry.file_name().to_str()?.parse().ok().filter(|_| is_in)
    });
    processes.collect()
}
