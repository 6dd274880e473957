//! A trivial protocol behind a door: it greets, echoes, and says goodbye.

use std::fs::File;
use std::io::{Read, Seek};
use std::process::Command;

use tokio::io::AsyncReadExt;

use super::*;

struct Served {
    address: SocketAddr,
    token: CancellationToken,
    tracker: TaskTracker,
    accepting: tokio::task::JoinHandle<()>,
}

fn listen(listener: TcpListener, places: usize) -> Served {
    let (token, tracker) = (CancellationToken::new(), TaskTracker::new());
    let address = listener.local_addr().unwrap();
    let door =
        Door { protocol: "test", role: "echo", places: Arc::new(Places::new(places, None)), farewell: Some("full") };
    let stopping = token.clone();
    let serve = move |mut stream: TcpStream, _| {
        let stopping = stopping.clone();
        async move {
            let mut octets = [0; 16];
            let talk = async {
                stream.write_all(b"hi\n").await?;
                while let read @ 1.. = stream.read(&mut octets).await? {
                    stream.write_all(&octets[..read]).await?;
                }
                Ok::<_, std::io::Error>(())
            };
            if stopping.run_until_cancelled(talk).await.is_none() {
                drop(stream.write_all(b"bye\n").await);
            }
        }
    };
    let accepting = tokio::spawn(accept(listener, door, serve, tracker.clone(), token.clone()));
    Served { address, token, tracker, accepting }
}

async fn heard(stream: &mut TcpStream, octets: usize) -> String {
    let mut heard = vec![0; octets];
    let read = tokio::time::timeout(Duration::from_secs(10), stream.read_exact(&mut heard));
    read.await.unwrap().unwrap();
    String::from_utf8(heard).unwrap()
}

#[tokio::test]
async fn one_too_many_is_told_and_a_place_comes_back() {
    let served = listen(TcpListener::bind("127.0.0.1:0").await.unwrap(), 2);
    let connect = || async { TcpStream::connect(served.address).await.unwrap() };
    let (mut one, mut two, mut three) = (connect().await, connect().await, connect().await);
    assert_eq!((heard(&mut one, 3).await, heard(&mut two, 3).await), ("hi\n".into(), "hi\n".into()));
    let mut said = String::new();
    three.read_to_string(&mut said).await.unwrap();
    assert_eq!(said, "full\r\n");
    drop(one);
    let greeted = async {
        loop {
            let mut next = connect().await;
            if heard(&mut next, 3).await.starts_with("hi") {
                return next;
            }
        }
    };
    let mut next = tokio::time::timeout(Duration::from_secs(10), greeted).await.unwrap();
    // Whoever is served when the server stops hears of it; then nobody is left, and nobody is let in.
    served.token.cancel();
    assert_eq!((heard(&mut two, 4).await, heard(&mut next, 4).await), ("bye\n".into(), "bye\n".into()));
    served.accepting.await.unwrap();
    served.tracker.close();
    tokio::time::timeout(Duration::from_secs(10), served.tracker.wait()).await.unwrap();
    assert!(TcpStream::connect(served.address).await.is_err());
}

#[test]
fn a_notice_is_said_once_a_second_with_its_count() {
    let (mut notice, start) = (Notice::default(), Instant::now());
    let said: Vec<(u64, u64)> = (0..50)
        .filter_map(|tenth| Some((tenth, notice.happened(start + Duration::from_millis(tenth * 100))?)))
        .collect();
    assert_eq!(said, [(0, 1), (10, 10), (20, 10), (30, 10), (40, 10)]);
}

const FEW_DESCRIPTORS: &str = "POSTHOUSE_TEST_FEW_DESCRIPTORS";

/// In a process of its own, whose limit is 64: see [`descriptors`].
#[test]
fn accepting_goes_on_when_there_are_descriptors_again() {
    let inner = "listen::tests::descriptors";
    let script = "ulimit -n 64 && exec \"$0\" --exact \"$1\" --nocapture --test-threads=1";
    let program = std::env::current_exe().unwrap();
    let output = Command::new("sh").args(["-c", script]).arg(program).arg(inner).env(FEW_DESCRIPTORS, "1").output();
    let output = output.unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("all were served"), "{said}\n{output:?}");
}

#[tokio::test]
async fn descriptors() {
    if std::env::var_os(FEW_DESCRIPTORS).is_none() {
        return;
    }
    let mut usage = File::open("/proc/self/stat").ok();
    // They connect while nobody accepts; then every descriptor is used up.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut clients = Vec::new();
    for _ in 0..5 {
        clients.push(TcpStream::connect(listener.local_addr().unwrap()).await.unwrap());
    }
    let mut files: Vec<File> = std::iter::repeat_with(|| File::open("/dev/null")).map_while(Result::ok).collect();
    assert!((10..64).contains(&files.len()), "{}", files.len());
    // One is left: the first is served, the second is not.
    files.pop();
    let served = listen(listener, 100);
    assert_eq!(heard(&mut clients[0], 3).await, "hi\n");
    let begun = std::time::Instant::now();
    let used = cpu_time(&mut usage);
    let silence = tokio::time::timeout(Duration::from_millis(700), clients[1].read_u8()).await;
    assert!(silence.is_err(), "{silence:?}");
    let used = cpu_time(&mut usage) - used;
    assert!(used < begun.elapsed() / 4, "it span: {used:?}");
    drop(files);
    for client in &mut clients[1..] {
        assert_eq!(heard(client, 3).await, "hi\n");
    }
    served.token.cancel();
    served.accepting.await.unwrap();
    println!("all were served");
}

/// What this process has used: ticks of 10 ms, user and system (proc(5)). Zero where there is no /proc.
fn cpu_time(usage: &mut Option<File>) -> Duration {
    let Some(file) = usage else { return Duration::ZERO };
    let mut stat = String::new();
    file.rewind().unwrap();
    file.read_to_string(&mut stat).unwrap();
    let after_name = stat.rsplit(") ").next().unwrap_or_default();
    let ticks: u64 = after_name.split(' ').skip(11).take(2).filter_map(|ticks| ticks.parse::<u64>().ok()).sum();
    Duration::from_millis(ticks * 10)
}
